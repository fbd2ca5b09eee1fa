"""One component on its way out: padding, encoding, digest, and where it came to be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.io.source.sink import FileSink
from ztensor.io.source.stream import WRITE_BYTES
from ztensor.io.writing.compressing import (
    ALONE_BYTES,
    Compression,
    Compressor,
    Frame,
    compressed,
    smaller,
)
from ztensor.io.writing.frames import Frames, frames_of, require_chunk_rows
from ztensor.spec.digest import Algorithm, require_writable
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.base import FRAME_FIELD, listed_frames
from ztensor.spec.encoding.zstd.codec import FASTEST_LEVEL, STRONGEST_LEVEL
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.model.rules import Form, align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ztensor.io.source.base import Sink
    from ztensor.threads.pool import Pool

    Pieces = Callable[[], Iterable[memoryview]]

# From here on another thread hashes while this one writes; to start it costs 20 us.
_BESIDE_BYTES = 1 << 20
_HOLE = 4096  # from here on zeros are not written
_ZEROS = bytes(1 << 16)


class BlobOptions(NamedTuple):
    """How the components of an object are stored.

    Attributes:
        form: what blobs of the file are like.
        compression: how they are encoded; None for raw.
        algorithm: their digest; None for none.
        chunk_rows: rows in a frame of compressed bytes; None for as many as 64 KiB hold.
    """

    form: Form
    compression: Compression | None
    algorithm: Algorithm | None
    chunk_rows: int | None

    @classmethod
    def of(
        cls,
        form: Form,
        compression: bool | int | str | None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None,  # noqa: FBT001
        chunk_rows: int | None,
    ) -> BlobOptions:
        """Return what a caller asks for.

        Raises:
            ArgumentValueError: there is no such compression, digest or number of rows.
            ArgumentTypeError: one is of another type.
        """
        how = compression_of(compression)
        if how is not None:
            how = how._replace(encoding=form.encodings.get(how.encoding, how.encoding))
        algorithm = require_writable(checksum, form.checksums)
        return cls(form, how, algorithm, require_chunk_rows(chunk_rows))

    def with_own(
        self,
        compress: bool | int | str | None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None,  # noqa: FBT001
        chunk_rows: int | None,
    ) -> BlobOptions:
        """Return the options of an object that asks for some of its own; None asks for these.

        Raises:
            ArgumentValueError: as `of`.
            ArgumentTypeError: likewise.
        """
        own = self.of(self.form, compress, checksum, chunk_rows)
        return BlobOptions(
            self.form,
            self.compression if compress is None else own.compression,
            self.algorithm if checksum is None else own.algorithm,
            own.chunk_rows or self.chunk_rows,
        )


def compression_of(asked: bool | int | str | None) -> Compression | None:  # noqa: FBT001  # one argument
    """Return how a caller asked for components to be encoded; None for raw.

    Raises:
        ArgumentValueError: it is no level, and no encoding's name.
        ArgumentTypeError: it is neither a bool, a number nor text.
    """
    if asked is None or asked is False or asked in ("none", "raw") or _is_zero(asked):
        return None
    if isinstance(asked, str):
        with contextlib.suppress(KeyError):
            if ENCODINGS[asked].is_written:
                return Compression(asked)
    if asked is True:
        return Compression("zstd")
    if isinstance(asked, int) and FASTEST_LEVEL <= asked <= STRONGEST_LEVEL:
        return Compression("zstd", asked)
    kind = ArgumentValueError if isinstance(asked, (int, str)) else ArgumentTypeError
    written = (name for name, encoding in ENCODINGS.items() if encoding.is_written)
    names = ", ".join(repr(name) for name in written if name != "raw")
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
    return placed._replace(
        dtype=component.dtype,
        type=component.type,
        digest_covers_decoded=component.digest_covers_decoded,
        is_exact=component.is_exact,
        extra={**kept, **(placed.extra or {})} or None,
    )


class Blob:
    """One component on its way out, as it is stored.

    Args:
        sink: where it goes.
        options: its digest, which is of what is stored, and what blobs of the file are like.
        crew: threads that hash beside the writing.
    """

    def __init__(self, sink: Sink, options: BlobOptions, crew: Pool | None = None) -> None:
        self._sink = sink
        self._algorithm = algorithm = options.algorithm
        self._hasher = None if algorithm is None else algorithm.hasher()
        self._crew = crew if crew is not None and crew.count > 1 else None
        self._offset = align(sink.position, options.form.alignment)
        pad(sink, self._offset - sink.position)

    def write(self, data: memoryview) -> None:
        """Take bytes."""
        if self._hasher is None:
            self._sink.write(data)
        elif self._crew is not None and data.nbytes >= _BESIDE_BYTES:
            hashing = self._crew.submit(self._hasher.update, data)
            try:
                self._sink.write(data)
            finally:
                hashing.result()
        else:
            # Hashed piece by piece, each written while it is still in the processor's cache. They
            # end where the sink's writes do: see there.
            while data.nbytes:
                count = WRITE_BYTES - self._sink.position % WRITE_BYTES
                self._hasher.update(data[:count])
                self._sink.write(data[:count])
                data = data[count:]

    def finish(self, component: Component) -> Component:
        """Return the component with its place, length and digest, raw."""
        digest = None
        if self._algorithm is not None and self._hasher is not None:
            digest = self._algorithm.spell(self._hasher.hexdigest())
        length = self._sink.position - self._offset
        return Component(component.dtype, self._offset, length, component.type, "raw", digest)


class FrameBlob:
    """One component on its way out in frames.

    Args:
        sink: where it goes.
        options: how it is stored.
        frames: where frames end.
    """

    def __init__(self, sink: Sink, options: BlobOptions, frames: Frames) -> None:
        self._blob = Blob(sink, options)
        self._is_listed = not options.form.is_exact  # 2.x has tables of its own
        self._frames = frames
        self._lengths: list[int] = []
        self._decoded_length = 0

    def write(self, frames: Iterable[Frame]) -> None:
        """Take frames."""
        for frame in frames:
            self._decoded_length += frame.decoded
            self._lengths.append(len(frame.data))
            self._blob.write(memoryview(frame.data))

    def finish(self, component: Component, encoding: str) -> Component:
        """Return the component with its place, lengths, encoding and digest."""
        is_listed = self._is_listed and encoding == "zstd"
        return self._blob.finish(component)._replace(
            encoding=encoding,
            decoded_length=self._decoded_length,
            extra=listed_frames(*self._frames, self._lengths) if is_listed else None,
        )


def write_component(
    sink: Sink,
    plan: TensorObject,
    role: str,
    pieces: Pieces,
    nbytes: int | None,
    options: BlobOptions,
    crew: Pool,
    *,
    alone_bytes: int = ALONE_BYTES,
) -> Component:
    """Write a component, compressed only where that is smaller; return it with its place.

    Args:
        sink: where it goes.
        plan: the object it is of.
        role: its role.
        pieces: gives its decoded bytes, which stay as they are, more than once where needed.
        nbytes: how many bytes they are, or None where nobody knows.
        options: how it is stored.
        crew: threads that compress and hash.
        alone_bytes: pieces up to here are compressed in this thread.
    """
    component, compression = plan.components[role], options.compression
    if compression is None:
        return _write_raw(sink, component, pieces, options, crew)
    hashed = None
    if options.form.is_exact and options.algorithm is not None:
        pieces = hashed = _Hashed(pieces, options.algorithm)
        options = options._replace(algorithm=None)
    frames = frames_of(plan, role, options.chunk_rows, are_equal=options.form.is_exact)

    def compressor() -> Compressor:
        return Compressor(compression, frames, crew, alone_bytes=alone_bytes)

    if compression.must_shrink:
        found = smaller(pieces, nbytes, frames, compressor)
    else:
        found = compressed(pieces, compressor())
    if found is None:
        written = _write_raw(sink, component, pieces, options, crew)
    else:
        blob = FrameBlob(sink, options, frames)
        blob.write(found)
        written = blob.finish(component, compression.encoding)
    return written if hashed is None else written._replace(digest=hashed.digest())


def _write_raw(
    sink: Sink, component: Component, pieces: Pieces, options: BlobOptions, crew: Pool
) -> Component:
    blob = Blob(sink, options, crew)
    for piece in pieces():
        blob.write(piece)
    return blob.finish(component)


class _Hashed:
    """Decoded bytes, as often as they are asked for, each hashed when it comes for the first time.

    Args:
        pieces: gives them.
        algorithm: the digest.
    """

    def __init__(self, pieces: Pieces, algorithm: Algorithm) -> None:
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


def pad(sink: Sink, count: int) -> None:
    """Write zeros, of which much is a hole where the file can have one."""
    if count >= _HOLE and isinstance(sink, FileSink):
        sink.skip(count)
        return
    while count:
        some = min(count, len(_ZEROS))
        sink.write(_ZEROS[:some])
        count -= some
