"""All objects of a file at once: views, or owned arrays filled by several threads.

Plain tensors are laid over the map, or read together with their neighbours; everything else is
read one by one by `file.py`. Owned reads follow measurements: large tensors in arrays of their own
(the system gives them huge pages), small neighbours together in one read into shared memory,
digests computed by the same thread while the bytes are in its cache.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.buffers import aligned
from ztensor.errors import UnsupportedError
from ztensor.model.later import LaterObjects
from ztensor.model.rules import align
from ztensor.reading.bulk import RUN_BYTES, Rows, packed_jobs, require_right
from ztensor.reading.component import lengths_of
from ztensor.source.base import fill_arriving
from ztensor.threads import at_most, run_jobs, thread_count, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ztensor.reading.file import FileObjects
    from ztensor.reading.objects import Objects
    from ztensor.reading.places import Place

    Piece = tuple[int, memoryview, Callable[[], None]]

# From here on a tensor gets an array of its own; below, neighbours share one slab.
_OWN_BYTES = 4 << 20
_SLAB_BYTES = 64 << 20
# Memory mirrors the file, which is read in long pieces, unless so many times as much is between.
_MOST_SPREAD = 2
_JOB_ROWS = 256  # of those that are read one by one


def load_all(
    file: FileObjects, *, copy: bool, threads: int | None = None, separate: bool = False
) -> dict[str, Any]:
    """Return all objects by name, in the order of the file.

    Args:
        file: an open file.
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
    file.require_open()
    workers = thread_count(threads)
    whole = None if copy else file.source.view()
    try:
        if file.source.prefers_long_reads and isinstance(file.manifest.objects, LaterObjects):
            return _load_later(file, copy=copy)
        if whole is None:
            return _load_owned(file, workers, separate=separate)
        if file.verify is True:  # every view is checked before it is handed out
            result: dict[str, Any] = {}
            read_each(file, file.names, workers, result, copy=False)
            return result
        file.source.require_unchanged()
        return _load_views(file, whole, workers)
    except UnsupportedError as error:
        if error.object_name is not None and len(file.names) > 1:
            error.hint = error.hint or "ztensor.open reads the other objects by name"
        raise


