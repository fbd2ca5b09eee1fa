"""Files that are opened when they are read: some at a time, opened again, closed for good."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.source import later
from ztensor.source.later import LaterFile, LaterFiles
from ztensor.source.local import FileSource
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = bytes(range(100))
PAGE = 4096


class Opened(MemorySource):
    """An open file; what another thread closed may be told at the next read."""

    def __init__(self) -> None:
        super().__init__(BODY)
        self.closes = 0
        self.fails = 0
        self.of: LaterFile | None = None

    def read_into(self, offset: int, destination: memoryview) -> None:
        if self.fails:
            self.fails -= 1
            if self.of is not None:
                self.of.close()
            raise ClosedError("closed by another thread", file=self.name)
        super().read_into(offset, destination)

    def close(self) -> None:
        self.closes += 1


class Files:
    """Files of 100 bytes behind a first one, and what was opened of each."""

    def __init__(self, count: int) -> None:
        self.opened: list[list[Opened]] = [[] for _ in range(count)]
        self.files = [
            LaterFile(f"f{number}", None, len(BODY), lambda number=number: self._open(number))  # type: ignore[misc]
            for number in range(count)
        ]
        self.joined = LaterFiles(MemorySource(b"first"), self.files, prefers_long_reads=False)

    def _open(self, number: int) -> Opened:
        self.opened[number].append(Opened())
        return self.opened[number][-1]

    def read(self, number: int) -> bytes:
        memory = bytearray(10)
        self.joined.read_into(PAGE * (number + 1) + 5, memoryview(memory))
        return bytes(memory)

    def open_now(self) -> list[int]:
        return [n for n, each in enumerate(self.opened) if any(not one.closes for one in each)]


WAYS: dict[str, Callable[[LaterFile, bytearray], None]] = {
    "one": lambda file, memory: file.read_into(5, memoryview(memory)),
    "many": lambda file, memory: file.read_many([(5, memoryview(memory))]),
}


def test_each_is_opened_when_it_is_read_and_once() -> None:
    files = Files(3)
    assert files.open_now() == []
    for _ in range(2):
        assert files.read(1) == BODY[5:15]
    assert [len(each) for each in files.opened] == [0, 1, 0]
    memory = np.zeros(3 * PAGE, np.uint8)
    files.joined.read_into(0, memory[:5].data)
    assert memory[:5].tobytes() == b"first"


def test_no_more_are_open_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "MOST_OPEN", 2)
    files = Files(4)
    for number, still_open in ((0, [0]), (1, [0, 1]), (0, [0, 1]), (2, [0, 2]), (3, [2, 3])):
        assert files.read(number) == BODY[5:15]
        assert files.open_now() == still_open
    assert files.read(1) == BODY[5:15]
    assert len(files.opened[1]) == 2


def test_closing_closes_what_is_open() -> None:
    files = Files(3)
    files.read(0)
    files.read(2)
    for _ in range(2):
        files.joined.close()
    assert [[one.closes for one in each] for each in files.opened] == [[1], [], [1]]
    with pytest.raises(ClosedError):
        files.read(0)


@pytest.mark.parametrize("by", WAYS)
def test_who_needed_the_place_is_not_noticed(by: str) -> None:
    files = Files(1)
    files.read(0)
    opened, memory = files.opened[0][0], bytearray(10)
    opened.fails = 1
    WAYS[by](files.files[0], memory)
    assert memory == BODY[5:15]


@pytest.mark.parametrize("by", WAYS)
def test_one_that_is_closed_for_good_meanwhile_says_so(by: str) -> None:
    files = Files(1)
    files.read(0)
    opened, memory = files.opened[0][0], bytearray(10)
    opened.fails, opened.of = 1, files.files[0]
    with pytest.raises(ClosedError, match="closed by another thread"):
        WAYS[by](files.files[0], memory)


def test_another_length_is_another_file() -> None:
    files = [LaterFile("f", None, 7, Opened)]
    joined = LaterFiles(MemorySource(b"first"), files, prefers_long_reads=False)
    with pytest.raises(SourceError, match="another length"):
        joined.read_into(PAGE, memoryview(bytearray(1)))


def test_how_long_files_may_be_together() -> None:
    most = (1 << 62) - 1
    file = LaterFile("f", None, most, Opened)
    assert LaterFiles(MemorySource(b""), [file], prefers_long_reads=False).size == most
    file = LaterFile("f", None, most + 1, Opened)
    with pytest.raises(SourceError, match="longer together"):
        LaterFiles(MemorySource(b""), [file], prefers_long_reads=False)


def test_a_file_that_was_replaced_before_it_is_opened_again_is_another(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(later.MOST_OPEN + 1)]
    for path in paths:
        path.write_bytes(BODY)
    files = [
        LaterFile(path.name, str(path), len(BODY), functools.partial(FileSource, str(path)))
        for path in paths
    ]
    memory = memoryview(bytearray(10))
    with contextlib.closing(LaterFiles(MemorySource(b""), files, prefers_long_reads=False)):
        for file in files:  # the first is closed again
            file.read_into(0, memory)
        for path in paths[:2]:
            (tmp_path / "new").write_bytes(BODY[::-1])
            (tmp_path / "new").replace(path)
        with pytest.raises(SourceError) as caught:
            files[0].read_into(0, memory)
        assert caught.value.reason is Reason.SOURCE_CHANGED
        files[1].read_into(0, memory)  # still open, and the file that was opened
        assert memory == BODY[:10]
