"""A file that is put in place as a whole, and file objects that get the same bytes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.descriptors import open_files
from tests.links import link
from tests.refusals import refused
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    UsageError,
)
from ztensor.ext import FileSink, Place, Sink, locking, source_of
from ztensor.numpy import load_file, save, save_file

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and these calls are of POSIX")
MIB = 1 << 20
OLD = os.urandom(50_000)
# Lengths around the border between gathered and direct writes.
PIECES = [b"", b"a", os.urandom(1 << 15), os.urandom((1 << 15) + 1), b"b", os.urandom(300_000)]


def fill(sink: Sink, pieces: Iterable[bytes] = (b"new",)) -> None:
    for piece in pieces:
        sink.write(piece)
    sink.commit()


@pytest.fixture(params=["nameless", "named"])
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With O_TMPFILE where the system has it, and as on systems without."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not (hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")):
        pytest.skip("this system has no nameless temporaries")
    return str(request.param)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_the_file_holds_what_was_written(tmp_path: Path, convert: Callable[[bytes], Any]) -> None:
    before = open_files()
    sink = FileSink(str(tmp_path / "m.zt"))
    for piece in PIECES:
        sink.write(convert(piece))
    assert sink.position == sink.end_blobs() == sum(map(len, PIECES))
    assert not (tmp_path / "m.zt").exists()
    assert open_files() - before
    sink.commit()
    sink.abort()  # too late, and without effect
    assert (tmp_path / "m.zt").read_bytes() == b"".join(PIECES)
    assert os.listdir(tmp_path) == ["m.zt"]
    assert not open_files() - before


@POSIX
def test_a_close_that_fails_is_reported_with_the_file_in_place(
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
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", failing)
        with pytest.raises(SourceError, match="in place") as caught:
            sink.commit()
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


# --- Copies of a file's first bytes -------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("by", ["kernel", "hand", "kernel refuses"])
@pytest.mark.parametrize("start", [0, 77])
@pytest.mark.parametrize("length", [0, 1, 49_900, 49_923, 50_000])
def test_a_file_begins_with_a_part_of_another(
    tmp_path: Path, by: str, length: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = min(length, len(OLD) - start)

    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "across file systems")

    if by == "hand":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif by == "kernel refuses":
        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    (tmp_path / "old").write_bytes(OLD)
    reported: list[tuple[int, int]] = []
    with contextlib.closing(source_of(tmp_path / "old", mapped=False)) as old:
        source: Any = old
        for progress in (lambda done, whole: reported.append((done, whole)), None):
            sink = FileSink(str(tmp_path / "new"))
            sink.start_with(source, start + length, start, progress=progress)
            assert sink.position == length
            fill(sink, [b"more"])
            assert (tmp_path / "new").read_bytes() == OLD[start : start + length] + b"more"
        sink = FileSink(str(tmp_path / "new"))
        with refused(SourceError, Reason.SOURCE_CHANGED):
            sink.start_with(source, len(OLD) + 1)
        sink.abort()
    assert reported == ([(length, length)] if length else [])


# --- Mode, links, names -------------------------------------------------------------------------


@pytest.mark.usefixtures("temporary")
@POSIX
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=oct)
def test_a_new_file_honours_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        fill(FileSink(str(tmp_path / "m.zt")))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.zt").stat().st_mode) == 0o666 & ~umask


@pytest.mark.usefixtures("temporary")
@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o777], ids=oct)
@pytest.mark.parametrize("fchmod", [None, errno.EPERM, errno.EIO, errno.ENOSYS])
def test_the_mode_of_a_replaced_file_is_kept(
    tmp_path: Path, mode: int, fchmod: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no mode can be set, the new file is private, or the old one stays."""

    def forbid(*_: object) -> None:
        raise OSError(fchmod, "not here")

    target = tmp_path / "m.zt"
    target.write_bytes(b"old")
    target.chmod(mode)
    if fchmod == errno.ENOSYS:  # Windows before Python 3.13 has no such call
        monkeypatch.delattr(os, "fchmod")
    elif fchmod is not None:
        monkeypatch.setattr(os, "fchmod", forbid)
    sink = FileSink(str(target))
    if fchmod == errno.EIO:
        with pytest.raises(SourceError):
            fill(sink)
        assert target.read_bytes() == b"old"
    else:
        fill(sink)
        assert target.read_bytes() == b"new"
        # EPERM is the answer of mounts whose files all have one mode.
        assert stat.S_IMODE(target.stat().st_mode) == (0o600 if fchmod else mode)
    assert os.listdir(tmp_path) == ["m.zt"]


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("exists", [True, False], ids=["target", "dangling"])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    link(tmp_path / "link.zt", os.path.join("there", "m.zt"))
    if exists:
        (folder / "m.zt").write_bytes(b"old")
        os.link(folder / "m.zt", tmp_path / "hard link")
    fill(FileSink(str(tmp_path / "link.zt")))
    assert (tmp_path / "link.zt").is_symlink()
    assert (folder / "m.zt").read_bytes() == b"new"
    assert not (folder / "m.zt").is_symlink()
    assert os.listdir(folder) == ["m.zt"]
    if exists:
        assert (tmp_path / "hard link").read_bytes() == b"old"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder of the system's is needed")
