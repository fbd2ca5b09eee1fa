"""Dask arrays over objects of files: each chunk reads its data when it is computed.

weights = ztensor.dask.from_file("model.zt", "embed.weight")
weights.mean(axis=0).compute()
"""

from __future__ import annotations

import collections
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import TensorSlice
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentValueError,
    MissingDependencyError,
    Reason,
    SourceError,
    describe,
)
from ztensor.ext import FileObjects, Lock, slice_of
from ztensor.typing import Array, Openable, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import dask.array as da


try:
    importlib.import_module("dask.array")
except ImportError as error:
    raise MissingDependencyError("ztensor.dask needs Dask", install="'dask[array]'") from error

__all__ = ["from_file"]

# Objects that a worker keeps open, for their next chunks.
_MOST_OPEN = 16


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def from_file(
    source: Openable,
    name: str,
    chunks: int | str | tuple[object, ...] | dict[int, object] = "auto",
    *,
    verify: bool | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> da.Array:
    """Return a dense object as a lazy Dask array.

    Chunks are read without a lock, and by every scheduler: threads, processes, and `distributed`,
    with workers that open the file by its path or URL. A chunk is new memory, never a view of the
    file.

    Names of chunks are derived from the file's identity (device, inode, size and time of change; of
    a URL its ETag), and from the object's position and digests. A file that replaces another gives
    other names, so cached results are never stale. Computing fails if the file was replaced before
    a worker opened it.

    Args:
        source: a source of `ztensor.open`, except a file object.
        name: the object.
        chunks: as for `dask.array.from_array`. "auto" gives whole rows, as many as fit into Dask's
            `array.chunk-size`; of a compressed object a multiple of the rows that are decoded
            together.
        verify: as for `ztensor.open`. Slices are checked with True only, which reads the complete
            object once in each process.
        storage: see `ztensor.typing.OpenOptions`.
        storage_options: see there.

    Raises:
        ObjectNotFoundError: no object has this name.
        UsageError: it is not dense, or another process cannot open the source.
        ArgumentValueError: `chunks` do not fit the shape.
        FormatError: the file is damaged.
        UnsupportedError: its version, or a type or encoding of the object, is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    import dask.array
    from dask.tokenize import tokenize

    reader = open_reader(
        source, verify=verify, mmap=False, storage=storage, storage_options=storage_options
    )
    file = reader.objects.part(name)
    file.require_dense(name)
    stored = StoredChunks(file, name, _state(file, name))
    stored.__reduce__()  # raises if another process cannot open it
    try:
        cut = _chunks(file, name, stored, chunks)
    # Dask's errors for invalid sizes, other values, and chunks that it cannot compute.
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ArgumentValueError(
            "these chunks do not fit the object",
            file=file.name,
            object_name=name,
            expected=f"chunks of {stored.shape}",
            found=f"{describe(chunks)}: {describe(str(error), 200)}",
        ) from error
    token = tokenize(stored.token, cut, verify)
    return dask.array.from_array(
        stored,
        chunks=cut,
        name=f"ztensor-{token}",
        lock=False,
        meta=np.empty((0,) * len(stored.shape), stored.dtype),
    )


class StoredChunks:
    """An object as an array for Dask; another process opens the file again, if it is unchanged.

    Args:
        file: the file of the object.
        name: the object's name.
        state: identity of the file when the graph was made.

    Attributes:
        shape: the object's shape.
        dtype: the type of its elements.
        ndim: the count of dimensions.
    """

    def __init__(self, file: FileObjects, name: str, state: object) -> None:
        self._file, self._name, self._state = file, name, state
        self._slice: TensorSlice = slice_of(file, name, copy=True)
        self.shape = self._slice.shape
        self.dtype = self._slice.dtype
        self.ndim = len(self.shape)

    @property
    def token(self) -> tuple[object, ...]:
        """Return a key that identifies the object and its content."""
        return self._slice.__dask_tokenize__()

    def __getitem__(self, key: Any) -> Array:
        """Return the part that an index selects."""
        return np.asarray(self._slice[key])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle path, name and the identity of the file."""
        opener, arguments = self._file.__reduce__()[:2]
        return _reopened, (opener, arguments, self._file.name, self._name, self._state)


_open: collections.OrderedDict[object, StoredChunks] = collections.OrderedDict()
_lock = Lock()


def _reopened(
    opener: Callable[..., FileObjects],
    arguments: tuple[Any, ...],
    file: str,
    name: str,
    state: object,
) -> StoredChunks:
    """Return an object in another process; the last few stay open, for their next chunks.

    Raises:
        SourceError: the file has changed, or cannot be opened.
    """
    key = file, name, repr(state)
    with _lock:
        stored = _open.get(key)
        if stored is not None:
            _open.move_to_end(key)
            return stored
    objects = opener(*arguments)
    now = _state(objects, name)
    if now != state:
        raise SourceError(
            "the file was replaced or changed since the array was made",
            reason=Reason.SOURCE_CHANGED,
            file=file,
            object_name=name,
        )
    stored = StoredChunks(objects, name, state)
    with _lock:
        _open[key] = stored
        while len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
    return stored


def _state(file: FileObjects, name: str) -> tuple[object, ...]:
    """Return the file's identity without inode and device: it is equal on all machines."""
    components = sorted(file.object(name).components.items())
    places = tuple((role, part.offset, part.length, part.digest) for role, part in components)
    known = [part.identity() for _, part in file.source.parts if part.path is not None]
    files = [identity for identity in known if identity is not None]
    times = tuple(identity[2:] for identity in files) if files else file.identity()
    return places, times


def _chunks(file: FileObjects, name: str, stored: StoredChunks, chunks: Any) -> Any:
    """Return the lengths of chunks along each axis."""
    import dask
    from dask.array.core import normalize_chunks
    from dask.utils import parse_bytes

    shape, dtype = stored.shape, stored.dtype
    if isinstance(chunks, str) and chunks == "auto" and len(shape) > 0 and 0 not in shape:
        limit = parse_bytes(dask.config.get("array.chunk-size"))
        row = int(np.prod(shape[1:], dtype=object)) * dtype.itemsize
        if row <= limit:
            together = _rows_together(file, name, row)
            rows = max(limit // row // together, 1) * together
            chunks = (min(rows, shape[0]), *shape[1:])
    return normalize_chunks(chunks, shape, dtype=dtype)


def _rows_together(file: FileObjects, name: str, row: int) -> int:
    """Return the count of rows that are decoded together; 1 if it varies."""
    tensor_object = file.object(name)
    component = tensor_object.components["data"]
    needed = component.known_decoded_length
    if needed is None:
        needed = tensor_object.shape[0] * row
    runs = file.stored(component).runs(needed, (name, "data"))
    if runs is None or len(runs.decoded) < 3:  # one run is the whole
        return 1
    ends = np.frombuffer(runs.decoded, np.uint64)
    first = int(ends[1])
    if first % row or (ends[:-1] % np.uint64(first)).any():
        return 1
    return first // row
