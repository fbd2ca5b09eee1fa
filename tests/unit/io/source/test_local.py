from __future__ import annotations

import contextlib
import errno
import gc
import io
import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.descriptors import open_files
from tests.refusals import refused
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    FormatError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
)
from ztensor.io.source.base import Range
from ztensor.io.source.local import FileSource
from ztensor.io.source.memory import FileObjectSource
from ztensor.numpy import save_file

DATA = np.random.default_rng(0).bytes(100_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "data.bin"
    made.write_bytes(DATA)
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made = tmp_path / "m.zt"
    save_file({"w": np.arange(100_000, dtype=np.float32).reshape(1000, 100), "b": np.ones(3)}, made)
    return made


# --- Reading, on every system -------------------------------------------------------------------


def without_preadv(patch: pytest.MonkeyPatch) -> None:
    """Windows: a shared position, so reads take turns."""
    patch.delattr(os, "preadv", raising=False)


def with_short_reads(patch: pytest.MonkeyPatch) -> None:
    """As from a network file system, or where a signal comes."""
    read = os.read
    patch.setattr(os, "read", lambda number, length: read(number, min(length, 1000)))
    if hasattr(os, "preadv"):
        preadv = os.preadv
        patch.setattr(os, "preadv", lambda fd, to, at: preadv(fd, [to[0][:1000]], at))


SYSTEMS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "this one": lambda _: None,
    "lseek and read": without_preadv,
    "short reads": with_short_reads,
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 100_000), (0, 0), (99_999, 1), (12_345, 54_321), (100_000, 0)]
)
def test_reads(
    path: Path, system: str, offset: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(str(path))
    SYSTEMS[system](monkeypatch)
    assert source.read(offset, length) == DATA[offset : offset + length]
    source.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_threads_do_not_disturb_one_another(
    path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(str(path))
    SYSTEMS[system](monkeypatch)

    def read(start: int) -> None:
        for offset in range(start, 100_000, 7919):
            piece = source.read(offset, min(4000, 100_000 - offset))
            assert piece == DATA[offset : offset + 4000]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    source.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_file_that_ends_too_early(
    path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(str(path), mapped=False)
    SYSTEMS[system](monkeypatch)
    os.truncate(path, 50_000)
    assert source.read(0, 50_000) == DATA[:50_000]
    with refused(SourceError, Reason.SOURCE_CHANGED) as caught:
        source.read(49_000, 2_000)
    assert caught.value.file == str(path)
    source.close()


@pytest.mark.parametrize("call", ["preadv", "read"])
def test_an_error_of_the_disk_keeps_its_number(
    path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(str(path))
    if call != "preadv":
        without_preadv(monkeypatch)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, call, fail, raising=False)
    with pytest.raises(SourceError) as caught:
        source.read(0, 1)
    assert (caught.value.errno, caught.value.reason) == (errno.EIO, Reason.SOURCE_FAILED)
    assert isinstance(caught.value, OSError)
    source.close()


# --- What is no file ----------------------------------------------------------------------------


def fifo(folder: Path) -> str:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def null_device(_: Path) -> str:
    if os.name == "nt":
        pytest.skip("the null device of Windows is no path")
    return os.devnull


def full_device(_: Path) -> str:
    if not os.path.exists("/dev/zero"):
        pytest.skip("this system has no endless device")
    return "/dev/zero"


@pytest.mark.parametrize(
    "make",
    [fifo, null_device, full_device, str],
    ids=["pipe", "device", "endless device", "folder"],
)
def test_only_regular_files_are_opened_and_at_once(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    """Opening a pipe nobody writes to would wait for ever."""
    target = make(tmp_path)
    start = time.monotonic()
    with refused(SourceNotRegularError, Reason.SOURCE_NOT_REGULAR) as caught:
        ztensor.open(target)
    assert time.monotonic() - start < 1
    assert caught.value.file == target


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ztensor.open(tmp_path / "no.zt")
    assert isinstance(caught.value, SourceNotFoundError)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path / "no.zt")


def test_a_forbidden_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised by hand, since root may read everything."""

    def forbid(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(PermissionError) as caught:
        ztensor.open(saved)
    assert isinstance(caught.value, SourcePermissionError)
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a\0b.zt", ArgumentValueError), ("x" * 5000, SourceError)],
    ids=["NUL", "long"],
)
def test_a_path_no_system_takes(tmp_path: Path, name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ztensor.open(str(tmp_path / name))


def test_a_relative_path_is_found_from_another_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    source = FileSource(saved.name)
    assert source.name == saved.name
    assert source.path == os.path.join(os.getcwd(), saved.name)
    source.close()


# --- Maps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_private", [True, False], ids=["MAP_PRIVATE", "ACCESS_COPY"])
def test_views_are_copied_on_write(
    path: Path, has_private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_private:
        monkeypatch.delattr(mmap, "MAP_PRIVATE", raising=False)
    source, other = FileSource(str(path)), FileSource(str(path))
    view, others = source.view(), other.view()
    assert view is not None
    assert others is not None
    assert source.view() is view
    view[0] ^= 0xFF
    assert view[0] == DATA[0] ^ 0xFF
    assert others == DATA
    assert bytes(Range(source, 0, 4).read(0, 4)) == DATA[:4]  # what checks look at
    assert source.read(0, 4) == DATA[:4]
    assert path.read_bytes() == DATA
    source.close()
    other.close()


@pytest.mark.parametrize(
    "error", [OSError(errno.ENODEV, "no maps here"), ValueError("odd"), OverflowError("large")]
)
def test_reads_take_the_place_of_a_map_that_fails(
    saved: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> mmap.mmap:
        raise error

    monkeypatch.setattr("ztensor.io.source.local.mmap.mmap", fail)
    with ztensor.open(saved) as reader:
        array: Any = reader["w"]
        assert array[999, 99] == 99_999
        assert reader.get_slice("w")[5, :2].tolist() == [500, 501]
        assert reader.verify().ok
        assert array.flags.owndata or array.base.flags.owndata


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    source = FileSource(str(tmp_path / "empty"))
    assert source.view() is None
    source.close()
    with refused(FormatError, Reason.TRUNCATED):
        ztensor.open(tmp_path / "empty")


@pytest.mark.slow
def test_arrays_outlive_the_reader(saved: Path) -> None:
    reader = ztensor.open(saved)
    array = reader["w"]
    part = reader.get_slice("w")[10:20]
    reader.close()
    del reader
    gc.collect()
    assert array[999, 99] == 99_999
    assert part[0, 0] == 1000
    array[0, 0] = -1  # still writable, still private
    with ztensor.open(saved) as again:
        assert again["w"][0, 0] == 0


def test_arrays_outlive_the_file(saved: Path) -> None:
    with ztensor.open(saved) as reader:
        array = reader["w"]
    try:
        saved.unlink()
    except PermissionError:
        pytest.skip("this system does not remove files that are mapped")
    assert array[1, 1] == 101


# --- A file that changes ------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["raw", "zstd"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
def test_a_file_cut_while_it_is_open(tmp_path: Path, encoding: str, mapped: bool) -> None:
    """Touching the cut part of a map would kill the process; an error comes before."""
    path = tmp_path / "m.zt"
    save_file(
        {"w": np.random.default_rng(0).normal(size=100_000)}, path, compression=encoding == "zstd"
    )
    with ztensor.open(path, mmap=mapped) as reader:
        part = reader.get_slice("w")
        assert reader["w"].shape == (100_000,)  # mapped while all of it is there
        assert reader.verify().ok
        try:
            os.truncate(path, 4096)
        except OSError:
            pytest.skip("this system does not cut files that are open")
        attempts: list[Callable[[], object]] = [
            lambda: reader["w"],
            lambda: reader.read("w"),
            lambda: reader.read_numpy("w", copy=True),
            lambda: reader.read_into("w", np.empty(100_000)),
            lambda: part[99_990:],
            reader.verify,
        ]
        for attempt in attempts:
            with refused(SourceError, Reason.SOURCE_CHANGED):
                attempt()


def test_a_file_cut_with_its_time_set_back_has_changed(path: Path) -> None:
    with contextlib.closing(FileSource(str(path))) as source:
        status = path.stat()
        os.truncate(path, len(DATA) - 1)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(SourceError) as caught:
            source.require_unchanged()
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert caught.value.found == str(len(DATA) - 1)


def test_a_file_that_grew_is_what_it_was(saved: Path) -> None:
    with ztensor.open(saved) as reader:
        with open(saved, "ab") as file:
            file.write(b"more")
        assert reader["w"][0, 1] == 1
        assert reader.verify().ok


def test_a_closed_source(path: Path) -> None:
    source = FileSource(str(path))
    view = source.view()
    assert view is not None
    assert view == DATA
    del view
    assert not source.is_held  # a map is not held: another process may cut the file
    source.close()
    source.close()
    assert source.view() is None
    with pytest.raises(ClosedError):
        source.read(0, 1)
    with pytest.raises(ClosedError):
        source.require_unchanged()


def test_no_descriptor_is_left_behind(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zt").write_bytes(b"ZTEN1000" + bytes(99))
    before = open_files()
    for _ in range(3):
        ztensor.open(saved).close()
        ztensor.open(saved)["w"].sum()
        for bad in (tmp_path / "bad.zt", tmp_path):
            with pytest.raises(ztensor.ZTensorError):
                ztensor.open(bad)
    assert not open_files() - before
    with ztensor.open(saved):
        assert open_files() - before == {str(saved): 1}  # what it would look like


# --- File objects -------------------------------------------------------------------------------


class Trickle(io.BytesIO):
    """Gives three bytes at a time, and no name."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 3))


def test_a_file_object_is_read_where_it_is_asked(saved: Path) -> None:
    with saved.open("rb") as file:
        source = FileObjectSource(file)
        assert source.name == str(saved)
        assert (source.path, source.view(), source.is_held) == (None, None, False)
        assert source.size == saved.stat().st_size
        assert source.read(100, 50) == saved.read_bytes()[100:150]
        source.require_unchanged()
        source.close()
        assert not file.closed  # it is the caller's


@pytest.mark.parametrize(
    "wrap",
    [io.BytesIO, Trickle, lambda data: io.BufferedReader(io.BytesIO(data))],  # type: ignore[arg-type,unused-ignore]
    ids=["BytesIO", "short reads", "buffered"],
)
def test_tensors_from_a_file_object_are_memory_of_their_own(
    saved: Path, wrap: Callable[[bytes], Any]
) -> None:
    with ztensor.open(wrap(saved.read_bytes())) as reader:
        array = reader["b"]
        array[0] = 7
        assert reader["b"].tolist() == [1, 1, 1]
        assert reader.get_slice("w")[999, 98:].tolist() == [99_998, 99_999]


class Raises(io.BytesIO):
    """A file object whose reads fail once it is open."""

    error: Exception | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read(size)


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), ValueError("I/O operation on closed file")]
)
def test_a_file_object_that_fails_later(saved: Path, error: Exception) -> None:
    file = Raises(saved.read_bytes())
    reader = ztensor.open(file)
    file.error = error
    with pytest.raises(SourceError) as caught:
        reader["w"]
    assert caught.value.__cause__ is error
    assert caught.value.object_name == "w"


