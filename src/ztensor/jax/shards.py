"""Read the shards of this process, of one object after the other."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import jax

from ztensor.errors import ArgumentValueError, NotRepresentableError, ZTensorError, describe
from ztensor.ext import ObjectReader, element_count, empty_array, run_jobs, slice_of, thread_count
from ztensor.jax.values import is_copied, require_held
from ztensor.typing import Array

_Box: TypeAlias = tuple[tuple[int, int], ...]  # first index and end along each axis


def abstract(reader: ObjectReader, name: str) -> Any:
    """Return shape and element type of a dense object, the `TensorMetadata` of others."""
    metadata = reader.metadata(name)
    if metadata.format != "dense":
        return metadata
    lazy = reader.get_slice(name)
    return jax.ShapeDtypeStruct(tuple(lazy.shape), lazy.dtype)


def _slices(reader: ObjectReader, name: str, *, copy: bool) -> Callable[[Any], Array]:
    file = reader.objects.part(name)
    lazy = slice_of(file, name, copy=copy)

    def read(index: Any) -> Array:
        part: Array = lazy[index]
        if not copy and part.shape == lazy.shape and is_copied(part):
            file.require_copied(name)
        return part

    return read


def _boxes(reader: ObjectReader, name: str, struct: Any) -> Callable[[Any], Array] | None:
    """Return a function that reads a box of a distributed object; None for other objects."""
    from ztensor.distributed.opened import DividedObjects

    file = reader.objects.part(name)
    if not isinstance(file, DividedObjects):
        return None

    def read(index: tuple[slice, ...]) -> Array:
        places = [each.indices(length) for each, length in zip(index, struct.shape, strict=True)]
        sizes = [max(stop - start, 0) for start, stop, _ in places]
        # Aligned memory, which JAX on the CPU takes without another copy.
        box = empty_array(tuple(sizes), struct.dtype)
        file.read_box(name, [start for start, _, _ in places], sizes, box)
        return box

    return read


def sharded(
    reader: ObjectReader,
    name: str,
    struct: Any,
    sharding: Any,
    *,
    copy: bool,
    threads: int | None,
    dtype: Any = None,
) -> Any:
    """Return an object as an array of JAX; only the shards of this process are read.

    Args:
        reader: the open file.
        name: the object.
        struct: its shape and element type; see `abstract`.
        sharding: the sharding of the result.
        copy: as for `ztensor.jax.load_file`.
        threads: likewise.
        dtype: the element type of the result; by default the object's.

    Raises:
        NotRepresentableError: the object is not dense, or JAX lacks the element type.
        ArgumentValueError: the sharding does not fit the shape.
    """
    if not isinstance(struct, jax.ShapeDtypeStruct):
        raise NotRepresentableError(
            "only dense objects can be sharded; pass a function, or a mapping without this one",
            file=reader.name,
            object_name=name,
            found=f"format {describe(struct.format)}",
        )
    dtype = struct.dtype if dtype is None else dtype
    require_held(dtype, name, reader.name)
    parts: dict[_Box, Array] = {}
    boxes = _boxes(reader, name, struct)
    read = boxes or _slices(reader, name, copy=copy)

    def load(hull: _Box, inner: list[_Box]) -> None:
        array = read(tuple(slice(*axis) for axis in hull)).astype(dtype, copy=False)
        parts[hull] = array
        for box in inner if len(inner) > 1 else ():
            pairs = zip(box, hull, strict=True)
            cuts: Any = (slice(start - at, end - at) for (start, end), (at, _) in pairs)
            parts[box] = array[(..., *cuts)]

    def box_of(index: tuple[slice, ...]) -> _Box:
        axes = zip(index, struct.shape, strict=True)
        return tuple((at.start or 0, end if at.stop is None else at.stop) for at, end in axes)

    with fitting(sharding, struct.shape, name, reader.name):
        sharding.shard_shape(struct.shape)
        local = sharding.addressable_devices_indices_map(struct.shape).values()
        jobs = [functools.partial(load, *one) for one in _hulls(set(map(box_of, local)))]
        workers = 1 if boxes is None else reader.objects.part(name).thread_count(threads)
        nbytes = element_count(struct.shape) * struct.dtype.itemsize // max(len(jobs), 1)
        run_jobs(jobs, thread_count(workers, lengths=[nbytes] * len(jobs)))
        return jax.make_array_from_callback(
            struct.shape, sharding, lambda index: parts[box_of(index)]
        )


def _hulls(boxes: Iterable[_Box]) -> Iterator[tuple[_Box, list[_Box]]]:
    """Yield boxes to read, each with the disjoint boxes that it is cut into.

    Boxes of the same rows that are side by side are read at once: each by itself would read the
    bytes between its rows, too.
    """
    groups: dict[_Box, list[_Box]] = {}
    for box in boxes:
        groups.setdefault(box[:1], []).append(box)
    for group in groups.values():
        hull = group[0]
        if len(group) > 1:
            axes = zip(*group, strict=True)
            hull = tuple((min(axis)[0], max(end for _, end in axis)) for axis in axes)
        is_full = len(group) == 1 or sum(map(_size, group)) == _size(hull)
        yield from [(hull, group)] if is_full else ((box, [box]) for box in group)


def _size(box: _Box) -> int:
    return math.prod(end - start for start, end in box)


@contextlib.contextmanager
def fitting(sharding: Any, shape: tuple[int, ...], name: str, file: str) -> Iterator[None]:
    """Turn JAX's errors into the error that a sharding does not fit an object's shape.

    Raises:
        ArgumentValueError: the sharding does not fit.
    """
    try:
        yield
    except ZTensorError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        raise ArgumentValueError(
            f"the sharding does not fit: {describe(str(error), 200)}",
            file=file,
            object_name=name,
            expected=f"a jax.sharding.Sharding for shape {describe(shape)}",
            found=describe(sharding, 200),
        ) from error
