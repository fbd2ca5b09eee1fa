"""`ztensor convert`: a file of any known format as a zTensor file, or as another by its suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ztensor.cli.changing import DryRunOption, ForceOption, NoDurableOption
from ztensor.cli.rewriting import (
    CheckOption,
    ChecksumOption,
    DeleteOption,
    ExcludeOption,
    IncludeOption,
    InputArgument,
    StrictOption,
    ThreadsOption,
    ToOption,
    compression_of,
    convert_file,
)
from ztensor.cli.verb import JsonOption, QuietOption, running


def convert(
    file: InputArgument,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The new file.")],
    *,
    to: ToOption = None,
    version: Annotated[
        str, typer.Option(metavar="VERSION", help="Of a .zt: 1.2.0, 1.1.0 or 0.1.0.")
    ] = "1.2.0",
    compression: Annotated[
        str,
        typer.Option(metavar="HOW", help="Of a .zt: keep, raw, zstd, or a zstd level up to 22."),
    ] = "keep",
    checksum: ChecksumOption = "crc32c",
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    strict: StrictOption = False,
    check: CheckOption = False,
    delete_input: DeleteOption = False,
    threads: ThreadsOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write what a file of any known format holds as a zTensor file, or as OUT's suffix says.

    Bytes are copied as they are stored where that is possible. OUT appears as a whole, or not at
    all. What the new file cannot say is listed; IN stays.

    Example: ztensor convert model.safetensors model.zt
    """
    with running(json=json, quiet=quiet) as terminal:
        convert_file(
            terminal,
            file,
            output,
            to=to,
            version=version,
            compression=compression_of(compression),
            checksum=checksum,
            include=include,
            exclude=exclude,
            strict=strict,
            check=check,
            delete_input=delete_input,
            threads=threads,
            force=force,
            dry_run=dry_run,
            no_durable=no_durable,
        )
