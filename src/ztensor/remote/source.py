"""Read objects of stores and HTTP servers by ranges, all of one version.

Opening requests the head and the tail concurrently: one round trip, which includes the metadata of
most formats. Each later request names the version (the ETag, or the date without one), so a
replaced object is an error and never a mixture. Short reads go through a small cache of blocks,
long ones directly into the destination, in parts by several threads. With a cache on disk, the
first read between head and tail fetches the whole object, and reads are served from the copy.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Remote
from ztensor.errors import ClosedError, SourceError, SourceNotFoundError, describe
from ztensor.ext import Lock, Pool, Source, run_jobs
from ztensor.remote.cache import ObjectCache, cache_of
from ztensor.remote.failures import asked, changed, ends_of
from ztensor.remote.identity import UNKNOWN, Version, object_id, version_of
from ztensor.remote.pieces import PART_BYTES, Piece, plan, scatter
from ztensor.remote.urls import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


THREADS = 8
_BLOCK_BYTES = 256 << 10
_CACHE_BYTES = 16 << 20
_AHEAD = 8  # growth of sequential reads: each is this many times longer than the last
# Bytes of the head and of the tail to fetch first, by the suffix.
_FIRST = {".zt": (4 << 10, 256 << 10), ".gguf": (1 << 20, 4 << 10), ".npz": (4 << 10, 1 << 20)}
_FIRST_OF_OTHERS = 256 << 10, 68 << 10  # the end record of a zip archive is searched for in 64 KiB
# The longest object read at once from a server without ranges.
_MOST_WHOLE = 64 << 20
_PIECE_BYTES = 1 << 20  # copied while the next bytes arrive
_ABOUT_RANGES = re.compile(r"StartTooLarge|[Ss]tatus\W{1,4}(400|416|501)\b")
_SMALL_BYTES = 64 << 10  # the same for a body of which most bytes are not needed


class RemoteSource(Source):
    """One object of a store; safe to use from several threads.

    Args:
        remote: the object's URL and store.
        size: its length, if known: then opening makes no request, unless there is a cache.

    Attributes:
        name: the URL without secrets.
        remote: as given; another process opens the object by it.
        requests: how many requests were made, without retries.
        size: length in bytes when the object was opened.

    Raises:
        SourceError: it cannot be read.
        ArgumentValueError: the URL or an option is wrong.
        MissingDependencyError: obstore is not installed.
    """

    prefers_long_reads = True
    remote: Remote

    def __init__(self, remote: Remote, size: int | None = None) -> None:
        self.remote = remote
        self._place: Place = place_of(remote)
        self.name = self._place.name
        self.requests = 0
        self._lock = Lock()
        self._is_closed = False
        self._fixed: list[tuple[int, memoryview]] = []  # head and tail
        self._blocks: collections.OrderedDict[int, memoryview] = collections.OrderedDict()
        self._next, self._reach = -1, _BLOCK_BYTES
        self._cache: ObjectCache | None = None  # fetches the copy at the first read
        self._file: Source | None = None  # the whole object on disk
        self._bringing = Lock()
        self._version = UNKNOWN
        kept = cache_of(remote, self._place)
        if size is None or kept is not None:
            self._version = self._open_kept(kept)
            size = self._version.size
        self.size = size

    def _open_kept(self, cache: ObjectCache | None) -> Version:
        """Open by one request for the version if the cache has it."""
        if cache is not None and cache.is_known() and (version := self._look()) is not None:
            self._file = cache.open(version)
            if self._file is not None:
                return version
        self._cache = cache
        return self._open()

    def _open(self) -> Version:
        name = self._place.key or self.name
        head_bytes, tail_bytes = _FIRST.get(os.path.splitext(name)[1].lower(), _FIRST_OF_OTHERS)
        if type(self._place.store).__name__ != "AzureStore":  # has no suffix ranges
            try:
                return self._open_at_once(head_bytes, tail_bytes)
            except _NoRanges:
                pass
        return self._open_by_size(head_bytes, tail_bytes)

    def _open_at_once(self, head_bytes: int, tail_bytes: int) -> Version:
        for _ in range(2):  # again if it was replaced between the two requests
            with Pool(1) as pool:
                later = pool.submit(self._first, {"range": (0, head_bytes)})
                tail = self._first({"range": {"suffix": tail_bytes}})
                head = later.result()
            if head[0] == tail[0]:
                return self._keep(head[0], head[2], tail[1], tail[2])
        raise changed(self.name)

    def _open_by_size(self, head_bytes: int, tail_bytes: int) -> Version:
        """Open by the size: on Azure, on servers without suffix ranges, and empty objects."""
        version = self._head()
        if not version.size:
            return self._keep(version, memoryview(b""), 0, memoryview(b""))
        start = max(0, version.size - tail_bytes)
        try:
            if start <= head_bytes:
                _, _, head = self._first({"range": (0, version.size)}, version)
                return self._keep(version, head, 0, head)
            with Pool(1) as pool:
                later = pool.submit(self._first, {"range": (0, head_bytes)}, version)
                _, _, tail = self._first({"range": (start, version.size)}, version)
                _, _, head = later.result()
        except _NoRanges:
            return self._take_whole(version)
        return self._keep(version, head, start, tail)

    def _take_whole(self, version: Version) -> Version:
        if version.size > _MOST_WHOLE:
            error = SourceError(
                "the server gives no ranges, and the whole is too long to be held in memory",
                file=self.name,
                expected=f"ranges, or at most {_MOST_WHOLE} bytes",
                found=f"{version.size} bytes",
            )
            error.hint = "download it, and open the copy"
            raise error
        _, _, whole = self._first({}, version)
        return self._keep(version, whole, 0, whole)

    def _first(
        self, options: dict[str, Any], version: Version | None = None
    ) -> tuple[Version, int, memoryview]:
        """Make one of the first requests; return (version, offset, bytes)."""
        most = _MOST_WHOLE
        if "range" in options:
            asked = options["range"]
            most = asked["suffix"] if isinstance(asked, dict) else asked[1] - asked[0]

        def ask(library: Any) -> tuple[Version, int, memoryview]:
            result = library.get(self._place.store, self._place.key, options=options)
            found = version_of(result.meta)
            start, stop = result.range
            if version is not None and found != version:
                raise self._changed(version, found)
            if stop - start > most:
                raise self._cut_short(start, most, stop - start)
            memory = np.empty(stop - start, np.uint8).data
            self._receive(result, start, [(start, memory)])
            return found, start, memory

        found: tuple[Version, int, memoryview] = self._ask(ask, is_first=True)
        return found

    def _keep(self, version: Version, head: memoryview, start: int, tail: memoryview) -> Version:
        if start + tail.nbytes != version.size:
            raise self._cut_short(start, version.size - start, tail.nbytes)
        self._fixed = [(0, head), (start, tail.toreadonly())]
        if head.nbytes % _BLOCK_BYTES == 0:  # a sequential read from here reads a long header
            self._next = self._reach = head.nbytes
        return version

    def _ask(
        self,
        ask: Callable[[Any], Any],
        *,
        doing: str = "cannot open for reading",
        is_first: bool = False,
    ) -> Any:
        """Make a request, and translate errors of the library."""
        if self._is_closed:
            raise ClosedError("the file is closed", file=self.name)
        with self._lock:
            self.requests += 1

        def translate(error: BaseException) -> Exception | None:
            is_none = type(error).__name__ == "NotSupportedError"
            if is_first and (is_none or _ABOUT_RANGES.search(ends_of(error))):
                return _NoRanges()
            if not is_first and isinstance(error, FileNotFoundError) and self._fixed:
                return changed(self.name, found="no object")
            return None

        return asked(ask, doing, self.name, translate)

    def _head(self) -> Version:
        place = self._place
        found: Version = self._ask(lambda library: version_of(library.head(place.store, place.key)))
        return found

    def _look(self) -> Version | None:
        """Return the present version; None if the server does not answer to HEAD."""
        try:
            return self._head()
        except SourceNotFoundError:
            raise
        except SourceError:  # a URL may be signed for GET alone
            return None

    def _require_version(self, found: Version) -> None:
        """Require that an answer has the opened version; the first answer fixes that version."""
        with self._lock:
            if self._version is UNKNOWN and found.size == self.size:
                self._version = found
        expected = self._version
        if expected is UNKNOWN:
            raise changed(self.name, f"{self.size} bytes", f"{found.size}")
        if not found.is_same(expected):
            raise self._changed(expected, found)

    def _fetch(self, piece: Piece) -> None:
        """Fill the targets of a piece by one request; the first detects a server without ranges."""
        try:
            self._fetch_range(piece, is_first=self._version is UNKNOWN)
        except _NoRanges:
            self._require_version(self._open())
            for offset, memory in piece.targets:
                rest = self._copy_end(offset, memory)
                if rest.nbytes and not self._copy_kept(offset, rest):
                    self._fetch_range(Piece(offset, offset + rest.nbytes, [(offset, rest)]))

    def _fetch_range(self, piece: Piece, *, is_first: bool = False) -> None:
        def ask(library: Any) -> None:
            options = {"range": (piece.start, piece.stop), **self._version.pin()}
            result = library.get(self._place.store, self._place.key, options=options)
            self._require_version(version_of(result.meta))
            if tuple(result.range) != (piece.start, piece.stop):
                start, stop = result.range
                raise self._cut_short(piece.start, piece.stop - piece.start, stop - start)
            self._receive(result, piece.start, piece.targets)

        self._ask(ask, doing="cannot read", is_first=is_first)

    def _receive(self, result: Any, start: int, targets: Sequence[tuple[int, memoryview]]) -> None:
        """Copy the body of an answer into its targets; stop if it is longer than announced."""
        stop = done = start
        stop += result.range[1] - result.range[0]
        waiting = collections.deque(targets)
        is_sparse = 2 * sum(memory.nbytes for _, memory in targets) < stop - start
        for body in result.stream(min_chunk_size=_SMALL_BYTES if is_sparse else _PIECE_BYTES):
            data = np.frombuffer(body, np.uint8)
            scatter(data, done, waiting)
            done += len(data)
            if done > stop:
                break
        if done != stop:
            raise self._cut_short(start, stop - start, done - start)

    def _changed(self, expected: Version, found: Version) -> SourceError:
        if found.size != expected.size:
            return changed(self.name, f"{expected.size} bytes", f"{found.size}")
        marks = [one.e_tag or one.modified for one in (expected, found)]
        return changed(self.name, *(f"version {describe(mark and str(mark))}" for mark in marks))

    def _cut_short(self, start: int, wanted: int, got: int) -> SourceError:
        return SourceError(
            "the server sent another number of bytes than requested",
            file=self.name,
            expected=f"{wanted} bytes at offset {start}",
            found=f"{got}",
        )

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` with the bytes from `offset`."""
        if destination.nbytes <= _BLOCK_BYTES:
            self._require(offset, destination.nbytes)
            self._read_short(offset, destination)
        else:
            self.read_many([(offset, destination)])

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several buffers: neighbours by one request, long ones by several."""
        self._fill(self._waiting(pieces))

    def _waiting(self, parts: Sequence[tuple[int, memoryview]]) -> list[tuple[int, memoryview]]:
        """Fill from the kept bytes; return the remaining parts."""
        waiting = []
        for offset, destination in parts:
            self._require(offset, destination.nbytes)
            rest = self._copy_end(offset, destination)
            if rest.nbytes and not self._copy_kept(offset, rest):
                waiting.append((offset, rest))
        return waiting

    def _fill(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fill memory from the cache's copy, which is fetched first; or without a cache, fetch."""
        with self._bringing:
            if self._cache is not None:
                cache, self._cache = self._cache, None
                version = self._version
                self._file = cache.open(version) or cache.bring(version, self._fetch_one)
        file = self._file
        if file is not None:
            with contextlib.suppress(SourceError):  # another program truncated it
                for offset, memory in parts:
                    file.read_into(offset, memory)
                return
        self._fetch_all(parts)

    def _fetch_one(self, offset: int, memory: memoryview) -> None:
        self._fetch_all(self._waiting([(offset, memory)]))

    def _fetch_all(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fetch several buffers concurrently, long ones in pieces."""
        run_jobs((functools.partial(self._fetch, piece) for piece in plan(parts)), THREADS)

    def _require(self, offset: int, length: int) -> None:
        if self._is_closed:
            raise ClosedError("the file is closed", file=self.name)
        if offset + length > self.size:
            raise self.shrunk(offset, length, max(0, self.size - offset))

    def _copy_kept(self, offset: int, destination: memoryview) -> bool:
        """Fill from head, tail or one block, if one contains the range; return whether it does."""
        stop = offset + destination.nbytes
        for start, kept in self._fixed:
            if start <= offset and stop <= start + kept.nbytes:
                destination[:] = kept[offset - start : stop - start]
                return True
        number = offset // _BLOCK_BYTES
        with self._lock:
            block = self._blocks.get(number)
        start = number * _BLOCK_BYTES
        if block is None or stop > start + block.nbytes:
            return False
        destination[:] = block[offset - start : stop - start]
        return True

    def _copy_end(self, offset: int, destination: memoryview) -> memoryview:
        """Fill the part that is in the tail, where a long manifest ends; return the rest."""
        if not self._fixed:
            return destination
        start, tail = self._fixed[-1]
        if offset < start < offset + destination.nbytes:
            count = start - offset
            destination[count:] = tail[: destination.nbytes - count]
            return destination[:count]
        return destination

    def _read_short(self, offset: int, destination: memoryview) -> None:
        if not destination.nbytes or self._copy_kept(offset, destination):
            return
        stop = offset + destination.nbytes
        first, last = offset // _BLOCK_BYTES, (stop - 1) // _BLOCK_BYTES
        for number in range(first, last + 1):
            block = self._block(number, last)
            start = number * _BLOCK_BYTES
            low, high = max(offset, start), min(stop, start + block.nbytes)
            destination[low - offset : high - offset] = block[low - start : high - start]

    def _block(self, number: int, last: int) -> memoryview:
        """Return a block; if it is not kept, fetch it with those up to `last`."""
        with self._lock:
            block = self._blocks.get(number)
            if block is not None:
                self._blocks.move_to_end(number)
                return block
            start = number * _BLOCK_BYTES
            # A sequential reader reads everything: its requests grow.
            goes_on = start == self._next
            self._reach = min(PART_BYTES, self._reach * _AHEAD) if goes_on else _BLOCK_BYTES
            stop = min(self.size, max(start + self._reach, (last + 1) * _BLOCK_BYTES))
            self._next = -(-stop // _BLOCK_BYTES) * _BLOCK_BYTES
        buffer = np.empty(stop - start, np.uint8).data
        self._fill([(start, buffer)])
        with self._lock:
            for place in range(start, stop, _BLOCK_BYTES):
                kept = buffer[place - start : place - start + _BLOCK_BYTES].toreadonly()
                self._blocks[place // _BLOCK_BYTES] = kept
            while len(self._blocks) * _BLOCK_BYTES > _CACHE_BYTES:
                self._blocks.popitem(last=False)
        return buffer[:_BLOCK_BYTES]

    def require_unchanged(self, *, ask: bool = False) -> None:
        """With `ask`, require by one request that the object has the opened version."""
        if ask and self._version is UNKNOWN:
            self._require_version(self._look() or self._open())
        elif ask:
            found = self._head()
            if not found.is_same(self._version):
                raise self._changed(self._version, found)

    def identity(self) -> tuple[object, ...] | None:
        """Return a key of the object and its version; None if the store reports no version."""
        version = self._version
        if version.e_tag is None and version.modified is None:
            return None
        modified = None if version.is_strong else str(version.modified)
        url = object_id(self.remote.url, self._place)
        return self.name, url, version.size, version.e_tag, modified

    def close(self) -> None:
        """Drop the kept bytes. May be called again."""
        self._is_closed = True
        with self._lock:
            self._blocks.clear()
            self._fixed = []
        if self._file is not None:
            self._file.close()


class _NoRanges(Exception):
    """The server answers no ranges, or the object is empty."""
