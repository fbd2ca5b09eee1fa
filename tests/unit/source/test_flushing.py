"""What is flushed to disk, by path."""

from __future__ import annotations

import errno
import importlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from ztensor.source import flushing, sink
from ztensor.source.flushing import flush_file, flush_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_files_and_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(os.fstat(number).st_ino))
    path = tmp_path / "a"
    path.write_bytes(b"x")
    path.chmod(0o400)
    flush_file(str(path))
    flush_folder(str(tmp_path))
    assert flushed == [path.stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_flushes_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EIO:
        with pytest.raises(OSError, match="error"):
            flush_folder(str(tmp_path))
    else:
        flush_folder(str(tmp_path))
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011  # any of these
        flush_file(str(tmp_path / "a"))


@pytest.mark.parametrize("durable", [True, False, "auto"])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_disk_begins_with_what_will_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: Any, is_there: bool
) -> None:
    """It is told of all bytes once, in order, and of none that nobody flushes."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(sink, "START_BYTES", 100_000)
    monkeypatch.setattr(sink, "start_flush", lambda _, at, count: told.append((at, count)))
    path = tmp_path / "w"
    if is_there:
        path.write_bytes(b"old")
    target = sink.FileSink(str(path), durable=durable)
    data = bytes(range(256)) * 4000
    target.write(data[:300_000])
    target.write(data[300_000:300_100])
    target.write(data[300_100:500_000])
    target.write(memoryview(data)[500_000:])
    target.commit()
    assert path.read_bytes() == data
    if durable is True or (durable == "auto" and is_there):
        ends = [at + count for at, count in told]
        assert [at for at, _ in told] == [0, *ends[:-1]]
        assert len(data) - ends[-1] < 100_000
    else:
        assert told == []


def test_to_begin_is_allowed_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    flushing.start_flush(-1, 0, 10)
    monkeypatch.setattr(flushing, "_sync_file_range", lambda: None)
    flushing.start_flush(-1, 0, 10)


@pytest.mark.skipif(not hasattr(os, "O_ACCMODE"), reason="flags are told apart by it")
@pytest.mark.parametrize(("system", "expected"), [("posix", os.O_RDONLY), ("nt", os.O_RDWR)])
def test_only_windows_has_to_write_a_file_to_flush_it(
    tmp_path: Path, system: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    opened: list[int] = []
    real = os.open

    def note(path: str, flags: int) -> int:
        opened.append(flags & os.O_ACCMODE)
        return real(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "name", system)
        importlib.reload(flushing)
    try:
        monkeypatch.setattr(os, "open", note)
        flush_file(str(path))
    finally:
        importlib.reload(flushing)
    assert opened == [expected]
