"""All objects of a file at once, as views or in new memory; one into memory of the caller.

Plain tensors are laid over the map, or read together with their neighbours; everything else is
read one by one by `file.py`. Owned reads follow measurements: large tensors in arrays of their own
(the system gives them huge pages), small neighbours together in one read into shared memory,
digests computed by the same thread while the bytes are in its cache.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ztensor.arguments import require_function
from ztensor.buffers import aligned
from ztensor.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError, describe
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.io.reading.bulk import RUN_BYTES, Run, require_right, take_small
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.reading.objects import Objects
from ztensor.io.reading.places import Place
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.layout.base import Quantized
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.model.objects import Bools, LaterObjects
from ztensor.threads import run_jobs
from ztensor.threads.sharing import at_most, thread_count, worth

# From here on a tensor gets an array of its own; below, neighbours share one slab.
_OWN_BYTES = 4 << 20
_SLAB_BYTES = 64 << 20
_GAP_BYTES = 1 << 10  # between neighbours: memory mirrors the file, and heads of archives are less

Piece = tuple[int, memoryview, str | None, Callable[[], None]]


def load_all(file: FileObjects, *, copy: bool, threads: int | None = None) -> dict[str, Any]:
    """Return all objects by name, in the order of the file.

    Args:
        file: an open file.
        copy: False gives views of the file where that is possible; True owned memory, which small
            ones share with their neighbours in the file: it is freed when the last of them is.
        threads: how many fill owned memory; see `thread_count`.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    file.require_open()
    workers, source, objects = thread_count(threads), file.source, file.manifest.objects
    places: Mapping[str, Place | None] = {}
    result: dict[str, Any]
    try:
        if source.prefers_long_reads and isinstance(objects, LaterObjects):
            # What each is stands beside its bytes: to look at each first would be a request each.
            result = dict.fromkeys(objects) | file.arrays_at_once(objects)
        else:
            places, whole = file.places(), None if copy else source.view()
            copy = whole is None
            if whole is None:
                result = _owned(file, places, workers)
            elif file.verify is True:  # every view is checked before it is handed out
                result = dict.fromkeys(places)
            else:
                source.require_unchanged()
                result = {
                    name: one.array(whole, one.offset) if one and one.encoding == "raw" else None
                    for name, one in places.items()
                }
        _read_left(file, places, workers, result, copy=copy)
    except UnsupportedError as error:
        if error.object_name is not None and len(file.names) > 1:
            error.hint = error.hint or "ztensor.open reads the other objects by name"
        raise
    return result


