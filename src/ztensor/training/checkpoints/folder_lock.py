"""The folder of a step in use: a lock on the folder itself, which ends with its descriptor."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from ztensor.ext import OpenFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FLAGS = os.O_RDONLY
for _name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    _FLAGS |= getattr(os, _name, 0)


@contextlib.contextmanager
def folder_in_use(path: str) -> Iterator[None]:
    """Make a folder if it is missing, and keep other processes from removing it as a leftover.

    Several processes may use one folder at once. Without locks of the system the folder is only
    made, and never removed as a leftover.

    Raises:
        OSError: it cannot be made, or is a link.
    """
    with contextlib.ExitStack() as stack:
        while True:
            os.makedirs(path, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed since it was made
                if OpenFolder.is_link(os.lstat(path)):
                    raise NotADirectoryError(errno.ENOTDIR, "a link, which is not followed", path)
                folder = stack.enter_context(_locked(path, is_shared=True))
                if folder is None or os.path.samestat(os.fstat(folder), os.stat(path)):
                    break
            stack.close()
        yield


@contextlib.contextmanager
def idle_folder(path: str) -> Iterator[bool | None]:
    """Yield whether no process uses a folder, and keep others from using it meanwhile.

    Yields None if the system has no such locks.
    """
    with contextlib.ExitStack() as stack:
        is_idle = None
        try:
            folder = stack.enter_context(_locked(path, is_shared=False))
            is_idle = True if folder is not None else None
        except BlockingIOError:
            is_idle = False
        except FileNotFoundError:
            pass
        yield is_idle


@contextlib.contextmanager
def _locked(path: str, *, is_shared: bool) -> Iterator[int | None]:
    """Open a folder and lock it; yield None if the system cannot lock folders.

    Raises:
        FileNotFoundError: it is gone.
        BlockingIOError: another process uses it.
    """
    folder = None
    try:
        if fcntl is not None:
            with contextlib.ExitStack() as stack:
                number = os.open(path, _FLAGS)
                stack.callback(os.close, number)
                fcntl.flock(number, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.pop_all()
                folder = number
    except (FileNotFoundError, BlockingIOError):
        raise
    except OSError:
        pass
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)
