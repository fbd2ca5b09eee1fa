"""`ztensor merge`: the objects of several files in one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.changing import left_behind, quiet_library, require_apart, require_target
from ztensor.cli.choosing import chosen, name_filter
from ztensor.cli.options import ALIGNMENT, CANONICAL, CHOICE, NEW_FILE, VERSION, Option, new_file
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import UsageError
from ztensor.ext import EMITTERS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

OPTIONS = (
    Option("files", nargs="+", metavar="IN", help="Files of any known format, or sets."),
    Option("--output", "-o", metavar="OUT", required=True, help="The new file."),
    Option(
        "--on-conflict",
        choices=("error", "first", "last"),
        default="error",
        help="Two objects of one name are an error, the default, or the first or last one wins.",
    ),
    VERSION,
    ALIGNMENT,
    CANONICAL,
    *CHOICE,
    *NEW_FILE,
)


def merge(terminal: Terminal, options: Namespace) -> None:
    """Write the objects of several files into one .zt.

    Each IN may be of any known format. Objects are copied as stored and checked, with little
    memory. The attributes of all files are kept; for equal keys the last file wins.

    Output:
      A summary; with --dry-run also the names in several files.

    JSON:
      file            OUT
      dry_run         whether nothing was written
      nbytes, object_count
                      of OUT
      inputs          a list of file, object_count
      conflicts       a list of name, from (the file that wins), dropped (others)
      unrepresented   a list of file, kind, where, count, nbytes: content of an IN
                      that no copy has

    Safety:
      It never changes an IN, never picks a winner for a name without
      --on-conflict, and replaces an existing OUT only with --force.

    Exit code:
      0 if OUT was written, 2 if two files have the same name and --on-conflict
      is not given.

    Examples:
      $ ztensor merge tiny.safetensors more.npz -o all.zt
        two files of different formats in one
      $ ztensor merge model.zt changed.zt -o both.zt --on-conflict last --dry-run
        the names in both files, and the file that each is kept from
    """
    quiet_library()
    output, inputs = options.output, options.files
    require_target(output, force=options.force)
    counts, conflicts, left = _look(terminal, output, inputs, options)
    with terminal.progress(output) as progress:
        nbytes = ztensor.edit.merge(
            inputs,
            output,
            on_conflict=options.on_conflict,
            keep=name_filter(options),
            version=options.version or EMITTERS.latest,
            alignment=options.alignment,
            canonical=options.canonical,
            progress=progress,
            **new_file(options),
        )
    dropped = sum(len(conflict["dropped"]) for conflict in conflicts)
    facts = {
        "file": output,
        "dry_run": options.dry_run,
        "nbytes": nbytes,
        "object_count": sum(counts) - dropped,
        "inputs": [
            {"file": path, "object_count": count}
            for path, count in zip(inputs, counts, strict=True)
        ],
        "conflicts": conflicts,
        "unrepresented": left,
    }
    _show(terminal, facts)
    terminal.result(facts)


def _show(terminal: Terminal, facts: Mapping[str, Any]) -> None:
    if facts["dry_run"] and facts["conflicts"]:
        columns = Column("name"), Column("kept from"), Column("dropped from")
        rows = [(c["name"], c["from"], ", ".join(c["dropped"])) for c in facts["conflicts"]]
        terminal.table(columns, rows)
    of = f"{count_text(facts['object_count'], 'object')}, {size_text(facts['nbytes'])}"
    of += f" of {count_text(len(facts['inputs']), 'file')}"
    done = "not written; it would have" if facts["dry_run"] else "written,"
    terminal.line(f"{facts['file']}: {done} {of}")


def _look(
    terminal: Terminal, output: str, inputs: Sequence[str], options: Namespace
) -> tuple[list[int], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the number of objects from each file, the conflicts, and the content left out."""
    holders: dict[str, list[str]] = {}
    counts = []
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(ztensor.open(path)) for path in inputs]
        for reader in readers:
            require_apart(output, reader)
        left = [
            loss
            for path, reader in zip(inputs, readers, strict=True)
            for loss in left_behind(terminal, path, reader)
        ]
        sources = [ztensor.edit.names_in(reader) for reader in readers]
        chosen(sources, options)
        keep, on_conflict = name_filter(options), options.on_conflict
        for path, source in zip(inputs, sources, strict=True):
            names = list(filter(keep, source))
            counts.append(len(names))
            for name in names:
                holders.setdefault(name, []).append(path)
    conflicts = []
    for name, files in holders.items():
        if len(files) > 1:
            if on_conflict == "error":
                raise UsageError(
                    "two files hold an object of that name; --on-conflict says which one wins",
                    file=files[1],
                    object_name=name,
                    found=f"also in {files[0]}",
                )
            kept = files[-1] if on_conflict == "last" else files[0]
            dropped = files[:-1] if on_conflict == "last" else files[1:]
            conflicts.append({"name": name, "from": kept, "dropped": dropped})
    return counts, conflicts, left
