"""`ztensor export`: a file in another format, and what that cannot say."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ztensor.cli.options import Converting, InputArgument, ToOption
from ztensor.cli.rewriting import convert_file, one_output
from ztensor.cli.terminal import Terminal
from ztensor.errors import UsageError


def export(
    terminal: Terminal,
    file: InputArgument,
    output: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            help="The new file; by default IN with the suffix of --to.",
            show_default=False,
        ),
    ] = None,
    *,
    to: ToOption = None,
    how: Converting,
) -> None:
    """Write a file in another format, and list what is lost.

    safetensors and npz hold dense tensors, npy a single one, gguf dense and block-quantized ones,
    hdf5 dense and sparse ones. Without OUT the new file gets IN's name and the format's suffix. The
    page "Other formats" of the documentation describes what each format can store.

    Output:
      As of `ztensor convert`: what is lost, and a summary.

    JSON:
      As of `ztensor convert`.

    Safety:
      As of `ztensor convert`. It never writes a .zt file, which `convert` and
      `migrate` do.

    Exit code:
      0 if OUT was written, even if something is lost; with --strict that is 2,
      and nothing is written.

    Examples:
      $ ztensor export model.zt --to safetensors --include 'layers.*'
        each thing that safetensors cannot say, and the file
      $ ztensor export model.zt model.npz --strict
        something would be lost: nothing is written, and it exits with 2
    """
    from ztensor.converting.asking import format_of
    from ztensor.model.formats import written_formats

    output = one_output(output, how.named_output)
    if output is None:
        if to is None or file == "-":
            raise UsageError("give OUT, or a FILE and --to")
        output = _beside(file, written_formats()[format_of("", to)][0])
    if format_of(output, to) == "zt":
        raise UsageError("use `ztensor convert` or `ztensor migrate` to write a zTensor file")
    terminal.result(convert_file(terminal, file, output, how, to=to))


def _beside(file: str, suffix: str) -> str:
    """Return what a file is called in another format: its own name with another suffix."""
    from ztensor.sharded.naming import stem_of
    from ztensor.source.table import require_on_disk

    require_on_disk(file, "give OUT")
    whole = os.path.abspath(file)
    folder, name = os.path.split(whole)
    if not name:
        raise UsageError("give OUT: the folder has no name", file=file)
    # The caller's own spelling where it has a name: "models/a", not what "models/a/." leads to.
    head, tail = os.path.split(file.rstrip(os.sep))
    return os.path.join(
        head if tail == os.path.basename(whole) else folder, stem_of(whole) + suffix
    )
