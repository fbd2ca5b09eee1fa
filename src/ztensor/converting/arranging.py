"""Arrays made of other arrays, computed a few rows at a time, and a reader's objects of them.

A `Node` is an array that is joined, cut or moved from other nodes; bits are moved, values never
change. `Arranged` is a source of the bytes of nodes, one behind the other: all that reads, writes,
exports, divides or compares objects works on them unchanged.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ztensor.converting.rules import Groups, Step, wrong
from ztensor.errors import ArgumentValueError, NotRepresentableError, ObjectNotFoundError, describe
from ztensor.ext import (
    Component,
    FileObjects,
    Lock,
    Objects,
    Source,
    TensorObject,
    Unrepresented,
    result_dtype,
)
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

_BLOCK_BYTES = 8 << 20  # computed at a time, if a row is not longer
_MOST_HELD = 2  # applications of rules whose arrays are held: weights and biases may alternate

AXES = "_ARRAY_DIMENSIONS"  # the attribute with the names of axes, as in Zarr

_MOST_AXES = 32  # of any version of NumPy
_MOST_PARTS = 1 << 16  # of one object

Held = dict[object, Array]
"""The arrays that one application of a rule needs again: its sources, and moved ones."""


class Node(NamedTuple):
    """An array that is computed when it is read.

    Attributes:
        shape: its shape.
        component: the element type; offset and length have no meaning.
        rows: returns the rows from a first one to before a last one; of a scalar the array.
    """

    shape: tuple[int, ...]
    component: Component
    rows: Callable[[int, int], Array]

    @property
    def kind(self) -> tuple[str, str | None]:
        """Return the storage type and the logical type."""
        return self.component.dtype, self.component.type

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements."""
        return math.prod(self.shape) * result_dtype(self.component).itemsize

    def whole(self) -> Array:
        """Return all rows."""
        return self.rows(0, self.shape[0] if self.shape else 1)


def _kept(held: Held, make: Callable[[], Array]) -> Callable[[int, int], Array]:
    """Return the `rows` of an array that is made as a whole, once."""
    key = object()

    def rows(first: int, last: int) -> Array:
        if key not in held:
            held[key] = make()
        return held[key][first:last] if held[key].ndim else held[key]

    return rows


def leaf(file: FileObjects, name: str, held: Held) -> Node:
    """Return a dense object of a file.

    Raises:
        NotRepresentableError: it is not dense, or its elements cannot be moved alone.
    """
    entry = file.object(name)
    data = entry.components["data"] if entry.format == "dense" else None
    kind = None if data is None else data.logical
    is_whole = kind.elements_per_storage == 1 if kind else data and data.type is None
    if data is None or not is_whole:
        raise NotRepresentableError(
            "only dense objects whose elements share no bytes can be cut, joined or moved; others "
            "can be renamed, kept or dropped",
            file=file.name,
            object_name=name,
            found=entry.format if data is None else data.type,
        )
    is_checked = False

    def elements() -> Array:
        nonlocal is_checked
        array = file.array(name, copy=False)
        if not is_checked:
            file.require_copied(name)
            is_checked = True
        return array if array.dtype.kind == "c" else array.view(f"u{array.dtype.itemsize}")

    return Node(entry.shape, data, _kept(held, elements))


def attributes_after(
    steps: Sequence[Step], entries: Sequence[TensorObject]
) -> tuple[dict[str, Any] | None, bool]:
    """Return the attributes that objects have after steps, and whether names of axes are lost.

    Raises:
        ArgumentValueError: the attributes of the objects differ.
    """
    every = [dict(entry.attributes or {}) for entry in entries]
    axes = [own.pop(AXES, None) for own in every]
    first = every[0]
    for own in every:
        keys = {**first, **own}
        differing = [key for key in keys if repr(first.get(key, ...)) != repr(own.get(key, ...))]
        if differing:
            error = ArgumentValueError(
                "an attribute of objects that are moved together differs",
                expected=f"one value of {describe(differing[0])}",
                found=", ".join(describe(one.get(differing[0]), 40) for one in (first, own)),
            )
            error.hint = "`ztensor set FILE KEY=VALUE --object NAME` changes the attribute"
            raise error
    names = axes[0] if all(one == axes[0] for one in axes) else None
    if not isinstance(names, list) or len(names) != len(entries[0].shape):
        names = None
    for step in steps:
        left, right = step.value if step.word == "rearrange" else ((), ())
        is_moved = bool(left) and all(len(group) == 1 for group in left + right)
        if names is None or not is_moved or len(left) != len(names):
            names = None
            break
        names = [names[left.index(group)] for group in right]
    if names is not None:
        first[AXES] = names
    return first or None, names is None and axes != [None] * len(axes)


