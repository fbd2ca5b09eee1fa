"""`ztensor append`: the arrays of NumPy files, or the objects of others, into a finished file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ztensor.cli.arrays import array_nbytes, kind_of, read_npy, read_npz, store
from ztensor.cli.changing import (
    AtomicOption,
    ChangedFileArgument,
    Changes,
    DryRunOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
    changing,
    counted,
)
from ztensor.cli.verb import JsonOption, QuietOption, running
from ztensor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CompressOption = Annotated[bool, typer.Option("--compress", help="Compress new arrays with zstd.")]
ChecksumOption = Annotated[
    Literal["crc32c", "sha256", "none"], typer.Option(help="Digest of new arrays.")
]


def append(
    file: ChangedFileArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT", help="A .npz or .npy with arrays, or a .zt with objects."),
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the array of one .npy is called; its file's stem."),
    ] = None,
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
    """Add arrays and objects to a file, all or none, at the cost of what is new.

    Objects of zTensor files are copied as they are stored there, checked but not decoded. A name
    that is taken is an error.
    """
    with running(json=json, quiet=quiet) as terminal:
        kinds = [kind_of(path) for path in inputs]
        if name is not None and kinds != ["npy"]:
            raise UsageError("--name goes with one .npy file")
        with (
            changing(
                terminal,
                file,
                dry_run=dry_run,
                atomic=atomic,
                no_durable=no_durable,
                no_lock=no_lock,
                timeout=timeout,
                compression=compress,
                checksum=checksum,
            ) as changes,
            terminal.progress(f"append to {file}") as progress,
        ):
            report = counted(progress, sum(map(array_nbytes, inputs, kinds)))
            for path, kind in zip(inputs, kinds, strict=True):
                if kind == "zt":
                    _copy_all(changes, path, report)
                elif kind == "npz":
                    _add_all(changes, read_npz(path), report)
                else:
                    own = path.stem if name is None else name
                    _add_all(changes, [(own, read_npy(path))], report)


def _add_all(
    changes: Changes, arrays: Iterable[tuple[str, Any]], report: Callable[[int], None]
) -> None:
    for name, array in arrays:
        store(changes.editor.stream(name, array.shape, array.dtype), array, report)
        changes.added(name)


def _copy_all(changes: Changes, path: Path, report: Callable[[int], None]) -> None:
    from ztensor.opening import Reader

    with Reader(path) as reader:
        for name in reader:
            changes.editor.copy(name, reader)
            changes.added(name)
            report(reader.metadata(name).stored_nbytes)
