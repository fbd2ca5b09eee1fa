"""`ztensor repair`: find and save the last complete state of a torn file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import (
    is_divided_folder,
    require_free,
    require_one_file,
    require_suffix,
    require_target,
)
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHANGED_FILE, CHANGING, FORCE, Option, changing
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import UsageError, ZTensorError
from ztensor.ext import FORMATS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from typing import Any


OPTIONS = (
    CHANGED_FILE,
    Option(
        "--write",
        "--output",
        "-o",
        metavar="OUT",
        help="Write the last committed state to a new file.",
    ),
    Option(
        "--in-place",
        is_flag=True,
        help="Truncate the file to that state; the rest is kept in another file beside it.",
    ),
    Option("--drop-tail", is_flag=True, help="With --in-place: do not keep the rest."),
    Option(
        "--accept",
        metavar="END",
        type=int,
        help="Use the state that ends at this byte, even if it was judged unusable.",
    ),
    Option(
        "--drop-lost",
        is_flag=True,
        help="Of .safetensors and .gguf: leave out tensors with bytes that are not in the file.",
    ),
    Option("--explain", is_flag=True, help="Show every place that was searched."),
    Option(
        "--one-save",
        is_flag=True,
        help="Assert that files without the id of a save all belong to one save, "
        "and that no file is missing.",
    ),
    FORCE,
    *CHANGING,
)

_COLUMNS = (
    Column("ends at", numeric=True),
    Column("objects", numeric=True),
    Column("commit record"),
    Column("verdict"),
)
_FAULTS = (Column("what"), Column("at", numeric=True), Column("bytes", numeric=True), Column("of"))
_FINDINGS = {
    "gap": "bytes of no tensor",
    "tail": "bytes behind the last tensor",
    "lost": "a tensor that ends behind the file",
    "order": "tensors in another order than in the header",
    "alignment": "a tensor that is not aligned",
    "header": "data that is not aligned",
}


def repair(terminal: Terminal, options: Namespace) -> None:
    """Find the last complete state of a torn file, and save it.

    It searches the file backwards for the last committed state. Without options nothing is changed.
    --write saves that state as a new file. --in-place truncates the file to it, and keeps the rest
    as FILE.tail-1.

    Of a .safetensors or .gguf file it lists bytes of no tensor, tensors in a wrong order and
    tensors with missing bytes. --write and --in-place make a new file without them. --in-place
    puts that file in the place of FILE, and keeps the bytes of no tensor as FILE.tail-1.

    If FILE is the folder of a distributed checkpoint, or a prefix of a store, a
    lost or damaged root is written anew if the other files prove that a save is complete; a damaged
    root is kept beside it.

    Output:
      Where the state ends, how many objects it has, how many bytes follow it, and
      which objects are damaged; with --explain every place that was searched.

    JSON:
      path, size      of the file
      end, objects    of the state; end is null if there is none
      tail            number of bytes after it
      is_clean        whether nothing follows it
      opens           whether the file could be opened before the repair
      digests_ok      how many match
      damaged         names
      written, tail_path
                      paths, or null
      dry_run         whether nothing was written
      candidates      a list of end, objects, is_commit, fault (or null)
      Of .safetensors and .gguf: path, size, format, objects, written, tail_path,
      dry_run; findings, a list of kind, offset, nbytes, name

    Safety:
      It never changes anything unasked, and loses no byte without --drop-tail.

    Exit code:
      0 if the file can be opened or was repaired, 1 if it is torn or objects of
      the state are damaged, 4 if no state was found.

    Examples:
      $ ztensor repair torn.zt
        a file whose writer was killed; exits with 1
      $ ztensor repair torn.zt --write mended.zt
        that state as a new file
    """
    file, dry_run = options.file, options.dry_run
    how: dict[str, Any] = {
        "write": options.write,
        "in_place": options.in_place,
        "drop_tail": options.drop_tail,
        **changing(options),
    }
    kind = ztensor.edit.edited_format(file)
    if kind is not None:
        _repair_format(terminal, options, kind, how)
        return
    if options.drop_lost:
        raise UsageError("--drop-lost is for .safetensors and .gguf files", file=file)
    if options.write is not None:
        require_target(options.write, force=options.force)
    if is_divided_folder(file):
        _repair_root(terminal, options)
        return
    require_one_file(file)
    opens = _opens(file)
    with terminal.progress(file) as progress:
        report = ztensor.edit.repair(file, accept=options.accept, progress=progress, **how)
    _show(terminal, report, opens=opens, dry_run=dry_run)
    if options.explain:
        _explain(terminal, report)
    if report.end is None and not opens:
        terminal.fail(ExitCode.CORRUPT)
    elif report.damaged or not (opens or (report.written is not None and not dry_run)):
        terminal.fail(ExitCode.FAILED)
    terminal.result(dataclasses.asdict(report) | {"opens": opens, "dry_run": dry_run})


def _repair_format(
    terminal: Terminal, options: Namespace, kind: str, how: Mapping[str, Any]
) -> None:
    """Repair a file of another format, and print the report."""
    file, dry_run = options.file, options.dry_run
    if options.accept is not None or options.one_save:
        raise UsageError("--accept and --one-save are for .zt files", file=file)
    if options.write is not None:
        require_free(options.write, force=options.force)
        require_suffix(options.write, *FORMATS[kind].suffixes)
    with terminal.progress(file) as progress:
        report = ztensor.edit.repair_format(
            file, drop_lost=options.drop_lost, progress=progress, **how
        )
    objects = count_text(report.objects, "tensor")
    terminal.facts([*_file_facts(report.path, report.size), ("in the header", objects)])
    if report.findings:
        rows = [
            (_FINDINGS[each.kind], f"{each.offset:,}", f"{each.nbytes:,}", each.name or "")
            for each in report.findings
        ]
        terminal.table(_FAULTS, rows)
    if report.written is not None:
        would = "would be " if dry_run else ""
        terminal.line(f"{would}written to {report.written}")
        if report.tail_path is not None:
            terminal.line(f"{would}kept as {report.tail_path}: the bytes of no tensor")
    elif report.findings:
        drop = " --drop-lost" if report.lost else ""
        terminal.line(f"ztensor repair {report.path} --write OUT{drop} makes a file without these")
        terminal.fail(ExitCode.FAILED)
    else:
        terminal.line("nothing to repair")
    terminal.result({**dataclasses.asdict(report), "dry_run": dry_run})


def _file_facts(path: str, size: int) -> list[tuple[str, str]]:
    return [("file", path), ("size", f"{size_text(size)} ({size:,} bytes)")]


def _repair_root(terminal: Terminal, options: Namespace) -> None:
    """Rewrite the root of a distributed checkpoint if it is lost or damaged."""
    folder, dry_run = options.file, options.dry_run
    durable = not options.no_durable
    report = ztensor.distributed.repair(
        folder, dry_run=dry_run, durable=durable, one_save=options.one_save
    )
    of = f"{count_text(report.tensors, 'tensor')} in {count_text(len(report.files), 'file')}"
    if report.written is None:
        terminal.line(f"{folder}: nothing to repair, {of}")
    else:
        terminal.line(f"{report.path}: {'would be written' if dry_run else 'written'}, {of}")
        terminal.line("    values that are not tensors are lost with the old root")
    if report.kept is not None:
        terminal.line(f"  the damaged one is kept as {report.kept}")
    terminal.result(dataclasses.asdict(report) | {"dry_run": dry_run})


def _opens(file: str) -> bool:
    """Return whether the file can be opened, with any bytes after its last state."""
    try:
        ztensor.Reader(file).close()
    except ZTensorError:
        return False
    return True


def _show(
    terminal: Terminal, report: ztensor.edit.RepairReport, *, opens: bool, dry_run: bool
) -> None:
    facts = _file_facts(report.path, report.size)
    if report.end is not None:
        behind = f"{report.tail:,} bytes of no state" if report.tail else "nothing"
        count = count_text(report.objects, "object")
        facts += [
            ("last committed state", f"{count}, ends at {report.end:,}"),
            ("behind it", behind),
            ("digests that match", f"{report.digests_ok:,}"),
        ]
    terminal.facts(facts)
    for name in report.damaged:
        terminal.problem(f"DAMAGED  {name}")
    if report.written is not None:
        _show_mending(terminal, report, dry_run=dry_run)
    elif report.is_clean and report.damaged:
        terminal.line("the file is complete; damaged objects cannot be restored from it")
    elif report.is_clean:
        terminal.line("nothing to repair")
    elif opens:
        why = "an interrupted change left bytes behind; compact frees them"
        if report.end is None:
            why = "its writer placed the manifest in a way that cannot be verified"
        terminal.line(f"the file opens as it is: {why}")
    elif report.end is None:
        terminal.problem("no committed state was found; copy or download the file again")
    else:
        terminal.line(f"ztensor repair {report.path} --write OUT saves that state as a new file")


def _show_mending(terminal: Terminal, report: ztensor.edit.RepairReport, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    if report.written == report.path:
        kept = "not kept" if report.tail_path is None else f"kept as {report.tail_path}"
        where = f"cut back to {report.end or 0:,} bytes; the rest {would}{kept}"
    else:
        where = f"written to {report.written}"
    terminal.line(f"{would}{where}")


def _explain(terminal: Terminal, report: ztensor.edit.RepairReport) -> None:
    terminal.line()
    if not report.candidates:
        terminal.line("no possible end of a state was found")
        return
    rows = [
        (
            f"{candidate.end:,}",
            f"{candidate.objects:,}",
            "right" if candidate.is_commit else "none",
            "the last committed state" if candidate.fault is None else candidate.fault,
        )
        for candidate in report.candidates
    ]
    terminal.table(_COLUMNS, rows)
