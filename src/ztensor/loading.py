"""All objects of a reader at once: views laid in bulk, or owned arrays filled by several threads.

Reading one object at a time goes through `reader.py`, which this mirrors for the common case,
plain dense tensors; everything else is handed to it. Owned reads follow what was measured: large
tensors in arrays of their own (the system gives them huge pages), small neighbours together in
one read into shared memory, digests computed by the same thread while the bytes are in its cache.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.digest import require_match
from ztensor.errors import ZTensorError
from ztensor.layout.base import empty_array
from ztensor.layout.elements import HOST_ORDER, result_dtype
from ztensor.model.manifest import Component, TensorObject
from ztensor.reader import digest_of
from ztensor.threads import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ztensor.container.regular import Columns
    from ztensor.layout.base import Array
    from ztensor.reader import ManifestReader

# From here on a tensor gets an array of its own; below, neighbours share one slab.
_OWN_BYTES = 4 << 20
_SLAB_BYTES = 64 << 20
# Small neighbours are read together up to this long, which also is the unit threads share.
_JOB_BYTES = 8 << 20
# Dead bytes between two tensors that are cheaper to read than to jump over.
_GAP_BYTES = 64 << 10
_ALIGNMENT = 64


@dataclasses.dataclass(slots=True)
class _Plain:
    """A dense tensor whose stored bytes are its elements."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    component: Component


def load_all(
    reader: ManifestReader, *, copy: bool, threads: int | None = None, separate: bool = False
) -> dict[str, Any]:
    """Return all objects by name, in the order of the file.

    Args:
        reader: an open reader.
        copy: False gives views of the file where that is possible; True owned memory.
        threads: how many fill owned memory; see `thread_count`.
        separate: True gives every owned array memory of its own. By default small ones share
            memory with their neighbours in the file, which is freed when the last of them is.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    workers = thread_count(threads)
    reader._require_open()
    whole = None if copy else reader._source.view()
    if whole is None:
        return _load_owned(reader, workers, separate=separate)
    if reader._verify is True:  # every view is checked before it is handed out
        result: dict[str, Any] = {}
        _read_each(reader, reader, workers, result, copy=False)
        return result
    reader._source.require_unchanged()
    return _load_views(reader, whole, workers)


def _load_views(reader: ManifestReader, whole: memoryview, workers: int) -> dict[str, Any]:
    objects = reader._manifest.objects
    result: dict[str, Any] = dict.fromkeys(objects)  # keeps the order of the file
    others = []
    ndarray = np.ndarray
    for name, shape, dtype, offset in _places(objects):
        if dtype is not None:
            try:
                result[name] = ndarray(shape, dtype, whole, offset)
                continue
            except (ValueError, TypeError):
                pass  # a rank or dimension NumPy cannot hold: the reader says so
        others.append(name)
    _read_each(reader, others, workers, result, copy=False)
    return result


def _places(
    objects: Mapping[str, TensorObject],
) -> Iterable[tuple[str, tuple[int, ...], np.dtype[Any] | None, int]]:
    """Yield name, shape, element type and offset; no type where a view cannot be laid."""
    dtypes = _Dtypes()
    # Asked for by name: small manifests are not read as columns, and never import what does it.
    columns: Columns | None = getattr(objects, "columns", None)
    if columns is None:
        for name, tensor_object in objects.items():
            component = tensor_object.components.get("data")
            if component is None or component.length == 0:
                yield name, tensor_object.shape, None, 0
            else:
                dtype = dtypes.plain(tensor_object)
                yield name, tensor_object.shape, dtype, component.offset
        return
    # Read as columns, and laid from them: no value is made for any of the objects.
    known: list[np.dtype[Any] | None] = [None] * len(columns.spellings)
    for used in np.unique(columns.types).tolist():
        dtype_name, type_name = columns.spellings[used]
        component = Component(dtype_name, 0, 0, type_name)
        known[used] = dtypes.plain(TensorObject((), "dense", {"data": component}))
    is_plain = columns.is_raw & (columns.lengths > 0)
    for name, shape, kind, offset, plain in zip(
        columns.names,
        columns.shapes(),
        columns.types.tolist(),
        columns.offsets.tolist(),
        is_plain.tolist(),
        strict=True,
    ):
        yield name, shape, known[kind] if plain else None, offset
    for name in set(objects).difference(columns.names):
        yield name, (), None, 0


class _Dtypes:
    """Remembers which pairs of storage and logical type lie in the file as NumPy has them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], np.dtype[Any] | None] = {}

    def plain(self, tensor_object: TensorObject) -> np.dtype[Any] | None:
        """Return the element type of a plain dense tensor, None for everything else."""
        if tensor_object.format != "dense":
            return None
        component = tensor_object.components["data"]
        if (
            component.encoding != "raw"
            or component.nonzero_is_true
            or component.byte_order != HOST_ORDER
        ):
            return None
        key = component.dtype, component.type
        if key not in self._known:
            self._known[key] = self._look_up(component)
        return self._known[key]

    def _look_up(self, component: Component) -> np.dtype[Any] | None:
        logical = component.logical
        if component.type is not None and (logical is None or logical.elements_per_storage > 1):
            return None
        try:
            return result_dtype(component)
        except ZTensorError:
            return None  # the reader says why


