"""Sources in memory that record their reads."""

from __future__ import annotations

from collections.abc import Sequence

from ztensor.ext import FileObjects, ObjectReader
from ztensor.io.reading.manifests import component_extents
from ztensor.io.source.ahead import AheadSource
from ztensor.io.source.memory import MemorySource
from ztensor.limits import DEFAULT_LIMITS


class Counted(MemorySource):
    """Count the bytes that are read. `is_held` is False, so every access is a read."""

    count = 0
    is_held = False

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Read and count."""
        self.count += destination.nbytes
        super().read_into(offset, destination)

    def clear(self) -> None:
        self.count = 0


class Far(MemorySource):
    """A source with expensive requests; each is recorded as a list of (offset, length)."""

    prefers_long_reads = True
    is_held = False

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[list[tuple[int, int]]] = []

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Read as one request."""
        self.read_many([(offset, destination)])

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Record one request and read its ranges."""
        if pieces:
            self.asked.append([(offset, memory.nbytes) for offset, memory in pieces])
        for offset, memory in pieces:
            super().read_into(offset, memory)

    def view(self) -> memoryview | None:
        return None

    def clear(self) -> None:
        self.asked.clear()


class Near(Far):
    """A source with cheap requests, which are recorded alike."""

    prefers_long_reads = False


def reader_of(source: Counted | Far) -> ObjectReader:
    """Return a reader of a source that has no reads recorded."""
    _, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    source.clear()
    return ObjectReader(FileObjects(source, manifest))


def far(data: bytes, *, verify: bool | None = None) -> tuple[ObjectReader, Far]:
    """Return a reader of a far source, and the source with no reads recorded."""
    source = Far(data)
    _, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    ahead = AheadSource(source)
    ahead.expect(lambda: component_extents(manifest))
    source.clear()
    return ObjectReader(FileObjects(source, manifest, ahead=ahead, verify=verify)), source
