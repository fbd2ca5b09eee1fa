"""Components decoded by other threads, a little ahead of the one that writes them.

Inflating, unshuffling and gathering take longer than writing the result, and libraries release the
GIL meanwhile. The order is known before the first byte, so the next components are begun while one
is written. Waiting bytes are bounded by `_MOST_BYTES`. An error is raised when its component is
asked for.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from typing import TYPE_CHECKING, Self

from ztensor.errors import ZTensorError
from ztensor.ext import FileObjects, Pool, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Key = tuple[FileObjects, str, str]

# Decoded bytes that may wait, with the expected length of the next chunk. A component that decodes
# as a whole is begun only if all of it fits.
_MOST_BYTES = 40 << 20
_PIECE_BYTES = 8 << 20  # before the first chunk is decoded, its length is unknown
# Of the component that is read now, even if others have used up `_MOST_BYTES`.
_MOST_OF_FIRST_BYTES = 8 << 20
# To hand over less takes longer than to decode it.
_LEAST_BYTES = 64 << 10
_MOST_UNDER_WAY = 32  # components; many small ones wait for few threads


class Ahead:
    """Decoded chunks of components, read one component after the other.

    A context manager: no thread is left after it, whatever was raised.

    Args:
        components: file, object and role of each, in the order in which they will be read. A
            component that is read twice in a row is listed twice. Reading a component that is not
            listed decodes it at that moment; skipping a listed one wastes its decoding.
        threads: number of decoding threads; see `thread_count`. With 1, the caller decodes.
        read: decodes one component; `FileObjects.decoded_chunks` by default.

    Raises:
        ArgumentValueError: `threads` is not a number of threads.
    """

    def __init__(
        self,
        components: Iterable[Key],
        threads: int | None = None,
        *,
        read: Callable[[FileObjects, str, str], Iterator[memoryview]] = FileObjects.decoded_chunks,
    ) -> None:
        self._crew = Pool(thread_count(threads))
        self._read = read
        keys = components if self._crew.count > 1 else ()
        self._left = iter([key for key in keys if _is_worth_it(*key)])
        self._under_way: collections.deque[_Stream] = collections.deque()
        self._changed = threading.Condition()
        # The attributes below, and those of streams, are read and written under `_changed`.
        self._first: _Stream | None = None
        self._held = 0

    def __enter__(self) -> Self:
        """Return itself; nothing is decoded before the first is asked for."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the threads; each finishes its current chunk."""
        with self._changed:
            for stream in (self._first, *self._under_way):
                self._end(stream)
        self._crew.close()

    def chunks(self, file: FileObjects, name: str, role: str) -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order; each chunk is valid until the next.

        Beginning another component ends this one.

        Raises:
            ZTensorError: as `read`.
        """
        key = file, name, role
        self._begin()
        if not any(stream.key == key for stream in self._under_way):
            return self._read(*key)
        with self._changed:
            while True:
                self._end(self._first)
                self._first = self._under_way.popleft()
                if self._first.key == key:
                    break
            self._changed.notify_all()
        return self._pieces(self._first)

    def _pieces(self, stream: _Stream) -> Iterator[memoryview]:
        self._begin()  # in place of those that were passed over
        while (piece := self._next(stream)) is not None:
            yield piece
            del piece  # not held while the next is waited for
        if stream.error is not None:
            raise stream.error

    def _begin(self) -> None:
        while len(self._under_way) < _MOST_UNDER_WAY:
            key = next(self._left, None)
            if key is None:
                return
            stream = _Stream(key)
            if self._crew.begun(self._decode, stream) is None:
                self._left = iter(())  # no thread can be had: each is decoded when asked for
                return
            self._under_way.append(stream)

    def _next(self, stream: _Stream) -> memoryview | None:
        with self._changed:
            self._changed.wait_for(lambda: stream.pieces or stream.is_done)
            if not stream.pieces:
                self._end(stream)
                return None
            piece = stream.pieces.popleft()
            stream.waiting -= piece.nbytes
            self._changed.notify_all()
            return piece

    def _end(self, stream: _Stream | None) -> None:
        """Let go of a stream, and of the room that it had."""
        if stream is not None:
            stream.is_dropped = True
            stream.pieces.clear()
            self._held -= stream.room
            stream.room = 0
            self._changed.notify_all()

    # --- On the other threads ---------------------------------------------------------------

    def _decode(self, stream: _Stream) -> None:
        try:
            most = self._take_room(stream)
            for piece in self._read(*stream.key) if most else ():
                nbytes = piece.nbytes
                with self._changed:
                    if stream.is_dropped:
                        return
                    stream.pieces.append(piece)
                    stream.waiting += nbytes
                    self._changed.notify_all()
                    del piece  # the only reference is the reader's
                    # The next chunk is about as long; its memory counts too.
                    self._changed.wait_for(
                        lambda: (
                            stream.is_dropped
                            or not stream.pieces
                            or stream.waiting + nbytes <= most  # noqa: B023  # called here
                        )
                    )
        except BaseException as error:  # noqa: BLE001  # raised where the pieces are asked for
            stream.error = error
        finally:
            with self._changed:
                stream.is_done = True
                self._changed.notify_all()

    def _take_room(self, stream: _Stream) -> int:
        """Wait until the component is read next, or fits. Return how many bytes may wait."""
        file, name, role = stream.key
        component = file.object(name).components[role]
        encoding = file.encodings.get(component.encoding)
        stored = file.stored(component).stored()
        nbytes = file.known_length(name, role)
        if nbytes is None:
            nbytes = _MOST_BYTES + 1
        is_whole = encoding is None or not encoding.is_streamed(stored)
        most = nbytes if is_whole else min(nbytes, _PIECE_BYTES)
        reserved = most
        if encoding is not None:
            with contextlib.suppress(ZTensorError):  # decoding says so, after the digest
                reserved += encoding.window_bytes(stored, file.limits)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    stream.is_dropped
                    or stream is self._first
                    or self._held + reserved <= _MOST_BYTES
                )
            )
            if stream.is_dropped:
                return 0
            if self._held + reserved > _MOST_BYTES:
                return most if is_whole else min(most, _MOST_OF_FIRST_BYTES)
            stream.room = reserved
            self._held += reserved
            return max(most, 1)


class _Stream:
    """A component that is being decoded, or will be.

    Attributes:
        key: its file, object and role.
        pieces: decoded chunks that wait.
        waiting: the bytes of these chunks.
        room: bytes reserved for the component.
        is_dropped: no more chunks will be read.
        is_done: no more chunks will be decoded.
        error: the error that ended decoding; None if there was none.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.pieces: collections.deque[memoryview] = collections.deque()
        self.waiting = 0
        self.room = 0
        self.is_dropped = False
        self.is_done = False
        self.error: BaseException | None = None


def _is_worth_it(file: FileObjects, name: str, role: str) -> bool:
    """Return whether decoding is work: native raw components are only copied."""
    component = file.object(name).components[role]
    if component.encoding == "raw" and component.byte_order == "little":
        return False
    nbytes = file.known_length(name, role)
    return nbytes is None or nbytes >= _LEAST_BYTES
