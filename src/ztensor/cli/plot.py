"""`ztensor plot`: histograms of objects in the terminal, or as a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.bars import blocks_for, text_axis, text_bars
from ztensor.cli.changing import require_apart, require_free, require_suffix
from ztensor.cli.choosing import chosen
from ztensor.cli.options import CHOICE, DRY_RUN, FILE, FORCE, GLOBS, Option, number
from ztensor.cli.spelling import count_text, shape_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import without_secrets
from ztensor.insight.analysis.plotting import picture_of, require_matplotlib

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    _Found = Mapping[str, ztensor.insight.TensorStats]

OPTIONS = (
    FILE,
    GLOBS,
    *CHOICE,
    Option("--output", "-o", metavar="PICTURE", help="Write an .svg or .png file instead."),
    Option(
        "--height",
        metavar="N",
        type=number(1, 100),
        help="Lines per histogram; by default 6 for up to four objects, else 1.",
    ),
    Option(
        "--log",
        is_flag=True,
        help="Use a logarithmic scale: bins of magnitudes, of equal ratio.",
    ),
    Option(
        "--log-counts",
        is_flag=True,
        help="Draw heights as the logarithm of counts, so that tails can be seen.",
    ),
    FORCE,
    DRY_RUN,
)

_FEW = 4  # objects that are drawn large by default
_LARGE = 6  # lines
_SMALL_WIDTH = 32


def plot(terminal: Terminal, options: Namespace) -> None:
    """Draw histograms in the terminal, or as SVG or PNG.

    NaN and infinities are left out and counted.

    Output:
      Histograms as wide as the terminal, of block characters or, if the terminal
      has none, of `.:#`. With more than four objects, or with --height 1, each
      takes one line. With -o all histograms become one picture, which also shows
      shape, type, mean and deviation of each and, in red, the number of values
      that are not finite. An SVG has no background, so it suits white and black
      pages. Pictures need matplotlib (`pip install matplotlib`).

    JSON:
      file, output    the arguments
      dry_run         whether nothing was written
      objects         a list of name, count, nans, infs, scale, edges, counts,
                      note; null if there is nothing to draw

    Safety:
      It never changes a model file, and replaces no picture without --force.

    Exit code:
      0 if everything was drawn, 2 if a pattern matches nothing or the picture
      exists.

    Examples:
      $ ztensor plot triangle.npz sum
        one object, large
      $ ztensor plot triangle.npz --height 1
        each on its own line
      $ ztensor plot triangle.npz --log-counts -o triangle.svg
        a picture of all, with visible tails
    """
    file, output = options.file, options.output
    if output is not None:
        require_suffix(output, ".svg", ".png")
        require_free(output, force=options.force)
        require_matplotlib()
    with open_file(file) as reader:
        if output is not None:
            require_apart(output, reader)
        options.include = [*options.globs, *options.include]
        names = chosen([reader], options)
        height = options.height or (_LARGE if len(names) <= _FEW else 1)
        histograms = _histograms(terminal, reader, names, height, options)
    if output is not None:
        _draw(terminal, histograms, options)
    elif terminal.wants_text:
        (_show_large if height > 1 else _show_small)(terminal, histograms, height, options)
    terminal.result(
        {
            "file": file,
            "output": output,
            "dry_run": options.dry_run,
            "objects": [_as_json(stats) for stats in histograms.values()],
        }
    )


def _histograms(
    terminal: Terminal, reader: ztensor.Reader, names: list[str], height: int, options: Namespace
) -> _Found:
    keywords: dict[str, Any] = {}
    if options.output is None and not terminal.wants_json:
        keywords["bins"] = terminal.width if height > 1 else _SMALL_WIDTH
    with terminal.progress(os.path.basename(options.file)) as progress:
        return ztensor.stats(
            reader,
            names,
            scale="log" if options.log else "linear",
            quantiles=(),
            progress=progress,
            **keywords,
        )


def _draw(terminal: Terminal, found: _Found, options: Namespace) -> None:
    """Write the histograms as a picture."""
    title = os.path.basename(without_secrets(options.file))
    picture = picture_of(found.values(), log_counts=options.log_counts, title=title)
    histograms = count_text(len(found), "histogram")
    if options.dry_run:
        terminal.line(f"{options.output}: not written; it would show {histograms}")
    else:
        picture.save(options.output)
        terminal.line(f"{options.output}: {histograms} drawn")


def _show_large(
    terminal: Terminal,
    histograms: _Found,
    height: int,
    options: Namespace,
) -> None:
    for place, stats in enumerate(histograms.values()):
        if place:
            terminal.line()
        kind = f"{shape_text(stats.shape)} {stats.dtype or 'unknown'}"
        terminal.line(f"{stats.name}  {kind}")
        if stats.histogram is None:
            terminal.line(_why(stats))
            continue
        counts, blocks = stats.histogram.counts, blocks_for(height)
        for line in text_bars(counts, height, blocks=blocks, log_counts=options.log_counts):
            terminal.line(line)
        edges = stats.histogram.edges
        is_linear = stats.histogram.scale == "linear"
        terminal.line(text_axis(edges[0], edges[-1], len(edges) - 1, has_zero=is_linear))
        facts = [count_text(stats.count, "value"), f"mean {stats.mean:.4g}", f"std {stats.std:.4g}"]
        facts += _alarms(stats)
        terminal.line(", ".join(facts))


def _show_small(
    terminal: Terminal,
    histograms: _Found,
    height: int,
    options: Namespace,
) -> None:
    columns = (Column("name"), Column("min", numeric=True), Column("histogram"), Column("max"))
    rows: list[Sequence[str]] = []
    for stats in histograms.values():
        if stats.histogram is None:
            rows.append((stats.name, "-", _why(stats), "-"))
            continue
        counts, edges = stats.histogram.counts, stats.histogram.edges
        bars = text_bars(counts, height, blocks=blocks_for(height), log_counts=options.log_counts)
        after = ", ".join([f"{edges[-1]:.4g}", *_alarms(stats)])
        rows.append((stats.name, f"{edges[0]:.4g}", bars[0], after))
    terminal.table(columns, rows)


def _why(stats: ztensor.insight.TensorStats) -> str:
    alarms = ", ".join(_alarms(stats))
    return stats.note or (f"no finite values: {alarms}" if alarms else "nothing to draw")


def _alarms(stats: ztensor.insight.TensorStats) -> list[str]:
    return [f"{n:,} {word}" for n, word in ((stats.nans, "NaN"), (stats.infs, "inf")) if n]


def _as_json(stats: ztensor.insight.TensorStats) -> dict[str, object]:
    histogram = stats.histogram
    return {
        "name": stats.name,
        "count": stats.count,
        "nans": stats.nans,
        "infs": stats.infs,
        "scale": None if histogram is None else histogram.scale,
        "edges": None if histogram is None else histogram.edges,
        "counts": None if histogram is None else histogram.counts,
        "note": stats.note,
    }
