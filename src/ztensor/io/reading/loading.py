"""Load all objects of a file as views or copies, or one object into memory of the caller.

Native raw tensors become views of the map. Copies of small ones are read in runs (`bulk.py`);
everything else is read one by one (`values.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.arguments import require_function
from ztensor.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError, describe
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.io.reading.bulk import take_small
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.reading.places import Places
from ztensor.options import summed
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.layout.base import Array, Quantized
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.model.objects import Bools, Ints
from ztensor.threads import run_jobs
from ztensor.threads.sharing import at_most, thread_count, worth

if TYPE_CHECKING:
    from ztensor.io.shards.objects import Objects


def load_all(file: FileObjects, *, copy: bool, threads: int | None = None) -> dict[str, Any]:
    """Return all objects by name, in the order of the file.

    Args:
        file: an open file.
        copy: False returns views of the file where possible. True returns owned memory; small
            neighbours share a block, which is freed with the last of them.
        threads: number of threads that fill owned memory; see `thread_count`.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    file.require_open()
    workers, objects = thread_count(threads), file.manifest.objects
    result: dict[str, Any] = dict.fromkeys(objects)
    try:
        if file.source.prefers_long_reads:
            result |= file.arrays_at_once(objects)
        else:
            copy = _load_native(file, result, workers, copy=copy)
        _read_left(file, result, workers, copy=copy)
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
    """Load all or some objects of a file or set, file after file.

    Args:
        objects: the objects of a reader, or of one file.
        load: loads all objects of one file; None loads arrays and takes `copy` and `threads`.
        progress: called after each file with the bytes loaded so far and in all.
        names: the objects to load; None loads all. Files of no chosen object are not opened.
        dequantize: converts a quantized `ztensor.Tensor`; None keeps it.
        options: passed on to `load`.

    Returns:
        Names to loaded values, in the order of `objects`.

    Raises:
        ObjectNotFoundError: no object of one of the names.
        ZTensorError: as `load`, or a file cannot be opened.
    """
    load = load or load_all
    require_function("progress", progress)
    files = objects.parts() if names is None else _chosen(objects, names)
    report = summed(progress, sum(file.nbytes for file in files))
    result: dict[str, Any] = {}
    for file in files:
        loaded = load(file, **options)
        if dequantize is not None:
            _dequantize(file, loaded, dequantize, copy=options.get("copy", False))
        result.update(loaded)
        report(file.nbytes)
    in_order = objects.names if len(files) > 1 else ()
    return {name: result[name] for name in in_order if name in result} if in_order else result


def _chosen(objects: Objects, names: Iterable[str]) -> list[FileObjects]:
    """Return the objects with these names, one `FileObjects` per file."""
    homes: dict[FileObjects, list[str]] = {}
    for name in names:
        homes.setdefault(objects.part(name), []).append(name)
    return [file.select(some) for file, some in homes.items()]


def _dequantize(
    file: FileObjects, loaded: dict[str, Any], dequantize: Callable[[Any], Any], *, copy: bool
) -> None:
    """Replace quantized tensors by dequantized ones. Digests of views are compared first."""
    for name, value in loaded.items():
        if isinstance(LAYOUTS.get(getattr(value, "format", "")), Quantized):
            if not copy:
                file.require_copied(name)
            with file.located(name):
                loaded[name] = dequantize(value)


def _load_native(file: FileObjects, result: dict[str, Any], workers: int, *, copy: bool) -> bool:
    """Load native tensors: raw ones as views, small ones in runs.

    Args:
        file: an open local file.
        result: names to arrays; filled in, None for objects that were not loaded.
        workers: the most threads to use.
        copy: True makes no views.

    Returns:
        The `copy` for the remaining objects: True if there is no map.
    """
    places, whole = file.places(), None if copy else file.source.view()
    is_raw = places.where(lambda kind: kind.encoding == "raw")
    if whole is not None:
        if file.verify is not True:  # else each view is checked one by one
            file.source.require_unchanged()
            raw = places.rows(is_raw)
            arrays = _arrays(raw, raw.offsets, itertools.repeat(whole))
            result.update(zip(raw.names, arrays, strict=True))
        places = places.rows(~is_raw)

    def take(run: Places, targets: list[memoryview], right: Bools) -> None:
        arrays = _arrays(run, np.zeros(len(targets), np.int64), targets)
        result.update(itertools.compress(zip(run.names, arrays, strict=True), right.tolist()))

    take_small(file, places, take, workers, are_kept=True)
    return whole is None


def _arrays(places: Places, starts: Ints, memories: Iterable[memoryview]) -> Iterator[Array | None]:
    """Yield an array over each memory from its start on; None if NumPy cannot hold the shape."""
    templates = [(kind.shape, kind.dtype) for kind in places.kinds]
    rows = map(templates.__getitem__, places.kind_of.tolist())
    for (shape, dtype), memory, start in zip(rows, memories, starts.tolist(), strict=False):
        try:
            yield np.ndarray(shape, dtype, memory, start)
        except (ValueError, TypeError):
            yield None


def _read_left(file: FileObjects, result: dict[str, Any], workers: int, *, copy: bool) -> None:
    """Read the objects that are None in `result` one by one."""
    names = file.in_file_order(name for name, value in result.items() if value is None)
    workers = min(workers, file.thread_count(workers))
    if workers > 1:
        workers = worth(workers, lengths_of(file, map(file.object, names)))

    def read(name: str) -> None:
        result[name] = file.value(name, copy=copy)

    with file.walked(), at_most(workers):
        run_jobs((functools.partial(read, name) for name in names), workers)


# --- Memory of the caller -------------------------------------------------------------------


def fill(file: FileObjects, name: str, target: Any) -> None:
    """Fill an array of the caller with a dense object; see `Reader.read_into`.

    Args:
        file: an open file.
        name: an object of it.
        target: a writable array, or a framework's tensor.

    Raises:
        ArgumentValueError: the target has another shape, or is read-only.
        ArgumentTypeError: the target has another element type, or is not an array.
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
        target = np.asarray(target)  # a subclass such as matrix may not become flat
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
        is_native = target.flags.c_contiguous and target.dtype.isnative and target.size > 0
        if is_native and stored.is_in_place(target.nbytes):
            stored.decoded(target.nbytes, target.reshape(-1).view(np.uint8))
        else:
            target[...] = file.array(name, copy=True)
