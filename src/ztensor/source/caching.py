"""What the system keeps of files in its page cache: asked for ahead, given back, looked at.

Only files of the system have pages there; of any other source nothing is asked. A map is never
touched for this: another process may cut the file.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from ztensor.source.joined import JoinedSource
from ztensor.source.local import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ztensor.source.base import Source

# Linux takes no more of one call than the larger of its read-ahead and the disk's longest request.
_STEP_BYTES = 1 << 20
_PROBES = 64


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


def cached_part(source: Source) -> float | None:
    """Return about which part of a source is in the page cache, or None where nothing tells.

    Of a file that this process may not write the system may say that all of it is.

    Raises:
        ClosedError: the source is closed.
    """
    found: list[bool] = []
    for file, _, _ in _in_files(source, 0, source.size):
        cached = _are_cached(file, [file.size * number // _PROBES for number in range(_PROBES)])
        if cached is None:
            return None
        found += cached
    return sum(found) / len(found) if found else None


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


def _are_cached(file: FileSource, offsets: Sequence[int]) -> list[bool] | None:
    """Return which bytes can be read without the disk, or None where nothing tells.

    Reading one to see would have the system read its neighbours; this touches none.
    """
    descriptor = file.in_use()
    if not hasattr(os, "posix_fadvise"):  # another system has other rules for `mincore`
        return None
    try:
        import ctypes

        mincore, found = ctypes.CDLL(None).mincore, ctypes.create_string_buffer(1)
        with mmap.mmap(descriptor.number, file.size, access=mmap.ACCESS_COPY) as whole:
            start = ctypes.addressof(one := ctypes.c_char.from_buffer(whole))
            del one
            result = []
            for offset in offsets:
                page = offset // mmap.PAGESIZE * mmap.PAGESIZE
                if mincore(ctypes.c_void_p(start + page), ctypes.c_size_t(1), found):
                    return None
                result.append(bool(found.raw[0] & 1))
            return result
    except (ImportError, OSError, ValueError, AttributeError):
        return None
    finally:
        del descriptor


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