def joined(nodes: Sequence[Node], axis: int, sizes: Sequence[int] | None = None) -> Node:
    """Return nodes one behind the other along an axis, with lengths in the ratio of `sizes`.

    Raises:
        ArgumentValueError: their shapes, element types or lengths do not fit.
    """
    first = nodes[0]
    axis = _axis(axis, len(first.shape))
    for node in nodes:
        shape = (*node.shape[:axis], first.shape[axis], *node.shape[axis + 1 :])
        if (len(node.shape), shape, node.kind) != (len(first.shape), first.shape, first.kind):
            message = f"joined objects have one type, and shapes that differ in axis {axis} alone"
            expected, found = (f"{one.shape} of {one.kind[0]}" for one in (first, node))
            raise wrong(message, expected, found)
    lengths = [node.shape[axis] for node in nodes]
    if sizes is None and len(set(lengths)) > 1:
        ratio = math.gcd(*lengths)
        message = "the objects have different lengths, so a split needs sizes"
        raise wrong(message, f"sizes = {[length // ratio for length in lengths]}", lengths)
    if sizes is not None and _lengths(sum(lengths), sizes) != lengths:
        raise wrong("the objects have other sizes", sizes, lengths)

    def rows(start: int, stop: int) -> Array:
        if axis:
            return np.concatenate([node.rows(start, stop) for node in nodes], axis)
        parts, at = [], 0
        for node in nodes:
            low, high = max(start - at, 0), min(stop - at, node.shape[0])
            if low < high:
                parts.append(node.rows(low, high))
            at += node.shape[0]
        return np.concatenate(parts or [first.rows(0, 0)]) if len(parts) != 1 else parts[0]

    shape = (*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :])
    return Node(shape, first.component, rows)


def divided(node: Node, axis: int, sizes: Sequence[int]) -> list[Node]:
    """Return the parts of a node along an axis, with lengths in the ratio of `sizes`.

    Raises:
        ArgumentValueError: the axis does not exist, or cannot be divided so.
    """
    axis, parts, at = _axis(axis, len(node.shape)), [], 0
    for length in _lengths(node.shape[axis], sizes):
        parts.append(_cut(node, axis, at, at + length))
        at += length
    return parts


def _cut(node: Node, axis: int, start: int, stop: int) -> Node:
    def rows(first: int, last: int) -> Array:
        if not axis:
            return node.rows(start + first, start + last)
        return node.rows(first, last)[(*[slice(None)] * axis, slice(start, stop))]

    shape = (*node.shape[:axis], stop - start, *node.shape[axis + 1 :])
    return Node(shape, node.component, rows)


def _lengths(length: int, sizes: Sequence[int]) -> list[int]:
    share, rest = divmod(length, sum(sizes))
    if rest:
        raise wrong("an axis has another length", f"a multiple of {describe(sum(sizes))}", length)
    return [share * size for size in sizes]


def stacked(nodes: Sequence[Node], axis: int, held: Held) -> Node:
    """Return nodes along a new axis.

    Raises:
        ArgumentValueError: their shapes or element types differ.
    """
    axis = _axis(axis, len(nodes[0].shape) + 1)
    return joined(
        [_moved(one, (*one.shape[:axis], 1, *one.shape[axis:]), held) for one in nodes], axis
    )


def unstacked(node: Node, axis: int, held: Held) -> list[Node]:
    """Return a node for each index of an axis, without the axis.

    Raises:
        ArgumentValueError: the axis does not exist, or is very long.
    """
    axis = _axis(axis, len(node.shape))
    if not 0 < node.shape[axis] <= _MOST_PARTS:
        raise wrong("an axis has another length", f"1 to {_MOST_PARTS}", node.shape[axis])
    shape = (*node.shape[:axis], *node.shape[axis + 1 :])
    return [_moved(part, shape, held) for part in divided(node, axis, [1] * node.shape[axis])]


