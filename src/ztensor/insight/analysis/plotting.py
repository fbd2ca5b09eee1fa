"""Histograms of objects as pictures: SVG written here, PNG drawn by Pillow.

A picture is a list of areas, lines and texts; each kind of file draws the same list. Colours are
of middle brightness, so that an SVG, which has no background, reads on white and on black.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape

from ztensor.errors import ArgumentValueError, MissingDependencyError, describe
from ztensor.ext import FileSink, path_text
from ztensor.insight.analysis.spreads import Scale
from ztensor.insight.analysis.statistics import BINS, TensorStats, stats
from ztensor.insight.text import short_repr
from ztensor.typing import Readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ztensor.insight.analysis.streaming import Progress

    Anchor = Literal["start", "middle", "end"]

_COLUMNS = 3
_WIDTH, _HEIGHT = 328, 150  # of a panel with the space to the next
_MARGIN, _SPACE = 12, 20
_TOP, _BARS = 40, 72  # where bars begin below a panel's top, and how high they are
_LOWEST = 2  # a bar of few values: an outlier is seen, however many the others are
_HEADING = 30
_NAME_SIZES = (12, 11, 10)  # of the names over panels: the largest that leaves all of them whole
_BAR, _INK, _FAINT, _ALARM = "#4a90d9", "#808080", "#a0a0a0", "#d9534f"
# How wide letters of a wide font are, as a part of their size: thin ones, others, broad ones.
_THIN, _THIN_LETTERS, _LETTER = 0.45, frozenset(" !'(),.:;I[]fijlrt|"), 0.7
_BROAD, _BROAD_LETTERS = 1.0, frozenset("%@mw…")  # and capitals, and those of eastern scripts
_EAST = "\u2e80"
_SCALE = 2  # pixels of a PNG for each unit
_MOST_PIXELS = 1 << 26


@dataclasses.dataclass(frozen=True, slots=True)
class _Text:
    x: float
    y: float  # of the line letters stand on
    text: str
    size: int = 11
    anchor: Anchor = "start"
    colour: str = _INK
    is_bold: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Area:
    points: Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    x: float
    y: float
    to_x: float
    to_y: float


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """Histograms of several objects, side by side; a notebook shows it as it is.

    Attributes:
        width: in units, which are pixels where it is not scaled.
        height: likewise.
        shapes: what is drawn, in order.
    """

    width: int
    height: int
    shapes: tuple[_Text | _Area | _Line, ...]

    def __repr__(self) -> str:
        """Return its size; a notebook shows it, `save` writes it to a file."""
        return short_repr(
            "insight.Picture", [f"{self.width} x {self.height}"], ".svg(), .save(path)"
        )

    def svg(self) -> str:
        """Return the picture as the text of an SVG file; the same for the same picture."""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="sans-serif">',
            *map(_svg_of, self.shapes),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file on white, two pixels for each unit.

        Raises:
            MissingDependencyError: Pillow is not installed.
            ArgumentValueError: there are too many objects for a picture of pixels.
        """
        try:
            from PIL import Image, ImageDraw
        except ImportError as error:
            raise MissingDependencyError(
                "a PNG needs Pillow: pip install 'pyztensor[plot]'; an SVG needs nothing"
            ) from error
        size = self.width * _SCALE, self.height * _SCALE
        if size[0] * size[1] > _MOST_PIXELS:
            raise ArgumentValueError(
                "too many objects for one PNG; choose fewer, or write an SVG",
                expected=f"at most {_MOST_PIXELS} pixels",
                found=f"{size[0]} x {size[1]}",
            )
        image = Image.new("RGB", size, "white")
        draw = ImageDraw.Draw(image)
        for shape in self.shapes:
            _draw(draw, shape)
        out = io.BytesIO()
        # There are two hundred shades at most, so a palette of 256 keeps each and halves the file.
        image.quantize().save(out, "PNG", optimize=True)
        return out.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, as a whole or not at all.

        Args:
            path: its ending says what it becomes, `.svg` or `.png`.

        Raises:
            ArgumentValueError: it has another ending.
            MissingDependencyError: a PNG is wanted, and Pillow is not installed.
            SourceError: it cannot be written.
        """
        target = path_text(path)
        require_picture(target)
        is_svg = target.lower().endswith(".svg")
        data = self.svg().encode() if is_svg else self.png()
        sink = FileSink(target, durable=False)
        try:
            sink.write(data)
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def _repr_svg_(self) -> str:
        return self.svg()


def require_picture(path: str) -> None:
    """Raise unless a file's name ends as those of pictures do.

    Raises:
        ArgumentValueError: it does not.
    """
    if not path.lower().endswith((".svg", ".png")):
        raise ArgumentValueError(
            "no picture format has this suffix",
            expected=".svg or .png",
            found=describe(path),
        )


def plot(
    source: Readable,
    names: str | Iterable[str] | None = None,
    *,
    bins: int = BINS,
    scale: Scale = "linear",
    log_counts: bool = False,
    title: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Picture:
    """Draw a histogram of each object; `.save("model.svg")` or `.png` writes it to a file.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        names: the objects, one name or several; all by default.
        bins: how many bars each has.
        scale: `log` for bins of magnitudes, by their ratios; see `Histogram`.
        log_counts: heights grow with the logarithm of counts, which shows tails.
        title: a heading over all.
        threads: as `ztensor.stats` takes it.
        progress: likewise.

    Raises:
        ZTensorError: what `ztensor.stats` raises.
    """
    found = stats(
        source, names, bins=bins, scale=scale, quantiles=(), threads=threads, progress=progress
    )
    return picture_of(found.values(), log_counts=log_counts, title=title)


def picture_of(
    several: Iterable[TensorStats], *, log_counts: bool = False, title: str | None = None
) -> Picture:
    """Draw the histograms of statistics that were taken before; see `plot`."""
    several = list(several)
    columns = max(min(_COLUMNS, len(several)), 1)
    width = columns * _WIDTH - _SPACE + 2 * _MARGIN
    top: int = _MARGIN
    names = [_escaped(one.name) for one in several]
    longest = max(map(_width_of, names), default=0.0)
    size = next((n for n in _NAME_SIZES if longest * n <= _WIDTH - _SPACE), _NAME_SIZES[-1])
    shapes: list[_Text | _Area | _Line] = []
    if title is not None:
        heading = _shortened(_escaped(title), width - 2 * _MARGIN, 14)
        shapes.append(_Text(_MARGIN, top + 12, heading, 14, is_bold=True))
        top += _HEADING
    for number, (name, one) in enumerate(zip(names, several, strict=True)):
        row, column = divmod(number, columns)
        left, upper = _MARGIN + column * _WIDTH, top + row * _HEIGHT
        shapes += _panel(one, name, size, left, upper, log_counts=log_counts)
    return Picture(width, top + -(-len(several) // columns) * _HEIGHT, tuple(shapes))


def _panel(
    one: TensorStats, name: str, name_size: int, left: float, top: float, *, log_counts: bool
) -> Iterator[_Text | _Area | _Line]:
    width = _WIDTH - _SPACE
    right, bottom = left + width, top + _TOP + _BARS
    alarm = ", ".join(f"{n:,} {word}" for n, word in ((one.nans, "NaN"), (one.infs, "inf")) if n)
    facts = "" if one.mean is None or one.std is None else f"{one.mean:.3g} ± {one.std:.3g}"
    kind = f"[{', '.join(map(str, one.shape[:6]))}] {one.dtype or 'unknown'}"
    for line, size, text, beside in ((12, name_size, name, alarm), (27, 10, kind, facts)):
        taken = _width_of(f"  {beside}") * size if beside else 0.0
        shown = _shortened(text, width - taken, size)
        is_title = text is name
        colour = _INK if is_title else _FAINT
        yield _Text(left, top + line, shown, size, colour=colour, is_bold=is_title)
        if beside:
            yield _Text(right, top + line, beside, size, "end", _ALARM if is_title else _FAINT)
    axis = _Line(left, bottom, right, bottom)
    histogram = one.histogram
    if histogram is None:
        yield axis
        why = _escaped(one.note or ("no finite values" if one.count else "no values"))
        yield _Text(left + width / 2, bottom - _BARS / 2, _shortened(why, width, 10), 10, "middle")
        return
    low, high = histogram.edges[0], histogram.edges[-1]
    heights = _heights(histogram.counts, log_counts=log_counts)
    if low == high:  # a bar of usual width in the middle
        around = [0.0] * (BINS // 2)
        heights = [*around, *heights, *around]
    step = width / len(heights)
    points: list[tuple[float, float]] = [(left, bottom)]
    for number, height in enumerate(heights):
        y = bottom - (max(height * _BARS, _LOWEST) if height else 0)
        points += [(left + number * step, y), (left + (number + 1) * step, y)]
    yield _Area([*points, (right, bottom)])
    yield axis
    if low == high:
        yield _Text(left + width / 2, bottom + 13, f"{low:.4g}", 10, "middle")
        return
    yield _Text(left, bottom + 13, f"{low:.3g}", 10)
    yield _Text(right, bottom + 13, f"{high:.3g}", 10, "end")
    zero = -low / (high - low) if histogram.scale == "linear" else 0.0
    if 0.25 < zero < 0.75:  # else it would touch the numbers at the ends
        x = left + zero * width
        yield _Line(x, bottom, x, bottom + 4)
        yield _Text(x, bottom + 13, "0", 10, "middle")


def _heights(counts: Sequence[int], *, log_counts: bool) -> list[float]:
    """Return how high bars are, the highest 1."""
    values = [math.log1p(count) if log_counts else float(count) for count in counts]
    most = max(values)
    return [value / most for value in values]


def _escaped(text: str) -> str:
    """Return a text with an escape for what no letter shows."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _width_of(text: str) -> float:
    """Return about how wide a text is, as a multiple of the size of its letters."""
    return sum(
        _THIN
        if c in _THIN_LETTERS
        else _BROAD
        if c in _BROAD_LETTERS or c.isupper() or c >= _EAST
        else _LETTER
        for c in text
    )


