"""Several files as one: gaps, lazy files of which some are open at a time, and their identity."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.refusals import refused
from ztensor.distributed.lazy_files import MOST_OPEN, LazyFile, OpenFiles
from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.io.source.base import Source
from ztensor.io.source.joined import JoinedSource
from ztensor.io.source.local import FileSource
from ztensor.io.source.memory import MemorySource

BODY = bytes(range(100))
PAGE = 4096


@pytest.fixture
def opened() -> list[FileSource]:
    """Every file that was opened, in that order."""
    return []


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """One file more than may be open."""
    found = [tmp_path / str(number) for number in range(MOST_OPEN + 1)]
    for path in found:
        path.write_bytes(BODY)
    return found


@pytest.fixture
def joined(paths: list[Path], opened: list[FileSource]) -> Source:
    pool = OpenFiles()

    def open_one(path: Path) -> Source:
        opened.append(FileSource(str(path)))
        return opened[-1]

    files = [
        LazyFile(path.name, str(path), 100, pool, functools.partial(open_one, path))
        for path in paths
    ]
    return OpenFiles.behind(MemorySource(b"first"), files)


def test_what_is_between_files_is_zeros(joined: Source, opened: list[FileSource]) -> None:
    assert bytes(joined.read(0, 5)) == b"first"
    assert opened == []
    expected = b"first" + bytes(PAGE - 5) + BODY + bytes(PAGE - 100) + BODY
    assert bytes(joined.read(0, len(expected))) == expected
    parts = [(0, bytearray(7)), (PAGE, bytearray(100)), (2 * PAGE - 1, bytearray(3))]
    joined.read_many([(offset, memoryview(memory)) for offset, memory in parts])
    assert [bytes(memory) for _, memory in parts] == [b"first\0\0", BODY, b"\0\0\1"]
    assert len(opened) == 2
    with refused(SourceError, Reason.SOURCE_CHANGED):
        joined.read(joined.size - 5, 6)


def test_the_files_that_were_used_last_are_open(
    joined: Source, opened: list[FileSource], paths: list[Path]
) -> None:
    for number in range(MOST_OPEN + 1):
        assert bytes(joined.read(PAGE * (number + 1), 100)) == BODY
    for path in paths[:2]:
        path.with_name("new").write_bytes(BODY[::-1])
        path.with_name("new").replace(path)
    with refused(SourceError, Reason.SOURCE_CHANGED):  # opened again, and another file
        joined.read(PAGE, 1)
    assert bytes(joined.read(2 * PAGE, 100)) == BODY  # still the file that was opened


def test_a_file_that_another_thread_closed_is_opened_again(
    joined: Source, opened: list[FileSource]
) -> None:
    joined.read(PAGE, 1)
    opened[0].close()
    with pytest.raises(ClosedError):
        opened[0].status()
    joined.parts[1][1].close()
    with pytest.raises(ClosedError):
        joined.read(PAGE, 1)


def test_closing_closes_what_is_open(joined: Source, opened: list[FileSource]) -> None:
    joined.read(PAGE, 1)
    for _ in range(2):
        joined.close()
    with pytest.raises(ClosedError):
        opened[0].status()
    with pytest.raises(ClosedError):
        joined.read(PAGE, 1)


def test_a_file_of_another_length_is_refused(paths: list[Path]) -> None:
    opener = functools.partial(FileSource, str(paths[0]))
    joined = OpenFiles.behind(MemorySource(b""), [LazyFile("f", None, 7, OpenFiles(), opener)])
    with pytest.raises(SourceError, match="another length"):
        joined.read(0, 1)


def test_how_long_files_may_be_together() -> None:
    def of(size: int) -> LazyFile:
        return LazyFile("f", None, size, OpenFiles(), lambda: MemorySource(b""))

    most = (1 << 62) - 1
    assert OpenFiles.behind(MemorySource(b""), [of(most)]).size == most
    with pytest.raises(SourceError, match="longer together"):
        OpenFiles.behind(MemorySource(b""), [of(most + 1)])


def test_what_tells_the_files_from_others(paths: list[Path]) -> None:
    files = [FileSource(str(path)) for path in paths[:2]]
    joined = JoinedSource([(0, files[0]), (100, files[1])])
    assert joined.identity() == (*files[0].identity(), *files[1].identity())
    assert JoinedSource([(0, files[0]), (100, MemorySource(b""))]).identity() is None
    joined.close()