def _read_each(
    reader: ManifestReader,
    names: Iterable[str],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
) -> None:
    """Read objects one by one, several at a time: compressed, sparse, quantized, unusual ones."""

    def read(name: str) -> Any:
        return _read_one(reader, name, copy=copy)

    names = list(names)
    if workers > 1 and len(names) > 1:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            result.update(zip(names, pool.map(read, names), strict=True))
    else:
        result.update((name, read(name)) for name in names)


def _read_one(reader: ManifestReader, name: str, *, copy: bool) -> Any:
    if reader._object(name).format == "dense":
        return reader.read_numpy(name, copy=copy)
    return reader.read(name, copy=copy)


# --- Owned memory ---------------------------------------------------------------------------


def _load_owned(reader: ManifestReader, workers: int, *, separate: bool) -> dict[str, Any]:
    dtypes = _Dtypes()
    result: dict[str, Any] = {}
    plain: list[_Plain] = []
    others = []
    for name, tensor_object in reader._manifest.objects.items():
        result[name] = None  # keeps the order of the file
        dtype = dtypes.plain(tensor_object)
        component = tensor_object.components.get("data")
        if dtype is None or component is None or component.length == 0:
            others.append(name)
        else:
            plain.append(_Plain(name, tensor_object.shape, dtype, component))
    plain.sort(key=lambda item: item.component.offset)
    jobs: list[Callable[[], None]] = []
    for group in _groups(plain, separate=separate):
        jobs.extend(_jobs(reader, group, result))
    _run(jobs, workers)
    _read_each(reader, others, workers, result, copy=True)
    return result


def _groups(plain: list[_Plain], *, separate: bool) -> Iterable[list[_Plain]]:
    """Yield tensors that share memory: neighbours in the file, a slab at most."""
    group: list[_Plain] = []
    start = end = 0
    for item in plain:
        offset, length = item.component.offset, item.component.length
        alone = separate or length >= _OWN_BYTES
        if group and (alone or offset > end + _GAP_BYTES or offset + length > start + _SLAB_BYTES):
            yield group
            group = []
        if alone:
            yield [item]
            continue
        if not group:
            start = end = offset
        group.append(item)
        end = max(end, offset + length)
    if group:
        yield group


def _jobs(
    reader: ManifestReader, group: list[_Plain], result: dict[str, Any]
) -> Iterable[Callable[[], None]]:
    """Allocate a group's memory, lay its arrays into it, and yield the reads that fill it."""
    start = group[0].component.offset
    end = max(item.component.offset + item.component.length for item in group)
    slab = _aligned(end - start)
    memory = slab.data
    part: list[_Plain] = []
    part_start = start
    for item in group:
        offset, length = item.component.offset, item.component.length
        try:
            result[item.name] = np.ndarray(item.shape, item.dtype, memory, offset - start)
        except (ValueError, TypeError):  # NumPy cannot hold the shape: the reader says so
            result[item.name] = _read_one(reader, item.name, copy=True)
            continue
        if part and offset + length > part_start + _JOB_BYTES:
            yield _job(reader, part, memory, start)
            part = []
        if not part:
            part_start = offset
        part.append(item)
    if part:
        yield _job(reader, part, memory, start)


def _aligned(length: int) -> Array:
    """Return `length` bytes of new memory that begin at a multiple of 64, as blobs do in files."""
    memory = empty_array((length + _ALIGNMENT,), np.dtype(np.uint8))
    shift = -memory.ctypes.data % _ALIGNMENT
    return memory[shift : shift + length]


def _job(
    reader: ManifestReader, part: list[_Plain], memory: memoryview, start: int
) -> Callable[[], None]:
    """Return the read of one run of neighbours, or of one large tensor piece by piece."""

    def run() -> None:
        first = part[0].component.offset
        last = max(item.component.offset + item.component.length for item in part)
        if len(part) == 1:
            item = part[0]
            with reader._located(item.name, "data"):
                reader._read_checked(item.component, memory[first - start : last - start])
            return
        with reader._located(part[0].name):
            reader._source.read_into(first, memory[first - start : last - start])
        for item in part:
            digest = digest_of(item.component) if reader._verify is not False else None
            if digest is None or digest.known is None:
                continue
            with reader._located(item.name, "data"):
                hasher = digest.known.hasher()
                begin = item.component.offset - start
                hasher.update(memory[begin : begin + item.component.length])
                require_match(digest, hasher.hexdigest())

    return run


def _run(jobs: list[Callable[[], None]], workers: int) -> None:
    if workers <= 1 or len(jobs) < 2:
        for job in jobs:
            job()
        return
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