def test_a_folder_in_which_no_file_can_be_made_is_not_called_missing() -> None:
    with pytest.raises(SourceError) as caught:
        FileSink("/proc/model.zt")
    assert caught.value.reason is not Reason.SOURCE_NOT_FOUND


def test_wrong_targets_and_options(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        FileSink(str(tmp_path / "m.zt"), durable="maybe")  # type: ignore[arg-type]
    link(tmp_path / "loop.zt", "loop.zt")
    with pytest.raises(SourceError):
        FileSink(str(tmp_path / "loop.zt"))
    link(tmp_path / "link", tmp_path / "gone")
    with pytest.raises(UsageError):  # a link to nothing is something
        Place.of(tmp_path / "link").require_free(overwrite=False)
    assert sorted(os.listdir(tmp_path)) == ["link", "loop.zt"]


@pytest.mark.parametrize("makes_folder", [False, True])
def test_a_dry_run_refuses_what_the_run_would(tmp_path: Path, makes_folder: bool) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for name in ("file", "new"):
        sink = Place.of(tmp_path / name).dry(makes_folder=makes_folder)
        sink.write(b"bytes")
        assert (sink.name, sink.end_blobs()) == (str(tmp_path / name), 5)
        sink.commit(b"manifest")
        assert sink.position == 13
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(SourceNotRegularError):
            Place.of(tmp_path / "pipe").dry(makes_folder=makes_folder)
        os.unlink(tmp_path / "pipe")
    with pytest.raises(SourceNotRegularError):
        Place.of(tmp_path).dry(makes_folder=makes_folder)
    with pytest.raises(SourceError):  # its folder is a file
        Place.of(tmp_path / "file" / "m.zt").dry(makes_folder=makes_folder)
    if makes_folder:
        Place.of(tmp_path / "gone" / "m.zt").dry(makes_folder=True)
    else:
        with pytest.raises(SourceNotFoundError):
            Place.of(tmp_path / "gone" / "m.zt").dry()
    assert os.listdir(tmp_path) == ["file"]


# --- Reserved room ------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("version", ["1.2", "2.1"])
def test_a_finished_file_keeps_no_reserved_room(tmp_path: Path, version: str) -> None:
    """Neither behind its end nor in the holes between tensors of a large alignment."""
    tensors = {f"t{number}": np.full(MIB // 4 + 77, number, np.float32) for number in range(5)}
    alignment = 65536 if version == "2.1" else None
    save_file(tensors, tmp_path / "m.zt", version=version, alignment=alignment, durable=True)
    used = os.stat(tmp_path / "m.zt").st_blocks * 512
    assert used <= sum(array.nbytes + 2 * 4096 for array in tensors.values()) + 64 * 1024
    loaded = load_file(tmp_path / "m.zt")
    assert all((loaded[name] == array).all() for name, array in tensors.items())


# --- File objects -------------------------------------------------------------------------------

TENSORS = {"a": np.arange(7), "b": np.arange(60_000), "c": np.zeros(0), "d": np.ones(5)}


class Target(io.BytesIO):
    """Takes at most `most` bytes at a time, and answers in its own way."""

    def __init__(self, most: int = 1 << 40, answer: Callable[[int], Any] = int) -> None:
        super().__init__()
        self.most = most
        self.answer = answer
        self.flushes = 0

    def write(self, data: Any, /) -> int:
        count = super().write(memoryview(data)[: self.most])
        taken: int = self.answer(count)
        return taken

    def flush(self) -> None:
        self.flushes += 1


class OnlyWrites:
    """The least a target must be."""

    def __init__(self, error: Exception | None = None) -> None:
        self.data = b""
        self.error = error

    def write(self, data: Any, /) -> None:
        if self.error is not None:
            raise self.error
        self.data += bytes(data)

    getvalue = property(lambda self: lambda: self.data)


class WouldBlock(io.RawIOBase):
    """A raw file that is not ready: its None means that nothing was taken."""

    def writable(self) -> bool:
        return True

    def write(self, _: Any, /) -> int | None:
        return None


def write_to(target: Any) -> None:
    with ztensor.Writer(target) as writer:
        for name, array in TENSORS.items():
            writer.write(name, array)


@pytest.mark.parametrize(
    "target",
    [Target(), Target(65_536), Target(999), Target(answer=lambda _: None), OnlyWrites()],
    ids=["whole", "short", "very short", "no count", "nothing but write"],
)
def test_a_file_object_gets_every_byte_in_order(target: Any) -> None:
    write_to(target)
    assert target.getvalue() == save(TENSORS)
    if isinstance(target, Target):
        assert target.flushes == 1
        assert not target.closed  # it is the caller's


@pytest.mark.parametrize(
    ("target", "number"),
    [
        (Target(answer=lambda _: 0), None),
        (Target(answer=lambda _: -1), None),
        (Target(answer=lambda count: count + 1), None),
        (WouldBlock(), None),
        (OnlyWrites(OSError(errno.ENOSPC, "full")), errno.ENOSPC),
        (OnlyWrites(ValueError("closed")), None),
    ],
    ids=["none", "less than none", "too many", "not ready", "full", "closed"],
)
def test_a_write_that_fails_or_answers_nonsense(target: Any, number: int | None) -> None:
    with pytest.raises(SourceError) as caught:
        write_to(target)
    assert caught.value.errno == number
    if isinstance(target, OnlyWrites):
        assert caught.value.__cause__ is target.error


@pytest.mark.parametrize(
    "target", [None, 5, object(), io.StringIO()], ids=lambda t: type(t).__name__
)
def test_what_takes_no_bytes_is_a_wrong_target(target: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        write_to(target)


def test_gathered_bytes_are_dropped_by_an_abort() -> None:
    target = Target()
    writer = ztensor.Writer(target)
    writer.write("a", TENSORS["a"])
    writer.abort()
    assert target.getvalue() == b""


# --- Space that is reserved -----------------------------------------------------------------

# Writes a long piece and a short one, and prints the extents that it reserved.
RESERVING = """
import ctypes, struct, sys
from ztensor.ext import FileSink

class Library:
    def fstatfs(self, descriptor, status):
        struct.pack_into("l", status, 0, 0xEF53)  # ext4
        return 0

    def fallocate(self, descriptor, mode, start, count):
        print(start.value, count.value)
        return 0

ctypes.CDLL = lambda name: Library()
sink = FileSink(sys.argv[1])
for nbytes in (1 << 18, (1 << 18) - 1):
    sink.write(bytes(nbytes))
sink.commit()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="space is reserved on ext4 only")
def test_space_is_reserved_for_writes_of_256_kib(tmp_path: Path) -> None:
    """In another process, in which the system's library can be replaced before its first use."""
    command = [sys.executable, "-c", RESERVING, str(tmp_path / "m.zt")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", str(1 << 18)]
