"""Names of ztensor 1.2 that programs still use, each another name of a public one.

Functions are found by `ztensor.__getattr__`, methods are inherited by `Reader` and `Writer`. New
programs use the names that these stand for. `ztensor.flax` and `ztensor.safe_open` are safetensors'
names, `ztensor.divided` is an earlier one of `ztensor.distributed`; each is a file of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import ztensor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    import numpy.typing as npt

    from ztensor.accepted import Array, Path, TensorLike, TorchTensor
    from ztensor.options import EditOptions, ObjectOptions

# By name in `ztensor`, the module that has it.
FUNCTIONS = {"remove_tensors": "ztensor.edit", "replace_tensor": "ztensor.edit"}


class _Reads(Protocol):
    def read_numpy(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Array]: ...


class _Writes(Protocol):
    def write(self, name: str, data: TensorLike, **options: Unpack[ObjectOptions]) -> None: ...


class ReaderAliases:
    """Names of 1.2 for what `Reader` does."""

    def read_tensors(self: _Reads, names: Iterable[str], *, copy: bool = False) -> dict[str, Array]:
        """Return several dense objects as a dict of arrays: `read_numpy` of a list of names."""
        return self.read_numpy([names] if isinstance(names, str) else names, copy=copy)


class WriterAliases:
    """Names of 1.2 for what `Writer` and `Editor` do."""

    @classmethod
    def append(cls, path: Path, **options: Unpack[EditOptions]) -> ztensor.Editor:
        """Return an `Editor` of a finished file."""
        return ztensor.Editor(path, **options)

    def write_numpy(
        self: _Writes, name: str, data: npt.ArrayLike, **options: Unpack[ObjectOptions]
    ) -> None:
        """Write a dense object from an array: `write`."""
        _write(self, "write_numpy", name, data, options)

    def write_torch(
        self: _Writes, name: str, data: TorchTensor, **options: Unpack[ObjectOptions]
    ) -> None:
        """Write a torch tensor: `write`."""
        _write(self, "write_torch", name, data, options)

    def add(
        self: _Writes,
        name: str,
        data: npt.ArrayLike,
        compress: bool | int | str | None = None,  # noqa: FBT001  # positional in 1.2
        checksum: str | bool | None = None,  # noqa: FBT001
        *,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a dense object from an array: `write`."""
        self.write(name, data, compress=compress, checksum=checksum, chunk_rows=chunk_rows)


def _write(
    writer: _Writes, function: str, name: str, data: TensorLike, options: ObjectOptions
) -> None:
    from ztensor.options import ObjectOptions, require_options  # not needed for reading

    require_options(function, options, ObjectOptions)
    writer.write(name, data, **options)
