"""One component on its way out: padding, encoding, digest, and where it came to lie."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from ztensor.digest import digest_of
from ztensor.encoding import ENCODINGS, writable
from ztensor.encoding.zstd import FASTEST_LEVEL, FRAME_BYTES, STRONGEST_LEVEL
from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.model.manifest import Component
from ztensor.model.rules import align
from ztensor.source.gathering import WRITE_BYTES
from ztensor.writing.frames import Frames, batches

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from ztensor.digest import Algorithm, Hasher
    from ztensor.source.sink import Sink
    from ztensor.threads import Crew

DEFAULT_LEVEL = 3
# From here on another thread hashes while this one writes; starting it costs 20 us.
_BESIDE_BYTES = 1 << 20
# So much is handed to a thread to compress: less than a millisecond of work, 30 us to hand over.
_JOB_BYTES = 256 << 10
# Up to here one thread compresses: what comes in pieces is decoded by others meanwhile.
_ALONE_BYTES = 4 << 20
_PLAIN = Frames(FRAME_BYTES, FRAME_BYTES)


class Compression(NamedTuple):
    """How components are encoded.

    Attributes:
        encoding: a name of the table of encodings.
        level: how hard to try, where that means something.
    """

    encoding: str
    level: int = DEFAULT_LEVEL


def compression_of(asked: bool | int | str | None) -> Compression | None:  # noqa: FBT001  # one argument
    """Return how a caller asked for components to be encoded; None for raw.

    Raises:
        ArgumentValueError: it is no level, and no encoding's name.
        ArgumentTypeError: it is neither a bool, a number nor text.
    """
    if asked is None or asked is False or asked in ("none", "raw") or _is_zero(asked):
        return None
    if isinstance(asked, str) and asked in writable():
        return Compression(asked)
    if asked is True:
        return Compression("zstd")
    if isinstance(asked, int) and FASTEST_LEVEL <= asked <= STRONGEST_LEVEL:
        return Compression("zstd", asked)
    kind = ArgumentValueError if isinstance(asked, (int, str)) else ArgumentTypeError
    names = ", ".join(repr(name) for name in writable() if name != "raw")
    raise kind(
        "unknown compression",
        expected=f"False, True, {names} or a zstd level up to {STRONGEST_LEVEL}",
        found=describe(asked),
    )


def _is_zero(asked: object) -> bool:
    return asked == 0 and not isinstance(asked, str)


class BlobWriter:
    """One component on its way out: padding, encoding, digest, and where it came to lie.

    Args:
        sink: where it goes.
        compression: how it is encoded, or None for raw.
        algorithm: digest, or None for none.
        crew: threads that compress frames and hash beside the writing.
        is_kept: what `write` is given stays as it is until the file is finished, so that its
            digest may come later.
        frames: where frames end; of no meaning for raw data.
    """

    def __init__(
        self,
        sink: Sink,
        compression: Compression | None,
        algorithm: Algorithm | None,
        crew: Crew | None = None,
        *,
        is_kept: bool = False,
        frames: Frames = _PLAIN,
    ) -> None:
        self._frames = frames
        self._encoded_to = 0  # decoded bytes that are compressed; a frame begins here
        self._crew = crew if crew is not None and crew.count > 1 else None
        self._is_kept = is_kept and compression is None and algorithm is not None
        self.digest_later: Future[str] | None = None
        self._sink = sink
        self._compression = compression
        self._algorithm = algorithm
        self._hasher: Hasher | None = None if algorithm is None else algorithm.hasher()
        self._offset = align(sink.position)
        self._decoded = 0
        self._pending = bytearray()
        sink.write(bytes(self._offset - sink.position))

    def write(self, data: memoryview) -> None:
        """Take decoded bytes."""
        self._decoded += data.nbytes
        if self._compression is None:
            self._out(data)
            return
        # Whole frames only until the end, so that pieces of any size give the same file.
        if self._pending:
            take = self._frames.end(self._encoded_to) - self._encoded_to - len(self._pending)
            self._pending += data[:take]
            data = data[take:]
            if self._encoded_to + len(self._pending) < self._frames.end(self._encoded_to):
                return
            pending, self._pending = self._pending, bytearray()
            self._encode(memoryview(pending))
        whole = self._frames.start(self._encoded_to + data.nbytes) - self._encoded_to
        if whole:
            self._encode(data[:whole])
        self._pending += data[whole:]

    def _encode(self, data: memoryview) -> None:
        """Compress and write whole frames, from `_encoded_to` on."""
        parts = self._frames.cut(self._encoded_to, data)
        self._encoded_to += data.nbytes
        if self._crew is None or data.nbytes <= _ALONE_BYTES:
            for frame in self._encoded(parts):
                self._out(memoryview(frame))
            return
        # Frames are independent. A few more jobs than there are threads are under way at any time,
        # so that none waits and memory stays bounded.
        under_way: collections.deque[Future[list[bytes | memoryview]]] = collections.deque()
        for batch in batches(parts, _JOB_BYTES):
            under_way.append(self._crew.submit(self._encoded, batch))
            if len(under_way) > 2 * self._crew.count:
                for frame in under_way.popleft().result():
                    self._out(memoryview(frame))
        while under_way:
            for frame in under_way.popleft().result():
                self._out(memoryview(frame))

    def _encoded(self, parts: Iterable[memoryview]) -> list[bytes | memoryview]:
        name, level = self._compression or Compression("raw")
        encode = ENCODINGS[name].encode
        return [
            frame
            for part in parts
            for frame in encode(part, level=level, frame_bytes=max(part.nbytes, 1))
        ]

    def _out(self, data: memoryview) -> None:
        if self._hasher is None:
            self._sink.write(data)
            return
        if self._crew is not None and data.nbytes >= _BESIDE_BYTES:
            if self._is_kept and self._algorithm is not None and self.digest_later is None:
                self.digest_later = self._crew.submit(digest_of, self._algorithm, (data,))
                self._sink.write(data)
                return
            hashing = self._crew.submit(self._hasher.update, data)
            try:
                self._sink.write(data)
            finally:
                hashing.result()
            return
        # Hashed piece by piece, each written while it is still in the processor's cache. They end
        # where the sink's writes do: see there.
        while data.nbytes:
            count = WRITE_BYTES - self._sink.position % WRITE_BYTES
            self._hasher.update(data[:count])
            self._sink.write(data[:count])
            data = data[count:]

    def finish(self, component: Component) -> Component:
        """Return the component with its place, length, encoding and digest."""
        if self._compression is not None and (self._pending or not self._decoded):
            self._encode(memoryview(self._pending))
        digest = None
        if self._algorithm is not None and self._hasher is not None and self.digest_later is None:
            digest = self._algorithm.spell(self._hasher.hexdigest())
        return Component(
            component.dtype,
            self._offset,
            self._sink.position - self._offset,
            component.type,
            "raw" if self._compression is None else self._compression.encoding,
            digest,
            None if self._compression is None else self._decoded,
        )