def rearranged(node: Node, sides: Sequence[Groups], sizes: Mapping[str, int], held: Held) -> Node:
    """Return a node with axes divided, permuted and merged.

    Args:
        node: the node.
        sides: for each old axis, then for each new one, the names of the axes that make it.
        sizes: known lengths of axes.
        held: the arrays of the application.

    Raises:
        ArgumentValueError: the axes or lengths are others.
    """
    (left, right), lengths = sides, dict[str, int]()
    if len(left) != len(node.shape):
        raise wrong("the object has other axes", f"{len(left)}", f"shape {node.shape}")
    for group, length in zip(left, node.shape, strict=True):
        known = math.prod(sizes.get(axis, 1) for axis in group)
        unknown = sum(axis not in sizes for axis in group)
        if unknown > 1 or length % known or (not unknown and length != known):
            message = f"an axis cannot be divided into ({' '.join(group)})"
            raise wrong(message, "[sizes] of all these names but one, that divide it", length)
        lengths |= {axis: sizes.get(axis, length // known) for axis in group}
    order = [axis for group in left for axis in group]
    axes = [order.index(axis) for group in right for axis in group]
    shape = tuple(math.prod(lengths[axis] for axis in group) for group in right)
    return _moved(node, shape, held, [lengths[axis] for axis in order], axes)


def _moved(
    node: Node,
    shape: tuple[int, ...],
    held: Held,
    between: Sequence[int] | None = None,
    axes: Sequence[int] = (),
) -> Node:
    """Return a node of another shape; if given, `axes` of the shape `between` are permuted."""
    if max(len(shape), len(axes)) > _MOST_AXES:
        raise wrong("too many axes", f"at most {_MOST_AXES}", max(len(shape), len(axes)))

    def moved() -> Array:
        array = node.whole()
        if between is not None:
            array = array.reshape(between).transpose(axes)
        return array.reshape(shape)

    return Node(shape, node.component, _kept(held, moved))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise wrong("unknown axis", f"below {rank}", axis)
    return axis % rank


class Arranged(Source):
    """A source of the bytes of nodes, one behind the other.

    The arrays of an application are held until others are read; see `_MOST_HELD`.

    Args:
        name: the name for messages.
    """

    prefers_long_reads = True  # in order, by one thread: others would have their own sources held

    def __init__(self, name: str) -> None:
        self.name, self.size = name, 0
        self._starts: list[int] = []
        self._nodes: list[tuple[Node, Held]] = []
        self._recent: deque[Held] = deque()
        self._block: tuple[int, memoryview] = (0, memoryview(b""))
        self._lock = Lock()

    def add(self, node: Node, held: Held) -> Component:
        """Return the component of a node's elements."""
        component = Component(node.kind[0], self.size, node.nbytes, node.kind[1])
        if component.length:
            self._starts.append(self.size)
            self._nodes.append((node, held))
            self.size += component.length
        return component

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Compute bytes.

        Raises:
            FormatError: the bytes of an object are damaged.
            SourceError: they cannot be read.
        """
        with self._lock:
            while len(destination):
                start, block = self._block
                if not start <= offset < start + len(block):
                    start, block = self._block = self._block_at(offset)
                count = min(start + len(block) - offset, len(destination))
                destination[:count] = block[offset - start :][:count]
                offset, destination = offset + count, destination[count:]

    def _block_at(self, offset: int) -> tuple[int, memoryview]:
        """Return the offset and the bytes of some rows around an offset."""
        number = bisect.bisect_right(self._starts, offset) - 1
        start, (node, held) = self._starts[number], self._nodes[number]
        if not any(held is one for one in self._recent):
            self._recent.append(held)
            if len(self._recent) > _MOST_HELD:
                self._recent.popleft().clear()
        count = node.shape[0] if node.shape else 1
        row_nbytes = node.nbytes // count
        first = (offset - start) // row_nbytes
        last = min(first + max(_BLOCK_BYTES // row_nbytes, 1), count)
        array = node.rows(first, last)
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        return start + first * row_nbytes, little.reshape(-1).view(np.uint8).data


class ArrangedObjects:
    """Objects of several files under other names; all other attributes are the source's.

    Args:
        base: the objects of the source.
        files: all files.
        homes: the new names, in order, and the file that has the object of that name.
        unnamed: the new names of objects that lost the names of their axes.
    """

    def __init__(
        self,
        base: Objects,
        files: Iterable[FileObjects],
        homes: Mapping[str, FileObjects],
        unnamed: Collection[str] = (),
    ) -> None:
        self._base, self._files, self._homes = base, list(files), homes
        self._unnamed = unnamed

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the source's objects."""
        return getattr(self._base, name)

    @property
    def names(self) -> Collection[str]:
        """Return the new names."""
        return self._homes.keys()

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return the loss report: the source's, and the lost names of axes."""
        lost = (name for name in self._unnamed if name in self._homes)
        names = (Unrepresented(f"{AXES}, the names of axes, of", name) for name in lost)
        return (*self._base.unrepresented, *names)

    def parts(self) -> Sequence[FileObjects]:
        """Return all files."""
        return self._files

    def part(self, name: str) -> FileObjects:
        """Return the file of an object.

        Raises:
            ObjectNotFoundError: no object of that name.
        """
        if name not in self._homes:
            raise ObjectNotFoundError.named(name, self.names, self._base.name)
        return self._homes[name]

    def select(self, names: Iterable[str]) -> Objects:
        """Return a subset of the objects."""
        homes = {name: self.part(name) for name in names}
        return cast("Objects", ArrangedObjects(self._base, self._files, homes, self._unnamed))

    def changed_by(self, change: Callable[..., FileObjects]) -> Objects:
        """Return the objects with a change applied to each file; see `FileObjects`."""
        names: dict[FileObjects, list[str]] = {file: [] for file in self._files}
        for name, file in self._homes.items():
            names[file].append(name)
        made = {file: change(file, own) for file, own in names.items()}
        homes = {name: made[file] for name, file in self._homes.items()}
        new = ArrangedObjects(self._base, made.values(), homes, self._unnamed)
        return cast("Objects", new)
