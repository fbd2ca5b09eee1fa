"""The encoding `pyztensor.planes/1`: blocks of elements, each divided into planes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ztensor.ext import Component, Encoding, Runs, Stored, empty_array, streams
from ztensor.limits import Limits
from ztensor.planes.tail import MOST_ELEMENTS, Index, malformed, parse_tail, tail_of
from ztensor.planes.transforms import BYTES, FLOAT, WIDTHS, divide, join, scratch

BLOCK_ELEMENTS = 1 << 17
LEAST_ELEMENTS = 1 << 12  # the index then adds 0.1 %


class Planes(Encoding):
    """Planes of elements of one width; thread-safe.

    Args:
        transform: the transform that is written; see `transforms.py`.
        width: bytes of an element; 0 reads any.
    """

    name = "pyztensor.planes/1"
    is_written = True
    must_shrink = True
    has_table = True
    is_typed = True
    least_saving = 0.03  # a tensor that saves less stays mapped

    def __init__(self, transform: int = BYTES, width: int = 0) -> None:
        self._transform, self._width = transform, width
        self.frame_bytes = BLOCK_ELEMENTS * (width or 1)
        self.least_frame_bytes = LEAST_ELEMENTS * (width or 1)
        self.most_frame_bytes = min(MOST_ELEMENTS * (width or 1), Encoding.most_frame_bytes)

    def for_component(self, component: Component) -> Encoding:
        """Return the encoding for elements of a storage type; itself if it is unknown."""
        storage = component.storage
        if storage is None:
            return self
        return _BY_TYPE[FLOAT if storage.kind == "f" else BYTES, storage.width]

    # --- Reading ----------------------------------------------------------------------------

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs:
        """Return the blocks; the end of the stored bytes is read."""
        runs = parse_tail(stored, expected_length, limits)
        if self._width not in (0, runs.detail.width):
            raise malformed(f"elements of {self._width} bytes", f"{runs.detail.width} bytes")
        return runs

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode into `destination` (flat, bytes, writable), block by block; fill it exactly."""
        runs = self.require_length(stored, len(destination), limits)
        ends = runs.decoded
        for number in range(len(ends) - 1):
            block = destination[ends[number] : ends[number + 1]]
            self.decode_numbered(stored, runs, number, block, limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, a block at a time, each in new memory."""
        if expected_length is None:
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        runs = self.require_length(stored, expected_length, limits)
        for number in range(len(runs.decoded) - 1):
            start, stop = runs.decoded[number : number + 2]
            block = empty_array((stop - start,)).data
            self.decode_numbered(stored, runs, number, block, limits)
            yield block

    def decode_numbered(
        self, stored: Stored, runs: Runs, number: int, destination: memoryview, limits: Limits
    ) -> None:
        """Decode a block into `destination` (flat, bytes, writable); fill it exactly."""
        index: Index = runs.detail
        start, stop = runs.stored[number : number + 2]
        block, count = stored.read(start, stop - start), len(destination) // index.width

        def planes() -> Iterator[np.ndarray]:
            done = 0
            kinds, lengths = index.kinds[number].tolist(), index.lengths[number].tolist()
            for kind, length in zip(kinds, lengths, strict=True):
                stream = block[done : done + length]
                yield np.frombuffer(streams.decode(kind, stream, count, limits), np.uint8)
                done += length

        with scratch(count) as memory:
            join(planes(), index.transform, index.width, destination, memory)

    # --- Writing ----------------------------------------------------------------------------

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes]:
        """Yield the streams of one block, plane by plane."""
        del level, frame_bytes
        with scratch(len(data) // self._width) as memory:
            for plane in divide(data, self._transform, self._width, memory):
                yield bytes(streams.encode(plane.data)[1])

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return index and trailer; `frames` are the streams in the order of `encode`."""
        lengths, decoded = zip(*frames, strict=True)
        width = self._width
        elements = [size // width for size in decoded[width - 1 :: width]]
        return tail_of(lengths, self._transform, width, sum(elements), elements[0])


_BY_TYPE = {
    (transform, width): Planes(transform, width)
    for transform, widths in WIDTHS.items()
    for width in widths
}
PLANES = Planes()
