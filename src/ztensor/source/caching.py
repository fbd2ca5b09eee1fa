"""What the system keeps of files in its page cache: asked for ahead, given back, looked at.

Only files of the system have pages there; of any other source nothing is asked. A map is never
touched for this: another process may cut the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.source.joined import JoinedSource
from ztensor.source.local import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        if file.advise(at, piece := min(_STEP_BYTES, start + count - at), "POSIX_FADV_WILLNEED")
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
        if file.advise(start, count, "POSIX_FADV_DONTNEED")
    )


def cached_part(source: Source) -> float | None:
    """Return about which part of a source is in the page cache, or None where nothing tells.

    Of a file that this process may not write the system may say that all of it is.

    Raises:
        ClosedError: the source is closed.
    """
    found: list[bool] = []
    for file, _, _ in _in_files(source, 0, source.size):
        cached = file.are_cached([file.size * number // _PROBES for number in range(_PROBES)])
        if cached is None:
            return None
        found += cached
    return sum(found) / len(found) if found else None


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
