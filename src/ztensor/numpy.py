"""Save and load dicts of NumPy arrays, under the names safetensors gave these functions."""

from __future__ import annotations

import io
import weakref
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ztensor.blob import blocks
from ztensor.digest import ALGORITHMS
from ztensor.errors import ArgumentTypeError, ArgumentValueError, NotRepresentableError, describe
from ztensor.layout.elements import spell
from ztensor.loading import load_all
from ztensor.opening import Reader
from ztensor.writer import Writer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ztensor.source.sink import Durable

__all__ = ["load", "load_file", "save", "save_file"]


def save_file(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    checksum: str | bool | None = "crc32c",
    version: str = "1.2.0",
    durable: Durable = "auto",
    deduplicate: Literal["memory", "content", False] = "memory",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, str]:
    """Save a dict of tensors as one file, replacing an old one as a whole or not at all.

    Tensors are written in order of their names, so the same dict gives the same bytes.

    Args:
        tensors: names to arrays, or to `ztensor.Tensor` for sparse and quantized ones.
        path: the file; also a file object open for writing bytes.
        metadata: key-value pairs of the file.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
        checksum: `"crc32c"`, `"sha256"` or None.
        version: `"1.2.0"`, `"1.1.0"` or `"0.1.0"`.
        durable: True flushes to disk before this returns; "auto" does so when an existing file is
            replaced; False leaves it to the system.
        deduplicate: "memory" stores arrays over the same memory (tied weights) once, under all
            their names; "content" also those whose bytes are equal; False stores each.
        progress: called with the bytes of tensors written so far and of all of them.

    Returns:
        Names that were stored without bytes of their own, and whose bytes they have.

    Raises:
        NotRepresentableError: a tensor cannot be held by the version; the message says what
            would work. No file appears.
        ArgumentTypeError: `tensors` is no mapping.
        SourceError: the file could not be written. What was there before still is.
    """
    return _write(
        tensors,
        path,
        metadata,
        progress,
        deduplicate,
        compression=compression,
        checksum=checksum,
        version=version,
        durable=durable,
    )


def save(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    checksum: str | bool | None = "crc32c",
    version: str = "1.2.0",
    deduplicate: Literal["memory", "content", False] = "memory",
) -> bytes:
    """Return the bytes `save_file` would write; see there."""
    buffer = io.BytesIO()
    _write(
        tensors,
        buffer,
        metadata,
        None,
        deduplicate,
        compression=compression,
        checksum=checksum,
        version=version,
    )
    return buffer.getvalue()


def _write(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None,
    deduplicate: str | bool,  # noqa: FBT001  # one of three words
    **options: Any,
) -> dict[str, str]:
    if deduplicate not in ("memory", "content", False):
        raise ArgumentValueError(
            "unknown value for deduplicate",
            expected="'memory', 'content' or False",
            found=describe(deduplicate),
        )
    if not hasattr(tensors, "items"):
        raise ArgumentTypeError(
            "tensors must be a mapping from names to arrays", found=describe(tensors, 40)
        )
    total = 0
    if progress is not None:
        total = sum(getattr(value, "nbytes", 0) for value in tensors.values())
    done = 0
    first_of: dict[tuple[Any, ...], tuple[str, weakref.ref[Any]]] = {}
    with Writer(target, attributes=metadata, **options) as writer:
        writer._keeps_data = True
        for name in sorted(tensors, key=_sort_key):
            value = tensors[name]
            key = _identity(value, deduplicate) if deduplicate else None
            first = None if key is None else first_of.get(key)
            # A mapping may make its arrays when asked, as a reader does: where the first one is
            # gone, its address says nothing.
            if first is not None and (deduplicate == "content" or first[1]() is not None):
                writer.share(name, first[0])
            else:
                writer.write(name, value)
                if key is not None:
                    first_of[key] = name, weakref.ref(value)
            if progress is not None:
                done += getattr(value, "nbytes", 0)
                progress(done, total)
    return writer.shared


def _identity(value: Any, by: str | bool) -> tuple[Any, ...] | None:  # noqa: FBT001  # one of two words
    """Return what tells whether two living arrays are one; None where that cannot be told."""
    if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.hasobject:
        return None
    if by == "content":
        try:
            spell(value.dtype)
        except NotRepresentableError:
            return None  # the writer says so, with the name
        hasher = ALGORITHMS["sha256"].hasher()
        for block in blocks(value):
            hasher.update(block)
        return value.dtype.newbyteorder("="), value.shape, hasher.hexdigest()
    address = value.__array_interface__["data"][0]
    return address, value.dtype, value.shape, value.strides


def _sort_key(name: object) -> bytes:
    # A name that is no text is refused by the writer, with the place in its message.
    return str(name).encode("utf-8", "surrogatepass")


def load_file(
    path: str | os.PathLike[str],
    *,
    copy: bool = False,
    verify: bool | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Load all tensors of a file.

    Args:
        path: the file.
        copy: False gives views of the file where the data is raw: nothing is read until it is
            touched, writing to an array copies its page and never reaches the file, and the file
            must not be changed in place meanwhile. True gives memory of its own, each tensor
            checked against its digest.
        verify: None checks digests on what is copied, True on everything, False on nothing.
        threads: how many read or decompress; by default as many as there are cores, four at most,
            or what `ZTENSOR_NUM_THREADS` says.

    Returns:
        Names to arrays; sparse and quantized objects, and those of unknown layouts, are
        `ztensor.Tensor`. `save_file` takes the same dict.

    Raises:
        FormatError: the file is damaged or no zTensor file.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """
    with Reader(path, verify=verify) as reader:
        return load_all(reader, copy=copy, threads=threads)


def load(
    data: Any, *, copy: bool = True, verify: bool | None = None, threads: int | None = None
) -> dict[str, Any]:
    """Load all tensors from bytes; see `load_file`.

    Args:
        data: a bytes-like object.
        copy: True gives memory of its own; False read-only views of `data`.
        verify: None checks digests on what is copied, True on everything, False on nothing.
        threads: how many copy or decompress.
    """
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        raise ArgumentTypeError("load takes bytes; load_file takes a path", found=describe(data))
    with Reader(data, verify=verify) as reader:
        return load_all(reader, copy=copy, threads=threads)