def _shortened(text: str, width: float, size: int) -> str:
    """Return a text that fits, its middle left out."""
    if _width_of(text) * size <= width:
        return text
    room = (width / size - _BROAD) / 2  # for each end, beside the mark of what is left out
    head, tail = _beginning(text, room), _beginning(reversed(text), room)
    return f"{head}…{tail[::-1]}"


def _beginning(text: Iterable[str], room: float) -> str:
    """Return as many letters as have room, one at least."""
    found = ""
    for letter in text:
        room -= _width_of(letter)
        if found and room < 0:
            break
        found += letter
    return found


# --- The same shapes in two kinds of file ---------------------------------------------------


def _svg_of(shape: _Text | _Area | _Line) -> str:
    match shape:
        case _Text():
            style = f'font-size="{shape.size}" fill="{shape.colour}"'
            style += "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            style += ' font-weight="bold"' if shape.is_bold else ""
            return f'<text x="{shape.x:.6g}" y="{shape.y:.6g}" {style}>{escape(shape.text)}</text>'
        case _Line():
            ends = f'x1="{shape.x:.6g}" y1="{shape.y:.6g}" x2="{shape.to_x:.6g}"'
            return f'<line {ends} y2="{shape.to_y:.6g}" stroke="{_FAINT}"/>'
    (x, y), *points = shape.points
    path = [f"M{x:.6g} {y:.6g}"]
    for to_x, to_y in points:  # every step is level or upright
        if to_y != y:
            path.append(f"V{to_y:.6g}")
        if to_x != x:
            path.append(f"H{to_x:.6g}")
        x, y = to_x, to_y
    return f'<path d="{"".join(path)}" fill="{_BAR}"/>'


def _draw(draw: Any, shape: _Text | _Area | _Line) -> None:
    """Draw a shape with Pillow."""
    match shape:
        case _Text():
            from PIL import ImageFont

            font = ImageFont.load_default(shape.size * _SCALE)
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            place = shape.x * _SCALE, shape.y * _SCALE
            width = 1 if shape.is_bold else 0
            draw.text(place, shape.text, shape.colour, font, anchor, stroke_width=width / 2)
        case _Line():
            ends = (shape.x, shape.y, shape.to_x, shape.to_y)
            draw.line([end * _SCALE for end in ends], _FAINT, _SCALE)
        case _Area():
            draw.polygon([(x * _SCALE, y * _SCALE) for x, y in shape.points], _BAR)
