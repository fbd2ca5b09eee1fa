"""One component on its way out: padding, encoding, digest, and where it came to lie."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.digest import digest_of
from ztensor.encoding import writable
from ztensor.encoding.zstd import (
    FASTEST_LEVEL,
    FRAME_BYTES,
    FRAME_FIELD,
    STRONGEST_LEVEL,
    listed_frames,
)
from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.layout.elements import blocks, is_stored_as_is
from ztensor.model.manifest import Component
from ztensor.model.rules import Form, align
from ztensor.source.gathering import WRITE_BYTES
from ztensor.source.sink import FileSink
from ztensor.writing.compressing import (
    ALONE_BYTES,
    Compression,
    Compressor,
    compressed,
    smaller,
)
from ztensor.writing.frames import Frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from ztensor.digest import Algorithm, Hasher
    from ztensor.layout.base import Array
    from ztensor.source.sink import Sink
    from ztensor.threads.pool import Crew
    from ztensor.writing.compressing import Frame

# From here on another thread hashes while this one writes; to start it costs 20 us. Of bytes that
# have to be hashed before they change, a fast digest is computed here, just before they are
# written: in the processor's cache that costs less than to wait for another thread.
_BESIDE_BYTES = 1 << 20
# What is shorter takes less time to write than to say how.
SMALL_BYTES = 32 << 10
# What comes in pieces is held up to here, as only its end tells whether compressing it saves.
MOST_HELD_BYTES = 4 << 20
_HOLE = 4096  # from here on zeros are not written
_PLAIN = Frames(FRAME_BYTES, FRAME_BYTES)


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


def as_of(placed: Component, component: Component) -> Component:
    """Return a component that was written: where it is from `placed`, what it means from the other.

    Others may have the same bytes, and other types.
    """
    kept = {key: value for key, value in (component.extra or {}).items() if key != FRAME_FIELD}
    return dataclasses.replace(
        placed,
        dtype=component.dtype,
        type=component.type,
        digest_covers_decoded=component.digest_covers_decoded,
        is_exact=component.is_exact,
        extra={**kept, **(placed.extra or {})} or None,
    )


class BlobWriter:
    """One component on its way out: padding, encoding, digest, and where it came to lie.

    Attributes:
        decoded: decoded bytes of the frames that were written.
        digest_later: the digest, where another thread is still computing it.

    Args:
        sink: where it goes.
        compression: how it is encoded, or None for raw.
        algorithm: digest, or None for none.
        crew: threads that compress frames and hash beside the writing.
        is_kept: what `write` is given stays as it is until the file is finished, so that its
            digest may come later.
        is_lent: what `write` is given may change when it has returned.
        frames: where frames end; of no meaning for raw data.
        form: what blobs of the file are like.
    """

    def __init__(
        self,
        sink: Sink,
        compression: Compression | None,
        algorithm: Algorithm | None,
        crew: Crew | None = None,
        *,
        is_kept: bool = False,
        is_lent: bool = False,
        frames: Frames = _PLAIN,
        form: Form,
    ) -> None:
        self._crew = crew if crew is not None and crew.count > 1 else None
        self._is_kept = is_kept and compression is None and algorithm is not None
        self.digest_later: Future[str] | None = None
        self._sink = sink
        self._encoding = "raw" if compression is None else compression.encoding
        self._compressor: Compressor | None = None
        if compression is not None:
            self._compressor = Compressor(compression, frames, crew, is_lent=is_lent)
        self._algorithm = algorithm
        self._hasher: Hasher | None = None if algorithm is None else algorithm.hasher()
        self._hashes_decoded = form.is_exact and compression is not None
        self._offset = align(sink.position, form.alignment)
        self._frames = frames
        self._form = form
        self._lengths: list[int] = []  # of the frames as they are stored
        self.decoded = 0
        pad(sink, self._offset - sink.position)

    def write(self, data: memoryview) -> None:
        """Take decoded bytes."""
        if self._compressor is None:
            self._out(data)
            return
        if self._hashes_decoded and self._hasher is not None:
            self._hasher.update(data)
        self.take(self._compressor.add(data))

    def take(self, frames: Iterable[Frame]) -> None:
        """Write frames that were made already, all of them or in the place of `write`."""
        for frame in frames:
            self.decoded += frame.decoded
            self._lengths.append(len(frame.data))
            self._out(memoryview(frame.data))

    def _out(self, data: memoryview) -> None:
        if self._hasher is None or self._hashes_decoded:
            self._sink.write(data)
            return
        algorithm = self._algorithm
        is_beside = algorithm is not None and (algorithm.is_slow or self._is_kept)
        if is_beside and self._crew is not None and data.nbytes >= _BESIDE_BYTES:
            if self._is_kept and algorithm is not None and self.digest_later is None:
                self.digest_later = self._crew.submit(digest_of, algorithm, (data,))
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

    def finish(self, component: Component, *, encoding: str | None = None) -> Component:
        """Return the component with its place, length, encoding and digest.

        Args:
            component: what it is.
            encoding: that of frames which were made already.
        """
        encoding = encoding or self._encoding
        if self._compressor is not None:
            self.take(self._compressor.end())
        digest = None
        if self._algorithm is not None and self._hasher is not None and self.digest_later is None:
            digest = self._algorithm.spell(self._hasher.hexdigest())
        return Component(
            component.dtype,
            self._offset,
            self._sink.position - self._offset,
            component.type,
            encoding,
            digest,
            None if encoding == "raw" else self.decoded,
            extra=self._listed(encoding),
        )

    def _listed(self, encoding: str) -> dict[str, object] | None:
        """Return the fields that say where frames lie, where the encoding has some."""
        if encoding != "zstd" or self._form.is_exact:  # 2.x has tables of its own
            return None
        return listed_frames(*self._frames, self._lengths)


class HeldBlob:
    """A small component that comes in pieces, held until it is whole; see `BlobWriter`.

    Args:
        sink: where it goes.
        compression: how it is encoded, where that makes it smaller.
        algorithm: digest, or None for none.
        crew: threads that compress.
        frames: where frames end.
        form: what blobs of the file are like.
    """

    def __init__(
        self,
        sink: Sink,
        compression: Compression,
        algorithm: Algorithm | None,
        crew: Crew,
        frames: Frames,
        form: Form,
    ) -> None:
        self._sink = sink
        self._compression = compression
        self._algorithm = algorithm
        self._crew = crew
        self._frames = frames
        self._form = form
        self._data = bytearray()

    def write(self, data: memoryview) -> None:
        """Take decoded bytes."""
        self._data += data

    def finish(self, component: Component) -> Component:
        """Write the component, and return it with its place, length, encoding and digest."""
        return write_blob(
            self._sink,
            component,
            lambda: [memoryview(self._data)],
            len(self._data),
            compression=self._compression,
            algorithm=self._algorithm,
            crew=self._crew,
            frames=self._frames,
            form=self._form,
        )


def write_blob(
    sink: Sink,
    component: Component,
    pieces: Callable[[], Iterable[memoryview]],
    total: int | None,
    *,
    compression: Compression,
    algorithm: Algorithm | None,
    crew: Crew,
    frames: Frames,
    form: Form,
    alone_bytes: int = ALONE_BYTES,
) -> Component:
    """Write a component compressed, or raw where that is no larger; return it with its place.

    Args:
        sink: where it goes.
        component: what it is.
        pieces: gives its decoded bytes, which stay as they are, more than once where needed.
        total: how many bytes they are, or None.
        compression: how it is encoded.
        algorithm: digest, or None for none.
        crew: threads that compress.
        frames: where frames end.
        form: what blobs of the file are like.
        alone_bytes: pieces up to here are compressed in this thread.
    """
    hashed = None
    if form.is_exact and algorithm is not None:
        pieces = hashed = _Hashed(pieces, algorithm)
        algorithm = None

    def compressor() -> Compressor:
        return Compressor(compression, frames, crew, alone_bytes=alone_bytes)

    if compression.must_shrink:
        found = smaller(pieces, total, frames, compressor)
    else:
        found = compressed(pieces, compressor())
    blob = BlobWriter(sink, None, algorithm, crew, frames=frames, form=form)
    if found is None:
        for piece in pieces():
            blob.write(piece)
        written = blob.finish(component)
    else:
        blob.take(found)
        written = blob.finish(component, encoding=compression.encoding)
    return written if hashed is None else dataclasses.replace(written, digest=hashed.digest())


class _Hashed:
    """Decoded bytes, as often as they are asked for, each hashed when it comes for the first time.

    Args:
        pieces: gives them.
        algorithm: the digest.
    """

    def __init__(self, pieces: Callable[[], Iterable[memoryview]], algorithm: Algorithm) -> None:
        self._pieces = pieces
        self._algorithm = algorithm
        self._hasher = algorithm.hasher()
        self._hashed = 0

    def __call__(self) -> Iterator[memoryview]:
        done = 0
        for piece in self._pieces():
            fresh = piece[max(self._hashed - done, 0) :]
            done += piece.nbytes
            if fresh.nbytes and done > self._hashed:
                self._hasher.update(fresh)
                self._hashed = done
            yield piece

    def digest(self) -> str:
        """Return the digest of what was given."""
        return self._algorithm.spell(self._hasher.hexdigest())


_ZEROS = bytes(1 << 16)


def write_small(
    sink: Sink, component: Component, array: Array, algorithm: Algorithm | None, form: Form
) -> Component:
    """Write a component of at most `SMALL_BYTES` raw, and return it with where it lies."""
    offset, data = put_small(sink, array, form)
    digest = None if algorithm is None else algorithm.whole()(data)
    return Component(component.dtype, offset, len(data), component.type, "raw", digest)


def put_small(sink: Sink, array: Array, form: Form) -> tuple[int, bytes]:
    """Write an array of at most `SMALL_BYTES` raw, and return where it lies, and its bytes.

    It is what `BlobWriter` does, in fewer steps: they take longer than the bytes.
    """
    position = sink.position
    offset = align(position, form.alignment)
    if offset > position:
        pad(sink, offset - position)
    data = array.tobytes() if is_stored_as_is(array.dtype) else b"".join(blocks(array))
    sink.write(data)
    return offset, data


def pad(sink: Sink, count: int) -> None:
    """Write zeros, of which much is a hole where the file can have one."""
    if count >= _HOLE and isinstance(sink, FileSink):
        sink.skip(count)
        return
    while count:
        some = min(count, len(_ZEROS))
        sink.write(memoryview(_ZEROS)[:some])
        count -= some
