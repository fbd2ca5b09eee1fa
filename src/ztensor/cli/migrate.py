"""`ztensor migrate`, `compress` and `decompress`: a zTensor file in another version or encoding."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ztensor.cli.changing import quiet_library, require_target
from ztensor.cli.options import ChangedFileArgument, ChunkRowsOption, Rewriting
from ztensor.cli.rewriting import tell
from ztensor.cli.terminal import Terminal


def migrate(
    terminal: Terminal,
    file: ChangedFileArgument,
    *,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            "--to-version",
            "--to",
            metavar="VERSION",
            help="The version: 2.1, 1.2.0, 1.1.0 or 0.1.0.",
        ),
    ] = "1.2.0",
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy", help="With -o: leave out, and list, what the version cannot store."
        ),
    ] = False,
    how: Rewriting,
) -> None:
    """Rewrite a file in another version of the format.

    The version may be newer or older. The new file is read back and compared with the old one
    (names, shapes, types, elements, attributes), then replaces it atomically. If the version cannot
    store something, nothing is written; with -o OUT --lossy the rest is.

    Output:
      What is lost, if anything, and a summary.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never replaces FILE before the new file was compared with it.

    Exit code:
      0 if it was written, 2 if the version cannot store something.

    Examples:
      $ ztensor migrate plain.zt --version 1.1.0
        for readers that know 1.1
      $ ztensor migrate model.zt --version 0.1.0
        what 0.1 cannot say: nothing is written, and it exits with 2
    """
    _rewrite(terminal, file, how, version=version, strict=not lossy)


def compress(
    terminal: Terminal,
    file: ChangedFileArgument,
    *,
    level: Annotated[
        int,
        typer.Option(
            metavar="LEVEL", help="Level of zstd, up to 22; higher is smaller and slower."
        ),
    ] = 3,
    chunk_rows: ChunkRowsOption = None,
    how: Rewriting,
) -> None:
    """Rewrite a file with all data as zstd.

    The new file is read back and compared with the old one, then replaces it atomically.
    Compressed data is decoded when it is read, so it cannot be mapped. Rows of a tensor are
    compressed some at a time; --chunk-rows sets how many.

    Output:
      A summary, with the size before and after.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never changes anything but encodings.

    Exit code:
      0 if it was done, 4 if the file is damaged; it is then not changed.

    Examples:
      $ ztensor compress model.zt --level 9
        in its place
      $ ztensor compress plain.zt -o small.zt
        as another file
    """
    _rewrite(terminal, file, how, compression=level, chunk_rows=chunk_rows)


def decompress(terminal: Terminal, file: ChangedFileArgument, *, how: Rewriting) -> None:
    """Rewrite a file with all data raw, ready to be mapped.

    The new file is read back and compared with the old one, then replaces it atomically.

    Output:
      A summary, with the size before and after.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never changes anything but encodings.

    Exit code:
      0 if it was done, 4 if the file is damaged; it is then not changed.

    Examples:
      $ ztensor compress plain.zt -o small.zt
        something to decompress
      $ ztensor decompress small.zt -o raw.zt
        raw again, as another file
    """
    _rewrite(terminal, file, how, compression=False)


def _rewrite(terminal: Terminal, file: str, how: Rewriting, **options: Any) -> None:
    """Rewrite a zTensor file in its place or to another, and tell what was done."""
    from ztensor.converting import migrate

    quiet_library()
    if how.output is not None:
        require_target(how.output, force=how.force)
    with terminal.progress(how.output or file) as progress:
        report = migrate(file, how.output, progress=progress, **how.arguments, **options)
    terminal.result(tell(terminal, file, report, dry_run=how.dry_run))
