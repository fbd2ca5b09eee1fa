"""What the system is told of a range: all of it, of each file it lies in, and of nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ztensor.source.caching import evict, prefetch
from ztensor.source.joined import JoinedSource
from ztensor.source.local import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="the system takes no advice"
)
KIB = 1 << 10


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, offset, length, __: found.append((offset, length))
    )
    return found


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[FileSource]]:
    opened = []
    for number, length in enumerate((3 * 1024 * KIB, 10 * KIB)):
        (tmp_path / str(number)).write_bytes(bytes(length))
        opened.append(FileSource(str(tmp_path / str(number))))
    yield opened
    for one in opened:
        one.close()


def test_a_range_ends_with_its_file(files: list[FileSource], asked: list[tuple[int, int]]) -> None:
    assert evict(files[1], KIB, 1 << 40) == 9 * KIB
    assert prefetch(files[0], 512 * KIB, 1 << 40) == 2560 * KIB
    assert asked == [
        (KIB, 9 * KIB),
        (512 * KIB, 1024 * KIB),
        (1536 * KIB, 1024 * KIB),
        (2560 * KIB, 512 * KIB),
    ]


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (10 * KIB, 1), (11 * KIB, 1)])
def test_of_no_bytes_nothing_is_said(
    files: list[FileSource], asked: list[tuple[int, int]], offset: int, length: int
) -> None:
    """To the system a length of 0 means all up to the end."""
    assert evict(files[1], offset, length) == prefetch(files[1], offset, length) == 0
    assert asked == []


def test_a_range_over_several_files(files: list[FileSource], asked: list[tuple[int, int]]) -> None:
    joined = JoinedSource([(0, files[1]), (16 * KIB, files[0])])
    assert evict(joined, 9 * KIB, 8 * KIB) == 2 * KIB
    assert evict(joined, 10 * KIB, 6 * KIB) == 0  # between the two
    assert evict(joined, 0, 16 * KIB) == 10 * KIB
    assert asked == [(9 * KIB, KIB), (0, KIB), (0, 10 * KIB)]