def load_files(
    objects: Objects,
    load: Callable[..., dict[str, Any]],
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Load all objects of one file or of a set, file after file.

    Args:
        objects: those of what `ztensor.open` gave.
        load: loads all objects of one file, as `load_all` does.
        progress: called after each file with the bytes loaded so far and of all of them.
        options: passed on to `load`.

    Returns:
        Names to what `load` made of them, in the order of the objects.

    Raises:
        ZTensorError: what opening a file or `load` raises.
    """
    files = objects.parts()
    total, done = sum(file.nbytes for file in files), 0
    result: dict[str, Any] = {}
    for file in files:
        result.update(load(file, **options))
        done += file.nbytes
        if progress is not None:
            progress(done, total)
    return result if len(files) == 1 else {name: result[name] for name in objects.names}


def _load_views(file: FileObjects, whole: memoryview, workers: int) -> dict[str, Any]:
    places = file.places().every()
    result: dict[str, Any] = {
        name: None if place is None or not place.is_viewable else place.array(whole, place.offset)
        for name, place in places.items()
    }
    _read_others(file, places, workers, result, copy=False, separate=False)
    return result


def _read_others(
    file: FileObjects,
    places: Mapping[str, Place | None],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
    separate: bool,
) -> None:
    """Read the objects that are None in `result`."""
    if not file.source.prefers_long_reads:
        left = ((name, places[name]) for name, value in result.items() if value is None)
        jobs, is_shared = packed_jobs(file, left, result, separate=separate)
        run_jobs(jobs, workers if is_shared else 1)
    names = file.in_file_order(name for name, value in result.items() if value is None)
    if len(names) < len(result):
        read_each(file, names, workers, result, copy=copy)
        return
    with file.source.walked():
        read_each(file, names, workers, result, copy=copy)


def read_each(
    file: FileObjects,
    names: Collection[str],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
) -> None:
    """Read objects one by one, by several threads.

    Args:
        file: an open file.
        names: the objects.
        workers: how many threads to use where they pay.
        result: where the values go, by name.
        copy: as `FileObjects.value` takes it.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    workers = min(workers, file.thread_count(workers))
    if workers > 1:
        workers = worth(workers, lengths_of(file, map(file.object, names)))

    def read(name: str) -> None:
        result[name] = file.value(name, copy=copy)

    with at_most(workers):
        run_jobs((functools.partial(read, name) for name in names), workers)


def _load_later(file: FileObjects, *, copy: bool) -> dict[str, Any]:
    """Read objects that say beside their bytes what they are: each with its bytes, in their order.

    To look at each before would be a request for each.
    """
    objects = file.manifest.objects
    found: dict[str, Any] = dict(file.arrays_at_once(objects))
    with file.source.walked():
        for name in file.in_file_order(name for name in objects if name not in found):
            found[name] = file.value(name, copy=copy)
    return {name: found[name] for name in objects}


# --- Owned memory ---------------------------------------------------------------------------


def _load_owned(file: FileObjects, workers: int, *, separate: bool) -> dict[str, Any]:
    every = file.places().every()
    rows = Rows.of(
        [(name, one) for name, one in every.items() if one is not None and one.encoding == "raw"]
    )
    is_far = file.source.prefers_long_reads
    if is_far and 2 * int(rows.lengths.sum()) < file.source.size:
        rows = rows.part(0, 0)  # most is encoded: all in one pass, in its order
    result: dict[str, Any] = dict.fromkeys(every)
    owned = _Owned(file, result, workers)
    for group in rows.runs(_SLAB_BYTES, 0 if separate else _OWN_BYTES):
        owned.add(group)
    fill_arriving(file.source, owned.arriving)
    run_jobs(owned.jobs, workers)
    for name in owned.unaligned:
        result[name] = result[name].copy()
    _read_others(file, every, workers, result, copy=True, separate=separate)
    return result


class _Owned:
    """Memory for plain tensors, and what fills it.

    Args:
        file: the file.
        result: takes the arrays by name.
        workers: how many threads fill them.

    Attributes:
        jobs: fill memory, each for itself.
        arriving: memory that is filled as bytes arrive, and what to do then.
        unaligned: tensors at addresses that are no multiple of the width of their elements.
    """

    def __init__(self, file: FileObjects, result: dict[str, Any], workers: int) -> None:
        self._file = file
        self._result = result
        self._workers = workers
        self.jobs: list[Callable[[], None]] = []
        self.arriving: list[Piece] = []
        self.unaligned: list[str] = []

    def add(self, rows: Rows) -> None:
        """Take neighbours in the file, which share memory."""
        file, start = self._file, rows.offsets.item(0)
        span = int((rows.offsets + rows.lengths).max()) - start
        is_far = file.source.prefers_long_reads
        is_apart = not is_far and span > _MOST_SPREAD * int(rows.lengths.sum())
        starts, length = rows.offsets - start, span
        if is_apart:
            stops = np.cumsum(align(rows.lengths))
            starts, length = np.append(0, stops[:-1]), stops.item(-1)
        slab = aligned(length).data
        begins = starts.tolist()
        for name, place, begin in zip(rows.names, rows.places, begins, strict=True):
            array = self._result[name] = place.array(slab, begin)
            if array is not None and begin % place.dtype.itemsize:
                self.unaligned.append(name)
        if len(rows) == 1:
            self._add_one(rows.names[0], slab, is_far=is_far)
        elif is_far:
            check = functools.partial(require_right, file, rows, slab, begins)
            self.arriving.append((start, slab, check))
        elif is_apart:
            for first in range(0, len(rows), _JOB_ROWS):
                last = first + _JOB_ROWS
                part = rows.part(first, last)
                self.jobs.append(
                    functools.partial(self._fill_apart, part, slab, begins[first:last])
                )
        else:
            for run in rows.runs(RUN_BYTES, RUN_BYTES):
                self.jobs.append(functools.partial(self._fill_run, run, slab, start))

    def _add_one(self, name: str, memory: memoryview, *, is_far: bool) -> None:
        """Take one tensor, which is read in pieces, each hashed while it is in the cache."""
        pieces = self._pieces(name, memory)
        if is_far:
            self.arriving.extend(pieces)
        elif self._workers > 1:
            self.jobs.extend(functools.partial(self._fill_piece, name, *piece) for piece in pieces)
        else:
            self.jobs.append(functools.partial(self._fill_one, name, memory))

    def _pieces(self, name: str, memory: memoryview) -> Iterator[Piece]:
        """Yield where in the file each piece of one tensor is, its memory, and what to do then.

        Pieces are hashed in their order; the last compares the digest.
        """

        def checked(done: Callable[[], None]) -> None:
            with self._file.located(name, "data"):
                done()

        component = self._file.object(name).components["data"]
        for offset, piece, done in self._file.stored(component).parts(memory):
            yield offset, piece, functools.partial(checked, done)

    def _fill_one(self, name: str, memory: memoryview) -> None:
        with self._file.located(name, "data"):
            self._file.stored(self._file.object(name).components["data"]).fill(memory)

    def _fill_piece(
        self, name: str, offset: int, piece: memoryview, check: Callable[[], None]
    ) -> None:
        with self._file.located(name, "data"):
            self._file.source.read_into(offset, piece)
        check()

    def _fill_run(self, rows: Rows, memory: memoryview, start: int) -> None:
        """Read neighbours at once; `memory` is for what is in the file from `start` on."""
        begins = (rows.offsets - start).tolist()
        stop = int((rows.offsets + rows.lengths).max()) - start
        with self._file.located(rows.names[0]):
            self._file.source.read_into(start + begins[0], memory[begins[0] : stop])
        require_right(self._file, rows, memory, begins)

    def _fill_apart(self, rows: Rows, memory: memoryview, begins: list[int]) -> None:
        """Read tensors that are far apart, each by itself."""
        parts = [
            (place.offset, memory[begin : begin + place.length])
            for place, begin in zip(rows.places, begins, strict=True)
        ]
        with self._file.located(rows.names[0]):
            self._file.source.read_many(parts)
        require_right(self._file, rows, memory, begins)
