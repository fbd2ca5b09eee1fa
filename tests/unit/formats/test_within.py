"""A part of a source is a source of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ztensor.errors import ClosedError
from ztensor.formats.within import Within
from ztensor.io.source.base import Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.memory import MemorySource

DATA = bytes(range(64))


def require_part(part: Source, expected: bytes) -> None:
    memory = bytearray(len(expected))
    part.read_into(0, memoryview(memory))
    assert bytes(memory) == expected
    ends = [bytearray(1), bytearray(2)]
    part.read_many([(0, memoryview(ends[0])), (part.size - 2, memoryview(ends[1]))])
    assert (bytes(ends[0]), bytes(ends[1])) == (expected[:1], expected[-2:])


def test_a_part_of_bytes_in_memory() -> None:
    part = Within(MemorySource(DATA, name="whole"), 10, 7)
    assert (part.name, part.path, part.size) == ("whole", None, 7)
    require_part(part, DATA[10:17])
    whole = part.view()
    assert part.is_held
    assert whole is not None
    assert bytes(whole) == DATA[10:17]
    part.close()
    require_part(part, DATA[10:17])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_part_of_a_file(tmp_path: Path, mapped: bool) -> None:
    (tmp_path / "f").write_bytes(DATA)
    source = FileSource(str(tmp_path / "f"), mapped=mapped)
    part = Within(source, 10, 7)
    require_part(part, DATA[10:17])
    view = part.view()
    assert (view is not None) is mapped
    assert view is None or bytes(view) == DATA[10:17]
    assert not part.is_held
    assert part.prefers_long_reads is source.prefers_long_reads
    part.require_unchanged()
    del view
    source.close()
    with pytest.raises(ClosedError):
        require_part(part, DATA[10:17])