def load_files(
    objects: Objects,
    load: Callable[..., dict[str, Any]] | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    names: Iterable[str] | None = None,
    dequantize: Callable[[Any], Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Load all objects of one file or of a set, or those that are asked for, file after file.

    Args:
        objects: of what `ztensor.open` gave, or of one file.
        load: takes the objects of one file and loads them all; None gives arrays, and takes `copy`
            and `threads`.
        progress: called after each file with the bytes loaded so far and of all of them.
        names: of those that are loaded; None loads all. No other file is opened.
        dequantize: makes a value of a quantized `ztensor.Tensor`; None leaves it as it is.
        options: passed on to `load`.

    Returns:
        Names to what `load` made of them, in the order of the objects.

    Raises:
        ObjectNotFoundError: no object of one of the names.
        ZTensorError: what opening a file or `load` raises.
    """
    load = load or load_all
    require_function("progress", progress)
    files = objects.parts() if names is None else _chosen(objects, names)
    total, done = sum(file.nbytes for file in files), 0
    result: dict[str, Any] = {}
    for file in files:
        loaded = load(file, **options)
        if dequantize is not None:
            _dequantize(file, loaded, dequantize, copy=options.get("copy", False))
        result.update(loaded)
        done += file.nbytes
        if progress is not None:
            progress(done, total)
    in_order = objects.names if len(files) > 1 else ()
    return {name: result[name] for name in in_order if name in result} if in_order else result


def _chosen(objects: Objects, names: Iterable[str]) -> list[FileObjects]:
    """Return some of the objects, by the file they are in."""
    homes: dict[FileObjects, list[str]] = {}
    for name in names:
        homes.setdefault(objects.part(name), []).append(name)
    return [file.select(some) for file, some in homes.items()]


def _dequantize(
    file: FileObjects, loaded: dict[str, Any], dequantize: Callable[[Any], Any], *, copy: bool
) -> None:
    """Put floats in the place of each quantized tensor; what was a view is checked before."""
    for name, value in loaded.items():
        if isinstance(LAYOUTS.get(getattr(value, "format", "")), Quantized):
            if not copy:
                file.require_copied(name)
            with file.located(name):
                loaded[name] = dequantize(value)


def _read_left(
    file: FileObjects,
    places: Mapping[str, Place | None],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
) -> None:
    """Read the objects that are None in `result`: small encoded ones by runs, the rest each."""

    def take(run: Run, targets: list[memoryview], right: Bools) -> None:
        for number in np.flatnonzero(right).tolist():
            name, place = run.named[number]
            result[name] = place.array(targets[number], 0)

    if not file.source.prefers_long_reads:
        left = ((name, one) for name, one in places.items() if one and result[name] is None)
        take_small(file, ((n, one) for n, one in left if one.encoding != "raw"), take, workers)
    names = file.in_file_order(name for name, value in result.items() if value is None)
    is_walked = len(names) == len(result) or not places
    workers = min(workers, file.thread_count(workers))
    if workers > 1:
        workers = worth(workers, lengths_of(file, map(file.object, names)))

    def read(name: str) -> None:
        result[name] = file.value(name, copy=copy)

    with file.walked() if is_walked else contextlib.nullcontext(), at_most(workers):
        run_jobs((functools.partial(read, name) for name in names), workers)


# --- Owned memory ---------------------------------------------------------------------------


def _owned(file: FileObjects, places: Mapping[str, Place | None], workers: int) -> dict[str, Any]:
    """Return raw plain tensors in memory of their own, and None for all others."""
    named = [(name, one) for name, one in places.items() if one and one.encoding == "raw"]
    is_far = file.source.prefers_long_reads
    result: dict[str, Any] = dict.fromkeys(places)
    if not named or (is_far and 2 * sum(one.length for _, one in named) < file.source.size):
        return result  # most is encoded: all in one pass, in its order
    pieces: list[Piece] = []
    unaligned: list[str] = []
    for run in Run.of(named).cut(_SLAB_BYTES, _OWN_BYTES, _GAP_BYTES):
        start, stop = run.span
        slab = aligned(stop - start).data
        for name, place in run.named:
            begin = place.offset - start
            array = result[name] = place.array(slab, begin)
            if array is not None and begin % place.dtype.itemsize:
                unaligned.append(name)
        pieces += _pieces(file, run, slab)

    def settle(piece: Piece, *, is_read: bool) -> None:
        offset, memory, name, check = piece
        with file.located(name, name and "data"):
            if not is_read:
                file.source.read_into(offset, memory)
            check()

    if is_far:
        wanted = [one[:2] for one in pieces]
        file.source.read_many(wanted, lambda number: settle(pieces[number], is_read=True))
    else:
        run_jobs((functools.partial(settle, piece, is_read=False) for piece in pieces), workers)
    for name in unaligned:
        result[name] = result[name].copy()
    return result


def _pieces(file: FileObjects, run: Run, slab: memoryview) -> Iterator[Piece]:
    """Yield what is read: offset, memory, the object's name if it is one, and what checks it."""
    first = run.span[0]
    if len(run.named) > 1:
        for some in run.cut(RUN_BYTES, RUN_BYTES, _GAP_BYTES):
            start, stop = some.span
            memory = slab[start - first : stop - first]
            yield start, memory, None, functools.partial(require_right, file, some, memory)
        return
    name = run.named[0][0]
    pieces, ready = file.stored(file.object(name).components["data"]).parts(slab)
    for number, (offset, piece) in enumerate(pieces):
        yield offset, piece, name, functools.partial(ready, number)


# --- Memory of the caller -------------------------------------------------------------------


def fill(file: FileObjects, name: str, target: Any) -> None:
    """Fill an array of the caller with a dense object; see `Reader.read_into`.

    Args:
        file: an open file.
        name: an object of it.
        target: a writable array, or what a framework has in its place.

    Raises:
        ArgumentValueError: it has another shape, or is read-only.
        ArgumentTypeError: it has another element type, or is no array.
        ObjectNotFoundError: no object of that name.
        FormatError: the stored bytes are damaged.
    """
    tensor_object = file.require_dense(name)
    with file.located(name, "data"):
        framework: Any = FRAMEWORKS.adapter_of(target)
        if hasattr(framework, "fill"):
            framework.fill(file, name, target)
            return
        if not isinstance(target, np.ndarray):
            raise ArgumentTypeError(
                "read_into fills an array", expected="numpy.ndarray", found=describe(target, 40)
            )
        target = np.asarray(target)  # a matrix, for one, cannot be filled flat
        component = tensor_object.components["data"]
        dtype = result_dtype(component)
        fits = target.dtype.newbyteorder("=") == dtype
        if target.shape != tensor_object.shape or not fits:
            kind = ArgumentValueError if fits else ArgumentTypeError
            raise kind(
                "the array does not fit the object",
                expected=f"shape {describe(tensor_object.shape)} of {dtype.name}",
                found=f"shape {target.shape} of {target.dtype.name}",
            )
        if not target.flags.writeable:
            raise ArgumentValueError("the array is read-only")
        stored = file.stored(component)
        is_plain = target.flags.c_contiguous and target.dtype.isnative and target.size > 0
        if is_plain and stored.is_in_place(target.nbytes):
            stored.decoded(target.nbytes, target.reshape(-1).view(np.uint8))
        else:
            target[...] = file.array(name, copy=True)
