"""Files on disk as sources: reads, maps, refusals, and files that change while open."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.descriptors import open_files
from tests.refusals import refused
from ztensor.converting.atomic_folder import AtomicFolder
from ztensor.errors import (
    ClosedError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
    ZTensorError,
)
from ztensor.ext import FileSink, source_of
from ztensor.numpy import save_file
from ztensor.training.checkpoints.folder_lock import folder_in_use, idle_folder

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


@contextlib.contextmanager
def opened(path: Path | str, *, mapped: bool = True) -> Iterator[Any]:
    with contextlib.closing(source_of(path, mapped=mapped)) as source:
        yield source


# --- Reading, on every system -------------------------------------------------------------------


def without_preadv(patch: pytest.MonkeyPatch) -> None:
    """Windows: a shared position, so reads take turns."""
    patch.delattr(os, "preadv", raising=False)


def with_short_reads(patch: pytest.MonkeyPatch) -> None:
    """As from a network file system, or where a signal comes."""
    read, preadv = os.read, getattr(os, "preadv", None)
    patch.setattr(os, "read", lambda number, length: read(number, min(length, 1000)))
    if preadv is not None:
        patch.setattr(os, "preadv", lambda fd, to, at: preadv(fd, [to[0][:1000]], at))


@pytest.fixture(params=[None, without_preadv, with_short_reads], ids=["preadv", "read", "short"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play systems with other calls."""
    if request.param is not None:
        request.param(monkeypatch)


@pytest.mark.usefixtures("system")
def test_threads_read_any_range(path: Path) -> None:
    ranges = [(0, 100_000), (0, 0), (99_999, 1), (12_345, 54_321), (100_000, 0)]
    ranges += [(start, min(4000, 100_000 - start)) for start in range(0, 100_000, 791)]
    with opened(path) as source, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: source.read(*one), ranges))
    assert found == [DATA[offset : offset + length] for offset, length in ranges]


@pytest.mark.usefixtures("system")
def test_a_file_that_ends_too_early(path: Path) -> None:
    with opened(path, mapped=False) as source:
        os.truncate(path, 50_000)
        assert source.read(0, 50_000) == DATA[:50_000]
        with refused(SourceError, Reason.SOURCE_CHANGED) as caught:
            source.read(49_000, 2_000)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("call", ["preadv", "read"])
