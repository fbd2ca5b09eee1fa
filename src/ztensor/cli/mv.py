"""`ztensor mv`: rename objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.cli.changing import changing, pair_of
from ztensor.cli.options import CHANGED_FILE, EDITING, Option
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Terminal
from ztensor.errors import ArgumentValueError, describe

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    CHANGED_FILE,
    Option(
        "names",
        nargs="*",
        metavar="OLD NEW",
        is_name=True,
        help="The old name and the new one.",
    ),
    Option(
        "--map",
        action="append",
        metavar="OLD=NEW",
        help="Another object to rename; may be repeated.",
    ),
    *EDITING,
)


def mv(terminal: Terminal, options: Namespace) -> None:
    """Rename objects.

    All names change at once, so two can be swapped. Only a new manifest is written; a .safetensors
    or .gguf file is replaced by a new one. With --map OLD ends at the first "=" of the pair.

    Output:
      The number of renamed objects; with --dry-run the changes, one to a line.

    JSON:
      As of `ztensor append`.

    Safety:
      It never takes the name of another object, and copies no data.

    Exit code:
      0 if all were renamed, 2 if one does not exist or its new name is taken.

    Examples:
      $ ztensor mv model.zt embedding input.weight
        one object
      $ ztensor mv model.zt --map step=epoch --map layers.1.mask=mask --dry-run
        two at once, not yet done
    """
    pairs, names = [pair_of(text, "OLD=NEW") for text in options.map], options.names
    if names:
        if len(names) != 2:
            raise ArgumentValueError("give OLD and NEW", found=count_text(len(names), "name"))
        pairs.insert(0, (names[0], names[1]))
    if not pairs:
        raise ArgumentValueError("nothing to rename", expected="OLD NEW, or --map OLD=NEW")
    renamed = dict(pairs)
    if len(renamed) != len(pairs):
        twice = next(old for old, new in pairs if renamed[old] != new)
        raise ArgumentValueError("one object cannot have two names", found=describe(twice))
    with changing(terminal, options) as changes:
        changes.editor.rename(renamed)
        for old, new in renamed.items():
            changes.add("rename", name=old, to=new)
