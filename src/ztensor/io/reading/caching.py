"""Bytes of objects that the system is asked to have in memory ahead of reads, or to let go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects

# What lies between two ranges and is asked for with them.
_GAP_BYTES = 64 << 10


def prefetch(objects: Objects, names: str | Iterable[str] | None) -> int:
    """Ask for the bytes of objects, all of them where `names` is None; see `Reader.prefetch`."""
    return _each(objects, names, is_needed=True)


def evict(objects: Objects, names: str | Iterable[str] | None) -> int:
    """Let go of the bytes of objects, as `prefetch`; see `Reader.evict`."""
    return _each(objects, names, is_needed=False)


def _each(objects: Objects, names: str | Iterable[str] | None, *, is_needed: bool) -> int:
    objects.require_open()
    if names is None:
        return sum(
            file.source.advise(0, file.source.size, is_needed=is_needed) for file in objects.parts()
        )
    names = [names] if isinstance(names, str) else names
    ranges: dict[FileObjects, list[tuple[int, int]]] = {}
    for name in names:
        file = objects.part(name)
        for component in file.object(name).components.values():
            end = component.offset + component.length
            ranges.setdefault(file, []).append((component.offset, end))
    return sum(
        file.source.advise(start, end - start, is_needed=is_needed)
        for file, some in ranges.items()
        for start, end in _joined(sorted(some))
    )


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges, neighbours as one."""
    first, last = ranges[0]
    for start, end in ranges[1:]:
        if start > last + _GAP_BYTES:
            yield first, last
            first, last = start, end
        last = max(last, end)
    yield first, last
