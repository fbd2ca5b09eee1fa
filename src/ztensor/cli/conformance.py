"""`ztensor conformance`: test a reader on the files of a corpus."""

from __future__ import annotations

import dataclasses
import os
import shlex
from typing import TYPE_CHECKING

from ztensor import ext
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import Option, number
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.conformance import ConformanceReport, Verdict, run_corpus
from ztensor.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    Option(
        "folders",
        nargs="+",
        metavar="DIR",
        help="Folders with a corpus.json and the files it names.",
    ),
    Option(
        "--reader",
        metavar="CMD",
        help="The command to test, called with a path as its last word; by default this library.",
    ),
    Option(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=30.0,
        help="Time limit of a call; by default 30.",
    ),
    Option("--memory", metavar="MIB", type=number(1), help="Memory limit of a call, on Linux."),
    Option("--jobs", "-j", metavar="N", type=number(1), default=1, help="Calls at a time."),
)

_MOST_SHOWN = 20


def conformance(terminal: Terminal, options: Namespace) -> None:
    """Test a reader of .zt files on a corpus of valid and invalid ones.

    The corpora are the folders tests/corpus and tests/corpus2 of the sources. CMD is split into
    words as a shell does, but no shell runs. For each file it is called with the path and exits
    with 0 if it accepts the file, or 3 if it refuses it; it may print the contents as JSON.
    docs/specification/conformance.md describes the corpora and the JSON.

    Output:
      A line for each section of the formats: how many files are as expected, how
      many are wrong, crashed or timed out. Then a line for each that is not as
      expected, 20 at most.

    JSON:
      ok              whether all files are as expected
      counts          outcome to number
      sections        section to outcome to number
      failures        a list of path, section, expect, outcome, why

    Safety:
      It never changes a file, but CMD may: it is run. A call is killed after the
      timeout, or when it has printed 64 MiB. Some files are made to exhaust memory:
      --memory limits it.

    Exit code:
      0 if every file is as expected, else 1.

    Examples:
      $ ztensor conformance corpus
        this library, on a corpus of two files
      $ ztensor conformance corpus --reader true
        a reader that takes every file; exits with 1
    """
    for folder in options.folders:
        if ext.is_remote(folder):
            raise UsageError("a corpus is a folder on disk, not a URL: download it", file=folder)
    command, memory = options.reader, options.memory
    verdicts: list[Verdict] = []
    for folder in options.folders:
        with terminal.progress(os.path.basename(os.path.normpath(folder))) as progress:
            report = run_corpus(
                folder,
                None if command is None else shlex.split(command, posix=os.name == "posix"),
                seconds=options.timeout,
                memory=None if memory is None else memory << 20,
                jobs=options.jobs,
                progress=progress,
            )
        verdicts += report.verdicts
    report = ConformanceReport(tuple(verdicts))
    _show(terminal, report)
    if not report.ok:
        terminal.fail(ExitCode.FAILED)
    terminal.result(
        {
            "ok": report.ok,
            "counts": report.counts,
            "sections": report.sections,
            "failures": [
                {**dataclasses.asdict(failure), "outcome": failure.outcome.value}
                for failure in report.failures
            ],
        }
    )


def _show(terminal: Terminal, report: ConformanceReport) -> None:
    columns = [Column("section"), Column("files", numeric=True)]
    columns += [Column(outcome, numeric=True) for outcome in report.counts]
    lines = [*report.sections.items(), ("all", report.counts)]
    terminal.table(
        columns,
        [
            (
                section,
                f"{sum(counts.values()):,}",
                *(f"{n:,}" if n else "" for n in counts.values()),
            )
            for section, counts in lines
        ],
    )
    for failure in report.failures[:_MOST_SHOWN]:
        terminal.problem(f"{failure.outcome.value}  {failure.path}: {failure.why}")
    left = len(report.failures) - _MOST_SHOWN
    if left > 0:
        terminal.problem(f"and {left:,} more; --json lists all")
    files = count_text(len(report.verdicts), "file")
    terminal.line(f"{report.counts['as expected']:,} of {files} as expected")
