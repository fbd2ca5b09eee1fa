"""`ztensor rm`: remove objects from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.cli.changing import changing
from ztensor.cli.choosing import nothing_matches
from ztensor.cli.options import CHANGED_FILE, EDITING, EXCLUDE, Option
from ztensor.cli.terminal import Terminal
from ztensor.errors import ObjectNotFoundError, UsageError
from ztensor.options import keeps

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

OPTIONS = (
    CHANGED_FILE,
    Option("names", nargs="*", metavar="NAME", is_name=True, help="Objects to remove."),
    Option("--glob", is_flag=True, help="Names are patterns with *, ? and [...]."),
    Option(
        "--include",
        action="append",
        metavar="GLOB",
        help="Also remove objects whose names match; may be repeated.",
    ),
    EXCLUDE,
    *EDITING,
)


def rm(terminal: Terminal, options: Namespace) -> None:
    """Remove objects.

    Only a new manifest is written, so the size of an object does not matter; a .safetensors or
    .gguf file is replaced by a new one. Names that begin with a dash come after `--`.

    Output:
      The number of removed objects; with --dry-run their names, one to a line.

    JSON:
      As of `ztensor append`.

    Safety:
      It never removes only some: if a name does not exist or a pattern matches
      nothing, nothing is removed. The bytes stay in a .zt file until
      `ztensor compact`.

    Exit code:
      0 if all were removed, 2 if a name does not exist.

    Examples:
      $ ztensor rm model.zt --include 'layers.0.*' --dry-run
        the objects that a pattern would remove
      $ ztensor rm model.zt step
        one object, by its name
    """
    patterns = [*(options.names if options.glob else ()), *options.include]
    plain = [] if options.glob else options.names
    if not (patterns or plain):
        raise UsageError("nothing to remove: give names, or --include and a pattern")
    with changing(terminal, options) as changes:
        editor = changes.editor
        removed = [editor.metadata(name) for name in dict.fromkeys(plain)]
        removed += map(editor.metadata, _matching(editor.keys(), patterns, plain))
        keep = keeps(exclude=options.exclude)
        removed = [metadata for metadata in removed if keep(metadata.name)]
        if not removed:
            raise ObjectNotFoundError("everything is excluded", file=options.file)
        editor.remove([metadata.name for metadata in removed])
        for metadata in removed:
            changes.removed(metadata)


def _matching(names: list[str], patterns: Iterable[str], taken: Iterable[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matches = list(filter(keeps([pattern]), names))
        if not matches:
            raise nothing_matches(names, [pattern])
        chosen.update(dict.fromkeys(matches))
    return [name for name in chosen if name not in set(taken)]
