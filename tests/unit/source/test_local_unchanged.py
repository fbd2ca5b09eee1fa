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
    with pytest.raises(SourceError, match="file: the file is shorter than when") as caught:
        source.read_many([(len(DATA) - 5, memoryview(bytearray(6)))])
    assert caught.value.reason is Reason.SOURCE_CHANGED


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="the system has no such call")
def test_several_parts_that_come_in_pieces(
    source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a network file system, or where a signal comes."""
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda number, memory, at: preadv(number, [memory[0][:1000]], at)
    )
    memory = [bytearray(length) for length in (10, 1000, 50_000)]
    source.read_many([(7, memoryview(one)) for one in memory])
    assert memory == [DATA[7 : 7 + length] for length in (10, 1000, 50_000)]


@pytest.mark.parametrize("is_all", [False, True])
def test_a_commit_leaves_all_that_was_opened(source: FileSource, *, is_all: bool) -> None:
    source.expect_commits(40, lambda end: end == bytes(40), 1000)
    with open(source.name, "r+b") as file:
        file.seek(999 + is_all)
        file.write(bytes(40))
        file.truncate()
    if is_all:
        source.require_unchanged()
        assert source.size == 1040
    else:
        with pytest.raises(SourceError, match="shorter"):
            source.require_unchanged()
