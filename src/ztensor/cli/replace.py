"""`ztensor replace`: other data under an existing name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import changing
from ztensor.cli.options import CHANGED_FILE, CHECKSUM, COMPRESS, EDITING, Option
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import UsageError
from ztensor.options import summed

if TYPE_CHECKING:
    from argparse import Namespace

    from ztensor import Reader

OPTIONS = (
    CHANGED_FILE,
    Option("name", metavar="NAME", is_name=True, help="The object to replace."),
    Option("input", metavar="INPUT", help="A file of any known format that has the new array."),
    Option(
        "--from",
        dest="source",
        metavar="NAME",
        help="Its name in INPUT; by default the same name, or the only object.",
    ),
    COMPRESS,
    CHECKSUM,
    *EDITING,
)


def replace(terminal: Terminal, options: Namespace) -> None:
    """Put another array under a name.

    The new array may have any shape, type and layout that FILE can hold. The object keeps its
    attributes, and the attributes of INPUT are added. A .safetensors or .gguf file is replaced by a
    new one.

    Output:
      One line; with --dry-run also the old and the new object.

    JSON:
      As of `ztensor append`.

    Safety:
      It never touches the old data, which can be read until the change is
      complete, and stays in a .zt file until `ztensor compact`.

    Exit code:
      0 if it was replaced, 2 if no object has that name.

    Examples:
      $ ztensor replace model.zt layers.0.weight head.npy --dry-run
        what would change
      $ ztensor replace model.zt layers.0.weight head.npy
        the same, done
    """
    name = options.name
    with open_file(options.input) as reader, changing(terminal, options) as changes:
        editor = changes.editor
        old = editor.metadata(name)
        source = _source(reader, name) if options.source is None else options.source
        kept = {**old.attributes, **reader.metadata(source).attributes}
        with terminal.progress(name) as progress:
            report = summed(progress, reader.metadata(source).nbytes)
            changes.copy(
                name,
                reader,
                source,
                compress=options.compress,
                progress=report,
                is_replaced=True,
            )
        if isinstance(editor, ztensor.edit.Editor):
            editor.set_attributes(kept, name=name, replace=True)
        changes.replaced(old)


def _source(reader: Reader, name: str) -> str:
    """Return the name of the object in an input that replaces `name`.

    Raises:
        UsageError: the input has several objects, and no object has that name.
    """
    if name in reader:
        return name
    if len(reader) != 1:
        raise UsageError(
            "the input has no object of that name; name one by --from",
            file=reader.name,
            object_name=name,
            found=count_text(len(reader), "object"),
        )
    return next(iter(reader))
