"""Write one component: padding, encoding and digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ztensor.io.source.sink import FileSink
from ztensor.io.source.stream import WRITE_BYTES
from ztensor.io.writing.frames import Compressor, Frame
from ztensor.spec.encoding.base import FRAME_FIELD
from ztensor.spec.model.manifest import Component, TensorObject

if TYPE_CHECKING:
    from ztensor.io.source.base import Sink
    from ztensor.io.writing.options import BlobOptions
    from ztensor.threads.pool import Pool

Pieces = Callable[[], Iterable[memoryview]]
# From this length on another thread hashes while this one writes; to start it costs 20 us.
_BESIDE_BYTES = 1 << 20
# Streamed bytes are held up to this length: only at their end it is known if compression saves.
_MOST_HELD_BYTES = 4 << 20
_HOLE = 4096  # padding from this length on is a hole
_ZEROS = bytes(1 << 16)


class Blob:
    """Writes the stored bytes of one component.

    Args:
        sink: the sink.
        options: the digest, which covers the stored bytes, and the alignment.
        crew: threads that hash during writes.
    """

    def __init__(self, sink: Sink, options: BlobOptions, crew: Pool | None = None) -> None:
        self._sink = sink
        self._algorithm = algorithm = options.algorithm
        self._hasher = algorithm and algorithm.hasher()
        self._crew = crew if crew is not None and crew.count > 1 else None
        self._offset = start_blob(sink, options.form.alignment)

    def write(self, data: memoryview) -> None:
        """Append stored bytes."""
        if self._hasher is None:
            self._sink.write(data)
        elif self._crew is not None and data.nbytes >= _BESIDE_BYTES:
            hashing = self._crew.submit(self._hasher.update, data)
            try:
                self._sink.write(data)
            finally:
                hashing.result()
        else:
            # Each piece is written while it is in the processor's cache. Pieces end where the
            # sink's writes do: see `WRITE_BYTES`.
            while data.nbytes:
                count = WRITE_BYTES - self._sink.position % WRITE_BYTES
                self._hasher.update(data[:count])
                self._sink.write(data[:count])
                data = data[count:]

    def finish(self, component: Component) -> Component:
        """Return the component with its offset, length and digest, as raw."""
        digest = None
        if self._algorithm is not None and self._hasher is not None:
            digest = self._algorithm.spell(self._hasher.hexdigest())
        length = self._sink.position - self._offset
        return Component(component.dtype, self._offset, length, component.type, "raw", digest)


class FrameBlob:
    """Compresses and writes the data of an object that comes in pieces.

    Args:
        sink: the sink.
        plan: the object.
        options: how it is stored.
        crew: threads that compress.
    """

    def __init__(self, sink: Sink, plan: TensorObject, options: BlobOptions, crew: Pool) -> None:
        self._how = sink, plan, options, crew
        self._held: bytearray | None = bytearray()
        self._compressor = Compressor(plan, "data", options, crew)

    def write(self, data: memoryview) -> None:
        """Append decoded bytes; the caller may change them afterwards."""
        if self._held is not None:
            if len(self._held) + data.nbytes <= _MOST_HELD_BYTES:
                self._held += data
                return
            held, self._held = memoryview(self._held), None
            self._blob = _blob_of_frames(self._how[0], self._how[2])
            self._store(self._compressor.add(held))
        self._store(self._compressor.add(data))

    def finish(self, component: Component) -> Component:
        """Return the component with its offset, lengths, encoding and digest."""
        if self._held is not None:
            whole, (sink, plan, options, crew) = memoryview(self._held), self._how
            return write_component(sink, plan, "data", lambda: [whole], len(whole), options, crew)
        self._store(self._compressor.end())
        return self._compressor.described(self._blob.finish(component))

    def _store(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._blob.write(memoryview(frame.data))


def write_component(
    sink: Sink,
    plan: TensorObject,
    role: str,
    pieces: Pieces,
    nbytes: int | None,
    options: BlobOptions,
    crew: Pool,
) -> Component:
    """Write a component, compressed only if that is smaller; return it with its offset.

    Args:
        sink: the sink.
        plan: the object of the component.
        role: its role.
        pieces: returns its decoded bytes, which do not change, each time it is called.
        nbytes: the number of decoded bytes; None if unknown.
        options: how it is stored.
        crew: threads that compress and hash.
    """
    component, options = plan.components[role], options.of(plan)
    if options.compression is not None:
        compressor = Compressor(plan, role, options, crew)
        if compressor.must_shrink and nbytes is None:
            nbytes = sum(piece.nbytes for piece in pieces())
        frames = compressor.frames(pieces, nbytes if compressor.must_shrink else None)
        if frames is not None:
            blob = _blob_of_frames(sink, options)
            for frame in frames:
                blob.write(memoryview(frame.data))
            return compressor.described(blob.finish(component))
    blob = Blob(sink, options, crew)
    for piece in pieces():
        blob.write(piece)
    return blob.finish(component)


def _blob_of_frames(sink: Sink, options: BlobOptions) -> Blob:
    """Return a blob for frames, without a digest in 2.x, where it covers decoded bytes."""
    return Blob(sink, options._replace(algorithm=None) if options.form.is_exact else options)


def start_blob(sink: Sink, alignment: int) -> int:
    """Write padding up to the alignment, and return the offset; long padding is a hole."""
    position = sink.position
    missing = -position % alignment
    if missing >= _HOLE and isinstance(sink, FileSink):
        sink.skip(missing)
    elif missing:
        sink.write(_ZEROS[:missing])
    return position + missing


def as_of(placed: Component, component: Component) -> Component:
    """Return a component with the place of a written one: it has the same bytes.

    The types and unknown fields of the two may differ.
    """
    kept = {key: value for key, value in (component.extra or {}).items() if key != FRAME_FIELD}
    return placed._replace(
        dtype=component.dtype,
        type=component.type,
        is_exact=component.is_exact,
        extra={**kept, **(placed.extra or {})} or None,
    )
