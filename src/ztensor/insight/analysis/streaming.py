"""One pass over many objects: elements block after block, objects shared out to threads.

Memory stays the same whatever an object's size, but for foreign encodings that decode as a whole.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ztensor import open as open_reader
from ztensor.errors import LayoutError, Reason, UnsupportedError, describe
from ztensor.ext import (
    LAYOUTS,
    STORAGE_TYPES,
    FileObjects,
    Lock,
    ObjectReader,
    Objects,
    element_count,
    result_dtype,
    run_jobs,
    slice_of,
    thread_count,
    typed_array,
)
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Progress = Callable[[int, int], None]

_T = TypeVar("_T")

_ROWS_ELEMENTS = 1 << 20  # read as rows at a time
LARGE = 1 << 20  # elements from which on a sample is one
_STRATA = 32  # parts of an object that each have rows in a sample


def component_blocks(file: FileObjects, name: str, role: str) -> Iterator[Array]:
    """Yield a component's elements in order, as flat arrays of its own element type.

    Shape: (n,), n as it comes. Dtype: the logical type, else the storage type; native byte order.
    Memory: often a view of the file or of a buffer, valid until the next block.

    Args:
        file: an open file.
        name: the object's name.
        role: the component's.

    Raises:
        ObjectNotFoundError: no object of that name, or no such component.
        FormatError: the stored bytes are damaged, or do not match their digest.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    file.location(name, role)  # there is such a component
    tensor_object = file.object(name)
    component = tensor_object.components[role]
    with file.located(name, role):
        if tensor_object.is_opaque and tensor_object.format not in LAYOUTS:
            raise UnsupportedError(
                "the layout is unknown, so the meaning of the bytes is, too",
                reason=Reason.UNKNOWN_LAYOUT,
                found=describe(tensor_object.format),
            )
        result_dtype(component)  # or what is wrong with its type
        # What decoded_chunks gives is little-endian, and its bools are those of 1.x.
        component = component._replace(byte_order="little", nonzero_is_true=False)
        logical = component.logical
        width = STORAGE_TYPES[component.dtype].width
        width *= 1 if logical is None else logical.storage_per_element
        left = None
        if tensor_object.format == "dense" and role == "data":
            left = element_count(tensor_object.shape)  # what comes after them is padding
        rest = b""
        for chunk in file.decoded_chunks(name, role):
            data = memoryview(rest + bytes(chunk)) if rest else chunk
            whole = data.nbytes // width * width
            rest = bytes(data[whole:])
            block = typed_array(component, data[:whole])
            if left is not None:
                block = block[:left]
                left -= block.size
            if block.size:
                yield block
        if rest:
            raise LayoutError(
                "the decoded bytes end inside an element",
                reason=Reason.SIZE_MISMATCH,
                expected=f"a multiple of {width} bytes",
                found=f"{len(rest)} left over",
            )


def is_quantized(format: str) -> bool:
    """Return whether objects of a layout stand for values that have to be computed."""
    layout = LAYOUTS.get(format)
    return layout is not None and format != "dense" and not layout.index_roles


def sampled_blocks(
    file: FileObjects, name: str, share: float
) -> tuple[int, Iterator[Array]] | None:
    """Return how many rows of a large dense object a sample has, and their values, in order.

    The rows are some whole ones of each of 32 parts, the same each time for the same name. Digests
    are not checked. None of an object that is not large, or has few rows: all of it is looked at.

    Args:
        file: an open file.
        name: the object's name.
        share: of the rows, about.

    Raises:
        FormatError: the stored bytes are damaged.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    found = file.object(name)
    length = found.shape[0] if found.shape else 0
    each = round(length * share / _STRATA)
    is_raw = found.format == "dense" and found.components["data"].encoding == "raw"
    if not is_raw or element_count(found.shape) < LARGE or not 0 < each < length // _STRATA:
        return None
    random = np.random.default_rng([*name.encode("utf-8", "surrogatepass")])
    part = slice_of(file, name, copy=True)

    def blocks() -> Iterator[Array]:
        height = max(_ROWS_ELEMENTS // max(part.size // length, 1), 1)
        for stratum in range(_STRATA):
            least, most = (number * length // _STRATA for number in (stratum, stratum + 1))
            first = int(random.integers(least, most - each + 1))
            for start in range(first, first + each, height):
                block: Any = part[start : min(start + height, first + each)]
                yield block.reshape(-1)

    return _STRATA * each, blocks()


def in_step(one: Iterator[Array], other: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """Yield the blocks of two streams side by side, cut to the same lengths.

    Where one stream is longer, what is left of it comes last, beside an empty block.
    """
    first, second = next(one, None), next(other, None)
    while first is not None and second is not None:
        count = min(first.size, second.size)
        yield first[:count], second[:count]
        first, second = first[count:], second[count:]
        first = first if first.size else next(one, None)
        second = second if second.size else next(other, None)
    if first is not None:
        yield first, first[:0]
    if second is not None:
        yield second[:0], second


@contextlib.contextmanager
def opened(source: Any) -> Iterator[ObjectReader]:
    """Give a reader: the caller's own, or one that is opened here and closed at the end."""
    if isinstance(source, ObjectReader):
        source.objects.require_open()
        yield source
        return
    with open_reader(source) as reader:
        yield reader


def share_out(
    work: Callable[[str], _T],
    sizes: Mapping[str, int],
    threads: int | None,
    order: list[str] | None = None,
) -> dict[str, _T]:
    """Return what `work` gives for each name, in order; the largest are begun first.

    Args:
        work: called with a name, by several threads.
        sizes: names, and how much work each is.
        threads: how many to use; as many as there are cores, four at most, by default.
        order: the names as they are begun, one after the other by one thread.

    Raises:
        ArgumentValueError: `threads` is no positive integer.
    """
    count = 1 if order else min(thread_count(threads, lengths=sizes.values()), len(sizes))
    done: dict[str, _T] = {}

    def do(name: str) -> None:
        done[name] = work(name)

    by_size = order or sorted(sizes, key=lambda name: -sizes[name])
    run_jobs((functools.partial(do, name) for name in by_size), count, are_whole=True)
    return {name: done[name] for name in sizes}


class Meter:
    """Adds up what several threads have done, and reports it.

    Args:
        total: bytes in all.
        progress: called with the bytes done so far, and `total`.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = Lock()

    def part(self, most: int) -> Callable[[int], None]:
        """Return what takes the bytes of one object as they are done, `most` of them at most."""
        left = most

        def add(nbytes: int) -> None:
            nonlocal left
            count = min(nbytes, left)
            left -= count
            self.add(count)

        return add

    def add(self, nbytes: int) -> None:
        """Add so many bytes that are done."""
        if self._progress is not None and nbytes:
            with self._lock:
                self._done += nbytes
                self._progress(self._done, self._total)


def order_of_bytes(objects: Objects, names: Iterable[str]) -> list[str] | None:
    """Return names in the order of their bytes, where a network brings these; else None."""
    parts = {name: objects.part(name) for name in names}
    if not any(file.source.prefers_long_reads for file in parts.values()):
        return None
    by_file: dict[FileObjects, list[str]] = {}
    for name, file in parts.items():
        by_file.setdefault(file, []).append(name)
    return [name for file, some in by_file.items() for name in file.in_file_order(some)]
