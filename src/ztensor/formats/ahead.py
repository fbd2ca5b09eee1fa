"""Components decoded by other threads, a little ahead of the one that writes them.

Inflating, unshuffling and gathering take longer than writing what comes of it, and libraries let
other threads run meanwhile. The order is known before the first byte: so the next components are
begun while one is written. What waits is bounded, see `_MOST_BYTES`, and an error is raised where
the component is asked for that it belongs to.
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

# Decoded bytes that may wait, and those of the piece that comes next. What is decoded as a whole
# before it gives the first piece is begun only if it fits as a whole.
_MOST_BYTES = 40 << 20
_PIECE_BYTES = 8 << 20  # of which nothing is known yet
# Of what was asked for: even where others have filled the room, and more would only wait.
_MOST_OF_FIRST_BYTES = 8 << 20
# To hand over less takes longer than to decode it.
_LEAST_BYTES = 64 << 10
_MOST_UNDER_WAY = 32  # components; many small ones wait for few threads


class Ahead:
    """Decoded pieces of components, asked for one after the other.

    A context manager: behind it no thread is left, whatever was raised.

    Args:
        components: file, object and role of each, in the order they will be asked for. One that
            is asked for twice in a row is there twice. Others may be asked for, which are decoded
            then; those that are passed over were decoded in vain.
        threads: how many decode; see `thread_count`. With one everything is decoded when it is
            asked for, by who asks.
        read: decodes one where its pieces are not `FileObjects.decoded_chunks`.

    Raises:
        ArgumentValueError: the number of threads is none.
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
        # The rest is read and written under `_changed`, as is what a stream has.
        self._first: _Stream | None = None
        self._held = 0

    def __enter__(self) -> Self:
        """Return itself; nothing is decoded before the first is asked for."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the threads: each stops behind the piece it is at."""
        with self._changed:
            for stream in (self._first, *self._under_way):
                self._end(stream)
        self._crew.close()

    def chunks(self, file: FileObjects, name: str, role: str) -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order; each piece is valid until the next.

        Only the component that was asked for last can be read on.

        Raises:
            ZTensorError: what `read` raises.
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
        self._begin()  # others, in the place of those that are behind
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
                    del piece  # who takes it has it alone
                    # Before the next is decoded, which is about as long: its memory counts, too.
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
        """Wait until a component is the first, or fits beside others; return how much may wait."""
        file, name, role = stream.key
        component = file.object(name).components[role]
        encoding = file.encodings.get(component.encoding)
        stored = file.stored(component).stored()
        nbytes = file.known_length(name, role)
        if nbytes is None:
            nbytes = _MOST_BYTES + 1
        is_whole = encoding is None or not encoding.is_streamed(stored)
        most = nbytes if is_whole else min(nbytes, _PIECE_BYTES)
        room = most
        if encoding is not None:
            with contextlib.suppress(ZTensorError):  # decoding says so, after the digest
                room += encoding.window_bytes(stored, file.limits)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    stream.is_dropped or stream is self._first or self._held + room <= _MOST_BYTES
                )
            )
            if stream.is_dropped:
                return 0
            if self._held + room > _MOST_BYTES:
                return most if is_whole else min(most, _MOST_OF_FIRST_BYTES)
            stream.room = room
            self._held += room
            return max(most, 1)


class _Stream:
    """A component that is decoded, or will be.

    Attributes:
        key: its file, object and role.
        pieces: what was decoded and not asked for.
        waiting: bytes of those.
        room: bytes that are kept for it.
        is_dropped: nobody will ask for more.
        is_done: no more will come.
        error: why it ended early, if it did.
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
    """Return whether decoding is work: what is stored as it is needed only goes through."""
    component = file.object(name).components[role]
    if component.encoding == "raw" and component.byte_order == "little":
        return False
    nbytes = file.known_length(name, role)
    return nbytes is None or nbytes >= _LEAST_BYTES
