"""The grids of ggml's IQ types: the points that a few neighbours of a tensor are rounded to.

A grid's points have 4 or 8 coordinates, each one of a few values. With the values as digits, the
first coordinate the lowest, a point is a number, and ggml numbers the points of a grid in rising
order. So a grid is said by which numbers are in it: a bit for each there could be, deflated, as
text. `tests/corpus/foreign/make_gguf_grids.py` prints the table and compares it with the points of
the package `gguf`.
"""

from __future__ import annotations

import base64
import functools
import zlib
from typing import NamedTuple

import numpy as np

from ztensor.typing import Array


class Grid(NamedTuple):
    """A set of points.

    Attributes:
        values: possible coordinates, ascending.
        width: coordinates of a point.
        members: which points there are.
    """

    values: tuple[int, ...]
    width: int
    members: bytes


_TWO = (8, 25, 43)

GRIDS: dict[str, Grid] = {
    "iq1_s": Grid(
        (-1, 0, 1),
        8,
        b"c-k#eO>0z16uqyx#k83y_qA0qE*kA7fk#%6iL;cd<W&+S(JE7AEBc6nlGQ*KX*Z#@1057+gows$6w-"
        b"}Cbfte_m;o2UY|_#*VZa~*x^U%6T=`Mm&aUdhx#ygF&eKOplgaU0)cQ?aLaWb`!=%}lC@i-"
        b"gZEZ5CFdhU_><`D{U2pdIZAiiRBZ^Tjpc--1mjt-&r-"
        b"O_l7bZy)3*%3zRUeyRXfJ~s5?<5PM<UK4aB<I3L}>n{hnc{+>K$G67mn>zvR$=UOtZPa7LUsmQWQ2bN)ou!Kj_yf"
        b"b~LQyR=nku)`P+=g=?+GNRyF#AueD^;Yg67k)HG=(os>Uh!rG~(gRxZza2HhyPsM)=qh9|ehXUldkU;_wA!C+2Fv"
        b"`rcq!34!0Fqz%0;&7#XeAmBu`}t6ci#>+3WlSwzITy{$0C$RU8lhlWkibbyz6nxOL=l|4%yAAJ4G^LV^S*V!(*Cw"
        b"dNU%)Qrh$#q9cyW*tq|@QQ}j896#XTv`6q5lhc&*LLPVeEGcad$xT4&D*b^FV9bJ+^}ih*A`2jX2rIue$9q9{)`S"
        b"!jt!g=X1D{vGEMnukjj}Wcvs!oqc~_d61@aP1V3Bvcjc9uWpgt6=l#-;vm1GpU-HX*>(|GJ!F2C{R9{8qA7trFiL"
        b"FJ0VD+S2Ny_0+jiaiUvPbU!Gt<44HyL$nQ%A{iI)xZW(;0iU=zRoe)YSg8LFF!L&Ei&Q)FngSxd==b)ez8IIEAq?"
        b"gCPR1z1`cE#svx$dBcgrdMr~`+vY{G*{j)LdH7J(;|V_S3+rEqj0{aUGZ~5`z3=#nUT2ypkIbf^7Qd%#dKF#22&c"
        b"WI$B=(k{y*i-P-%7a6aqltG8tC11XWn$8wuQe)#`Rb$ezM@h+=MX6ehv4>@KW-1MD8)wE",
    ),
    "iq2_xxs": Grid(
        _TWO,
        8,
        b"c-nPRORj`4470MbdWwiuj~R8vF<3s$DPNNQV8mEdDvh1mfzMz4@MsNM4-"
        b"kL~Dg?0u3Z<Q}s#5&i%a^YL7=qILyw)W4Cso8iRnlpCLd`c4Du;C<RlH?aajd+e<FY7)k8>WSTt@47wX1jPqB41q"
        b"=2e+&9hy;#r#nzQ(d`wV2I-N(E<X_7hks$x7)Do8!;TEvZcdv+$;Bf*s-;99+U-"
        b"&7)=?KnsoS&M%ZZjW8ztGaG<oin^)>q~!#84@<5Q?C;cAe-"
        b"jqH$lW6s<jvF<nQc*Z$~yKl@H%B$)D{-`Y{-_v~Aze0c0{sHUUCpi",
    ),
    "iq2_xs": Grid(
        _TWO,
        8,
        b"c-mc2ORj`4470L|dWwh@;*?QWh*MOoP)|Aew9xme83;|{*iP^L>UVu^J$f&9<)%0;rYcZH@zkTcz*1-"
        b"`0#F4vd)cqIa~EY0S(m36us~sl4e+uqnt+xnD5p1ifdk&k2^cqyDKl&hVwLuN#<u{Y#82-"
        b"D2r2AS*#~B;6>b%zZ?$An2Qav5OyP;?IjC1*OUa>YNXBOJs!l*N%2M9ag1pZ#qbS<pDODX)Ys@FiGwcn?g7z}ZUJ"
        b"85J?WuXe7)kq!xj_MC=sehbo`f6hw91-EjVApg;SBK(#S-"
        b"ctqy5bslAAu_xaBeODLPcR%XL4jpOCvsj1dP@iIwgyVBr<uBI!nKMuUZZ1qQNNP<bV}FGN4KvRv{ky>(2~*Gt;x6"
        b"q$P={6Cb#@3Dfxx_wWh`vWo0U*P",
    ),
    "iq2_s": Grid(
        _TWO,
        8,
        b"c-n1JOKt@r42!agI0c#&;*=39#3>LflvCCTO#7-"
        b"9jpk=;Y=fB%TefG%OIlXuE_Fz<Ougf=%xu>+l3Bq8hyjg~lMrunmZ<Wy`~YGiEi#3On5vBd<vmKZSi%aW(psKWGW"
        b"lAsphF>8rUC+;ZDfa(=s@_F#i0yss$-8fvv#Vf@jNV{kuiVLgA~66J1A2@4RVJKUxH}IH-"
        b"$JpaZ^g})pmKjjd>lmojtPqGOJ!xqXVV(I)s3f1HneH&<4|id_Zsqi~d9|fZw$~1nHWO$bgs-"
        b"@JBFei6qb36Asxo<#s4;BRhd~d<sfnbhG0<$t^)oE$@gK%zO1xyELVB%s1k`FAKZeJ@WjCtPZ6s4%XC=!ChZ<C{I"
        b"5t%jB|RQ$q0^0H^%ZVVCdNfJ9HPfzZdmWSrg_I({bPgptf%^rJMcpz`hTS7u<>s9rVvW-WSa`T|j+oGk",
    ),
    "iq3_xxs": Grid(
        (4, 12, 20, 28, 36, 44, 52, 62),
        4,
        b"c-l=-"
        b"K?=h#3{ye}VW$qZd!FLL9+1HvWO^EVh1sdkoaHp#R7#szmgHo6m{j1}>~2z^o7e*jro|>W6f;suxGq5ThwwrH-td"
        b"y3S=*8VCKknJ;ww~xN=C-"
        b"Lt2kc1f`n?I#<sN&{qc;xi`rsIog^>xCi>0vO72GEj+P?`#G30*;dkafo0(MD70~26E5oy)Fh-PS2J_iYxE!Gh>5"
        b"A3e2Aw8l#Lz*UZ2xyz&!sE!Xy7=t?heopubnm$;UMyR4j1Wf!f;*xLWT6+u!rw*Hy!tqyDZ17JdzPtf@!~_J7yrh"
        b"&WtZi",
    ),
    "iq3_s": Grid(
        (1, 3, 5, 7, 9, 11, 13, 15),
        4,
        b"c-k#dK}rKb5Ud?m7(7iN59ovqtiR~U2pdlmS^v`sIn3TR;sZue5Z@6$Amj-"
        b"`@D=vV+J}a&>aMEU{rNq)_mDQ1)6rXa`g-zl6)-xV9&D<-"
        b"%sLtw(&E+K!8jAZAn=FIh`{BX?s3iZ9eL!0y{saQwa{i<M_rV8i?Gza!ZNf5Tx$=B>&%}&x2aFnb2>I1DZfG3@eJ"
        b"J?w}Hf9jj>U<u}qaX$V(Q{%bJZi0qBwX8+P2=0D&xpG^*kpx3aC_+^woo1gDy;frCMb5s>PfCelExhl@Z5=M_J&l"
        b"ZwQK<TIaOt1Nd_t_Z4Nkqr(Irw~QLK*sjOloy2EUU#sN3YKfvLC9pG+yhGG#kO><KBF1{I~{B$E!8AqIlE}-"
        b"BNQAl`R33C|JNFjj93D(#a!oZudm_a(c~OHe<Yb)Y4R?AVbTWv01QA~hX",
    ),
}


@functools.cache
def points(name: str) -> Array:
    """Return a grid as (points, width) int8, in ggml's order; do not change it."""
    grid = GRIDS[name]
    bits = np.frombuffer(zlib.decompress(base64.b85decode(grid.members)), np.uint8)
    numbers = np.flatnonzero(np.unpackbits(bits))
    powers = len(grid.values) ** np.arange(grid.width)
    digits = numbers[:, None] // powers % len(grid.values)
    found: Array = np.array(grid.values, np.int8)[digits]
    return found


@functools.cache
def words(name: str) -> Array:
    """Return a grid's points as one word each, which is faster to look up than 4 or 8 bytes."""
    grid = points(name)
    found: Array = grid.view(f"u{grid.shape[1]}").reshape(-1)
    return found
