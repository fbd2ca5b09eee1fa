"""A save whose copy is made by the kernel or by hand, whose calls fail, whose lock is kept on."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.descriptors import open_files
from tests.refusals import refused
from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.io.source import locking
from ztensor.io.source.local import FileSource
from ztensor.io.source.sink import FileSink

OLD = os.urandom(50_000)
HAS_KERNEL_COPY = hasattr(os, "copy_file_range")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX calls fail here")


@pytest.fixture
def old(tmp_path: Path) -> Iterator[FileSource]:
    (tmp_path / "old").write_bytes(OLD)
    with contextlib.closing(FileSource(str(tmp_path / "old"))) as source:
        yield source


def forbid(*_: object) -> Any:
    raise AssertionError


@pytest.mark.parametrize("by", ["kernel", "hand", "kernel refuses"])
@pytest.mark.parametrize("length", [0, 1, 49_999, 50_000])
def test_a_copy_of_the_first_bytes(
    tmp_path: Path, old: FileSource, by: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "across file systems")

    if by == "kernel":
        if not HAS_KERNEL_COPY:
            pytest.skip("this system's kernel copies nothing")
        monkeypatch.setattr(os, "preadv", forbid)
    elif by == "hand":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    else:
        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    told: list[tuple[int, int]] = []
    for progress in (lambda done, whole: told.append((done, whole)), None):
        sink = FileSink(str(tmp_path / "new"))
        sink.start_with(old, length, progress=progress)
        assert sink.position == length
        sink.write(b"more")
        sink.commit()
        assert (tmp_path / "new").read_bytes() == OLD[:length] + b"more"
    assert told == ([(length, length)] if length else [])


@pytest.mark.parametrize("by", ["kernel", "hand"])
def test_a_file_that_is_shorter_than_what_is_copied(
    tmp_path: Path, old: FileSource, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "hand":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    sink = FileSink(str(tmp_path / "new"))
    with refused(SourceError, Reason.SOURCE_CHANGED):
        sink.start_with(old, len(OLD) + 1)
    sink.abort()


def test_a_name_that_cannot_be_taken_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.zt").write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    sink = FileSink(str(tmp_path / "m.zt"))
    sink.write(b"new")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SourceError, match="what was there still is") as caught:
        sink.commit()
    assert caught.value.errno == errno.EPERM
    assert os.listdir(tmp_path) == ["m.zt"]
    assert (tmp_path / "m.zt").read_bytes() == b"old"


def test_a_close_that_fails_is_told_with_the_file_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system does, which writes back then."""
    close = os.close

    def failing(number: int) -> None:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        close(number)
        if is_file:
            raise OSError(errno.EIO, "Input/output error")

    sink = FileSink(str(tmp_path / "m.zt"))
    sink.write(b"new")
    monkeypatch.setattr(os, "close", failing)
    with pytest.raises(SourceError, match="in place, but closing it failed") as caught:
        sink.commit()
    monkeypatch.undo()
    assert caught.value.errno == errno.EIO
    assert (tmp_path / "m.zt").read_bytes() == b"new"


def test_the_lock_may_be_kept_beyond_the_commit(tmp_path: Path) -> None:
    before = open_files()
    path = str(tmp_path / "m.zt")
    sink = FileSink(path)
    held = sink.held()
    assert held is not None
    sink.commit()
    assert locking.is_locked(path)
    held.close()
    assert not locking.is_locked(path)
    assert open_files() == before
    with pytest.raises(ClosedError):
        sink.held()
