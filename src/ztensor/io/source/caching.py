"""What the system keeps of files in its page cache: asked for ahead, given back.

Only files of the system have pages there; of any other source nothing is asked. A map is never
touched for this: another process may cut the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.io.source.joined import JoinedSource
from ztensor.io.source.local import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.io.source.base import Source

# Linux takes no more of one call than the larger of its read-ahead and the disk's longest request.
_STEP_BYTES = 1 << 20


def prefetch(source: Source, offset: int, length: int) -> int:
    """Ask the system to read bytes into its page cache, and return how many it was asked for.

    It returns when the system has taken the requests, which may be long before they are done.

    Raises:
        ClosedError: the source is closed.
    """
    return sum(
        piece
        for file, start, count in _in_files(source, offset, length)
        for at in range(start, start + count, _STEP_BYTES)
        if _advise(file, at, piece := min(_STEP_BYTES, start + count - at), "POSIX_FADV_WILLNEED")
    )


def evict(source: Source, offset: int, length: int) -> int:
    """Tell the system that bytes need not stay in its page cache, and return how many.

    Pages that a view of this process has touched stay, and so do those not yet written to disk.

    Raises:
        ClosedError: the source is closed.
    """
    return sum(
        count
        for file, start, count in _in_files(source, offset, length)
        if _advise(file, start, count, "POSIX_FADV_DONTNEED")
    )


def _advise(file: FileSource, offset: int, length: int, advice: str) -> bool:
    """Tell the system how bytes of a file will be used; return whether it took that."""
    descriptor = file.in_use()
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor.number, offset, length, getattr(os, advice))
            return True
    except OSError:
        pass  # no more than a hint
    finally:
        del descriptor  # an error's traceback would keep the file open
    return False


def _in_files(source: Source, offset: int, length: int) -> Iterator[tuple[FileSource, int, int]]:
    """Yield the files a range lies in, and where in each."""
    if isinstance(source, FileSource):
        count = min(length, source.size - offset)
        if count > 0:
            yield source, offset, count
        return
    if isinstance(source, JoinedSource):
        for start, part in zip(source.starts, source.sources, strict=True):
            first = max(offset, start)
            count = min(offset + length, start + part.size) - first
            if count > 0:
                yield from _in_files(part, first - start, count)
