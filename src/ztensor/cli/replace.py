"""`ztensor replace`: other data under a name that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.cli.changing import changing, counted
from ztensor.cli.options import ChangedFileArgument, ChecksumOption, CompressOption, Editing
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import UsageError

if TYPE_CHECKING:
    from ztensor.opening import Reader


def replace(
    terminal: Terminal,
    file: ChangedFileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The object to replace.")],
    input: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A file of any known format that has the new one."),
    ],
    *,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Its name in INPUT; by default the same name, or the only object.",
            show_default=False,
        ),
    ] = None,
    compress: CompressOption = False,
    checksum: ChecksumOption = "",
    how: Editing,
) -> None:
    """Put another array under a name.

    The new array may have any shape, type and layout. The object keeps its attributes; those of the
    new one are added.

    Output:
      One line; with --dry-run also what was there and what would be.

    JSON:
      As of `ztensor append`.

    Safety:
      It never touches the old data, which can be read until the change is
      complete, and stays in the file until `ztensor compact`.

    Exit code:
      0 if it was replaced, 2 if there is no object of that name.

    Examples:
      $ ztensor replace model.zt layers.0.weight head.npy --dry-run
        what would change
      $ ztensor replace model.zt layers.0.weight head.npy
        the same, done
    """
    with (
        open_file(input) as reader,
        changing(terminal, file, how, checksum=checksum or True) as changes,
    ):
        editor = changes.editor
        old = editor.metadata(name)
        source = _source(reader, name) if from_ is None else from_
        kept = {**old.attributes, **reader.metadata(source).attributes}
        editor.remove(name)
        with terminal.progress(name) as progress:
            report = counted(progress, reader.metadata(source).nbytes)
            editor.copy(name, reader, source, compress=compress or None, progress=report)
        editor.set_attributes(kept, name=name, replace=True)
        changes.replaced(old)


def _source(reader: Reader, name: str) -> str:
    """Return the object of an input that comes under a name.

    Raises:
        UsageError: it has several, and none of that name.
    """
    if name in reader:
        return name
    if len(reader) != 1:
        raise UsageError(
            "the input has no object of that name; --from says which one is meant",
            file=reader.name,
            object_name=name,
            found=count_text(len(reader), "object"),
        )
    return next(iter(reader))