def test_an_error_of_the_disk_keeps_its_number(
    path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    with opened(path) as source:
        if call != "preadv":
            without_preadv(monkeypatch)
        monkeypatch.setattr(os, call, fail, raising=False)
        with refused(SourceError, Reason.SOURCE_FAILED) as caught:
            source.read(0, 1)
    assert caught.value.errno == errno.EIO
    assert isinstance(caught.value, OSError)


# --- Other than regular files -------------------------------------------------------------------


def fifo(folder: Path) -> str:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def device(path: str) -> Callable[[Path], str]:
    def found(_: Path) -> str:
        if os.name == "nt" or not os.path.exists(path):
            pytest.skip("the system has no such device")
        return path

    return found


SPECIAL: dict[str, Callable[[Path], str]] = {
    "pipe": fifo,
    "device": device(os.devnull),
    "endless device": device("/dev/zero"),
    "folder": str,
}


@pytest.mark.parametrize("use", [ztensor.open, FileSink, ztensor.Editor])
@pytest.mark.parametrize("kind", SPECIAL)
def test_only_regular_files_are_read_and_replaced_and_the_others_refused_at_once(
    tmp_path: Path, kind: str, use: Callable[[Any], object]
) -> None:
    """Opening a pipe without a writer would wait for ever."""
    target = SPECIAL[kind](tmp_path)
    before, start = os.stat(target).st_mode, time.monotonic()
    with refused(SourceNotRegularError, Reason.SOURCE_NOT_REGULAR) as caught:
        use(target)
    assert time.monotonic() - start < 1
    assert caught.value.file == target
    assert os.stat(target).st_mode == before


@pytest.mark.parametrize("use", [ztensor.open, FileSink, ztensor.Editor])
def test_a_path_without_a_file_or_a_folder(tmp_path: Path, use: Callable[[Any], object]) -> None:
    path = str(tmp_path / "none" / "m.zt")
    with pytest.raises(FileNotFoundError) as caught:
        use(path)
    assert isinstance(caught.value, SourceNotFoundError)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == path


@pytest.mark.parametrize("use", [ztensor.open, FileSink, ztensor.Editor])
def test_a_forbidden_file(
    saved: Path, use: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised by hand, since root may open everything."""

    def forbid(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(PermissionError) as caught:
        use(str(saved))
    assert isinstance(caught.value, SourcePermissionError)
    assert caught.value.errno == errno.EACCES


def test_a_relative_path_is_found_from_another_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    with opened(saved.name) as source:
        assert source.name == saved.name
        assert source.path == os.path.join(os.getcwd(), saved.name)


# --- Maps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_private", [True, False], ids=["MAP_PRIVATE", "ACCESS_COPY"])
def test_views_are_copied_on_write(
    path: Path, has_private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_private:
        monkeypatch.delattr(mmap, "MAP_PRIVATE", raising=False)
    with opened(path) as source, opened(path) as other:
        view = source.view()
        assert source.view() is view
        view[0] ^= 0xFF
        assert view[0] == DATA[0] ^ 0xFF
        assert other.view() == DATA
        assert source.read(0, 4) == DATA[:4]  # the bytes that checks see
        assert path.read_bytes() == DATA


@pytest.mark.parametrize(
    "error", [OSError(errno.ENODEV, "no maps here"), ValueError("odd"), OverflowError("large")]
)
def test_reads_take_the_place_of_a_map_that_fails(
    saved: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> mmap.mmap:
        raise error

    monkeypatch.setattr(mmap, "mmap", fail)
    with ztensor.open(saved) as reader:
        array: Any = reader["w"]
        assert array[999, 99] == 99_999
        assert reader.get_slice("w")[5, :2].tolist() == [500, 501]
        assert reader.verify().ok
        assert array.flags.owndata or array.base.flags.owndata


def test_arrays_outlive_the_reader_and_the_file(saved: Path) -> None:
    reader = ztensor.open(saved)
    array = reader["w"]
    part = reader.get_slice("w")[10:20]
    reader.close()
    del reader
    gc.collect()
    array[0, 0] = -1  # still writable, still private
    with ztensor.open(saved) as again:
        assert again["w"][0, 0] == 0
    with contextlib.suppress(PermissionError):  # of systems that remove no mapped file
        saved.unlink()
    assert array[999, 99] == 99_999
    assert part[0, 0] == 1000


# --- A file that changes ------------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, 4096)


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(64)
        file.write(b"\xff" * 1000)
    os.utime(path, ns=(1, 1))  # some file systems count whole seconds


@pytest.mark.skipif(os.name == "nt", reason="Windows cuts no open file")
@pytest.mark.parametrize("change", [cut, overwrite])
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
def test_a_file_changed_in_place_is_noticed_by_each_read(
    tmp_path: Path, compression: bool, mapped: bool, change: Callable[[Path], None]
) -> None:
    """Touching the cut part of a map would kill the process; an error comes before."""
    path = tmp_path / "m.zt"
    save_file({"w": np.random.default_rng(0).normal(size=100_000)}, path, compression=compression)
    with ztensor.open(path, mmap=mapped) as reader:
        part = reader.get_slice("w")
        before = reader.read_numpy("w", copy=True)
        first = reader["w"]
        assert reader.verify().ok
        change(path)
        if not mapped or compression:
            assert np.array_equal(first, before)  # memory of its own
        attempts: list[Callable[[], object]] = [
            lambda: reader["w"],
            lambda: reader.read("w"),
            lambda: reader.read_numpy("w", copy=True),
            lambda: reader.read_into("w", np.empty(100_000)),
        ]
        if change is cut:
            attempts += [lambda: part[99_990:], reader.verify]
        for attempt in attempts:
            is_view = attempt is attempts[0] and mapped and not compression
            with pytest.raises((SourceError, ztensor.DigestMismatchError)) as caught:
                attempt()
            if change is cut or is_view:  # else the digest may be found wrong before
                assert caught.value.reason is Reason.SOURCE_CHANGED


def test_a_file_cut_with_its_time_set_back_has_changed(path: Path) -> None:
    with opened(path) as source:
        status = path.stat()
        os.truncate(path, len(DATA) - 1)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with refused(SourceError, Reason.SOURCE_CHANGED) as caught:
            source.require_unchanged()
    assert caught.value.found == str(len(DATA) - 1)


def test_a_commit_over_the_last_bytes_changes_no_others(path: Path) -> None:
    """So edits of 2.x commit: a reader that was there keeps the state it opened."""

    def put(at: int, data: bytes, moment: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
        os.utime(path, ns=(moment, moment))

    with opened(path) as source, opened(path) as unaware:
        source.expect_commits(40, b"end", 1000)
        for moment in (1, 2):
            put(len(DATA) - 40, bytes([moment]) * 37 + b"end", moment)
            source.require_unchanged()
            source.require_unchanged()
            with refused(SourceError, Reason.SOURCE_CHANGED):
                unaware.require_unchanged()
        for at, data in ((100, b"something else"), (len(DATA) - 1, b"\xff")):  # not a footer
            put(at, data, 3)
            with refused(SourceError, Reason.SOURCE_CHANGED):
                source.require_unchanged()


def test_a_commit_may_cut_off_prepared_bytes(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(9000) + b"\1" * 37 + b"end")
    with opened(path) as source:
        source.expect_commits(40, b"end", 1000)
        with path.open("r+b") as file:
            file.seek(5000)
            file.write(b"\2" * 37 + b"end")
        os.truncate(path, 5040)
        source.require_unchanged()
        assert source.size == 5040
        assert source.read(0, 1000) == DATA[:1000]
        for size in (4990, 1020):  # without a footer, and shorter than the state that was opened
            os.truncate(path, size)
            with refused(SourceError, Reason.SOURCE_CHANGED):
                source.require_unchanged()


def test_a_file_is_stale_where_its_path_leads_to_another_one(saved: Path) -> None:
    data, other = saved.read_bytes(), saved.with_suffix(".other")
    with opened(saved, mapped=False) as source:
        assert not source.is_stale()
        for content, is_stale in ((data + b"more", True), (data, False)):
            saved.write_bytes(content)
            assert source.is_stale() is is_stale
        other.write_bytes(data)
        other.replace(saved)
        assert source.is_stale()
        saved.unlink()
        assert not source.is_stale()  # unknown
    assert not source.is_stale()


# --- Descriptors --------------------------------------------------------------------------------


def test_a_closed_source(path: Path) -> None:
    source: Any = source_of(path, mapped=True)
    assert source.view() == DATA
    assert not source.is_held  # a map is not held: another process may cut the file
    source.close()
    source.close()
    assert source.view() is None
    for use in (lambda: source.read(0, 1), source.require_unchanged):
        with pytest.raises(ClosedError):
            use()


def test_no_descriptor_is_left_behind(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zt").write_bytes(b"ZTEN1000" + bytes(99))
    before = open_files()
    for _ in range(3):
        ztensor.open(saved).close()
        ztensor.open(saved)["w"].sum()
        for bad in (tmp_path / "bad.zt", tmp_path):
            with pytest.raises(ZTensorError):
                ztensor.open(bad)
    assert not open_files() - before
    with ztensor.open(saved):
        assert open_files() - before == {str(saved): 1}  # how a leak would look


HOLDERS: dict[str, Callable[[Path], Any]] = {
    "folder in use": lambda path: folder_in_use(str(path)),
    "idle folder": lambda path: idle_folder(str(path)),
    "new folder": lambda path: AtomicFolder(str(path / "new"), overwrite=False, durable=False),
    "new file": lambda path: contextlib.closing(Aborted(path)),
    "file": lambda path: opened(path.with_suffix(".file")),
}


class Aborted:
    """A file that is written, and given up at its close."""

    def __init__(self, folder: Path) -> None:
        self.close = FileSink(str(folder / "m.zt")).abort


@pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")
@pytest.mark.parametrize("holder", HOLDERS)
def test_descriptor_0_is_closed_like_others(tmp_path: Path, holder: str) -> None:
    """A process may be started with its input closed: the next file is number 0."""
    tmp_path.with_suffix(".file").write_bytes(DATA)
    kept = os.dup(0)
    os.close(0)
    try:
        with HOLDERS[holder](tmp_path):
            os.fstat(0)
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
