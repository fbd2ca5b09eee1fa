"""`ztensor bench`: how long a file takes to open and to read on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ztensor.cli.options import FileArgument
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ztensor.analysis.timing import Timed, Timing

_COLUMNS = (
    Column("work"),
    Column("by"),
    Column("time", numeric=True),
    Column("rate", numeric=True),
    Column("of cat", numeric=True),
)


def bench(
    terminal: Terminal,
    file: FileArgument,
    *,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="About how long it may take in all.")
    ] = 10.0,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the library that the format belongs to.")
    ] = False,
) -> None:
    """Time how fast a file opens and loads on this machine.

    A file of any known format, or a set of shards. All is done in rounds, one thing after another,
    as often as the time allows; what is shown is the median of the rounds. A file too long for the
    time is timed by its first objects. `cat` is plain reads of as many bytes. The library that the
    format belongs to does the same where it is installed: safetensors, NumPy, PyTorch, h5py, gguf.
    Of ztensor's rows `load owned` and `verify` compare digests, which most libraries do not.

    Output:
      One line for each thing done: what, by whom, how long, bytes in a second in
      powers of 1000, and its time as a multiple of plain reads, cold ones for
      cold work. `sum` adds up every byte of what was mapped. Cold is measured
      only where the system let the file go from its page cache; the last lines
      say whether it did. Nothing else on the machine is asked to let go.

    JSON:
      file, format    texts
      nbytes, object_count
                      of the file, or of all of a set
      timed_nbytes, timed_count
                      of the objects that were loaded and verified
      rounds          how many
      seconds         how long it took in all
      is_cold         whether the page cache could be dropped
      cached          which part of the file stayed in it, or null
      rows            a list: work, by, seconds (the median, or null), least (of
                      the rounds, or null), rounds, nbytes, rate (in bytes a
                      second), note (why it was not done, or null)

    Safety:
      It never changes a file. Another library reads it, too: with --alone none
      does. It asks the system to drop the file from the page cache, so that
      other processes read it from the disk once more.

    Exit code:
      0 where the file could be opened.

    Examples:
      $ ztensor bench tiny.safetensors --seconds 0.2 --json > times.json
        for a program; without --json as a table
      $ ztensor bench model.zt --alone --seconds 0.2 --quiet
        no other library takes part
    """
    if file == "-":
        raise UsageError("standard input is not timed: give a path")
    from ztensor.analysis.timing import time_file

    timing = time_file(file, seconds, alone=alone)
    _show(terminal, timing)
    terminal.result(
        {
            "file": file,
            "format": timing.format,
            "nbytes": timing.nbytes,
            "object_count": timing.object_count,
            "timed_nbytes": timing.timed_nbytes,
            "timed_count": timing.timed_count,
            "rounds": timing.rounds,
            "seconds": timing.seconds,
            "is_cold": timing.is_cold,
            "cached": timing.cached,
            "rows": [_as_json(row) for row in timing.rows],
        }
    )


def _as_json(row: Timed) -> dict[str, Any]:
    return {
        "work": row.work,
        "by": row.by,
        "seconds": row.median,
        "least": min(row.seconds, default=None),
        "rounds": len(row.seconds),
        "nbytes": row.nbytes,
        "rate": row.rate,
        "note": row.note or None,
    }


def _show(terminal: Terminal, timing: Timing) -> None:
    terminal.table(_COLUMNS, [_cells(row, timing.rows) for row in timing.rows])
    for row in timing.rows:
        if row.note:
            terminal.line(f"{row.work}, {row.by}: {row.note}")
    if timing.timed_count < timing.object_count:
        terminal.line(
            f"loads and verify: of the first {timing.timed_count:,} of "
            f"{count_text(timing.object_count, 'object')}, {size_text(timing.timed_nbytes)}"
        )
    if timing.cached is None:
        kept = "the system does not tell what is in its page cache: nothing cold was measured"
    elif timing.is_cold:
        kept = "cold: the file was dropped from the page cache before"
    else:
        kept = (
            f"{timing.cached:.0%} of the file stayed in the page cache: nothing cold was measured"
        )
    terminal.line(kept)
    terminal.line(f"{count_text(timing.rounds, 'round')} in {timing.seconds:.2f} s")


def _cells(row: Timed, rows: Iterable[Timed]) -> list[str]:
    if row.median is None:
        return [row.work, row.by, "-", "", ""]
    plain = next(
        (one.median for one in rows if one.by == "cat" and _is_cold(one) is _is_cold(row)), None
    )
    ratio = f"{row.median / plain:.2f}" if plain and row.nbytes is not None else ""
    rate = "" if row.rate is None else f"{size_text(int(row.rate))}/s"
    return [row.work, row.by, _time_text(row.median), rate, ratio]


def _is_cold(row: Timed) -> bool:
    return row.work.startswith("cold")


def _time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
