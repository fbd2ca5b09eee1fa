"""Blocks of remote objects, kept in a folder on disk for who opens the same version again.

A folder for each object is named by a digest of its whole URL, without a signature, and of where
its store is (`identity`); in it is one for each version, named by a digest of its ETag; in that a
file for each block. A file is written under another name and takes its own when it is whole. It has
a checksum over what it holds and of what: a damaged one is not used, and is written again. Nothing
here raises for a folder that is full, read-only or gone: reading goes on from the network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ztensor import Remote
from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import Lock, OpenFolder, Pool, empty_array, locking, remove
from ztensor.remote.identity import object_id, text_digest
from ztensor.remote.urls import Place

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Sequence

    Part = tuple[int, memoryview]  # where it begins in the object, and its memory

BLOCK_BYTES = 1 << 20
_VARIABLE = "ZTENSOR_CACHE"
_LIMIT_VARIABLE = "ZTENSOR_CACHE_BYTES"
_LIMIT_BYTES = 32 << 30
_ROOM = "ztensor-blocks-1"  # beneath the caller's folder: what is in it is ours to remove
_HEADER = struct.Struct("<8s32sQQI")  # magic, whose, start, stop, checksum
_MAGIC = b"ztblock1"
_FOLDER = re.compile(r"[0-9a-f]{40}")
# A block, an end, or what waits for the name of one, in the folder of a version.
_NAME = re.compile(rf"(?:{_FOLDER.pattern}/){{2}}(?:[0-9a-z]{{1,16}}|\.[0-9a-f]{{16}})")
_MOST_END_BYTES = 64 << 20
_MOST_PARTIAL = 64  # blocks held in memory because a caller wants a part of them
_THREADS = 8
_MOST_FAILURES = 3
_LOG = logging.getLogger("ztensor")


class _Wanted(NamedTuple):
    """A block, the memory it is read into, and the parts that are copied from there."""

    start: int
    memory: memoryview
    copies: list[Part]


class ObjectCache:
    """What a folder keeps of one object, of any version.

    Args:
        folder: the caller's.
        identity: what tells the object from others.
    """

    def __init__(self, folder: str, identity: str) -> None:
        self._room = _room(os.path.join(folder, _ROOM))
        self._identity = identity
        self._folder = os.path.join(self._room.folder, text_digest(identity).hex()[:40])

    def is_known(self) -> bool:
        """Return whether anything of the object is kept."""
        return self._room.is_ours() and os.path.isdir(self._folder)

    def of(
        self, size: int, e_tag: str | None, modified: datetime.datetime | None
    ) -> VersionCache | None:
        """Return what is kept of a version; None where no strong ETag tells it from others."""
        if not e_tag or e_tag.startswith("W/") or not self._room.is_ours():
            return None
        key = text_digest(f"{self._identity}\n{e_tag}\n{size}\n{modified}")
        return VersionCache(self._room, os.path.join(self._folder, key.hex()[:40]), key, size)


class VersionCache:
    """What a folder keeps of one version of an object; safe for several threads and processes.

    Args:
        room: what holds all objects to a size.
        folder: of the version.
        key: what tells the version from all others.
        size: of the object in bytes.
    """

    def __init__(self, room: _Room, folder: str, key: bytes, size: int) -> None:
        self._room, self._folder, self._key, self._size = room, folder, key, size

    def fill(
        self,
        parts: Sequence[Part],
        fetch: Callable[[Sequence[Part], Callable[[int, memoryview], None]], None],
    ) -> None:
        """Fill several pieces of memory from kept blocks, and keep those that are fetched.

        Args:
            parts: what is wanted, in any order.
            fetch: fills memory from the network, and calls back with each piece it has filled.
        """
        batch: list[_Wanted] = []
        partial = 0
        for block in self._blocks(parts):
            batch.append(block)
            partial += bool(block.copies)
            if partial == _MOST_PARTIAL:
                self._fill_batch(batch, fetch)
                batch, partial = [], 0
        self._fill_batch(batch, fetch)

    def _blocks(self, parts: Sequence[Part]) -> Iterator[_Wanted]:
        wanted: dict[int, list[Part]] = {}
        for offset, memory in parts:
            at = 0
            while at < memory.nbytes:
                start = (offset + at) // BLOCK_BYTES * BLOCK_BYTES
                end = min(memory.nbytes, start + BLOCK_BYTES - offset)
                wanted.setdefault(start, []).append((offset + at, memory[at:end]))
                at = end
        for start, pieces in sorted(wanted.items()):
            length = min(BLOCK_BYTES, self._size - start)
            if len(pieces) == 1 and pieces[0][1].nbytes == length:
                yield _Wanted(start, pieces[0][1], [])
            else:
                yield _Wanted(start, empty_array((length,)).data, pieces)

    def _fill_batch(self, batch: list[_Wanted], fetch: Callable[..., None]) -> None:
        if len(batch) > 1:
            with Pool(min(_THREADS, len(batch))) as pool:
                kept = list(pool.map(self._read_block, batch))
        else:
            kept = [self._read_block(block) for block in batch]
        missing = [block for block, is_kept in zip(batch, kept, strict=True) if not is_kept]
        if missing:
            fetch([(block.start, block.memory) for block in missing], self._keep_block)
        for block in batch:
            for offset, memory in block.copies:
                low = offset - block.start
                memory[:] = block.memory[low : low + memory.nbytes]

    def _read_block(self, block: _Wanted) -> bool:
        return self._read(f"{block.start:x}", block.start, block.memory)

    def _keep_block(self, start: int, memory: memoryview) -> None:
        if start % BLOCK_BYTES == 0 and memory.nbytes == min(BLOCK_BYTES, self._size - start):
            self._keep(f"{start:x}", start, memory)

    def end(self, name: str) -> Part | None:
        """Return where the head or the tail that was kept begins, and its bytes; None if none is.

        Args:
            name: "head" or "tail".
        """
        try:
            length = os.path.getsize(os.path.join(self._folder, name)) - _HEADER.size
        except OSError:
            return None
        if not 0 < length <= min(self._size, _MOST_END_BYTES):
            return None
        start = 0 if name == "head" else self._size - length
        memory = empty_array((length,)).data
        return (start, memory) if self._read(name, start, memory) else None

    def keep_end(self, name: str, start: int, memory: memoryview) -> None:
        """Keep the head, which begins the object, or the tail, which ends it."""
        if 0 < memory.nbytes <= _MOST_END_BYTES:
            self._keep(name, start, memory)

    def _header(self, start: int, memory: memoryview) -> bytes:
        fields = _MAGIC, self._key, start, start + memory.nbytes
        checksum = zlib.crc32(memory, zlib.crc32(_HEADER.pack(*fields, 0)))
        return _HEADER.pack(*fields, checksum)

    def _read(self, name: str, start: int, memory: memoryview) -> bool:
        path = os.path.join(self._folder, name)
        try:
            with open(path, "rb") as file:
                header = file.read(_HEADER.size)
                count = file.readinto(memory)
                is_longer = bool(file.read(1))
        except OSError:
            return False
        if count < memory.nbytes or is_longer or header != self._header(start, memory):
            return False
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        return True

    def _keep(self, name: str, start: int, memory: memoryview) -> None:
        if not self._room.take(_HEADER.size + memory.nbytes):
            return
        try:
            self._room.make(os.path.dirname(self._folder), self._folder)
            waiting = os.path.join(self._folder, f".{os.urandom(8).hex()}")
            with contextlib.ExitStack() as made:
                with open(waiting, "xb", opener=_owners) as file:
                    locking.try_acquire(file.fileno())  # nobody takes it for a dead one's
                    made.callback(remove, waiting, os.fstat(file.fileno()))
                    file.write(self._header(start, memory))
                    file.write(memory)
                os.replace(waiting, os.path.join(self._folder, name))
                made.pop_all()
        except FileNotFoundError:
            pass  # another process has just removed the folder, as it was empty
        except OSError as error:
            self._room.fail(error)


class _Room:
    """All that is kept beneath one folder, by this process and others, held to a size."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._lock = Lock()
        self._left = 0  # bytes that may be written before the folder is looked at again
        self._failures = 0

    def is_ours(self) -> bool:
        """Return whether the folder is there, or can be made, and nobody else writes to it."""
        try:
            self.make()
            status = os.lstat(self.folder)
        except OSError as error:
            self.fail(error)
            return False
        is_foreign = hasattr(os, "geteuid") and (
            status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)
        )
        if not stat.S_ISDIR(status.st_mode) or is_foreign:
            self._warn("it is no folder, or others may write to it")
            return False
        return True

    def make(self, *folders: str) -> None:
        """Make the folder where it is missing, and those beneath it, for the owner alone.

        Raises:
            OSError: it cannot be made.
        """
        for folder in (os.path.dirname(self.folder), self.folder, *folders):
            if not os.path.isdir(folder):
                os.makedirs(folder, 0o700, exist_ok=True)

    def take(self, count: int) -> bool:
        """Return whether so many bytes may be written, after what was used least has gone."""
        with self._lock:
            if self._failures >= _MOST_FAILURES or count > self.limit:
                return False
            if count > self._left:
                self._left = max(count, self.limit // 16)
                self._trim(self.limit - self._left)
            self._left -= count
            return True

    def fail(self, error: OSError) -> None:
        """Note that the folder could not be used; after some times nothing more is written."""
        self._failures += 1
        self._warn(error.strerror or type(error).__name__)

    def _warn(self, why: str) -> None:
        if self.folder not in _WARNED:
            _WARNED.add(self.folder)
            _LOG.warning("the cache %s cannot be used: %s", describe(self.folder, 200), why)

    def _trim(self, most: int) -> None:
        found: list[tuple[int, int, str]] = []
        folders: list[str] = []
        for folder, _, names in os.walk(self.folder, topdown=False):
            folders.append(folder)
            for name in names:
                path = os.path.join(folder, name)
                if _NAME.fullmatch(os.path.relpath(path, self.folder).replace(os.sep, "/")):
                    with contextlib.suppress(OSError):  # another process was faster
                        status = os.lstat(path)
                        found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= most:
            return
        for _, size, path in sorted(found):
            is_waiting = os.path.basename(path).startswith(".")
            with contextlib.suppress(OSError):
                remove(path, locking.is_dead if is_waiting else _is_block)
            total -= 0 if os.path.lexists(path) else size  # it may be a file of another program
            if total <= most:
                break
        for folder in folders[:-1]:
            with contextlib.suppress(OSError):
                if _FOLDER.fullmatch(os.path.basename(folder)):
                    with OpenFolder(os.path.dirname(folder)) as parent:
                        parent.remove_folder(os.path.basename(folder))  # what is not empty stays


def _is_block(file: BinaryIO) -> bool:
    return file.read(len(_MAGIC)) == _MAGIC


_WARNED: set[str] = set()
_ROOMS: dict[tuple[str, int], _Room] = {}  # of this process: they share what may be written


def _room(folder: str) -> _Room:
    text = os.environ.get(_LIMIT_VARIABLE) or str(_LIMIT_BYTES)
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ArgumentValueError(
            f"the variable {_LIMIT_VARIABLE} says how large the cache may become",
            expected="a number of bytes",
            found=describe(text),
        )
    return _ROOMS.setdefault((folder, int(text)), _Room(folder, int(text)))


def cache_of(remote: Remote, place: Place) -> ObjectCache | None:
    """Return what is kept of an object; None where no cache was asked for.

    Raises:
        ArgumentValueError: the variable for its size has no number.
    """
    folder = os.environ.get(_VARIABLE, "") if remote.cache is None else os.fspath(remote.cache)
    # To a store in memory every process has other objects under the same ETags.
    if not folder or type(place.store).__name__ == "MemoryStore":
        return None
    return ObjectCache(os.path.abspath(folder), object_id(remote.url, place))


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
