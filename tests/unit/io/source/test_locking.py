"""One writer at a time, and who sweeps what dead writers left."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import Reason, SourceError
from ztensor.io.source import locking
from ztensor.numpy import save_file

fcntl = pytest.importorskip("fcntl", reason="the locks of Windows are another module")


@pytest.fixture(autouse=True, params=["write lock", "flock", "refused write lock"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the locks of Linux, and as on systems and kernels that do not have them."""
    if not hasattr(fcntl, "F_OFD_SETLK") and request.param != "flock":
        pytest.skip("this system has no locks of open file descriptions")
    if request.param == "flock":
        for command in ("F_OFD_SETLK", "F_OFD_GETLK"):
            monkeypatch.delattr(fcntl, command, raising=False)
    if request.param == "refused write lock":

        def refuse(*_: object) -> bytes:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(fcntl, "fcntl", refuse)
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    return file


@pytest.fixture
def held(path: Path) -> Iterator[int]:
    """Hold the file's lock."""
    descriptor = os.open(path, os.O_RDWR)
    locking.acquire(descriptor, str(path))
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def other(path: Path) -> Iterator[int]:
    """Give the file opened once more."""
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.mark.usefixtures("held")
def test_a_lock_is_held_against_others(path: Path, other: int) -> None:
    assert locking.is_locked(str(path))
    assert locking.is_held(other)
    assert not locking.try_acquire(other)
    with refused(SourceError, Reason.SOURCE_LOCKED, match="locked by another process") as caught:
        locking.acquire(other, str(path))
    assert caught.value.errno == errno.EWOULDBLOCK
    assert caught.value.file == str(path)


def test_a_lock_ends_with_its_descriptor(path: Path, other: int) -> None:
    first = os.open(path, os.O_RDWR)
    locking.acquire(first, str(path))
    os.close(first)
    assert not locking.is_locked(str(path))
    assert locking.try_acquire(other)


def test_a_lock_is_given_back_while_the_file_stays_open(path: Path, other: int) -> None:
    first = os.open(path, os.O_RDWR)
    locking.acquire(first, str(path))
    assert not locking.try_acquire(other)
    for _ in range(2):
        locking.release(first)
        assert not locking.is_locked(str(path))
    assert locking.try_acquire(other)
    os.close(first)


def test_asking_takes_no_lock(path: Path, other: int) -> None:
    for _ in range(3):
        assert not locking.is_locked(str(path))
        assert not locking.is_held(other)
    assert locking.try_acquire(other)


def test_a_reader_that_asks_turns_no_writer_away(
    path: Path, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the moment of its question it holds a lock itself."""
    asking = os.open(path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(asking, fcntl.LOCK_UN))
    locking.acquire(other, str(path))
    os.close(asking)


@pytest.mark.usefixtures("held")
def test_waiting_ends_in_time(path: Path, other: int) -> None:
    begin = time.monotonic()
    with pytest.raises(SourceError):
        locking.acquire(other, str(path), timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < 10


@pytest.mark.usefixtures("held")
def test_a_file_without_a_lock_is_not_locked(path: Path, tmp_path: Path) -> None:
    assert not locking.is_locked(str(tmp_path / "missing"))
    (tmp_path / "another").write_bytes(b"")
    assert not locking.is_locked(str(tmp_path / "another"))
    (tmp_path / "link").symlink_to(path)
    assert locking.is_locked(str(tmp_path / "link"))


@pytest.mark.parametrize(
    ("code", "is_taken"),
    [(errno.EACCES, True), (errno.EAGAIN, True), (errno.ENOLCK, False), (errno.ENOTSUP, False)],
)
def test_what_a_file_system_answers(
    path: Path, other: int, code: int, is_taken: bool, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl" if system == "write lock" else "flock", answer)
    with pytest.raises(SourceError) as caught:
        locking.acquire(other, str(path))
    assert (caught.value.reason is Reason.SOURCE_LOCKED) is is_taken
    assert ("lock=False" in str(caught.value)) is not is_taken
    assert not locking.try_acquire(other)
    assert locking.is_locked(str(path)) is (code == errno.EAGAIN)


# --- Temporaries ----------------------------------------------------------------------------


def temporary(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes(b"half a file")
    return path


@pytest.mark.parametrize("is_new", [True, False])
def test_a_save_sweeps_its_own_dead_temporaries_only(tmp_path: Path, is_new: bool) -> None:
    target = tmp_path / "model.zt"
    if not is_new:
        save_file({"a": np.arange(3)}, target)
    dead = [
        temporary(tmp_path, f".model.zt.{digits}.tmp")
        for digits in ("0123456789abcdef", "ffffffffffffffff")
    ]
    living = temporary(tmp_path, ".model.zt.00000000deadbeef.tmp")
    kept = [
        temporary(tmp_path, name)
        for name in (
            ".other.zt.0123456789abcdef.tmp",  # another target's
            ".model.zt.0123456789abcde.tmp",  # not the name of one of ours
            ".model.zt.0123456789ABCDEF.tmp",
            "model.zt.0123456789abcdef.tmp",
            ".model.zt.0123456789abcdef.tmp.zt",
            "x.model.zt.0123456789abcdef.tmp",
            ".modelxzt.0123456789abcdef.tmp",
        )
    ]
    holder = os.open(living, os.O_RDWR)
    assert locking.try_acquire(holder)
    save_file({"a": np.arange(3)}, target)
    assert [path for path in dead if path.exists()] == []
    assert all(path.exists() for path in [living, *kept])
    os.close(holder)
    save_file({"a": np.arange(3)}, target)
    assert not living.exists()
    assert all(path.exists() for path in kept)


def test_a_save_through_a_link_sweeps_where_its_target_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.zt").symlink_to(tmp_path / "real" / "model.zt")
    dead = temporary(tmp_path / "real", ".model.zt.0123456789abcdef.tmp")
    kept = temporary(tmp_path, ".link.zt.0123456789abcdef.tmp")
    save_file({"a": np.arange(3)}, tmp_path / "link.zt")
    assert not dead.exists()
    assert kept.exists()


def test_a_save_that_fails_sweeps_nothing(tmp_path: Path) -> None:
    dead = temporary(tmp_path, ".model.zt.0123456789abcdef.tmp")

    class Unsaveable:
        dtype: Any = None

    with pytest.raises(Exception, match="Unsaveable"):
        save_file({"a": Unsaveable()}, tmp_path / "model.zt")
    assert dead.exists()
    assert os.listdir(tmp_path) == [dead.name]


@pytest.mark.parametrize("has_nameless", [True, False])
def test_two_savers_do_not_sweep_one_another(
    tmp_path: Path, has_nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ztensor.io.source.sink import FileSink

    if not has_nameless:
        monkeypatch.setattr(os, "O_TMPFILE", 0, raising=False)
    target = tmp_path / "model.zt"
    first, second = FileSink(str(target)), FileSink(str(target))
    first.write(b"first")
    second.write(b"second")
    first.commit()
    assert target.read_bytes() == b"first"
    second.commit()
    assert target.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["model.zt"]
