"""Whether a file is what was opened, and what is read where the system has fewer calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ztensor.errors import Reason, SourceError
from ztensor.source.local import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = os.urandom(300_000)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[FileSource]:
    (tmp_path / "file").write_bytes(DATA)
    opened = FileSource(str(tmp_path / "file"))
    yield opened
    opened.close()


def test_a_file_cut_with_its_time_set_back_has_changed(source: FileSource) -> None:
    source.require_unchanged()
    status = os.stat(source.name)
    os.truncate(source.name, len(DATA) - 1)
    os.utime(source.name, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SourceError) as caught:
        source.require_unchanged()
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert caught.value.found == str(len(DATA) - 1)


@pytest.mark.parametrize("missing", [[], ["preadv"], ["preadv", "pread"]])
def test_several_parts(
    source: FileSource, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name, raising=False)
    places = [(7, 10), (0, 0), (1000, 280_000), (len(DATA) - 5, 5)]
    memory = [bytearray(length) for _, length in places]
    parts = [(at, memoryview(one)) for (at, _), one in zip(places, memory, strict=True)]
    source.read_many(parts)
    assert memory == [DATA[at : at + length] for at, length in places]
    with pytest.raises(SourceError, match="shorter than when it was opened"):
        source.read_many([(len(DATA) - 5, memoryview(bytearray(6)))])
