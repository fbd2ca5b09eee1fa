"""Encodings of ONNX elements that are not native raw: varints, packed integers, coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztensor.errors import EncodingError, Reason
from ztensor.ext import STORAGE_TYPES, Encoding, Stored, empty_array
from ztensor.formats.base import RAW
from ztensor.formats.onnx.protobuf import SECTION, VARINT_BYTES
from ztensor.formats.onnx.tensors import Type
from ztensor.limits import Limits
from ztensor.typing import Array


class Elements(Encoding):
    """Elements as varints, or several in a byte.

    Args:
        name: the encoding's name.
        kind: the ONNX type.
        is_varints: whether the stored bytes are varints.
    """

    def __init__(self, name: str, kind: Type, *, is_varints: bool) -> None:
        self.name = name
        self._kind = kind
        self._width = STORAGE_TYPES[kind.dtype].width
        self._is_varints = is_varints

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse too few stored bytes for elements of n bits each."""
        if not self._is_varints:
            RAW["raw"].require_length(stored, self._packed(expected_length), limits)

    def _packed(self, length: int) -> int:
        """Return the number of stored numbers for `length` decoded bytes."""
        bits = self._kind.bits
        return -(-length * bits // 8) if bits else length // self._width

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode all elements."""
        count, bits = self._packed(destination.nbytes), self._kind.bits
        target: Array = np.frombuffer(destination, np.uint8)
        numbers = empty_array((count,), target.dtype) if bits else target
        if self._is_varints:
            self._fill_numbers(np.frombuffer(stored.read(0, stored.length), np.uint8), numbers)
        else:
            RAW["raw"].decode_into(stored, numbers.data, limits)
        if bits:
            elements = _unpacked(numbers, bits, self._kind.dtype, target.size)
            target[...] = elements.view(np.uint8)

    def _fill_numbers(self, data: Array, whole: Array) -> None:
        """Fill `whole` with the elements of varints.

        They are decoded in parts, as decoding takes forty bytes of memory for each.

        Raises:
            EncodingError: their number differs, or a value does not fit its type.
        """
        kind = STORAGE_TYPES[self._kind.dtype].kind
        is_signed, is_bool = kind == "i" and not self._kind.bits, self._kind.dtype == "bool"
        width = 1 if self._kind.bits else self._width
        elements = whole.view(np.dtype(f"<{'i' if is_signed else 'u'}{width}"))
        start = done = 0
        while start < data.size:
            part = data[start : start + VARINT_BYTES]
            last = np.flatnonzero(part < 0x80)
            stop = done + last.size
            if not last.size or stop > elements.size:
                break
            values = _varints(part, last)
            elements[done:stop] = values != 0 if is_bool else _narrowed(values, elements.dtype)
            start, done = start + int(last[-1]) + 1, stop
        if start != data.size or done != elements.size:
            raise EncodingError(
                "the number of elements differs from the shape",
                reason=Reason.SIZE_MISMATCH,
                expected=str(elements.size),
                found=str(done),
                section=SECTION,
            )


def _varints(data: Array, last: Array) -> Array:
    """Return the numbers of packed varints, (count,) uint64.

    Args:
        data: the varints, (bytes,) uint8.
        last: (count,), the place of each number's last byte.
    """
    starts = np.concatenate((np.zeros(1, np.intp), last[:-1] + 1))
    lengths = last - starts + 1
    most = int(lengths.max())
    if most > 10 or (most == 10 and (data[last[lengths == 10]] > 1).any()):
        raise EncodingError(
            "a number has more than 64 bits", reason=Reason.FIELD_VALUE, section=SECTION
        )
    values = np.zeros(last.size, np.uint64)
    for place in range(most):
        has = np.flatnonzero(lengths > place)
        values[has] |= (data[starts[has] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return values


def _narrowed(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as elements of a type.

    Raises:
        EncodingError: a number does not fit the type.
    """
    if dtype.kind == "i":
        values = values.view(np.int64)
    narrow: Array = values.astype(dtype)
    if not np.array_equal(narrow.astype(values.dtype), values):
        raise EncodingError(
            "a number does not fit its element type", reason=Reason.FIELD_VALUE, section=SECTION
        )
    return narrow


def _unpacked(packed: Array, bits: int, dtype: str, count: int) -> Array:
    """Return one byte for each element, the first from the lowest bits."""
    spread = empty_array((packed.size, 8 // bits), np.dtype(np.uint8))
    for place in range(8 // bits):
        np.right_shift(packed, place * bits, out=spread[:, place])
    spread &= (1 << bits) - 1
    flat = spread.reshape(-1)[:count]
    if dtype == "i8":
        half = 1 << (bits - 1)
        flat = (flat ^ half) - half  # sign extension, by wrapping around
    return flat


class Coordinates(Encoding):
    """Indices of a sparse initializer in the form of `sparse_coo`: axis after axis."""

    def __init__(
        self, name: str, within: Encoding, shape: tuple[int, ...], *, is_linear: bool
    ) -> None:
        self.name = name
        self._within = within
        self._shape = shape
        self._is_linear = is_linear

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Raise as the encoding of the stored indices does."""
        count = expected_length // len(self._shape) if self._is_linear else expected_length
        self._within.require_length(stored, count, limits)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode the indices; split linear ones into axes."""
        rank = len(self._shape)
        self.require_length(stored, destination.nbytes, limits)
        target: Array = np.frombuffer(destination, "<i8").reshape(rank, -1)
        indices = empty_array((target[0].size * (1 if self._is_linear else rank),), np.dtype("<i8"))
        self._within.decode_into(stored, indices.view(np.uint8).data, limits)
        if not self._is_linear:
            target[...] = indices.reshape(-1, rank).T
            return
        for axis in range(rank - 1, 0, -1):
            length = max(self._shape[axis], 1)
            target[axis] = indices % length
            indices //= length
        target[0] = indices  # outside the shape if the index is; the layout checks it
