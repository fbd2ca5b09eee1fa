"""Report a torn file, copy its last state elsewhere, or cut the file back to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.refusals import refused
from ztensor.edit import find, repair
from ztensor.errors import ArgumentValueError, ContainerError, Reason, SourceError
from ztensor.numpy import save_file

FOUR = np.arange(4, dtype=np.float32)
TAIL = b"the beginning of a commit" * 40


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Give a file of two states with a torn third one behind them."""
    path = tmp_path / "m.zt"
    save_file({"a": FOUR, "b": FOUR + 1}, path, {"step": "1"})
    with ztensor.Editor(path) as writer:
        writer.write("c", FOUR + 2)
    with open(path, "ab") as file:
        file.write(TAIL)
    return path


def names(path: Path) -> list[str]:
    with ztensor.open(path) as reader:
        assert reader.verify().ok
        return list(reader)


def test_a_report_says_what_is_there_and_changes_nothing(torn: Path) -> None:
    data = torn.read_bytes()
    for report in (find(torn), repair(torn), find(os.fspath(torn))):
        assert report.path == str(torn)
        assert (report.size, report.end, report.tail) == (
            len(data), len(data) - len(TAIL), len(TAIL)
        )  # fmt: skip
        assert (report.objects, report.digests_ok, report.damaged) == (3, 3, ())
        assert not report.is_clean
        assert (report.written, report.tail_path) == (None, None)
        assert report.candidates[-1].end == report.end
    assert torn.read_bytes() == data
    assert os.listdir(torn.parent) == ["m.zt"]


def test_a_clean_file_is_left_alone(torn: Path) -> None:
    repair(torn, in_place=True, drop_tail=True)
    before = torn.stat()
    for report in (repair(torn), repair(torn, in_place=True)):
        assert report.is_clean
        assert (report.tail, report.written) == (0, None)
    assert torn.stat().st_mtime_ns == before.st_mtime_ns


def test_damaged_blobs_of_the_state_are_named(torn: Path) -> None:
    with ztensor.open(torn, recover=True) as reader:
        place = reader.metadata("b").components["data"].offset
    flip(torn, place)
    report = repair(torn)
    assert report.damaged == ("b",)
    assert report.digests_ok == 2


def test_the_state_goes_into_another_file(torn: Path, tmp_path: Path) -> None:
    data = torn.read_bytes()
    (tmp_path / "link").symlink_to(torn)
    for target in (torn, tmp_path / "link"):  # it is not written over by its state
        with pytest.raises(ArgumentValueError):
            repair(torn, write=target)
    report = repair(torn, write=tmp_path / "out.zt")
    assert report.written == str(tmp_path / "out.zt")
    assert (tmp_path / "out.zt").read_bytes() == data[: -len(TAIL)]
    assert names(tmp_path / "out.zt") == ["a", "b", "c"]
    assert torn.read_bytes() == data


@pytest.mark.parametrize("drop_tail", [False, True])
def test_in_place_the_tail_is_kept_beside_it_or_dropped(
    torn: Path, tmp_path: Path, drop_tail: bool
) -> None:
    data = torn.read_bytes()
    inode = torn.stat().st_ino
    earlier, tail = tmp_path / "m.zt.tail-1", tmp_path / "m.zt.tail-2"
    earlier.write_bytes(b"of an earlier time")
    report = repair(torn, in_place=True, drop_tail=drop_tail)
    assert report.written == str(torn)
    assert report.tail_path == (None if drop_tail else str(tail))
    assert torn.read_bytes() == data[: -len(TAIL)]
    assert tail.exists() is not drop_tail
    assert drop_tail or tail.read_bytes() == TAIL
    assert earlier.read_bytes() == b"of an earlier time"
    assert torn.stat().st_ino == inode
    with ztensor.Editor(torn) as writer:  # refused before
        with refused(SourceError, Reason.SOURCE_LOCKED):
            repair(torn, in_place=True)
        writer.write("d", FOUR)
    assert names(torn) == ["a", "b", "c", "d"]


def test_where_there_is_no_state_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(b"ZTEN1000" + bytes(1000))
    report = repair(path)
    assert (report.end, report.objects, report.candidates) == (None, 0, ())
    ways: list[dict[str, Any]] = [{"in_place": True}, {"write": tmp_path / "out.zt"}]
    for options in ways:
        with pytest.raises(ContainerError, match="no footer anywhere"):
            repair(path, **options)
    assert os.listdir(tmp_path) == ["m.zt"]


def test_wrong_calls(torn: Path, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"write": tmp_path / "out.zt", "in_place": True},
        {"drop_tail": True},
    ]
    for options in wrong:
        with pytest.raises(ArgumentValueError):
            repair(torn, **options)
    for in_place in (False, True):
        with pytest.raises(FileNotFoundError):
            repair(tmp_path / "missing.zt", in_place=in_place)


def test_what_an_aborted_append_left_is_taken_away(tmp_path: Path) -> None:
    """It opens, but carries dead bytes: repair shortens it without the room a copy needs."""
    path = tmp_path / "m.zt"
    save_file({"a": FOUR}, path)
    before = path.read_bytes()
    writer = ztensor.Editor(path)
    writer.write("new", np.zeros(9 << 20, np.uint8))
    writer.abort()
    assert path.stat().st_size > 8 << 20
    assert names(path) == ["a"]
    repair(path, in_place=True, drop_tail=True)
    assert path.read_bytes() == before
