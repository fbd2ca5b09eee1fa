"""`ztensor replace`: other data under a name that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ztensor.cli.append import ChecksumOption, CompressOption
from ztensor.cli.arrays import read_npy, store
from ztensor.cli.changing import (
    AtomicOption,
    ChangedFileArgument,
    DryRunOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
    changing,
    counted,
)
from ztensor.cli.verb import JsonOption, QuietOption, running


def replace(
    file: ChangedFileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The object.")],
    input: Annotated[Path, typer.Argument(metavar="INPUT", help="A .npy with the new array.")],
    *,
    compress: CompressOption = False,
    checksum: ChecksumOption = "crc32c",
    dry_run: DryRunOption = False,
    atomic: AtomicOption = False,
    no_durable: NoDurableOption = False,
    no_lock: NoLockOption = False,
    timeout: TimeoutOption = 0.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Put another array under a name, of any shape and type; the object's attributes stay.

    The old data stays in the file, and readable, until the new one is complete; compact takes it
    away.
    """
    with running(json=json, quiet=quiet) as terminal:
        array = read_npy(input)
        with changing(
            terminal,
            file,
            dry_run=dry_run,
            atomic=atomic,
            no_durable=no_durable,
            no_lock=no_lock,
            timeout=timeout,
            compression=compress,
            checksum=checksum,
        ) as changes:
            old = changes.editor.metadata(name)
            sink = changes.editor.replace_stream(name, array.shape, array.dtype)
            with terminal.progress(name) as progress:
                store(sink, array, counted(progress, array.nbytes))
            changes.replaced(old)
