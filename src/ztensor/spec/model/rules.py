"""The rules every version shares, and the one error that carries all problems of a manifest.

Each returns problems as values; the caller decides whether to raise them. Sections are quoted
from 1.2; 0.1 section 3.2 and 1.1 part I and IV say the same.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ztensor.errors import ManifestError, Problem, Reason
from ztensor.showing import counted

if TYPE_CHECKING:
    import numpy as np

    from ztensor.spec.model.manifest import Component

    Ints = np.ndarray[Any, np.dtype[np.int64]]

ALIGNMENT = 64
# So many are kept; a file that breaks more rules is not looked at further. To tell of each of a
# million would take far longer, and far more memory, than the file.
MOST_PROBLEMS = 256


class Form(NamedTuple):
    """What the blobs of a container are like: all that writing them turns on.

    Attributes:
        alignment: blobs begin at multiples of it, where the caller names no other.
        alignments: those a caller may name.
        checksums: the digests it is written with, the default first; none for those of 1.x, of
            which there may be more than ours.
        encodings: what an encoding is called here that another container calls otherwise.
        indices: types of indices; of several all components of an object have one.
        is_exact: as in 2.x: digests cover decoded bytes, bools are 0 or 1, sparse entries are
            there once, blobs are equal or disjoint, and encoded frames are of one size.
    """

    alignment: int = ALIGNMENT
    alignments: tuple[int, ...] = (ALIGNMENT,)
    checksums: tuple[str, ...] = ()
    encodings: Mapping[str, str] = {"zt.zstd-seekable/1": "zstd"}
    indices: tuple[str, ...] = ("u64",)
    is_exact: bool = False


FORM_1 = Form()


_Offset = TypeVar("_Offset", "int", "Ints")


def align(offset: _Offset, alignment: int = ALIGNMENT) -> _Offset:
    """Return the first multiple of an alignment at or after `offset` (1.2 section 4, Alignment)."""
    return -(-offset // alignment) * alignment


def alignment_of(offsets: Iterable[int], known: Sequence[int]) -> int:
    """Return the largest of some alignments that all offsets are multiples of, else the least."""
    common = functools.reduce(operator.or_, offsets, 0)
    return max((one for one in known if common % one == 0), default=min(known))


def check_place(component: Component, blobs_end: int) -> list[Problem]:
    """Return what is wrong with where a component lies.

    A blob starts at a multiple of 64, behind the header and ends before the manifest. The texts
    say only `offset + length <= file size`; their diagrams place every blob between header and
    manifest, and a blob over either would alias structure.

    Args:
        component: offset and length are used; both are non-negative.
        blobs_end: offset of the manifest.
    """
    end = component.offset + component.length
    if component.offset % ALIGNMENT == 0 < component.offset and end <= blobs_end:
        return []
    problems = []

    def wrong(reason: Reason, message: str, section: str) -> None:
        problems.append(Problem(reason, message, ("offset",), f"1.2 section {section}"))

    if component.offset % ALIGNMENT:
        message = f"expected a multiple of {ALIGNMENT}, found {component.offset}"
        wrong(Reason.OFFSET_ALIGNMENT, message, "4, Alignment and padding")
    elif component.offset < ALIGNMENT:
        message = f"expected an offset behind the header magic, found {component.offset}"
        wrong(Reason.OUT_OF_BOUNDS, message, "4, File structure")
    if end > blobs_end:
        message = (
            f"expected the blob to end before the manifest at {blobs_end}, found it at "
            f"[{component.offset}, {end})"
        )
        wrong(Reason.OUT_OF_BOUNDS, message, "5, Bounds checking")
    return problems


def manifest_error(problems: Sequence[Problem]) -> ManifestError:
    """Return the one error that carries all of `problems`; its place is the first one's."""
    first = problems[0]
    more = f"; and {counted(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
    if len(problems) >= MOST_PROBLEMS:
        more += ", or others behind them"
    return ManifestError(
        f"the manifest breaks a rule: {first}{more}",
        reason=first.reason,
        object_name=first.object_name,
        component=first.component,
        problems=problems,
    )
