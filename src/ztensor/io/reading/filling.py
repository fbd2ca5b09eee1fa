"""Parts of a component's elements, read into an array as its decoded bytes have them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztensor.buffers import empty_array
from ztensor.io.reading.runs import Parts, Pieces
from ztensor.io.reading.selection import PIECE_BYTES, Piece, gathered, plan
from ztensor.io.source.base import AtOnce
from ztensor.spec.layout.base import Array, Indices
from ztensor.spec.layout.elements import result_dtype, storage_dtype, typed_array
from ztensor.spec.model.manifest import Component

_MOST_PIECES = 1 << 12  # that are read together


class Elements(NamedTuple):
    """How a component's elements are in its decoded bytes: `per_unit` of them in `width` bytes.

    Attributes:
        component: the component.
        dtype: the type of its elements as an array has them.
        width: bytes of a unit.
        per_unit: elements that share a unit; 1 for most types.
        is_native: whether they lie there as NumPy has them.
    """

    component: Component
    dtype: np.dtype[Any]
    width: int
    per_unit: int
    is_native: bool

    @classmethod
    def of(cls, component: Component) -> Elements:
        """Return how the elements of a component lie.

        Raises:
            UnsupportedError: the storage type is unknown.
            LayoutError: the logical type is defined on another storage type.
        """
        dtype, logical = result_dtype(component), component.logical
        per_unit = 1 if logical is None else logical.elements_per_storage
        width = dtype.itemsize if per_unit == 1 else storage_dtype(component).itemsize
        return cls(component, dtype, width, per_unit, component.is_native())

    def nbytes(self, count: int) -> int:
        """Return the decoded bytes of so many elements from the first on."""
        return -(-count // self.per_unit) * self.width

    def place(self, start: int, stop: int) -> tuple[int, int]:
        """Return where the decoded bytes of some elements begin and end, in whole units."""
        return start // self.per_unit * self.width, self.nbytes(stop)

    def put(self, piece: Piece, data: Array, target: Array) -> None:
        """Fill the part of the result that a piece holds.

        Args:
            piece: what was read.
            data: its bytes, of whole units.
            target: flat.
        """
        if self.is_native:
            elements = data.view(self.dtype)
        else:
            lead = piece.start % self.per_unit
            whole = typed_array(self.component, data)
            elements = whole[lead : lead + piece.stop - piece.start]
        part = target[piece.target]
        part[...] = elements if piece.runs is None else gathered(elements, piece.runs, part.size)


def fill(
    reading: Parts,
    component: Component,
    shape: tuple[int, ...],
    wanted: Sequence[Indices],
    target: Array,
    at_once: AtOnce,
) -> None:
    """Fill an array with what is wanted of a component; it is full when `at_once` has ended.

    Args:
        reading: reads any of the component's decoded bytes.
        component: what these are.
        shape: the shape they are seen in.
        wanted: the indices along each axis, rising; none of them empty.
        target: contiguous, of the component's element type.
        at_once: what reads the file.

    Raises:
        FormatError: the stored bytes are damaged.
        LimitError: a safety cap is exceeded, or memory is.
        SourceError: the bytes could not be read.
    """
    elements, flat = Elements.of(component), target.reshape(-1)
    parts: Pieces = []
    puts: list[Callable[[], None]] = []
    nbytes = 0

    def read() -> None:
        reading.read(parts, at_once)
        for put in puts:
            at_once.later(put)

    for piece in plan(shape, wanted, elements.dtype.itemsize):
        start, stop = elements.place(piece.start, piece.stop)
        if elements.is_native and piece.runs is None:
            data = flat[piece.target].view(np.uint8)
        else:
            data = empty_array((stop - start,), np.dtype(np.uint8))
            puts.append(functools.partial(elements.put, piece, data, flat))
        parts.append((start, data.data))
        nbytes += data.nbytes
        if nbytes >= PIECE_BYTES or len(parts) == _MOST_PIECES:
            read()
            parts, puts, nbytes = [], [], 0
    if parts:
        read()
