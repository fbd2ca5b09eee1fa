"""The system calls the library makes on files, recorded and on demand failed.

The library looks calls up in `os` when it makes them, so replacing the attributes of that module
reaches all of them. Only calls on files in one folder and its subfolders count.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self
from unittest import mock

SECTOR = 512
_NAMELESS = getattr(os, "O_TMPFILE", 0)
_IN_PROC = re.compile(r"/proc/self/fd/(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call that changed something, or flushed it.

    Attributes:
        kind: `create`, `write`, `cut`, `flush`, `link`, `rename`, `unlink`, `make folder`,
            `remove folder` or `flush folder`.
        file: number of the file; the same file under another name keeps it.
        offset: first byte written; the new length for `cut`.
        data: the bytes written.
        name: the name made, taken away, renamed or, of a folder, flushed; "" is the whole folder.
        new_name: the name after a rename.
    """

    kind: str
    file: int = -1
    offset: int = 0
    data: bytes = b""
    name: str = ""
    new_name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the n-th call of a kind.

    Attributes:
        kind: `write`, `flush`, `rename`, `link`, `cut`, `open`, `unlink`, `make` or `remove`, the
            last two of folders.
        number: which call of that kind, from 1.
        how: `error`: it fails once. `full`: half of it is written, and every write from then on
            fails, as on a full disk. `short`: half of it is written, without an error.
            `interrupt`: Ctrl-C arrives before it. `interrupted`: Ctrl-C arrives behind it.
        code: the errno.
    """

    kind: str
    number: int
    how: str = "error"
    code: int = errno.EIO


def within_a_sector(offset: int, length: int) -> bool:
    """Return whether a range is in one sector of a disk."""
    return length > 0 and offset // SECTOR == (offset + length - 1) // SECTOR


class Calls:
    """A context that records the calls on files in a folder, and makes some fail.

    Args:
        folder: the folder; names in the record are relative to it.
        faults: the faults; calls for the second and later ones count once the first has struck.
        unflushed: returns whether the flush with this number, from 1, does nothing.
        nameless: False takes `O_TMPFILE` away, as on systems without it.
        whole_sectors: a write within one sector is atomic.
        meanwhile: called after each call that changed something, with their count; its own calls
            are not recorded.

    Attributes:
        log: the calls, in order.
        has_struck: the first fault has happened.
        files: numbers of the files that were in the folder, by name.
        contents: their bytes then.
        folders: the folders that were in it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: Sequence[Fault] = (),
        unflushed: Callable[[int], bool] = lambda number: False,
        nameless: bool = True,
        whole_sectors: bool = False,
        meanwhile: Callable[[int], object] | None = None,
    ) -> None:
        self.folder = os.path.realpath(folder)
        self._meanwhile = meanwhile
        self._is_elsewhere = False
        self.log: list[Call] = []
        self.has_struck = False
        self._faults = {fault.kind: fault for fault in faults}
        self._first = faults[0] if faults else None
        self._unflushed = unflushed
        self._nameless = nameless
        self._whole_sectors = whole_sectors
        self._counts: dict[str, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._descriptors: dict[int, int] = {}
        self._folders: dict[int, str] = {}
        self._next = 0
        self._patches: list[Any] = []
        self.files = {}
        self.contents = {}
        self.folders = set[str]()
        for entry in sorted(folder.rglob("*")):
            name = str(entry.relative_to(folder))
            if entry.is_dir() and not entry.is_symlink():
                self.folders.add(name)
            elif entry.is_file() and not entry.is_symlink():
                number = self._number_of(entry.stat())
                self.files[name] = number
                self.contents[number] = entry.read_bytes()

    def __enter__(self) -> Self:
        real = {name: getattr(os, name, None) for name in _REPLACED}
        self._real: dict[str, Any] = real
        for name, function in real.items():
            if function is not None:
                patch = mock.patch.object(os, name, getattr(self, f"_{name}"))
                self._patches.append(patch)
        if not self._nameless and _NAMELESS:
            self._patches.append(mock.patch.object(os, "O_TMPFILE", 0))
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for patch in reversed(self._patches):
            patch.stop()
        self._patches.clear()

    # --- Which file -------------------------------------------------------------------------

    def _number_of(self, status: os.stat_result, *, is_new: bool = False) -> int:
        key = status.st_dev, status.st_ino  # an inode's number is used again once it is free
        if is_new or key not in self._numbers:
            self._numbers[key] = self._next
            self._next += 1
        return self._numbers[key]

    def _relative(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return a path relative to the folder; None if it is elsewhere, "" for the folder."""
        if self._is_elsewhere or (dir_fd is not None and dir_fd not in self._folders):
            return None
        if dir_fd is not None:
            path = os.path.join(self.folder, self._folders[dir_fd], os.fsdecode(path))
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        whole = os.path.join(os.path.realpath(folder), name)
        if whole == self.folder:
            return ""
        return whole[len(self.folder) + 1 :] if whole.startswith(self.folder + os.sep) else None

    def _note(self, call: Call) -> None:
        self.log.append(call)
        if self._meanwhile is None or call.kind.startswith("flush"):
            return
        self._is_elsewhere = True
        try:
            self._meanwhile(len(self.log))
        finally:
            self._is_elsewhere = False

    # --- Faults -----------------------------------------------------------------------------

    def _strikes(self, kind: str) -> Fault | None:
        """Count a call, and return its fault; raise if the call is not made."""
        fault = self._faults.get(kind)
        if fault is None or (fault is not self._first and not self.has_struck):
            return None
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count < fault.number or (count > fault.number and fault.how != "full"):
            return None
        self.has_struck = self.has_struck or fault is self._first
        if fault.how == "error" or (fault.how == "full" and count > fault.number):
            raise OSError(fault.code, os.strerror(fault.code))
        if fault.how == "interrupt":
            raise KeyboardInterrupt
        return fault

    def _after(self, fault: Fault | None) -> None:
        if fault is not None and fault.how == "interrupted":
            raise KeyboardInterrupt

    # --- The calls --------------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        name = self._relative(path, options.get("dir_fd"))
        writes = name is not None and bool(flags & (os.O_WRONLY | os.O_RDWR))
        fault = self._strikes("open") if writes else None
        descriptor: int = self._real["open"](path, flags, mode, **options)
        if name is None:
            return descriptor
        is_nameless = bool(_NAMELESS and flags & _NAMELESS == _NAMELESS)
        if not is_nameless and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._folders[descriptor] = name
            return descriptor
        is_new = is_nameless or bool(flags & os.O_EXCL)
        number = self._number_of(os.fstat(descriptor), is_new=is_new)
        self._descriptors[descriptor] = number
        if is_new:
            self._note(Call("create", number, name="" if is_nameless else name))
        self._after(fault)
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        self._folders.pop(descriptor, None)
        self._real["close"](descriptor)

    def _do(self, name: str | None, kind: str, call: Callable[[], Any], done: Call) -> None:
        """Make a call, and record it if it is on a file in the folder."""
        fault = self._strikes(kind) if name is not None else None
        call()
        if name is not None:
            self._note(done)
        self._after(fault)

    def _mkdir(self, path: Any, *arguments: Any, **options: Any) -> None:
        name = self._relative(path) or None
        call = functools.partial(self._real["mkdir"], path, *arguments, **options)
        self._do(name, "make", call, Call("make folder", name=name or ""))

    def _rmdir(self, path: Any, **options: Any) -> None:
        name = self._relative(path, options.get("dir_fd")) or None
        call = functools.partial(self._real["rmdir"], path, **options)
        self._do(name, "remove", call, Call("remove folder", name=name or ""))

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        name, new_name = self._relative(source), self._relative(target)
        call = functools.partial(self._real["replace"], source, target, **options)
        self._do(new_name, "rename", call, Call("rename", name=name or "", new_name=new_name or ""))

    _rename = _replace  # folders are renamed by it

    def _unlink(self, path: Any, **options: Any) -> None:
        name = self._relative(path, options.get("dir_fd"))
        call = functools.partial(self._real["unlink"], path, **options)
        self._do(name, "unlink", call, Call("unlink", name=name or ""))

    def _ftruncate(self, descriptor: int, length: int) -> None:
        number = self._descriptors.get(descriptor)
        name = None if number is None else ""
        call = functools.partial(self._real["ftruncate"], descriptor, length)
        self._do(name, "cut", call, Call("cut", -1 if number is None else number, length))

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor not in self._descriptors:
            written: int = self._real["write"](descriptor, data)
            return written
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        return self._written(descriptor, data, offset, lambda d: self._real["write"](descriptor, d))

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        if descriptor not in self._descriptors:
            written: int = self._real["pwrite"](descriptor, data, offset)
            return written
        call = self._real["pwrite"]
        return self._written(descriptor, data, offset, lambda d: call(descriptor, d, offset))

    def _written(
        self, descriptor: int, data: Any, offset: int, call: Callable[[memoryview], int]
    ) -> int:
        fault = self._strikes("write")
        view = memoryview(data)
        is_whole = self._whole_sectors and within_a_sector(offset, view.nbytes)
        if fault is not None and fault.how in ("short", "full"):
            if not is_whole:
                view = view[: view.nbytes // 2]
            elif fault.how == "full":
                view = view[:0]
        count = call(view) if view.nbytes else 0
        if count:
            number = self._descriptors[descriptor]
            self._note(Call("write", number, offset, bytes(view[:count])))
        if fault is not None and fault.how == "full" and not count:
            raise OSError(fault.code, os.strerror(fault.code))
        self._after(fault)
        return count

    def _copy_file_range(
        self, source: int, target: int, count: int, start: int | None, offset: int
    ) -> int:
        fault = self._strikes("write")
        if fault is not None and fault.how in ("short", "full"):
            count = max(1, count // 2)
        done: int = self._real["copy_file_range"](source, target, count, start, offset)
        if done and target in self._descriptors:
            data = os.pread(target, done, offset)
            self._note(Call("write", self._descriptors[target], offset, data))
        self._after(fault)
        return done

    def _fsync(self, descriptor: int) -> None:
        if descriptor not in self._descriptors and descriptor not in self._folders:
            self._real["fsync"](descriptor)
            return
        fault = self._strikes("flush")
        number = self._counts["every flush"] = self._counts.get("every flush", 0) + 1
        # Not made: only the order of calls matters here, and a thousand flushes take long.
        if not self._unflushed(number):
            if descriptor in self._folders:
                self._note(Call("flush folder", name=self._folders[descriptor]))
            else:
                self._note(Call("flush", self._descriptors[descriptor]))
        self._after(fault)

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        name = self._relative(target)
        fault = self._strikes("link") if name is not None else None
        self._real["link"](source, target, **options)
        if name is not None:
            match = _IN_PROC.fullmatch(os.fsdecode(source))
            number = self._descriptors[int(match[1])] if match else self._number_of(os.stat(target))
            self._note(Call("link", number, name=name))
        self._after(fault)


_REPLACED = (
    "open", "close", "write", "pwrite", "copy_file_range", "ftruncate", "fsync", "link",
    "mkdir", "rename", "replace", "rmdir", "unlink",
)  # fmt: skip
