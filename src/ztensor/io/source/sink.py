"""Sinks for a path, which is replaced atomically, and for an open file object."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import secrets
import stat
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.arguments import require_choice
from ztensor.errors import SourceError, describe, system_call
from ztensor.io.source import locking, removal
from ztensor.io.source.base import Sink
from ztensor.io.source.local import Descriptor, FileSource, OpenFile
from ztensor.io.source.paths import flush_folder, is_path, path_text
from ztensor.io.source.reserving import LEAST_BYTES, reserve
from ztensor.io.source.rights import PERMISSIONS, Rights, hand_over, narrow
from ztensor.io.source.stores import Store, is_remote
from ztensor.io.source.stream import WRITE_BYTES, Gatherer, StreamSink
from ztensor.io.source.targets import (
    Nowhere,
    no_folder,
    require_own_link,
    require_place,
    require_room,
    shown,
)
from ztensor.io.source.urls import Remote
from ztensor.threads.background import note_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.accepted import Durable
    from ztensor.io.source.appending import LockedFile


_COPY_BYTES = 8 << 20
# The kernel copies so much in one call; a longer copy would show no progress and no interrupt.
_KERNEL_BYTES = 256 << 20
_TRIES = 100
# The mode of a new file, before the umask; and of a temporary that has a name.
_NEW_MODE = 0o666
_PRIVATE_MODE = 0o600
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_WINDOWS_SECONDS = 1.0


class Place(NamedTuple):
    """A target, and how the file there is made.

    Attributes:
        path: the target; or a URL of a store.
        is_derived: the name was derived from the caller's name, as for a shard. A link there is
            replaced, not followed.
        is_new: nothing is replaced; `commit` fails if the name was taken meanwhile.
        like: the rights of a file that replaces none, such as the rights of an older file of
            another name; by default the rights of a new file.
        undo: called once the file is in place, with a function that removes it again and its
            arguments, such as the `callback` of an `ExitStack`.
        remote: the URL with the options of its store; None if the target is a file.
        expected: the length of the object in a store, if known.
        check: called with a path of the finished bytes before the file gets its name; if it raises,
            the target stays as it is. Not for stores, whose objects appear at once.
    """

    path: str
    is_derived: bool = False
    is_new: bool = False
    like: Rights | None = None
    undo: Callable[..., object] | None = None
    remote: Remote | None = None
    expected: int | None = None
    check: Callable[[str], None] | None = None

    @classmethod
    def of(cls, target: Any) -> Place:
        """Return the place that the caller's path, URL or `Remote` names.

        Raises:
            ArgumentTypeError: it is not a path.
            ArgumentValueError: no file can have that path.
        """
        path = path_text(target)
        if isinstance(target, Remote):
            return cls(path, remote=target)
        return cls(path, remote=Remote(path) if is_remote(path) else None)

    @classmethod
    def for_tail(cls, path: str, like: Rights) -> Place:
        """Return the place that keeps dropped bytes of a file: `PATH.tail-1`, or the next free."""
        paths = (f"{path}.tail-{number}" for number in itertools.count(1))
        return cls(
            next(path for path in paths if not os.path.lexists(path)), is_new=True, like=like
        )

    def require_free(self, *, overwrite: bool = False, allowed_by: str | None = None) -> None:
        """Refuse to replace an existing file or object, unless that is allowed.

        Args:
            overwrite: whether it is allowed.
            allowed_by: the option that allows it, for messages of the command.

        Raises:
            UsageError: there is a file or object.
            SourceError: the store does not answer.
        """
        if overwrite or not (
            os.path.lexists(self.path)
            if self.remote is None
            else Store.of(self.remote.url).look(self.remote) is not None
        ):
            return
        error = Store.taken(self.path)
        if allowed_by is not None:
            error.in_python = None
            error.hint = f"{allowed_by} replaces it"
        raise error

    def locked(self, *, lock: bool = True, timeout: float = 0.0) -> LockedFile:
        """Return the existing file, locked for one writer; the caller closes it.

        Args:
            lock: False takes no lock; only for file systems without locks.
            timeout: seconds to wait for another writer.

        Raises:
            UsageError: it is in a store, which cannot change a file in place.
            SourceError: it cannot be opened for writing, or another process is writing.
        """
        from ztensor.io.source.appending import LockedFile  # not for a new file

        return LockedFile(self.path, lock=lock, timeout=timeout)

    def dry(self, *, makes_folder: bool = False) -> Nowhere:
        """Return a sink that only counts bytes, for a dry run.

        Args:
            makes_folder: whether a missing folder would be made.

        Raises:
            SourceError: no file can be made there.
        """
        if self.remote is None:
            require_room(self.path, makes_folder=makes_folder)
            return Nowhere(self.path)
        Store.of(self.remote.url).require_writable(self.remote)
        return Nowhere(self.remote.name)

    def sink(self, durable: Durable) -> Sink:
        """Return the sink that writes the file or object.

        Raises:
            SourceError: no file can be made there.
        """
        if self.remote is None:
            return FileSink(self, durable=durable)
        note = None if self.undo is None else functools.partial(self.undo, removal.take_back)
        sink = Store.of(self.remote.url).sink(
            self.remote, is_new=self.is_new, expected=self.expected, note=note
        )
        note_write(sink)
        return sink

    @contextlib.contextmanager
    def written(self, durable: Durable = "auto", *, dry_run: bool = False) -> Iterator[Any]:
        """Give a sink, and commit it at the end; after an exception the target is as it was.

        Args:
            durable: see `FileSink`.
            dry_run: True only counts bytes.

        Raises:
            SourceError: the file cannot be made or written.
        """
        sink = self.dry() if dry_run else self.sink(durable)
        try:
            yield sink
            sink.commit()
        finally:
            sink.abort()


class FileSink(OpenFile, Gatherer):
    """A file that appears, or replaces the old one, atomically.

    Bytes go to a temporary in the target's folder: without a name if the system has `O_TMPFILE`, so
    that a killed process leaves nothing behind; else created exclusively under a random name,
    readable by its owner only. `commit` gives it the rights of the file that it replaces
    (see `io/source/rights.py`) and renames it over the target. A symbolic link is kept, and its
    target replaced.

    Args:
        place: the target.
        durable: True flushes file and folder to disk before `commit` returns; "auto" does so if a
            file is replaced, so that a power cut does not lose the old bytes; False leaves it to
            the system.

    Raises:
        SourceError: the folder is missing or forbidden, or the target is not a regular file.
    """

    def __init__(self, place: str | Place, *, durable: Durable = "auto") -> None:
        super().__init__()
        self._place = place if isinstance(place, Place) else Place(place)
        self.name = path = path_text(self._place.path)
        require_choice("durable", durable, (True, False, "auto"))
        self._durable = durable
        self._stamp: os.stat_result | None = None  # identifies the file once it is closed
        self._temporary: str | None = None
        self._sources: set[Rights] = set()
        self._mode: int | None = None
        self._is_reserving = True
        self._folder = os.path.dirname(path)
        note_write(self)
        with system_call("cannot create a temporary file in its folder", path):
            try:
                self._target = self._find_target(path)
                self._folder = os.path.dirname(self._target)
                require_place(self._target, path, is_followed=not self._place.is_derived)
                self._old = self._rights_of_target()
                self._open_temporary()
            except FileNotFoundError as error:
                raise no_folder(path, self._folder) from error

    def _find_target(self, path: str) -> str:
        """Return the path that is replaced, with links resolved if they are followed."""
        if not self._place.is_derived and not self._place.is_new:
            require_own_link(path)
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        target = os.path.join(os.path.realpath(folder), name)
        if self._place.is_new and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the name is taken", path)
        return target

    @property
    def is_open(self) -> bool:
        """Return whether it is neither committed nor aborted."""
        return self._descriptor is not None

    def held(self) -> Descriptor | None:
        """Return a descriptor that keeps the file's lock beyond the commit, until it is closed.

        The lock shows other processes that the file belongs to a running one. None on Windows.
        """
        if os.name == "nt":
            return None  # an open file cannot be renamed
        with contextlib.suppress(SourceError):
            return Descriptor(self._ask(os.dup))
        return None

    def _open_temporary(self) -> None:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        # Looked up at each call: tests remove it to play other systems.
        nameless = getattr(os, "O_TMPFILE", 0)
        is_plain = self._old is None and self._place.like is None
        if nameless and os.path.isdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not every file system supports it
                mode = _NEW_MODE if is_plain else _PRIVATE_MODE
                self._take(os.open(self._folder, flags | nameless, mode))
                self._ask(locking.try_acquire)  # held while it has a name: see `OpenFolder.sweep`
                return
        flags |= os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        if is_plain and hasattr(os, "fchmod"):
            # The mode of a new file here: only a file shows it, as more than the umask decides.
            name = self._temporary_name()
            descriptor = os.open(name, flags, _NEW_MODE)
            status = os.fstat(descriptor)
            os.close(descriptor)
            removal.remove(name, status)
            self._mode = status.st_mode & PERMISSIONS
        for _ in range(_TRIES):
            name = self._temporary_name()
            descriptor = os.open(name, flags, _PRIVATE_MODE)
            # Between the two calls another save may have swept the file.
            if locking.try_acquire(descriptor) is not False:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.stat(name), os.fstat(descriptor)):
                        self._take(descriptor)
                        self._temporary = name
                        return
            os.close(descriptor)
        raise FileExistsError(f"no temporary name stays free in {self._folder!r}")

    def _take(self, number: int) -> None:
        self._descriptor, self._stamp = Descriptor(number), os.fstat(number)

    def narrow(self, source: Rights) -> None:
        """Limit the rights of a new file by the rights of a file that its bytes come from."""
        self._sources.add(source)

    def _rights_of_target(self) -> Rights | None:
        with contextlib.suppress(FileNotFoundError):
            if not self._place.is_new and stat.S_ISREG(os.lstat(self._target).st_mode):
                return Rights.of(self._target)
        return None

    def start_with(
        self,
        old: FileSource,
        stop: int,
        start: int = 0,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Append a part of another file, by shared blocks if possible; limit the rights to its.

        Args:
            old: the other file.
            stop: the end of the part.
            start: its beginning.
            progress: called with the bytes copied so far and those to copy.

        Raises:
            SourceError: copying failed.
        """
        self.narrow(old.rights())
        self._flush()
        before = self.position - start
        while (at := self.position - before) < stop:
            if not self._copy_in_kernel(old, at, stop):
                self.write(old.read(at, min(_COPY_BYTES, stop - at)))
            if progress is not None:
                progress(self.position - before - start, stop - start)

    def _copy_in_kernel(self, old: FileSource, start: int, stop: int) -> bool:
        # Shares the blocks on XFS and Btrfs, copies in the kernel elsewhere.
        source, target, at = old.in_use(), self.in_use(), self.position
        count = min(_KERNEL_BYTES, stop - start)
        with contextlib.suppress(OSError, AttributeError):  # across file systems, or no such call
            self.position += os.copy_file_range(source.number, target.number, count, start, at)
            os.lseek(target.number, self.position, os.SEEK_SET)
        return self.position > at

    def _temporary_name(self) -> str:
        name = f".{shown(self._target)}.{secrets.token_hex(8)}.tmp"
        return os.path.join(self._folder, name)

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        self._ask(functools.partial(self._write_all, gathered, data, start), "cannot write")

    def _write_all(self, gathered: bytearray, data: memoryview, start: int, number: int) -> None:
        nbytes = len(gathered) + data.nbytes
        if self._is_reserving and nbytes >= LEAST_BYTES:
            self._is_reserving = reserve(number, start, nbytes)
        for rest in (memoryview(gathered), data):
            while rest.nbytes:
                count = os.write(number, rest[: WRITE_BYTES - start % WRITE_BYTES])
                rest, start = rest[count:], start + count  # noqa: PLW2901  # the rest is left

    def skip(self, count: int) -> None:
        """Skip bytes: they become a hole, which reads as zeros.

        More bytes must follow, since a file ends with its last written byte.
        """
        self._flush()
        self._ask(lambda number: os.lseek(number, count, os.SEEK_CUR), "cannot write")
        self.position += count

    def commit(self, manifest: bytes = b"") -> None:
        """Write the manifest, flush as `durable` asks, then rename over the target."""
        flush = self._durable is True or (self._durable == "auto" and self._old is not None)
        try:
            self.write(manifest)  # of a small file: with its blobs, in one call
            self._flush()
            if self._place.check is not None:
                descriptor = self.in_use()  # without a name it has one in /proc
                self._place.check(self._temporary or f"/proc/self/fd/{descriptor.number}")
                del descriptor
            failure = "cannot put the finished file in place; the old one is kept"
            self._ask(functools.partial(self._put_in_place, flush=flush), failure)
        except SourceError:
            self.abort()
            raise
        self._close("the new file is in place, but closing it failed")
        if flush:
            self.flush_folder("the new file is in place, but its folder could not be flushed")
        with contextlib.suppress(OSError), removal.OpenFolder(self._folder) as folder:
            folder.sweep(re.escape(shown(self._target)))  # temporaries of killed saves

    def _put_in_place(self, number: int, *, flush: bool) -> None:
        # Until here only the owner can open it by a name. The target's rights are read again: they
        # may have been narrowed while we wrote.
        old = self._rights_of_target() or self._old or self._place.like
        if old is not None:
            hand_over(number, old)
        else:
            narrow(number, self._mode, self._sources)
        if flush:
            os.fsync(number)
        if os.name == "nt":
            self._rename_on_windows()
        elif self._place.is_new:
            self._take_free_name(number)
        else:
            if self._temporary is None:
                self._temporary = self._temporary_name()  # known to abort() at any moment
                self._link_nameless(number, self._temporary)
            os.replace(self._temporary, self._target)
        self._temporary = None
        if self._place.undo is not None and self._stamp is not None:
            self._place.undo(removal.take_back, self._target, self._stamp)

    def _take_free_name(self, number: int) -> None:
        """Give the temporary the target's name, if that is free."""
        temporary = self._temporary
        if temporary is None:
            self._link_nameless(number, self._target)
            return
        try:
            os.link(temporary, self._target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # The name is ours once we created it; a rename follows no link.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(os.open(self._target, flags, _PRIVATE_MODE))
            os.replace(temporary, self._target)
        else:
            removal.remove(temporary, os.fstat(number))

    def _rename_on_windows(self) -> None:
        # Windows cannot rename an open file, nor replace one that is open or mapped.
        self._close("cannot close the finished file")
        temporary = self._temporary or ""
        rename = os.rename if self._place.is_new else os.replace  # the first goes over nothing
        until = time.monotonic() + _WINDOWS_SECONDS
        while True:
            try:
                rename(temporary, self._target)
            except PermissionError as error:
                if time.monotonic() > until:
                    self._temporary = None  # kept: the file is finished, only its name is wrong
                    raise SourceError.from_os(
                        error,
                        "the target is open in some process and cannot be replaced; the finished "
                        f"file is kept as {describe(temporary, 300)}",
                        self.name,
                    ) from error
                time.sleep(_WINDOWS_SECONDS / 20)
            else:
                return

    def _link_nameless(self, number: int, name: str) -> None:
        # O_PATH needs no permission to list the folder.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
        folder = os.open(self._folder, flags)
        try:
            # With a folder descriptor CPython calls linkat and follows the /proc link; without
            # one it calls link, which fails there with EXDEV.
            source = f"/proc/self/fd/{number}"
            os.link(source, name, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

    def flush_folder(self, failure: str) -> None:
        """Flush the names of all files beside the target to disk.

        Args:
            failure: the message if that fails.
        """
        with system_call(failure, self.name):
            flush_folder(self._folder)

    def abort(self) -> None:
        """Close and remove the temporary; the target is untouched."""
        self._descriptor = None  # a write in another thread ends first
        name, self._temporary = self._temporary, None
        if name is not None and self._stamp is not None:
            with contextlib.suppress(OSError):
                removal.remove(name, self._stamp)


def sink_of(target: Any, *, durable: Durable) -> Sink:
    """Return the sink for a caller's target: a path, a `Place`, a sink or a file object.

    Raises:
        ArgumentTypeError: it has another type.
        SourceError: the file cannot be created.
    """
    if is_path(target):
        target = Place.of(target)
    if isinstance(target, Place):
        return target.sink(durable)
    if isinstance(target, Sink):
        return target
    return StreamSink(target)
