"""`ztensor export`: a file in another format, and what that cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ztensor.cli.changing import DryRunOption, ForceOption, NoDurableOption
from ztensor.cli.rewriting import (
    CheckOption,
    DeleteOption,
    ExcludeOption,
    IncludeOption,
    InputArgument,
    StrictOption,
    ThreadsOption,
    ToOption,
    convert_file,
)
from ztensor.cli.verb import JsonOption, QuietOption, running
from ztensor.errors import UsageError


def export(
    file: InputArgument,
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="The new file; IN with the suffix of --to.", show_default=False
        ),
    ] = None,
    *,
    to: ToOption = None,
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
    """Write a file in another format, and list what that format cannot say.

    safetensors and npz hold dense tensors, gguf dense and block-quantized ones, hdf5 also sparse
    ones. Stop with --strict where anything would be lost.

    Example: ztensor export model.zt --to safetensors
    """
    with running(json=json, quiet=quiet) as terminal:
        from ztensor.converting import SUFFIXES, format_of

        if output is None:
            if to is None or str(file) == "-":
                raise UsageError("give OUT, or a FILE and --to")
            output = file.with_suffix(SUFFIXES[format_of("", to)][0])
        if format_of(str(output), to) == "zt":
            raise UsageError("use `ztensor convert` or `ztensor migrate` to write a zTensor file")
        convert_file(
            terminal,
            file,
            output,
            to=to,
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
