"""What is on disk once it is flushed: the bytes of a file, the names in a folder."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# So much is written before the disk is to begin with it.
START_BYTES = 8 << 20
_BEGIN = 2  # SYNC_FILE_RANGE_WRITE, which waits for nothing and takes no error from a later flush
_FLAGS = (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)


def flush_file(path: str) -> None:
    """Flush the bytes of a file to disk, whoever wrote them.

    Raises:
        OSError: they could not be.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None  # other systems than Linux have none
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    begin: Callable[[int, int, int, int], int] = found
    return begin


def start_flush(descriptor: int, offset: int, nbytes: int) -> None:
    """Have the disk begin with bytes of an open file that will be flushed, where it can be told.

    Nothing is waited for, and nothing is safe by it: the flush that follows has less to do.
    """
    begin = _sync_file_range()
    if begin is not None:
        begin(descriptor, offset, nbytes, _BEGIN)


def flush_folder(path: str) -> None:
    """Flush the names of all that is in a folder to disk, where the system has a way to.

    Raises:
        OSError: they could not be.
    """
    if os.name == "nt":  # Windows has none
        return
    try:
        flush_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # as some network mounts say
            raise
