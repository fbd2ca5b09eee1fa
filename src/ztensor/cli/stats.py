"""`ztensor stats`: statistics of values, and a check for NaN and infinity."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli import jobs
from ztensor.cli.choosing import chosen
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, FILE, GLOBS, JOBS, Option, patterns
from ztensor.cli.spelling import as_json, count_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json, in_order, matched, open_file
from ztensor.errors import ArgumentValueError, ZTensorError, describe

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


OPTIONS = (
    FILE,
    GLOBS,
    *CHOICE,
    Option(
        "--quantiles",
        metavar="Q,Q,...",
        help="Show these quantiles, from 0 to 1, instead of mean and deviation.",
    ),
    Option(
        "--check",
        is_flag=True,
        help="Exit with 1 if a value is NaN or infinite, and name the objects.",
    ),
    *JOBS,
)


def stats(terminal: Terminal, options: Namespace) -> None:
    """Show statistics of the values, and find NaN and infinity.

    Everything is read once and checked against its digest. It is read in blocks, so an object may
    be larger than memory. The zeros that a sparse object does not store count, too. A quantized
    object is dequantized. Objects of an unknown type or layout are listed without statistics.

    Quantiles are interpolated as in NumPy. They are exact for types of up to 16 bits, for up to
    65,536 elements, and for small integers; otherwise the error is at most 0.2 % (0.4 % for float64
    and complex128).

    FILE may be a pattern, such as 'run/*.zt' in quotes: then there is a table for each file that
    matches.

    Output:
      One line for each object: count; smallest, largest, mean and standard
      deviation (of the population) of the finite values; number of zeros, NaNs
      and infinities. The last line is for all values together. Complex numbers
      count by their magnitude. --quantiles replaces mean and deviation.

    JSON:
      file            the argument
      objects, total  a list, and one entry for all: name, shape, dtype, of
                      (`values`, `magnitudes`, `dequantized values`), count,
                      zeros, nans, infs, min, max, mean, std, quantiles (pairs of
                      share and value), quantile_error (0 where exact), histogram
                      (edges, one more than counts, and scale), note (why there
                      is nothing), negative_infs, at_limit (how many have the
                      largest magnitude of a type of 8 bits), rms, crest (largest
                      magnitude over RMS), kurtosis
      files           of a pattern instead: a list of file, objects, total, or of
                      file, error

    Safety:
      It never changes a file.

    Exit code:
      0 if everything could be read; 1 with --check if a value is NaN or infinite;
      2 if a pattern matches nothing.

    Examples:
      $ ztensor stats tiny.npz
        all objects
      $ ztensor stats model.zt 'layers.0.*' --quantiles 0.01,0.5,0.99
        the middle and the tails of some
      $ ztensor stats broken.npz --check
        which objects are not finite; exits with 1
    """
    shown = () if options.quantiles is None else _shares(options.quantiles)
    keywords: dict[str, Any] = {} if options.quantiles is None else {"quantiles": shown}
    options.include = [*options.globs, *options.include]
    file = options.file
    files = matched([file])
    if files == [file]:
        with open_file(file) as reader, terminal.progress(os.path.basename(file)) as progress:
            names = chosen([reader], options)
            report = ztensor.stats(reader, names, progress=progress, **keywords)
        terminal.result(_report(terminal, file, report, shown, check=options.check))
        return
    keywords |= patterns(options)
    with jobs.executing(options, files) as workers, terminal.progress("files") as progress:
        results = []
        for source, result in ztensor.fleet.stats_files(
            files, **workers, **keywords, progress=progress
        ):
            terminal.line(f"{source}:")
            results.append(
                (source, _report(terminal, str(source), result, shown, check=options.check))
            )
    terminal.result({"files": in_order(files, results)})


def _report(
    terminal: Terminal,
    file: str,
    report: ztensor.insight.StatsReport | ZTensorError,
    shares: Sequence[float],
    *,
    check: bool,
) -> dict[str, Any]:
    """Print the statistics of a file, and return them as JSON."""
    if isinstance(report, ZTensorError):
        terminal.error(report)
        return {"file": file, "error": error_as_json(report)}
    total = ztensor.insight.TensorStats.total(report.values())
    _show(terminal, [*report.values(), total], shares)
    bad = [
        tensor_stats for tensor_stats in report.values() if tensor_stats.nans or tensor_stats.infs
    ]
    if check and bad:
        terminal.fail(ExitCode.FAILED)
        for tensor_stats in bad:
            facts = f"{tensor_stats.nans:,} NaN, {tensor_stats.infs:,} infinite"
            terminal.problem(f"not finite '{tensor_stats.name}': {facts}")
    return {
        "file": file,
        "objects": [_as_json(tensor_stats) for tensor_stats in report.values()],
        "total": _as_json(total),
    }


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ArgumentValueError(
            "--quantiles takes numbers from 0 to 1",
            expected="numbers such as 0.01,0.5,0.99",
            found=describe(text),
        ) from None


def _show(
    terminal: Terminal, several: Sequence[ztensor.insight.TensorStats], shares: Sequence[float]
) -> None:
    columns = [Column("name"), Column("type", optional=True), Column("count", numeric=True)]
    middle = [f"{share * 100:g}%" for share in shares] or ["mean", "std"]
    first, last = (["min"], ["max"]) if shares else (["min", "max"], [])
    columns += [Column(title, numeric=True) for title in (*first, *middle, *last)]
    columns += [Column(word, numeric=True, optional=True) for word in ("zeros", "NaN", "inf")]
    rows = []
    for one in several:
        values: list[Any] = [one.min, *(one.quantiles.get(share) for share in shares), one.max]
        if not shares:
            values += [one.mean, one.std]
        counts = [count_in(terminal, n) for n in (one.count, one.zeros, one.nans, one.infs)]
        cells = [number_in(terminal, value) for value in values]
        rows.append([one.name, _kind(one), counts[0], *cells, *counts[1:]])
    kinds = {row[1] for row in rows[:-1]}
    rows[-1][1] = kinds.pop() if len(kinds) == 1 else "-"
    alike = terminal.table(columns, rows)
    if terminal.interactive:
        total = count_text(len(several) - 1, "object")
        facts = ", ".join([total, *(f"{title} {cell}" for title, cell in alike)])
        terminal.line(facts)
    for one in several:
        if one.note is not None:
            terminal.line(f"'{one.name}' was left out: {one.note}")


def _kind(tensor_stats: ztensor.insight.TensorStats) -> str:
    return "dequantized" if tensor_stats.of == "dequantized values" else tensor_stats.dtype or "-"


def count_in(terminal: Terminal, count: int) -> str:
    """Return a count: with commas on a terminal, else plain."""
    return f"{count:,}" if terminal.interactive else str(count)


def number_in(terminal: Terminal, value: float | None) -> str:
    """Return a number: three digits on a terminal, else all; `-` for None."""
    if value is None:
        return "-"
    if not terminal.interactive:
        return repr(value)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _as_json(tensor_stats: ztensor.insight.TensorStats) -> dict[str, Any]:
    fields = {
        field.name: getattr(tensor_stats, field.name) for field in dataclasses.fields(tensor_stats)
    }
    del fields["channels"], fields["sampled"], fields["middle"]  # not computed here
    fields |= {"rms": tensor_stats.rms, "crest": tensor_stats.crest}
    fields["quantiles"] = [[share, value] for share, value in tensor_stats.quantiles.items()]
    if tensor_stats.histogram is not None:
        fields["histogram"] = {
            "edges": tensor_stats.histogram.edges,
            "counts": tensor_stats.histogram.counts,
            "scale": tensor_stats.histogram.scale,
        }
    plain: dict[str, Any] = as_json(fields)
    return plain
