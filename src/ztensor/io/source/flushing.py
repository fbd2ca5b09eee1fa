"""What is on disk once it is flushed: the bytes of a file, the names in a folder."""

from __future__ import annotations

import errno
import os

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
