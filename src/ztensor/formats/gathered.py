"""The encoding of elements that are not in C order, have gaps, repeat, or are deflated."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.ext import Blocks, Stored, empty_array, numpy_dtype
from ztensor.formats.base import GATHERED_BYTES, InBlocks, gather, gather_stored
from ztensor.formats.deflate import Stream
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


# The span of a tensor in a deflated storage is inflated into memory: at most this many bytes, or
# this multiple of the tensor's own length.
_SPAN_BYTES, _SPAN_PART = 16 << 20, 16
# A tensor that repeats its stored bytes may decode to this part of Limits.decoded_bytes.
_REPEATED_PART = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """The places of a tensor's elements in its stored bytes.

    Attributes:
        size: the dimensions other than 1.
        stride: bytes between neighbors along each of these.
        width: bytes of an element.
        span: bytes from the first element to the end of the last.
        flags: `conj` if elements are conjugated, `neg` if they are negated.
        dtype: NumPy's name of the element type; empty without flags.
        order: the byte order.
        skip: decoded bytes before the first element, if there is a stream.
        stream: inflates the stored bytes; None if they are not deflated.
        is_in_order: the elements are in C order without gaps, and not changed.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    width: int
    span: int
    flags: tuple[str, ...] = ()
    dtype: str = ""
    order: str = "little"
    skip: int = 0
    stream: Stream | None = None
    is_in_order: bool = False


class Gathered(InBlocks):
    """Strided or deflated elements, decoded to C order.

    Args:
        name: the encoding's name.
        geometry: the places of the elements.

    Attributes:
        geometry: the same.
    """

    def __init__(self, name: str, geometry: Geometry) -> None:
        super().__init__(name, Blocks(geometry.size, geometry.width, GATHERED_BYTES))
        self.geometry = geometry
        self.has_sum = geometry.stream is not None and geometry.stream.crc is not None

    def _require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse another length, and tensors that repeat few stored bytes very often."""
        span = self.geometry.span
        most = max(limits.decoded_bytes // _REPEATED_PART, span * _REPEATED_PART)
        if expected_length > most:
            raise LimitError(
                "a tensor repeats few stored bytes more often than Limits.decoded_bytes allows",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {most} bytes of {span}",
                found=describe(expected_length),
            )
        if self._run is None and self.geometry.stream is not None:
            allowed = max(_SPAN_BYTES, _SPAN_PART * expected_length)
            if span > allowed:
                raise LimitError(
                    "the elements of a tensor are too far apart in a deflated storage; store the "
                    "archive's members without compression",
                    reason=Reason.LIMIT_DECODED,
                    expected=f"within {allowed} bytes",
                    found=describe(span),
                )
        message = "the tensor has another number of elements than its shape"
        self.require_equal_length(expected_length, self._blocks.nbytes, message)

    def _can_cut(self, stored: Stored) -> bool:
        del stored
        return self.geometry.stream is None

    @property
    def _run(self) -> Stream | None:
        """Return the stream if it decodes to the elements in C order; else None."""
        geometry = self.geometry
        is_run = geometry.span == self._blocks.nbytes and geometry.is_in_order
        return geometry.stream if is_run else None

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether the elements are decoded block by block or inflated in C order."""
        return self._can_cut(stored) or self._run is not None

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly; each stored byte is read once."""
        self.require_length(stored, destination.nbytes, limits)
        if (stream := self._run) is not None:
            stream.fill(stored, self.geometry.skip, destination)
            return
        whole = tuple(slice(0, length) for length in self.geometry.size)
        self._fill(stored, whole, destination, limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the elements block by block, or as they are inflated if they are in C order."""
        if (stream := self._run) is None or expected_length is None:
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.require_length(stored, expected_length, limits)
        skip = self.geometry.skip
        for piece in stream.pieces(stored, skip, skip + expected_length):
            yield memoryview(piece)

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del limits
        geometry = self.geometry
        kinds = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}  # elements are moved only
        dtype = np.dtype(kinds.get(geometry.width, f"V{geometry.width}"))
        if geometry.flags:
            order = "<" if geometry.order == "little" else ">"
            dtype = numpy_dtype(geometry.dtype).newbyteorder(order)  # type: ignore[arg-type]
        shape = *(part.stop - part.start for part in place), *geometry.size[len(place) :]
        target: Array = np.frombuffer(destination, dtype).reshape(shape)
        if geometry.stream is None:
            gather_stored(stored, dtype, geometry.stride, place, target)
        else:
            data = empty_array((geometry.span,)).data
            geometry.stream.fill(stored, geometry.skip, data)
            gather(np.ndarray(geometry.size, dtype, data, 0, geometry.stride)[place], target)
        if "conj" in geometry.flags:
            np.conjugate(target, out=target)
        if "neg" in geometry.flags:
            np.negative(target, out=target)