def test_a_file_object_that_got_shorter(saved: Path) -> None:
    file = io.BytesIO(saved.read_bytes())
    reader = ztensor.open(file)
    file.truncate(1000)
    with refused(SourceError, Reason.SOURCE_CHANGED):
        reader["w"]


class NoSeek(io.BytesIO):
    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("seek")


def closed_file(data: bytes) -> io.BytesIO:
    file = io.BytesIO(data)
    file.close()
    return file


@pytest.mark.parametrize(
    "wrap",
    [lambda data: io.StringIO(str(data)), NoSeek, closed_file],
    ids=["text", "not seekable", "closed"],
)
def test_file_objects_that_cannot_be_used(saved: Path, wrap: Callable[[bytes], Any]) -> None:
    with pytest.raises(ArgumentTypeError):
        ztensor.open(wrap(saved.read_bytes()))


# --- Changed under it ---------------------------------------------------------------------------


def test_a_commit_over_the_last_bytes_is_no_change_of_the_others(path: Path) -> None:
    """So 2.x commits: whoever opened the file before keeps what he has."""

    def put(at: int, data: bytes, moment: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
        os.utime(path, ns=(moment, moment))

    source, unaware = FileSource(str(path)), FileSource(str(path))
    source.expect_commits(40, b"end", 1000)
    for moment in (1, 2):
        put(len(DATA) - 40, bytes([moment]) * 37 + b"end", moment)
        source.require_unchanged()
        source.require_unchanged()
        with refused(SourceError, Reason.SOURCE_CHANGED):
            unaware.require_unchanged()
    for at, data in ((100, b"something else"), (len(DATA) - 1, b"\xff")):  # no end of a file
        put(at, data, 3)
        with refused(SourceError, Reason.SOURCE_CHANGED):
            source.require_unchanged()
    source.close()
    unaware.close()


def test_what_a_commit_cuts_off_was_only_prepared(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(9000) + b"\1" * 37 + b"end")
    source = FileSource(str(path))
    source.expect_commits(40, b"end", 1000)
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"\2" * 37 + b"end")
    os.truncate(path, 5040)
    source.require_unchanged()
    assert source.size == 5040
    assert source.read(0, 1000) == DATA[:1000]
    for size in (4990, 1020):  # no end of a file, and not all that was opened
        os.truncate(path, size)
        with pytest.raises(SourceError, match="shorter"):
            source.require_unchanged()
    source.close()


def test_a_file_is_stale_where_its_path_leads_to_another_one(saved: Path) -> None:
    with contextlib.closing(FileSource(str(saved), mapped=False)) as source:
        assert not source.is_stale()
        data = saved.read_bytes()
        saved.write_bytes(data + b"more")
        assert source.is_stale()
        saved.write_bytes(data)
        assert not source.is_stale()
        other = saved.with_suffix(".other")
        other.write_bytes(data)
        other.replace(saved)
        assert source.is_stale()
        saved.unlink()
        assert not source.is_stale()  # nothing tells
    assert not source.is_stale()
