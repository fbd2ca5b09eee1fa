"""The part of `ztensor repair` for files of other formats."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import require_free, require_suffix
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import changing
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import UsageError
from ztensor.ext import FORMATS

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = (Column("what"), Column("at", numeric=True), Column("bytes", numeric=True), Column("of"))
_KINDS = {
    "gap": "bytes of no tensor",
    "tail": "bytes behind the last tensor",
    "lost": "a tensor that ends behind the file",
    "order": "tensors in another order than in the header",
    "alignment": "a tensor that is not aligned",
    "header": "data that is not aligned",
}


def mend(terminal: Terminal, options: Namespace) -> None:
    """Repair a file of another format, and print the report.

    Raises:
        ZTensorError: the file cannot be repaired; it is not changed.
    """
    file, dry_run = options.file, options.dry_run
    if options.accept is not None or options.one_save:
        raise UsageError("--accept and --one-save are for .zt files", file=file)
    if options.write is not None:
        require_free(options.write, force=options.force)
        kind = ztensor.edit.edited_format(file)
        require_suffix(options.write, *(FORMATS[kind].suffixes if kind else ()))
    with terminal.progress(file) as progress:
        report = ztensor.edit.repair_format(
            file,
            write=options.write,
            in_place=options.in_place,
            drop_tail=options.drop_tail,
            drop_lost=options.drop_lost,
            progress=progress,
            **changing(options),
        )
    size = f"{size_text(report.size)} ({report.size:,} bytes)"
    objects = count_text(report.objects, "tensor")
    terminal.facts([("file", report.path), ("size", size), ("in the header", objects)])
    if report.findings:
        rows = [
            (_KINDS[each.kind], f"{each.offset:,}", f"{each.nbytes:,}", each.name or "")
            for each in report.findings
        ]
        terminal.table(_COLUMNS, rows)
    if not report.findings:
        terminal.line("nothing to repair")
    elif report.written is None:
        terminal.line(f"ztensor repair {report.path} --write OUT makes a file without these")
        terminal.fail(ExitCode.FAILED)
    else:
        would = "would be " if dry_run else ""
        terminal.line(f"{would}written to {report.written}")
        if report.tail_path is not None:
            terminal.line(f"{would}kept as {report.tail_path}: the bytes of no tensor")
    terminal.result({**dataclasses.asdict(report), "dry_run": dry_run})
