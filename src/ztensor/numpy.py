"""Save and load dicts of NumPy arrays, under the names safetensors gave these functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ztensor.boundary import public
from ztensor.opening import open as open_files
from ztensor.opening import reader_of_bytes
from ztensor.reading.loading import load_all, load_files
from ztensor.sharded.saving import save_files
from ztensor.writing.planning import attributes_given
from ztensor.writing.saving import saved_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.layout.base import Array
    from ztensor.source.sink import Durable
    from ztensor.typing import Bytes, Openable, Path, Progress, Storage, Target

__all__ = ["load", "load_file", "save", "save_file"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


@public
def save_file(
    tensors: Mapping[str, object],
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    chunk_rows: int | None = None,
    checksum: str | bool | None = True,
    version: str = "1.2.0",
    alignment: int | None = None,
    canonical: bool = False,
    durable: Durable = "auto",
    deduplicate: Literal["memory", "content", False] = "memory",
    max_shard_size: int | str | None = None,
    format: str | None = None,
    progress: Progress | None = None,
    attributes: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Save a dict of tensors as one file; an old file is replaced atomically.

    Tensors are written in order of their names, so the same dict gives the same bytes.

    Args:
        tensors: names to arrays, or to `ztensor.Tensor` for sparse and quantized ones.
        filename: the file; also a file object open for writing bytes. Its suffix says what is
            written: `.safetensors`, `.npz`, `.npy` (one tensor, called "array"), `.gguf`, `.h5` and
            `.hdf5` give a file of that format, any other a zTensor file.
        metadata: key-value pairs of the file, its attributes; the page Reference says which values
            are allowed.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
        chunk_rows: of compressed tensors, how many rows (indices of the first axis) are decoded
            together; by default as many as 64 KiB hold. See `ztensor.Writer`.
        checksum: as for `ztensor.Writer`: True for the version's own, a name, or None.
        version: `"1.2.0"`, `"1.1.0"`, `"0.1.0"` or `"2.1"`.
        alignment: of 2.1; as for `ztensor.Writer`.
        canonical: of 2.1, likewise: True makes the same tensors the same bytes.
        durable: True flushes to disk before this returns; "auto" does so when an existing file is
            replaced; False leaves it to the system.
        deduplicate: "memory" stores arrays over the same memory (tied weights) once, under all
            their names; "content" also those whose bytes are equal; False stores each.
        max_shard_size: most bytes of tensors in a file, such as 500_000_000 or "5GB": a dict that
            is larger goes to `model-00001-of-00003.zt` and so on, with `model.zt.index.json`,
            which is replaced as a whole too. "content" then looks within each file.
        format: the format to write, whatever the suffix: `"zt"`, `"safetensors"`, `"npz"`,
            `"npy"`, `"gguf"` or `"hdf5"`.
        progress: called with the bytes of tensors written so far and of all of them.
        attributes: another name of `metadata`, which `Writer` has; only one of them.

    Returns:
        Names whose bytes are stored under another name, mapped to that name.

    Raises:
        NotRepresentableError: a tensor cannot be stored in the version or the format; the message
            says what to do instead. No file appears.
        ArgumentTypeError: `tensors` is no mapping.
        ArgumentValueError: the suffix is of a format that is only read, or an option is for
            zTensor files only.
        SourceError: the file could not be written. The old file is still there.
    """
    return save_files(
        tensors,
        filename,
        attributes_given(metadata, attributes),
        progress,
        deduplicate,
        max_shard_size=max_shard_size,
        compression=compression,
        chunk_rows=chunk_rows,
        checksum=checksum,
        version=version,
        alignment=alignment,
        canonical=canonical,
        durable=durable,
        format=format,
    )


@public
def save(
    tensors: Mapping[str, object],
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    chunk_rows: int | None = None,
    checksum: str | bool | None = True,
    version: str = "1.2.0",
    alignment: int | None = None,
    canonical: bool = False,
    deduplicate: Literal["memory", "content", False] = "memory",
    attributes: Mapping[str, object] | None = None,
) -> bytes:
    """Return the bytes `save_file` would write; see there."""
    return saved_bytes(
        tensors,
        metadata,
        attributes,
        deduplicate,
        compression=compression,
        chunk_rows=chunk_rows,
        checksum=checksum,
        version=version,
        alignment=alignment,
        canonical=canonical,
    )


@public
def load_file(
    filename: Openable,
    copy: bool = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    verify: bool | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage: Storage | None = None,
    cache: Path | None = None,
) -> dict[str, Array | Any]:
    """Load all tensors of a file, or of a sharded model.

    Args:
        filename: the file; or an index, a folder or a list of paths, as `ztensor.open` takes them.
        copy: False gives views of the file if the data is raw, unchecked: nothing is read until it
            is used, writing to an array never changes the file, and the file must not be changed in
            place meanwhile. True gives each tensor its own memory, aligned, and checks its digest.
        verify: None checks digests on what is copied, True on everything, False on nothing.
        threads: how many read or decompress; by default as many as there are cores, four at most,
            or what `ZTENSOR_NUM_THREADS` says. Shards are loaded one after the other.
        progress: called after each file with the bytes of the files loaded so far and of all.
        storage: how the store of a URL is opened; see `ztensor.Reader`.
        cache: a folder that keeps what is read of a URL; see `ztensor.Reader`.

    Returns:
        Names to arrays; sparse and quantized objects, and those of unknown layouts, are
        `ztensor.Tensor`. `save_file` takes the same dict.

    Raises:
        FormatError: the file is damaged or no zTensor file.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """
    with open_files(filename, verify=verify, storage=storage, cache=cache) as reader:
        return load_files(reader.objects, load_all, progress, copy=copy, threads=threads)


@public
def load(
    data: Bytes, *, copy: bool = True, verify: bool | None = None, threads: int | None = None
) -> dict[str, Array | Any]:
    """Load all tensors from bytes; see `load_file`.

    Args:
        data: a bytes-like object.
        copy: True gives memory of its own; False read-only views of `data`.
        verify: None checks digests on what is copied, True on everything, False on nothing.
        threads: how many copy or decompress.
    """
    with reader_of_bytes(data, verify=verify) as reader:
        return load_files(reader.objects, load_all, copy=copy, threads=threads)
