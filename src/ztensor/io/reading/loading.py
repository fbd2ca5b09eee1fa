"""All objects of a file at once: views, or owned arrays filled by several threads.

Plain tensors are laid over the map, or read together with their neighbours; everything else is
read one by one by `file.py`. Owned reads follow measurements: large tensors in arrays of their own
(the system gives them huge pages), small neighbours together in one read into shared memory,
digests computed by the same thread while the bytes are in its cache.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ztensor.arguments import require_function
from ztensor.buffers import aligned
from ztensor.errors import UnsupportedError
from ztensor.io.reading.bulk import RUN_BYTES, Rows, packed_jobs, require_right
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.source.base import fill_arriving
from ztensor.spec.model.objects import LaterObjects
from ztensor.threads import run_jobs
from ztensor.threads.sharing import at_most, thread_count, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ztensor.io.reading.objects import Objects
    from ztensor.io.reading.places import Place

    Piece = tuple[int, memoryview, Callable[[], None]]

# From here on a tensor gets an array of its own; below, neighbours share one slab.
_OWN_BYTES = 4 << 20
_SLAB_BYTES = 64 << 20
_GAP_BYTES = 1 << 10  # between neighbours: memory mirrors the file, and heads of archives are less


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
    require_function("progress", progress)
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
    _read_others(file, places, workers, result, copy=False)
    return result


def _read_others(
    file: FileObjects,
    places: Mapping[str, Place | None],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
) -> None:
    """Read the objects that are None in `result`."""
    if not file.source.prefers_long_reads:
        left = ((name, places[name]) for name, value in result.items() if value is None)
        jobs, is_shared = packed_jobs(file, left, result)
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
    arriving: list[Piece] = []
    jobs: list[Callable[[], None]] = []
    unaligned: list[str] = []
    for group in rows.runs(_SLAB_BYTES, 0 if separate else _OWN_BYTES, _GAP_BYTES):
        start = group.offsets.item(0)
        slab = aligned(int((group.offsets + group.lengths).max()) - start).data
        for name, place in zip(group.names, group.places, strict=True):
            begin = place.offset - start
            array = result[name] = place.array(slab, begin)
            if array is not None and begin % place.dtype.itemsize:
                unaligned.append(name)
        alone = group.names[0] if len(group) == 1 else None
        pieces = _runs(file, group, slab) if alone is None else _pieces(file, alone, slab)
        if is_far:
            arriving += pieces
        else:
            jobs += [functools.partial(_fill, file, alone, *piece) for piece in pieces]
    fill_arriving(file.source, arriving)
    run_jobs(jobs, workers)
    for name in unaligned:
        result[name] = result[name].copy()
    _read_others(file, every, workers, result, copy=True)
    return result


def _pieces(file: FileObjects, name: str, memory: memoryview) -> Iterator[Piece]:
    """Yield the pieces of one tensor, hashed in order; the last compares the digest."""
    component = file.object(name).components["data"]
    for offset, piece, done in file.stored(component).parts(memory):
        yield offset, piece, functools.partial(_checked, file, name, done)


def _checked(file: FileObjects, name: str, done: Callable[[], None]) -> None:
    with file.located(name, "data"):
        done()


def _runs(file: FileObjects, rows: Rows, slab: memoryview) -> Iterator[Piece]:
    """Yield the pieces of neighbours that share memory."""
    first = rows.offsets.item(0)
    for run in rows.runs(RUN_BYTES, RUN_BYTES, _GAP_BYTES):
        start, stop = run.offsets.item(0), int((run.offsets + run.lengths).max())
        memory = slab[start - first : stop - first]
        yield start, memory, functools.partial(require_right, file, run, memory)


def _fill(
    file: FileObjects,
    name: str | None,
    offset: int,
    memory: memoryview,
    done: Callable[[], None],
) -> None:
    with file.located(name, None if name is None else "data"):
        file.source.read_into(offset, memory)
    done()
