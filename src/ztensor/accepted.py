"""Type aliases of the public functions; users import them from `ztensor.typing`.

This module imports neither a framework nor another module of the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import EllipsisType
    from typing import Any, Literal, SupportsIndex

    import jax
    import numpy as np
    import numpy.typing as npt
    import torch
    from obstore.store import ObjectStore
    from typing_extensions import Buffer


class ReadableFile(Protocol):
    """A seekable binary file object."""

    def read(self, size: int = ..., /) -> bytes:
        """Return the next bytes."""
        ...

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to an offset, and return the new offset."""
        ...


class WritableFile(Protocol):
    """A binary file object that takes any bytes-like object."""

    def write(self, data: Buffer, /) -> object:
        """Write bytes."""
        ...


class ShardIdentity(Protocol):
    """What the root of a 2.x model says of one shard: not where it is, but which file it is."""

    @property
    def name(self) -> str:
        """Return its name in the root's table; safe as one component of a path."""
        ...

    @property
    def size(self) -> int:
        """Return its length in bytes."""
        ...

    @property
    def digest(self) -> str:
        """Return `algorithm:hex` of all its bytes."""
        ...


# Each alias is one string: pyright does not take concatenated strings as a type.

# Sources and targets.
Bytes: TypeAlias = "Buffer"
"""An object with the buffer protocol: bytes, a bytearray, an mmap."""
Path: TypeAlias = "str | os.PathLike[str]"
"""A path."""
Storage: TypeAlias = "Mapping[str, Any] | ObjectStore"
"""How the store of a URL is opened: options by obstore's names, or a store of obstore."""
Openable: TypeAlias = "Path | Buffer | ReadableFile | Sequence[Path]"
"""A source of `ztensor.open`: a path, bytes, a file object, or several paths."""
Resolver: TypeAlias = "Callable[[ShardIdentity], Path | Buffer | ReadableFile | None]"
"""A function that finds a shard; None leaves it to the usual places."""
Target: TypeAlias = "Path | WritableFile"
"""The target of a file: a path, or a file object."""
Progress: TypeAlias = "Callable[[int, int], None]"
"""Called with the finished work and all work."""
Durable: TypeAlias = "bool | Literal['auto']"
"""When files are flushed to disk: always, never, or if a file is replaced."""

# Values, element types and indices.
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""A NumPy array of any shape and element type."""
TorchTensor: TypeAlias = "torch.Tensor"
"""A `torch.Tensor`, dense or sparse."""
TensorLike: TypeAlias = "npt.ArrayLike | torch.Tensor"
"""A value to store: a `ztensor.Tensor`, a tensor of torch, or a value for `numpy.asarray`."""
ElementType: TypeAlias = "str | npt.DTypeLike | torch.dtype"
"""A name such as "float32", a type of NumPy, or a `torch.dtype`."""
_Key: TypeAlias = "SupportsIndex | npt.ArrayLike | slice | EllipsisType | None"
Index: TypeAlias = "_Key | tuple[_Key, ...]"
"""An index of a slice: every index of NumPy."""

# Devices and shardings.
TorchDevice: TypeAlias = "str | int | torch.device"
"""A name such as "cuda:1", a number, or a `torch.device`."""
JaxArray: TypeAlias = "jax.Array"
"""A `jax.Array`."""
JaxDevice: TypeAlias = "str | jax.Device"
"""A name such as "cpu", or a `jax.Device`."""
_Sharding: TypeAlias = "jax.sharding.Sharding"
_Chosen: TypeAlias = "Callable[[str, jax.ShapeDtypeStruct], _Sharding | None]"
JaxSharding: TypeAlias = "_Sharding | Mapping[str, _Sharding] | _Chosen"
"""A `Sharding`, a mapping from names to them, or a function of a name and its struct."""
