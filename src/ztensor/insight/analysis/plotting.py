"""Histograms of objects as one picture, drawn by matplotlib."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, MissingDependencyError, describe
from ztensor.ext import path_text
from ztensor.insight.analysis.spreads import Histogram, Scale
from ztensor.insight.analysis.statistics import BINS, TensorStats, stats
from ztensor.insight.saving import write_file
from ztensor.insight.text import short_repr
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure


_COLUMNS = 3
_WIDTH, _HEIGHT, _HEADING = 3.4, 1.6, 0.4  # inches of a panel with its margins
_ROOM = 225  # points for a line of text over a panel
_NAME, _SMALLEST = 9.0, 6.0  # font sizes of names: the largest that fits, and the least
_LOWEST = 1 / 40  # least height of a bar, so that outliers are visible
_MOST_ROWS = 400  # most rows of a PNG: matplotlib draws at most 65,535 pixels in a direction
# Medium brightness: an SVG has no background and must be legible on white and black.
_BAR, _INK, _ALARM = "#4a90d9", "#808080", "#d9534f"
# Text of an SVG stays text, names are not formulas, equal tensors give equal bytes.
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ztensor",
    "text.parse_math": False,
}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """Histograms of several objects in one picture, which a notebook shows.

    Attributes:
        figure: the `matplotlib.figure.Figure`, to change or to draw in another format.
        rows: the number of rows of histograms.
    """

    figure: Figure
    rows: int

    def __repr__(self) -> str:
        """Return its size; a notebook shows it, `save` writes it to a file."""
        return short_repr("insight.Picture", [f"{self.rows} rows"], ".svg(), .save(path)")

    def svg(self) -> str:
        """Return the picture as the text of an SVG file; the same for the same tensors."""
        return self._drawn("svg", metadata={"Date": None, "Creator": None}).decode()

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file on white.

        Raises:
            ArgumentValueError: too many objects for a picture of pixels.
        """
        if self.rows > _MOST_ROWS:
            raise ArgumentValueError(
                "too many objects for one PNG; choose fewer, or write an SVG",
                expected=f"at most {_MOST_ROWS} rows of {_COLUMNS}",
                found=str(self.rows),
            )
        return self._drawn("png", facecolor="white")

    def _drawn(self, kind: str, **how: Any) -> bytes:
        from matplotlib import rc_context

        out = io.BytesIO()
        with rc_context(_SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a name in letters that the font lacks
            self.figure.savefig(out, format=kind, **how)
        return out.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file atomically.

        Args:
            path: a name that ends with `.svg` or `.png`, which selects the format.

        Raises:
            ArgumentValueError: the name ends otherwise.
            SourceError: the file cannot be written.
        """
        target = path_text(path)
        if not target.lower().endswith((".svg", ".png")):
            raise ArgumentValueError(
                "unknown format of a picture",
                expected="a name that ends with .svg or .png",
                found=describe(target),
            )
        data = self.svg().encode() if target.lower().endswith(".svg") else self.png()
        write_file(target, data)

    def _repr_svg_(self) -> str:
        return self.svg()


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
        bins: the number of bars of each.
        scale: `log` for bins of magnitudes, by their ratios; see `Histogram`.
        log_counts: heights grow with the logarithm of counts, which shows tails.
        title: a heading of the picture.
        threads: as `ztensor.stats` takes it.
        progress: likewise.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        ZTensorError: what `ztensor.stats` raises.
    """
    require_matplotlib()
    report = stats(
        source, names, bins=bins, scale=scale, quantiles=(), threads=threads, progress=progress
    )
    return picture_of(report.values(), log_counts=log_counts, title=title)


def require_matplotlib() -> None:
    """Raise unless pictures can be drawn.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("pictures need matplotlib", install="matplotlib") from error


def picture_of(
    several: Iterable[TensorStats], *, log_counts: bool = False, title: str | None = None
) -> Picture:
    """Draw the histograms of existing statistics; see `plot`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    several = list(several)
    rows = max(-(-len(several) // _COLUMNS), 1)
    columns = max(min(_COLUMNS, len(several)), 1)
    width, height = columns * _WIDTH, rows * _HEIGHT + _HEADING
    with rc_context(_SETTINGS):
        figure = Figure((width, height), facecolor="none")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        figure.subplots_adjust(
            left=0.15 / width,
            right=1 - 0.15 / width,
            bottom=0.3 / height,
            top=1 - (_HEADING + 0.4) / height,
            wspace=0.08,
            hspace=1.0,
        )
        if title is not None:
            place = 0.15 / width, 1 - 0.12 / height
            shown = _fitted(title, columns * _ROOM, 12)
            figure.text(*place, shown, size=12, weight="bold", color=_INK, va="top")
        longest = max(
            (_width_of(tensor_stats.name[:1000], _NAME) for tensor_stats in several), default=0.0
        )
        size = min(max(_NAME * _ROOM / max(longest, 1.0), _SMALLEST), _NAME)
        for panel, tensor_stats in zip(panels, several, strict=False):
            _draw(panel, tensor_stats, size, log_counts=log_counts)
        for panel in panels[len(several) :]:
            panel.set_axis_off()
    return Picture(figure, rows)


def _draw(panel: Any, tensor_stats: TensorStats, name_size: float, *, log_counts: bool) -> None:
    """Draw the histogram of an object below its name, shape and statistics."""
    alarm = ", ".join(
        f"{n:,} {word}" for n, word in ((tensor_stats.nans, "NaN"), (tensor_stats.infs, "inf")) if n
    )
    facts = (
        ""
        if tensor_stats.mean is None or tensor_stats.std is None
        else f"{tensor_stats.mean:.3g} ± {tensor_stats.std:.3g}"
    )
    kind = f"[{', '.join(map(str, tensor_stats.shape[:6]))}] {tensor_stats.dtype or 'unknown'}"
    for y, size, weight, text, beside, colour in (
        (16, name_size, "bold", tensor_stats.name, alarm, _ALARM),
        (4, 8, "normal", kind, facts, _INK),
    ):
        style = {"xycoords": "axes fraction", "textcoords": "offset points", "size": size}
        taken = _width_of(f"  {beside}", size) if beside else 0.0
        shown = _fitted(text, _ROOM - taken, size)
        panel.annotate(shown, (0, 1), (0, y), color=_INK, weight=weight, **style)
        panel.annotate(beside, (1, 1), (0, y), color=colour, ha="right", **style)
    panel.patch.set_visible(False)
    panel.spines[["left", "right", "top"]].set_visible(False)
    panel.spines["bottom"].set_color(_INK)
    panel.tick_params(colors=_INK, labelsize=8)
    panel.set(xticks=[], yticks=[], ylim=(0, 1))
    if tensor_stats.histogram is None:
        why = tensor_stats.note or ("no finite values" if tensor_stats.count else "no values")
        shown = _fitted(why, _ROOM, 8)
        panel.annotate(shown, (0.5, 0.5), xycoords="axes fraction", ha="center", color=_INK, size=8)
        return
    _draw_bars(panel, tensor_stats.histogram, log_counts=log_counts)


def _draw_bars(panel: Any, histogram: Histogram, *, log_counts: bool) -> None:
    counts = [math.log1p(n) if log_counts else float(n) for n in histogram.counts]
    most = max(counts)
    heights = [max(count / most, _LOWEST) if count else 0.0 for count in counts]
    # Bins are drawn by their number, so that huge values need no axis.
    panel.stairs(heights, range(len(heights) + 1), fill=True, color=_BAR)
    low, high = histogram.edges[0], histogram.edges[-1]
    if low == high:  # one bar in the middle
        panel.set_xlim(-BINS / 2, BINS / 2 + 1)
        panel.set_xticks([0.5], [f"{low:.4g}"])
        return
    panel.set_xlim(0, len(heights))
    ticks = {0.0: f"{low:.3g}", float(len(heights)): f"{high:.3g}"}
    zero = -low / (high - low) if histogram.scale == "linear" else 0.0
    if 0.25 < zero < 0.75:  # not too close to the numbers at the ends
        ticks[zero * len(heights)] = "0"
    panel.set_xticks(list(ticks), list(ticks.values()))
    first, last = panel.get_xticklabels()[:2]
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _width_of(text: str, size: float) -> float:
    """Return the width of a text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        properties = FontProperties(size=size, weight="bold")
        width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width)


def _fitted(text: str, room: float, size: float) -> str:
    """Return an escaped text, cut in the middle to fit."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) * size <= room or (width := _width_of(text[:1000], size)) <= room:
        return text[:1000]
    letters = max(int(min(len(text), 1000) * room / width) - 1, 2)
    return f"{text[: letters // 2]}…{text[len(text) - letters // 2 :]}"
