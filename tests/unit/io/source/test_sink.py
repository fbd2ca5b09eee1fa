from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.descriptors import open_files
from tests.links import link
from tests.refusals import refused
from ztensor.accepted import Durable
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
)
from ztensor.io.source.base import Sink
from ztensor.io.source.sink import FileSink
from ztensor.io.source.stream import StreamSink

ON_POSIX = os.name == "posix"
AS_ROOT = ON_POSIX and os.geteuid() == 0

# Lengths around the border between gathered and direct writes.
PIECES = [b"", b"a", os.urandom(1 << 15), os.urandom((1 << 15) + 1), b"b", os.urandom(300_000)]


def fill(sink: Sink, pieces: Iterable[bytes] = (b"new",)) -> None:
    for piece in pieces:
        sink.write(piece)
    sink.commit()


@pytest.fixture(params=["nameless", "named"])
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With O_TMPFILE where the system has it, and as on systems without."""
    if request.param == "nameless" and not (
        hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
    ):
        pytest.skip("this system has no nameless temporaries")
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_what_is_written_is_the_file(tmp_path: Path, convert: Callable[[bytes], Any]) -> None:
    sink = FileSink(str(tmp_path / "m.zt"))
    for piece in PIECES:
        sink.write(convert(piece))
    assert sink.position == sink.end_blobs() == sum(map(len, PIECES))
    assert not (tmp_path / "m.zt").exists()
    sink.commit()
    assert (tmp_path / "m.zt").read_bytes() == b"".join(PIECES)
    assert os.listdir(tmp_path) == ["m.zt"]


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_end_of_a_sink_leaves_no_file_open(tmp_path: Path, end: str) -> None:
    before = open_files()
    sink = FileSink(str(tmp_path / "m.zt"))
    sink.write(bytes(100_000))
    assert open_files() - before
    getattr(sink, end)()
    assert not open_files() - before


def test_an_abort_after_the_commit_does_nothing(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "m.zt"))
    fill(sink)
    sink.abort()
    assert (tmp_path / "m.zt").read_bytes() == b"new"


@pytest.mark.usefixtures("temporary")
def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:777]))
    fill(FileSink(str(tmp_path / "m.zt")), PIECES)
    assert (tmp_path / "m.zt").read_bytes() == b"".join(PIECES)


# --- Mode, links, names -------------------------------------------------------------------------


@pytest.mark.usefixtures("temporary")
@pytest.mark.skipif(not ON_POSIX, reason="modes are POSIX's")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=oct)
def test_a_new_file_honours_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        fill(FileSink(str(tmp_path / "m.zt")))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.zt").stat().st_mode) == 0o666 & ~umask


@pytest.mark.usefixtures("temporary")
@pytest.mark.skipif(not ON_POSIX, reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o777], ids=oct)
@pytest.mark.parametrize("has_fchmod", [True, False])
def test_the_mode_of_a_replaced_file_is_kept(
    tmp_path: Path, mode: int, has_fchmod: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.zt"
    target.write_bytes(b"old")
    target.chmod(mode)
    if not has_fchmod:  # Windows before Python 3.13
        monkeypatch.delattr(os, "fchmod")
    fill(FileSink(str(target)))
    assert target.read_bytes() == b"new"
    if has_fchmod:
        assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.usefixtures("temporary")
@pytest.mark.skipif(not hasattr(os, "fchmod"), reason="nothing to fail")
@pytest.mark.parametrize("code", [errno.EPERM, errno.EIO])
def test_a_mode_that_cannot_be_set_leaves_a_private_file_or_the_old_one(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.zt"
    target.write_bytes(b"old")

    def forbid(*_: object) -> None:
        raise OSError(code, "not here")

    monkeypatch.setattr(os, "fchmod", forbid)
    sink = FileSink(str(target))
    if code == errno.EPERM:  # how mounts answer whose files all have one mode
        fill(sink)
        assert target.read_bytes() == b"new"
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    else:
        with pytest.raises(SourceError):
            fill(sink)
        assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.zt"]


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("exists", [True, False], ids=["target", "dangling"])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    link(tmp_path / "link.zt", os.path.join("there", "m.zt"))
    if exists:
        (folder / "m.zt").write_bytes(b"old")
    fill(FileSink(str(tmp_path / "link.zt")))
    assert (tmp_path / "link.zt").is_symlink()
    assert (folder / "m.zt").read_bytes() == b"new"
    assert not (folder / "m.zt").is_symlink()
    assert (os.listdir(folder), sorted(os.listdir(tmp_path))) == (["m.zt"], ["link.zt", "there"])


def test_a_link_to_itself(tmp_path: Path) -> None:
    link(tmp_path / "m.zt", "m.zt")
    with pytest.raises(SourceError):
        FileSink(str(tmp_path / "m.zt"))


def test_another_hard_link_keeps_the_old_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(b"old")
    try:
        os.link(tmp_path / "m.zt", tmp_path / "other.zt")
    except OSError:
        pytest.skip("this file system has no hard links")
    fill(FileSink(str(tmp_path / "m.zt")))
    assert (tmp_path / "other.zt").read_bytes() == b"old"


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "-rf *", " .zt"], ids=lambda n: n[:4])
def test_any_name_the_system_takes(tmp_path: Path, name: str) -> None:
    if os.name == "nt":
        pytest.skip("Windows takes other names")
    fill(FileSink(str(tmp_path / name)))
    assert os.listdir(tmp_path) == [name]


def test_a_temporary_nobody_can_guess_or_plant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or link that is already there is never opened."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr("ztensor.io.source.sink.secrets.token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link(tmp_path / ".m.zt.guessed.tmp", "victim")
    with pytest.raises(SourceError):
        FileSink(str(tmp_path / "m.zt"))
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / ".m.zt.guessed.tmp").is_symlink()


# --- What is no place for a file ----------------------------------------------------------------


def a_pipe(folder: Path) -> str:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def a_device(_: Path) -> str:
    if not ON_POSIX:
        pytest.skip("devices have paths on POSIX")
    return os.devnull


@pytest.mark.parametrize("make", [a_pipe, a_device, str], ids=["pipe", "device", "folder"])
def test_only_regular_files_are_replaced(tmp_path: Path, make: Callable[[Path], str]) -> None:
    target = make(tmp_path)
    before = os.stat(target).st_mode
    start = time.monotonic()
    with refused(SourceNotRegularError, Reason.SOURCE_NOT_REGULAR):
        FileSink(target)
    assert time.monotonic() - start < 1
    assert os.stat(target).st_mode == before


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        FileSink(str(tmp_path / "no" / "m.zt"))
    assert isinstance(caught.value, SourceNotFoundError)
    assert caught.value.errno == errno.ENOENT
    assert repr(os.path.realpath(tmp_path / "no")) in str(caught.value)


def test_a_folder_that_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(PermissionError) as caught:
        FileSink(str(tmp_path / "m.zt"))
    assert isinstance(caught.value, SourcePermissionError)
    assert caught.value.errno == errno.EACCES


def test_a_path_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        FileSink(str(tmp_path / "a\0b"))


def test_an_unknown_durability(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        FileSink(str(tmp_path / "m.zt"), durable="maybe")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


# --- To the disk --------------------------------------------------------------------------------


@pytest.mark.usefixtures("temporary")
@pytest.mark.skipif(not ON_POSIX, reason="Windows flushes no folders")
@pytest.mark.parametrize(
    ("durable", "is_new", "calls"),
    [
        (True, True, ["file", "rename", "folder"]),
        (True, False, ["file", "rename", "folder"]),
        ("auto", False, ["file", "rename", "folder"]),
        ("auto", True, ["rename"]),
        (False, True, ["rename"]),
        (False, False, ["rename"]),
    ],
)
def test_what_is_flushed_and_when(
    tmp_path: Path,
    durable: Durable,
    is_new: bool,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(descriptor: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def rename(old: str, new: str) -> None:
        seen.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    if not is_new:
        (tmp_path / "m.zt").write_bytes(b"old")
    fill(FileSink(str(tmp_path / "m.zt"), durable=durable))
    assert seen == calls


def test_a_folder_that_cannot_be_flushed_is_said_with_the_file_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not ON_POSIX:
        pytest.skip("Windows flushes no folders")
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "broken")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(SourceError) as caught:
        fill(FileSink(str(tmp_path / "m.zt"), durable=True))
    assert caught.value.errno == errno.EIO
    assert (tmp_path / "m.zt").read_bytes() == b"new"


# --- File objects -------------------------------------------------------------------------------


class Target(io.BytesIO):
    """Takes at most `most` bytes at a time, and says so in its own way."""

    def __init__(self, most: int, answer: Callable[[int], Any] = int) -> None:
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


@pytest.mark.parametrize("most", [1 << 40, 65_536, 999], ids=["whole", "short", "very short"])
def test_a_file_object_gets_every_byte_in_order(most: int) -> None:
    target = Target(most)
    sink = StreamSink(target)
    fill(sink, PIECES)
    assert target.getvalue() == b"".join(PIECES)
    assert (sink.position, sink.end_blobs()) == (len(target.getvalue()),) * 2
    assert target.flushes == 1
    assert not target.closed  # it is the caller's


def test_a_write_that_answers_nothing_took_all() -> None:
    target = Target(1 << 40, lambda _: None)
    fill(StreamSink(target), PIECES)
    assert target.getvalue() == b"".join(PIECES)


@pytest.mark.parametrize("answer", [lambda _: 0, lambda _: -1, lambda count: count + 1])
def test_a_write_that_cannot_be_true(answer: Callable[[int], int]) -> None:
    with pytest.raises(SourceError):
        fill(StreamSink(Target(1 << 40, answer)))


class WouldBlock(io.RawIOBase):
    """A raw file that is not ready: its None means that nothing was taken."""

    def writable(self) -> bool:
        return True

    def write(self, _: Any, /) -> int | None:
        return None


def test_a_raw_file_that_would_have_to_wait_took_nothing() -> None:
    with pytest.raises(SourceError):
        fill(StreamSink(WouldBlock()))


class OnlyWrites:
    """The least a target must be."""

    def __init__(self, error: Exception | None = None) -> None:
        self.data = b""
        self.error = error

    def write(self, data: Any, /) -> None:
        if self.error is not None:
            raise self.error
        self.data += bytes(data)


def test_nothing_but_write_is_needed() -> None:
    target = OnlyWrites()
    sink = StreamSink(target)
    fill(sink, PIECES)
    assert target.data == b"".join(PIECES)
    assert sink.name == "<OnlyWrites>"


@pytest.mark.parametrize(
    ("error", "number"),
    [(OSError(errno.ENOSPC, "full"), errno.ENOSPC), (ValueError("closed"), None)],
)
def test_a_write_that_fails(error: Exception, number: int | None) -> None:
    with pytest.raises(SourceError) as caught:
        fill(StreamSink(OnlyWrites(error)))
    assert caught.value.errno == number
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("thing", [None, 5, object(), b"bytes"])
def test_what_cannot_be_written_to(thing: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        StreamSink(thing)


def test_text_is_no_place_for_bytes(tmp_path: Path) -> None:
    with (tmp_path / "t").open("w") as file, pytest.raises(ArgumentTypeError):
        fill(StreamSink(file))  # type: ignore[arg-type]


def test_what_an_abort_drops() -> None:
    target = Target(1 << 40)
    sink = StreamSink(target)
    sink.write(b"gathered")
    sink.abort()
    sink.commit()
    assert target.getvalue() == b""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder of the system's is needed")
def test_a_folder_in_which_no_file_can_be_made_is_not_called_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        FileSink("/proc/model.zt")
    assert caught.value.reason is not Reason.SOURCE_NOT_FOUND
    with refused(SourceError, Reason.SOURCE_NOT_FOUND):
        FileSink(str(tmp_path / "none" / "model.zt"))
