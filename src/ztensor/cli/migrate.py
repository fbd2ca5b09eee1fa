"""`ztensor migrate`: a zTensor file in another version of the format."""

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
from ztensor.cli.rewriting import ChecksumOption, OutputOption, ThreadsOption, migrate_file
from ztensor.cli.verb import JsonOption, QuietOption, running


def migrate(
    file: ChangedFileArgument,
    *,
    version: Annotated[
        str,
        typer.Option(
            "--version", "--to", metavar="VERSION", help="The version: 1.2.0, 1.1.0 or 0.1.0."
        ),
    ] = "1.2.0",
    output: OutputOption = None,
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy", help="With -o: leave out what the version cannot say, and list it."
        ),
    ] = False,
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
    """Rewrite a file in another version of the format.

    Newer or older. The new file is read back and compared with the old one (names, shapes, types,
    elements, attributes) before it takes its place as a whole. Where the version cannot say
    something, nothing is written; with -o OUT --lossy the rest is.

    Output:
      What is lost, if anything may be, and a summary.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never takes the place of FILE unless it was proven to hold the same.

    Exit code:
      0 where it was written, 2 where the version cannot say something.

    Examples:
      $ ztensor migrate plain.zt --version 1.1.0
        for readers that know 1.1
      $ ztensor migrate model.zt --version 0.1.0
        what 0.1 cannot say: nothing is written, and it exits with 2
    """
    with running(json=json, quiet=quiet) as terminal:
        migrate_file(
            terminal,
            file,
            output,
            version=version,
            strict=not lossy,
            checksum=checksum,
            threads=threads,
            force=force,
            dry_run=dry_run,
            no_durable=no_durable,
            lock=not no_lock,
            timeout=timeout,
        )
