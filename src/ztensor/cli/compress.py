"""`ztensor compress`: a file with every component as zstd."""

from __future__ import annotations

from typing import Annotated

import typer

from ztensor.cli.changing import (
    ChangedFileArgument,
    DryRunOption,
    ForceOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
)
from ztensor.cli.rewriting import (
    ChecksumOption,
    ChunkRowsOption,
    OutputOption,
    ThreadsOption,
    migrate_file,
)
from ztensor.cli.verb import JsonOption, QuietOption, running


def compress(
    file: ChangedFileArgument,
    *,
    level: Annotated[
        int, typer.Option(metavar="LEVEL", help="Of zstd, up to 22; higher is smaller and slower.")
    ] = 3,
    chunk_rows: ChunkRowsOption = None,
    output: OutputOption = None,
    checksum: ChecksumOption = "crc32c",
    threads: ThreadsOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    no_lock: NoLockOption = False,
    timeout: TimeoutOption = 0.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rewrite a file with all data as zstd.

    The new file is read back and compared with the old one before it takes its place as a whole.
    Compressed data is decoded when it is read: it cannot be mapped. Some rows of
    a tensor are decoded together; --chunk-rows says how many.

    Output:
      A summary, with the size before and after.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never changes anything but encodings.

    Exit code:
      0 where it was done, 4 where the file is damaged: it is then as it was.

    Examples:
      $ ztensor compress model.zt --level 9
        in its place
      $ ztensor compress plain.zt -o small.zt
        as another file
    """
    with running(json=json, quiet=quiet) as terminal:
        migrate_file(
            terminal,
            file,
            output,
            compression=level,
            chunk_rows=chunk_rows,
            checksum=checksum,
            threads=threads,
            force=force,
            dry_run=dry_run,
            no_durable=no_durable,
            lock=not no_lock,
            timeout=timeout,
        )
