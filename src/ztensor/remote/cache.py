"""Copies of whole remote objects in a folder on disk, by version.

A file's name is two digests: one of the object's URL without its signature and of its store
(`identity`), one of its version (the ETag). It is written under a temporary name and renamed at
the end. A folder that is full, read-only or gone raises no error here: reading goes on from the
network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from typing import TYPE_CHECKING

from ztensor import Remote
from ztensor.errors import ArgumentValueError, SourceError, describe
from ztensor.ext import Source, empty_array, locking, remove, source_of
from ztensor.remote.identity import Version, object_id, text_digest
from ztensor.remote.urls import Place

if TYPE_CHECKING:
    from collections.abc import Callable

_VARIABLE = "ZTENSOR_CACHE"
_LIMIT_VARIABLE = "ZTENSOR_CACHE_BYTES"
_LIMIT_BYTES = 32 << 30
_SUBFOLDER = "ztensor-files-1"  # subfolder of the caller's folder; only its files are removed
_NAME = re.compile(r"[0-9a-f]{40}-[0-9a-f]{40}|\.[0-9a-f]{16}")  # a file, or a temporary one
_CHUNK_BYTES = 64 << 20  # in memory while an object is brought
_LOG = logging.getLogger("ztensor")
_REFUSED: set[str] = set()  # folders that could not be used; nothing more is written to them


class ObjectCache:
    """The copies of one object in a folder, of any version; safe for several processes.

    Args:
        folder: the caller's.
        limit: how many bytes all objects in it may have.
        identity: the digest of its URL and store; see `object_id`.
    """

    def __init__(self, folder: str, limit: int, identity: str) -> None:
        self._folder, self._limit = os.path.join(folder, _SUBFOLDER), limit
        self._identity, self._name = identity, text_digest(identity).hex()[:40]

    def is_known(self) -> bool:
        """Return whether a version of the object is kept."""
        with contextlib.suppress(OSError):
            return any(name.startswith(self._name) for name in os.listdir(self._folder))
        return False

    def open(self, version: Version) -> Source | None:
        """Open the copy of a version; return None if the folder has none."""
        path = self._path(version)
        if path is None:
            return None
        try:
            source = source_of(path, mapped=False)
        except SourceError:
            return None
        if source.size != version.size:
            source.close()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        return source

    def bring(self, version: Version, read: Callable[[int, memoryview], None]) -> Source | None:
        """Write the copy of a version and open it; return None if it cannot be kept.

        Args:
            version: of the object.
            read: fills memory with the object's bytes from an offset on.

        Raises:
            SourceError: the object cannot be read.
        """
        path = self._path(version)
        if path is None or version.size > self._limit or self._folder in _REFUSED:
            return None
        try:
            self._trim(self._limit - version.size)
            self._write(path, version.size, read)
        except SourceError:  # of the object, not of the folder
            raise
        except OSError as error:
            self._refuse(error.strerror or type(error).__name__)
            return None
        return self.open(version)

    def _path(self, version: Version) -> str | None:
        """Return the path of a version's copy; None if it has no strong ETag."""
        if not version.is_strong or not self._is_safe():
            return None
        key = text_digest(f"{self._identity}\n{version.e_tag}\n{version.size}\n{version.modified}")
        return os.path.join(self._folder, f"{self._name}-{key.hex()[:40]}")

    def _is_safe(self) -> bool:
        """Return whether the folder exists or can be made, and only its owner may write to it."""
        try:
            for folder in (os.path.dirname(self._folder), self._folder):
                if not os.path.isdir(folder):
                    os.makedirs(folder, 0o700, exist_ok=True)
            status = os.lstat(self._folder)
        except OSError as error:
            self._refuse(error.strerror or type(error).__name__)
            return False
        is_unsafe = hasattr(os, "geteuid") and (
            status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)
        )
        if not stat.S_ISDIR(status.st_mode) or is_unsafe:
            self._refuse("it is not a folder, or others may write to it")
            return False
        return True

    def _refuse(self, why: str) -> None:
        if self._folder not in _REFUSED:
            _REFUSED.add(self._folder)
            _LOG.warning("the cache %s cannot be used: %s", describe(self._folder, 200), why)

    def _write(self, path: str, size: int, read: Callable[[int, memoryview], None]) -> None:
        temporary = os.path.join(self._folder, f".{os.urandom(8).hex()}")
        memory = empty_array((min(size, _CHUNK_BYTES),)).data
        with contextlib.ExitStack() as cleanup:
            with open(temporary, "xb", opener=_open_private) as file:
                locking.try_acquire(file.fileno())  # else others remove it as left over
                cleanup.callback(remove, temporary, os.fstat(file.fileno()))
                for start in range(0, size, _CHUNK_BYTES):
                    chunk = memory[: size - start]
                    read(start, chunk)
                    file.write(chunk)
            os.replace(temporary, path)
            cleanup.pop_all()

    def _trim(self, most: int) -> None:
        """Remove the least recently used copies until at most `most` bytes are kept."""
        found: list[tuple[int, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(OSError):  # another process was faster
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= most:
                break
            is_temporary = os.path.basename(path).startswith(".")
            with contextlib.suppress(OSError):
                remove(path, locking.is_dead if is_temporary else None)
            total -= 0 if os.path.lexists(path) else size


def cache_of(remote: Remote, place: Place) -> ObjectCache | None:
    """Return the cache of an object; None if the caller wants none.

    Raises:
        ArgumentValueError: the variable for its size has no number.
    """
    folder = os.environ.get(_VARIABLE, "") if remote.cache is None else os.fspath(remote.cache)
    # To a store in memory every process has other objects under the same ETags.
    if not folder or type(place.store).__name__ == "MemoryStore":
        return None
    text = os.environ.get(_LIMIT_VARIABLE) or str(_LIMIT_BYTES)
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ArgumentValueError(
            f"the variable {_LIMIT_VARIABLE} says how large the cache may become",
            expected="a number of bytes",
            found=describe(text),
        )
    return ObjectCache(os.path.abspath(folder), int(text), object_id(remote.url, place))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
