"""Save and load dicts of NumPy arrays, under the names safetensors gave these functions."""

from __future__ import annotations

import io
import operator
from typing import TYPE_CHECKING, Any, Literal

from ztensor.io.opening import Reader
from ztensor.io.opening import open as open_files
from ztensor.io.reading.loading import load_files
from ztensor.options import (
    LoadOptions,
    SaveOptions,
    WriteOptions,
    for_load_files,
    opening,
    require_bytes,
    require_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ztensor.spec.layout.base import Array
    from ztensor.typing import Bytes, Openable, Target

__all__ = ["load", "load_file", "save", "save_file"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def save_file(
    tensors: Mapping[str, object],
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    **options: Unpack[SaveOptions],
) -> dict[str, str]:
    """Save a dict of tensors as one file; an old file is replaced atomically.

    Tensors are written in order of their names, so the same dict gives the same bytes.

    Args:
        tensors: names to arrays, or to `ztensor.Tensor` for sparse and quantized ones.
        filename: the file; also a file object open for writing bytes. Its suffix selects the
            written: `.safetensors`, `.npz`, `.npy` (one tensor, called "array"), `.gguf`, `.h5` and
            `.hdf5` give a file of that format, any other a zTensor file.
        metadata: key-value pairs of the file, its attributes; the page Reference says which values
            are allowed.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level;
            for `"planes"` see `ztensor.typing.ModelOptions`.
        options: see `ztensor.typing.SaveOptions`.

    Returns:
        Aliases: names that share stored bytes with another name, and that name.

    Raises:
        NotRepresentableError: a tensor cannot be stored in the version or the format; the message
            says what to do instead. No file appears.
        ArgumentTypeError: `tensors` is not a mapping.
        ArgumentValueError: the suffix is of a format that is only read, or an option is for
            zTensor files only.
        SourceError: the file could not be written. The old file is still there.
    """
    require_options("save_file", options, SaveOptions)
    from ztensor.io.shards.saving import save_files  # a program that only loads needs no writer

    return save_files(tensors, filename, metadata, compression, **options)


def save(
    tensors: Mapping[str, object],
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    deduplicate: Literal["memory", "content", False] = "memory",
    **options: Unpack[WriteOptions],
) -> bytes:
    """Return the bytes `save_file` would write; see there."""
    require_options("save", options, WriteOptions)
    from ztensor.io.shards.saving import save_files

    buffer = io.BytesIO()
    save_files(tensors, buffer, metadata, compression, deduplicate=deduplicate, **options)
    return buffer.getvalue()


def load_file(
    filename: Openable,
    copy: bool = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    **options: Unpack[LoadOptions],
) -> dict[str, Array | Any]:
    """Load all tensors of a file, or of a sharded model.

    Args:
        filename: the file; or an index, a folder or a list of paths, as `ztensor.open` takes them.
        copy: False gives views of the file if the data is raw, unchecked: nothing is read until it
            is used, writing to an array never changes the file, and the file must not be changed in
            place meanwhile. True gives each tensor its own memory, aligned, and checks its digest.
        options: see `ztensor.typing.LoadOptions`.

    Returns:
        Names to arrays; objects of sparse, quantized or unknown layouts are
        `ztensor.Tensor`. `save_file` takes the same dict.

    Raises:
        ObjectNotFoundError: no name matches `only`.
        FormatError: the file is damaged or no zTensor file.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """
    require_options("load_file", options, LoadOptions)
    with open_files(filename, **opening(options)) as reader:
        how = for_load_files(options, reader.objects, operator.methodcaller("dequantize"))
        return load_files(reader.objects, copy=copy, **how)


def load(
    data: Bytes, *, copy: bool = True, verify: bool | None = None, threads: int | None = None
) -> dict[str, Array | Any]:
    """Load all tensors from bytes; see `load_file`.

    Args:
        data: a bytes-like object.
        copy: True gives memory of its own; False read-only views of `data`.
        verify: None checks digests of copied data, True of everything, False none.
        threads: how many copy or decompress.
    """
    require_bytes(data)
    with Reader(data, verify=verify) as reader:
        return load_files(reader.objects, copy=copy, threads=threads)
