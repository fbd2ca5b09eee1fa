"""One pass over many objects: elements in blocks, objects distributed to threads.

Memory does not depend on an object's size, except for encodings of other formats without blocks.
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
    ObjectReader,
    Objects,
    element_count,
    result_dtype,
    run_jobs,
    slice_of,
    thread_count,
    typed_array,
)
from ztensor.options import summed
from ztensor.typing import Array, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_T = TypeVar("_T")

_ROWS_ELEMENTS = 1 << 20  # elements of rows read at a time
LARGE = 1 << 20  # least elements of a sampled object
_STRATA = 32  # parts of an object that each have rows in a sample


def component_blocks(file: FileObjects, name: str, role: str) -> Iterator[Array]:
    """Yield a component's elements in order, as flat arrays of its own element type.

    Shape: (n,), any n. Dtype: the logical type, else the storage type; native byte order.
    Memory: often a view of the file or of a buffer, valid until the next block.

    Args:
        file: an open file.
        name: the object's name.
        role: the component.

    Raises:
        ObjectNotFoundError: no object has that name, or it lacks the component.
        FormatError: the stored bytes are damaged, or do not match their digest.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    file.location(name, role)  # raises if the component is missing
    tensor_object = file.object(name)
    component = tensor_object.components[role]
    with file.located(name, role):
        if tensor_object.is_opaque and tensor_object.format not in LAYOUTS:
            raise UnsupportedError(
                "the meaning of the bytes is unknown, as the layout is",
                reason=Reason.UNKNOWN_LAYOUT,
                found=describe(tensor_object.format),
            )
        result_dtype(component)  # or raises for its type
        # decoded_chunks yields little-endian data, and bools as in 1.x.
        component = component._replace(byte_order="little", nonzero_is_true=False)
        logical = component.logical
        width = STORAGE_TYPES[component.dtype].width
        width *= 1 if logical is None else logical.storage_per_element
        left = None
        if tensor_object.format == "dense" and role == "data":
            left = element_count(tensor_object.shape)  # the rest is padding
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
    """Return whether a layout's values are dequantized."""
    layout = LAYOUTS.get(format)
    return layout is not None and format != "dense" and not layout.index_roles


def sampled_blocks(
    file: FileObjects, name: str, share: float
) -> tuple[int, Iterator[Array]] | None:
    """Return the number of sampled rows of a large dense object, and their values in order.

    The rows come from 32 parts of the object, the same for the same name. Digests are not checked.
    Returns None for an object that is not large, or has few rows: all of it is to be read.

    Args:
        file: an open file.
        name: the object's name.
        share: the approximate share of the rows.

    Raises:
        FormatError: the stored bytes are damaged.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    tensor_object = file.object(name)
    length = tensor_object.shape[0] if tensor_object.shape else 0
    each = round(length * share / _STRATA)
    is_raw = tensor_object.format == "dense" and tensor_object.components["data"].encoding == "raw"
    if not is_raw or element_count(tensor_object.shape) < LARGE or not 0 < each < length // _STRATA:
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
    """Yield pairs of blocks of two streams, cut to equal lengths.

    The rest of a longer stream comes last, paired with an empty block.
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
    """Return the result of `work` for each name, in order; the largest are started first.

    Args:
        work: called with a name, by several threads.
        sizes: the amount of work by name.
        threads: the number of threads; by default the number of cores, at most four.
        order: names in the order for a single thread.

    Raises:
        ArgumentValueError: `threads` is not a positive integer.
    """
    count = 1 if order else min(thread_count(threads, lengths=sizes.values()), len(sizes))
    done: dict[str, _T] = {}

    def do(name: str) -> None:
        done[name] = work(name)

    by_size = order or sorted(sizes, key=lambda name: -sizes[name])
    run_jobs((functools.partial(do, name) for name in by_size), count, are_whole=True)
    return {name: done[name] for name in sizes}


class Meter:
    """Adds up the progress of several threads, and reports it.

    Args:
        total: bytes in all.
        progress: called with the bytes done so far, and `total`.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._count = summed(progress, total)

    def part(self, most: int) -> Callable[[int], None]:
        """Return a function that counts the bytes of one object, up to `most`."""
        left = most

        def add(nbytes: int) -> None:
            nonlocal left
            count = min(nbytes, left)
            left -= count
            self.add(count)

        return add

    def add(self, nbytes: int) -> None:
        """Count bytes that are done."""
        if nbytes:
            self._count(nbytes)


def order_of_bytes(objects: Objects, names: Iterable[str]) -> list[str] | None:
    """Return names in the order of their offsets if the file is remote; else None."""
    parts = {name: objects.part(name) for name in names}
    if not any(file.source.prefers_long_reads for file in parts.values()):
        return None
    by_file: dict[FileObjects, list[str]] = {}
    for name, file in parts.items():
        by_file.setdefault(file, []).append(name)
    return [name for file, some in by_file.items() for name in file.in_file_order(some)]
