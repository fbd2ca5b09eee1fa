"""`ztensor merge`: the objects of several files in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ztensor.cli.changing import (
    DryRunOption,
    ForceOption,
    NoDurableOption,
    quiet_library,
    require_free,
)
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Styled
from ztensor.cli.verb import JsonOption, QuietOption, running

if TYPE_CHECKING:
    from collections.abc import Sequence

Conflict = Literal["error", "first", "last"]


def merge(
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The new file.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="IN", help="Files of any version.")],
    *,
    on_conflict: Annotated[
        Conflict, typer.Option(help="A name that two files have: refuse, or which one wins.")
    ] = "error",
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the objects of several files into a new one, as they are stored, checked.

    Attributes of all files are kept; of the same key that of the last file.
    """
    with running(json=json, quiet=quiet) as terminal:
        from ztensor.edit import merge as merge_files

        quiet_library()
        require_free(output, force=force)
        counts, conflicts = _look(inputs, on_conflict)
        with terminal.progress(str(output)) as progress:
            nbytes = merge_files(
                inputs,
                output,
                on_conflict=on_conflict,
                durable=not no_durable,
                dry_run=dry_run,
                progress=progress,
            )
        count = sum(counts) - sum(len(conflict["dropped"]) for conflict in conflicts)
        if dry_run and conflicts:
            columns = Column("name"), Column("would be that of"), Column("and not of")
            rows = [(c["name"], c["from"], ", ".join(c["dropped"])) for c in conflicts]
            terminal.table(columns, rows)
        of = f"{count_text(count, 'object')}, {size_text(nbytes)}"
        of += f" of {count_text(len(inputs), 'file')}"
        if dry_run:
            terminal.line(f"{output}: not written; it would have {of}")
        else:
            terminal.line(f"{output}: ", Styled("written", "green"), f", {of}")
        terminal.result(
            {
                "file": str(output),
                "dry_run": dry_run,
                "nbytes": nbytes,
                "object_count": count,
                "inputs": [
                    {"file": str(path), "object_count": found}
                    for path, found in zip(inputs, counts, strict=True)
                ],
                "conflicts": conflicts,
            }
        )


def _look(inputs: Sequence[Path], on_conflict: Conflict) -> tuple[list[int], list[dict[str, Any]]]:
    """Return how many objects each file has, and which names several have."""
    from ztensor.opening import Reader

    holders: dict[str, list[str]] = {}
    counts = []
    for path in inputs:
        with Reader(path) as reader:
            counts.append(len(reader))
            for name in reader:
                holders.setdefault(name, []).append(str(path))
    conflicts = []
    for name, files in holders.items():
        if len(files) > 1:
            kept = files[-1] if on_conflict == "last" else files[0]
            dropped = files[:-1] if on_conflict == "last" else files[1:]
            conflicts.append({"name": name, "from": kept, "dropped": dropped})
    return counts, conflicts
