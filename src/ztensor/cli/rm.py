"""`ztensor rm`: objects out of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.cli.changing import (
    AtomicOption,
    ChangedFileArgument,
    DryRunOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
    changing,
)
from ztensor.cli.ls import _matcher
from ztensor.cli.verb import JsonOption, QuietOption, running
from ztensor.errors import ObjectNotFoundError, describe

if TYPE_CHECKING:
    from collections.abc import Iterable


def rm(
    file: ChangedFileArgument,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Objects.")],
    *,
    glob: Annotated[
        bool, typer.Option("--glob", help="Names are patterns with *, ? and [...].")
    ] = False,
    dry_run: DryRunOption = False,
    atomic: AtomicOption = False,
    no_durable: NoDurableOption = False,
    no_lock: NoLockOption = False,
    timeout: TimeoutOption = 0.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove objects; only a new manifest is written.

    Their bytes stay in the file until it is compacted. Where one name is not there, or a pattern
    matches none, nothing is removed.
    """
    with (
        running(json=json, quiet=quiet) as terminal,
        changing(
            terminal,
            file,
            dry_run=dry_run,
            atomic=atomic,
            no_durable=no_durable,
            no_lock=no_lock,
            timeout=timeout,
        ) as changes,
    ):
        editor = changes.editor
        chosen = _matching(editor.keys(), names) if glob else list(dict.fromkeys(names))
        removed = [editor.metadata(name) for name in chosen]
        editor.remove(chosen)
        for found in removed:
            changes.removed(found)


def _matching(names: list[str], patterns: Iterable[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matches = _matcher([pattern])
        found = [name for name in names if matches(name)]
        if not found:
            raise ObjectNotFoundError(
                f"no object among {len(names)} has a name that matches", found=describe(pattern)
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)
