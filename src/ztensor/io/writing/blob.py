"""One component on its way out: padding, encoding, digest, and where it came to be."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.io.source.sink import FileSink
from ztensor.io.source.stream import WRITE_BYTES
from ztensor.io.writing.frames import Compressor, Frame, frames_of, require_chunk_rows
from ztensor.locks import cached_property
from ztensor.spec.container.framing import Form
from ztensor.spec.digest import Algorithm, require_writable
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.base import FRAME_FIELD, listed_frames
from ztensor.spec.encoding.zstd.codec import FASTEST_LEVEL, STRONGEST_LEVEL
from ztensor.spec.model.manifest import Component, TensorObject, align

if TYPE_CHECKING:
    from ztensor.io.source.base import Sink
    from ztensor.threads.pool import Pool

Pieces = Callable[[], Iterable[memoryview]]
DEFAULT_LEVEL = 3
# From here on another thread hashes while this one writes; to start it costs 20 us.
_BESIDE_BYTES = 1 << 20
# Frames that are held until it is known whether they stay; then they are made a second time.
_HELD_BYTES = 8 << 20
_HOLE = 4096  # from here on zeros are not written
_ZEROS = bytes(1 << 16)


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
    if asked is None or asked is False or asked in ("none", "raw"):
        return None
    if asked is True:
        return Compression("zstd")
    if isinstance(asked, str):
        with contextlib.suppress(KeyError):
            if ENCODINGS[asked].is_written:
                return Compression(asked)
    elif asked == 0:
        return None
    elif isinstance(asked, int) and FASTEST_LEVEL <= asked <= STRONGEST_LEVEL:
        return Compression("zstd", asked)
    kind = ArgumentValueError if isinstance(asked, (int, str)) else ArgumentTypeError
    written = (name for name, encoding in ENCODINGS.items() if encoding.is_written)
    names = ", ".join(repr(name) for name in written if name != "raw")
    raise kind(
        "unknown compression",
        expected=f"False, True, {names} or a zstd level up to {STRONGEST_LEVEL}",
        found=describe(asked),
    )


class BlobOptions(NamedTuple):
    """How the components of an object are stored.

    Attributes:
        form: what blobs of the file are like.
        compression: how they are encoded; None for raw.
        algorithm: their digest; None for none.
        chunk_rows: rows in a frame of compressed bytes; None for as many as 64 KiB hold.
    """

    form: Form
    compression: Compression | None = None
    algorithm: Algorithm | None = None
    chunk_rows: int | None = None

    def asked(
        self,
        compression: bool | int | str | None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None,  # noqa: FBT001
        chunk_rows: int | None,
    ) -> BlobOptions:
        """Return the options with what a caller asks for; None takes what these say.

        Raises:
            ArgumentValueError: there is no such compression, digest or number of rows.
            ArgumentTypeError: one is of another type.
        """
        changed = self._replace(chunk_rows=require_chunk_rows(chunk_rows) or self.chunk_rows)
        if checksum is not None:
            algorithm = require_writable(checksum, self.form.checksums)
            changed = changed._replace(algorithm=algorithm)
        if compression is not None:
            how = compression_of(compression)
            if how is not None:
                how = how._replace(encoding=self.form.encodings.get(how.encoding, how.encoding))
            changed = changed._replace(compression=how)
        return changed


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
        self._offset = start_blob(sink, options.form.alignment)

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
    """One component on its way out in frames: in pieces, or as a whole by `write_whole`.

    Args:
        sink: where it goes.
        plan: the object it is of.
        role: its role.
        options: how it is stored.
        compression: how it is encoded.
        crew: threads that compress.
    """

    def __init__(
        self,
        sink: Sink,
        plan: TensorObject,
        role: str,
        options: BlobOptions,
        compression: Compression,
        crew: Pool,
    ) -> None:
        self._sink, self._encoding = sink, compression.encoding
        self._is_exact = is_exact = options.form.is_exact
        # A digest of 2.x is that of the decoded bytes.
        self._algorithm = options.algorithm if is_exact else None
        self._options = options._replace(algorithm=None) if is_exact else options
        self._frames = frames_of(plan, role, options.chunk_rows, are_equal=is_exact)
        self._new = functools.partial(Compressor, *compression, self._frames, crew)
        self._begin()

    def _begin(self) -> None:
        self._compressor = self._new()
        self._hasher = None if self._algorithm is None else self._algorithm.hasher()

    def write(self, data: memoryview) -> None:
        """Take decoded bytes, which may change when this has returned."""
        self._store(self._made(data))

    def finish(self, component: Component) -> Component:
        """Return the component with its place, lengths, encoding and digest."""
        return self._ended(self._compressor.end(), component)

    def write_whole(
        self, pieces: Pieces, total: int | None, component: Component
    ) -> Component | None:
        """Take all decoded bytes, and return the component as `finish` does.

        Args:
            pieces: gives the decoded bytes, a second time where frames must be fewer bytes and it
                takes more of them to know than are held.
            total: how many they are, where frames must be fewer; None writes them anyway.
            component: as the manifest has it.

        Returns:
            None, with nothing written, where frames are no fewer bytes.
        """
        frames = self._whole(pieces)
        if total is None:
            return self._ended(frames, component)
        held: list[Frame] = []
        stored, rest = 0, total
        for frame in frames:
            stored += len(frame.data)
            rest -= frame.decoded
            held.append(frame)
            if stored > _HELD_BYTES:
                held.clear()
            # Most save more at their beginning than all that follows can cost.
            if stored + rest + rest // 1024 + 64 * (rest // self._frames.piece + 1) < total:
                break
        if stored >= total:
            return None
        kept = itertools.chain(held, frames) if held else self._whole(pieces)
        return self._ended(kept, component)

    def _whole(self, pieces: Pieces) -> Iterator[Frame]:
        self._begin()
        for data in pieces():
            yield from self._made(data)
        yield from self._compressor.end()

    def _made(self, data: memoryview) -> Iterator[Frame]:
        if self._hasher is not None:
            self._hasher.update(data)
        return self._compressor.add(data)

    @cached_property
    def _blob(self) -> Blob:
        """Return what the frames go to, begun with the first."""
        return Blob(self._sink, self._options)

    def _store(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._blob.write(memoryview(frame.data))

    def _ended(self, frames: Iterable[Frame], component: Component) -> Component:
        self._store(frames)
        written = self._blob.finish(component)
        if self._algorithm is not None and self._hasher is not None:
            written = written._replace(digest=self._algorithm.spell(self._hasher.hexdigest()))
        extra = None  # 2.x has tables of its own
        if self._encoding == "zstd" and not self._is_exact:
            lengths = [stored for stored, _ in self._compressor.lengths]
            extra = listed_frames(*self._frames, lengths)
        return written._replace(
            encoding=self._encoding,
            decoded_length=sum(decoded for _, decoded in self._compressor.lengths),
            extra=extra,
        )


def write_component(
    sink: Sink,
    plan: TensorObject,
    role: str,
    pieces: Pieces,
    nbytes: int | None,
    options: BlobOptions,
    crew: Pool,
) -> Component:
    """Write a component, compressed only where that is smaller; return it with its place.

    Args:
        sink: where it goes.
        plan: the object it is of.
        role: its role.
        pieces: gives its decoded bytes, which stay as they are, more than once where needed.
        nbytes: how many bytes they are, or None where only they tell.
        options: how it is stored.
        crew: threads that compress and hash.
    """
    component, compression = plan.components[role], options.compression
    if compression is not None:
        total = None
        if ENCODINGS[compression.encoding].must_shrink:
            total = sum(piece.nbytes for piece in pieces()) if nbytes is None else nbytes
        frames = FrameBlob(sink, plan, role, options, compression, crew)
        written = frames.write_whole(pieces, total, component)
        if written is not None:
            return written
    blob = Blob(sink, options, crew)
    for piece in pieces():
        blob.write(piece)
    return blob.finish(component)


def start_blob(sink: Sink, alignment: int) -> int:
    """Write zeros up to where a blob may begin, and return its offset; much of them is a hole."""
    position = sink.position
    offset = align(position, alignment)
    if offset - position >= _HOLE and isinstance(sink, FileSink):
        sink.skip(offset - position)
    else:
        for start in range(position, offset, len(_ZEROS)):
            sink.write(_ZEROS[: offset - start])
    return offset
