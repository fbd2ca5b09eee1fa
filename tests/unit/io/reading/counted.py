"""Sources in memory that note what is read of them."""

from __future__ import annotations

from collections.abc import Sequence

from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.manifests import component_extents
from ztensor.io.reading.reader import ObjectReader
from ztensor.io.source.ahead import AheadSource
from ztensor.io.source.memory import MemorySource
from ztensor.limits import DEFAULT_LIMITS


class Counted(MemorySource):
    """Counts the bytes that are read; what is held is not told, so each read is one."""

    count = 0
    is_held = False

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Read, and count."""
        self.count += destination.nbytes
        super().read_into(offset, destination)


class Far(MemorySource):
    """A source whose requests are dear; each is noted with what it asked for."""

    prefers_long_reads = True
    is_held = False

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[list[tuple[int, int]]] = []

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Read, and note one request."""
        self.read_many([(offset, destination)])

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Read all pieces, and note one request."""
        if pieces:
            self.asked.append([(offset, memory.nbytes) for offset, memory in pieces])
        for offset, memory in pieces:
            super().read_into(offset, memory)

    def view(self) -> memoryview | None:
        return None


def far(data: bytes, *, verify: bool | None = None) -> tuple[ObjectReader, Far]:
    """Return a reader of a far source, and the source, of which nothing is noted yet."""
    source = Far(data)
    _, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    ahead = AheadSource(source)
    ahead.expect(lambda: component_extents(manifest))
    source.asked.clear()
    return ObjectReader(FileObjects(source, manifest, ahead=ahead, verify=verify)), source
