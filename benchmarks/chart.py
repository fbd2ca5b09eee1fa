"""One picture of a run: how many times as long as ours each library takes, as SVG text.

A row per workload and operation, a mark per library, on a logarithmic axis with ours at 1. Marks
differ in shape as well as colour.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.operations import OPERATIONS
from benchmarks.record import Run

OURS = "ours"

WIDTH = 960
LEFT, RIGHT = 262, 86  # room for what was done, and for our time
TOP, BOTTOM = 66, 34
ROW, HEADING = 19, 27
RADIUS = 4.6

# Colours that people of any colour vision can tell apart, on white.
_MARKS = {
    "ours-unchecked": ("ring", "#444444"),
    "safetensors": ("circle", "#0072B2"),
    "ztensor-1": ("square", "#D55E00"),
    "ztensor-2": ("diamond", "#B8860B"),
    "npz": ("up", "#009E73"),
    "h5py": ("down", "#AA4499"),
    "gguf": ("plus", "#3399CC"),
    "torch": ("cross", "#000000"),
    "ours-torch": ("ring", "#AA4499"),
    "safetensors-torch": ("cross", "#0072B2"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture.

    Attributes:
        workload: its name.
        operation: its name.
        ours: our median, in seconds.
        times: peer to the multiple of our time it takes.
    """

    workload: str
    operation: str
    ours: float
    times: dict[str, float]


def rows(run: Run) -> list[Row]:
    """Return what there is to draw: where we and somebody else were measured."""
    found = []
    for workload, operation in itertools.product(run.workloads, OPERATIONS):
        ours = run.samples.figures(workload, operation, OURS)
        times = {}
        for peer in run.titles:
            ratio = run.samples.ratio(workload, operation, peer, OURS)
            if peer != OURS and ratio is not None:
                times[peer] = ratio.median
        if ours is not None and times:
            found.append(Row(workload, operation, ours.median, times))
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis.

    Attributes:
        low: the multiple at its left end.
        high: that at its right end.
    """

    low: float
    high: float

    @classmethod
    def holding(cls, values: Sequence[float]) -> Axis:
        """Return an axis with room for all values and for 1."""
        return cls(min([*values, 1.0]) * 0.8, max([*values, 1.0]) * 1.25)

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return LEFT + (WIDTH - LEFT - RIGHT) * part

    def ticks(self) -> list[float]:
        """Return round numbers: 1, 2, 5 times powers of ten, or fewer where that is crowded."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            found = [tick for tick in every if self.low <= tick <= self.high]
            if len(found) <= 10:
                break
        return found


def draw(run: Run) -> str:
    """Return the picture."""
    drawn = rows(run)
    axis = Axis.holding([value for row in drawn for value in row.times.values()])
    groups = [(name, list(group)) for name, group in itertools.groupby(drawn, lambda r: r.workload)]
    height = TOP + len(groups) * HEADING + len(drawn) * ROW + BOTTOM
    shown = {peer for row in drawn for peer in row.times}
    names = [peer for peer in run.titles if peer in shown]
    below: list[str] = []  # lines, which marks and text lie on
    above: list[str] = []
    y = float(TOP)
    for workload, group in groups:
        y += HEADING
        title = f"{workload}: {run.workloads[workload]['title']}"
        above.append(_text(12, y - 7, title, 'font-weight="bold"', halo=True))
        for row in group:
            middle = y + ROW / 2
            below.append(_line(LEFT, middle, WIDTH - RIGHT, middle, "#eeeeee"))
            label = OPERATIONS[row.operation].title
            above.append(_text(LEFT - 10, middle + 4, label, 'text-anchor="end"'))
            above.append(_text(WIDTH - 12, middle + 4, _time(row.ours), 'text-anchor="end"'))
            above += [
                mark(peer, axis.place(row.times[peer]), middle)
                for peer in names
                if peer in row.times
            ]
            y += ROW
    below += _scale(axis, height)
    frame = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" '
        'fill="#222222">',
        "<title>How many times as long as ours each library takes</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(12, 20, "Time of each library as a multiple of ours", 'font-size="15"'),
        _text(WIDTH - 12, 20, f"{run.mode} run, {run.date}", 'text-anchor="end" fill="#555555"'),
        *_legend(run, names),
        _text(WIDTH - 12, TOP - 4, "ours", 'text-anchor="end" fill="#555555"'),
    ]
    return "\n".join([*frame, *below, *above, "</svg>"]) + "\n"


def _scale(axis: Axis, height: int) -> Iterator[str]:
    """Yield the axis' lines with their numbers, and which side is which."""
    bottom = height - BOTTOM + 6
    for tick in axis.ticks():
        x = axis.place(tick)
        yield _line(x, TOP, x, bottom, "#222222" if tick == 1 else "#dddddd")
        yield _text(x, bottom + 16, f"{tick:g}x", 'text-anchor="middle"')
    x = axis.place(1.0)
    yield _text(x - 8, TOP - 4, "faster than ours", 'text-anchor="end" fill="#555555"')
    yield _text(x + 8, TOP - 4, "slower", 'fill="#555555"')


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="1.2"/>'


def _legend(run: Run, names: Sequence[str]) -> Iterator[str]:
    x = 18.0
    for name in names:
        yield mark(name, x, 41)
        yield _text(x + 11, 45, run.titles[name])
        x += 34 + 6.6 * len(run.titles[name])


def mark(peer: str, x: float, y: float) -> str:
    """Return a peer's mark, centred at a point."""
    shape, colour = _MARKS.get(peer, ("circle", "#777777"))
    r = RADIUS
    if shape in {"circle", "ring"}:
        fill = "#ffffff" if shape == "ring" else colour
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r - 0.4:.1f}" fill="{fill}" '
            f'stroke="{colour}" stroke-width="1.6"/>'
        )
    corners = {
        "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
        "diamond": [(0, -1.3 * r), (1.3 * r, 0), (0, 1.3 * r), (-1.3 * r, 0)],
        "up": [(0, -1.2 * r), (1.15 * r, r), (-1.15 * r, r)],
        "down": [(0, 1.2 * r), (1.15 * r, -r), (-1.15 * r, -r)],
    }
    if shape in corners:
        points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners[shape])
        return f'<polygon points="{points}" fill="{colour}" stroke="#ffffff" stroke-width="0.6"/>'
    ends = [(r, 0), (0, r)] if shape == "plus" else [(r, r), (r, -r)]
    path = "".join(f"M{x - dx:.1f} {y - dy:.1f}L{x + dx:.1f} {y + dy:.1f}" for dx, dy in ends)
    return f'<path d="{path}" stroke="{colour}" stroke-width="2.4" fill="none"/>'


def _text(x: float, y: float, text: str, style: str = "", *, halo: bool = False) -> str:
    if halo:  # lines behind it must not run through it
        style += ' paint-order="stroke" stroke="#ffffff" stroke-width="4"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s"
