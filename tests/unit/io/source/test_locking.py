"""One writer at a time, and the temporaries of dead writers, which saves sweep."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import Reason, SourceError
from ztensor.ext import locking
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


@pytest.mark.parametrize("let_go", [locking.release, os.close])
def test_a_lock_ends_with_its_descriptor_or_before(
    path: Path, other: int, let_go: Callable[[int], None]
) -> None:
    first = os.open(path, os.O_RDWR)
    for _ in range(3):
        assert not locking.is_locked(str(path))
        assert not locking.is_held(other)  # asking takes no lock
    locking.acquire(first, str(path))
    assert not locking.try_acquire(other)
    let_go(first)
    assert not locking.is_locked(str(path))
    assert locking.try_acquire(other)
    if let_go is locking.release:
        locking.release(first)
        os.close(first)


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


OTHERS = (
    ".other.zt.0123456789abcdef.tmp",  # another target's
    ".model.zt.0123456789abcde.tmp",  # not the name of one of ours
    ".model.zt.0123456789ABCDEF.tmp",
    "model.zt.0123456789abcdef.tmp",
    ".model.zt.0123456789abcdef.tmp.zt",
    "x.model.zt.0123456789abcdef.tmp",
    ".modelxzt.0123456789abcdef.tmp",
    ".link.zt.0123456789abcdef.tmp",
)


@pytest.mark.parametrize("by", ["new", "again", "link"])
def test_a_save_sweeps_dead_temporaries_of_its_target_only(tmp_path: Path, by: str) -> None:
    target = tmp_path / "model.zt"
    if by != "new":
        save_file({"a": np.arange(3)}, target)
    if by == "link":
        (tmp_path / "folder").mkdir()
        target = tmp_path / "folder" / "link.zt"
        target.symlink_to(tmp_path / "model.zt")
    dead = [temporary(tmp_path, f".model.zt.{digit * 16}.tmp") for digit in "0f"]
    living = temporary(tmp_path, ".model.zt.00000000deadbeef.tmp")
    kept = [temporary(tmp_path, name) for name in OTHERS]
    holder = os.open(living, os.O_RDWR)
    assert locking.try_acquire(holder)
    save_file({"a": np.arange(3)}, target)
    assert not any(path.exists() for path in dead)
    assert all(path.exists() for path in [living, *kept])
    os.close(holder)
    save_file({"a": np.arange(3)}, target)
    assert not living.exists()
    assert all(path.exists() for path in kept)


def test_a_save_that_fails_sweeps_nothing(tmp_path: Path) -> None:
    dead = temporary(tmp_path, ".model.zt.0123456789abcdef.tmp")

    class Unsaveable:
        dtype: Any = None

    with pytest.raises(Exception, match="Unsaveable"):
        save_file({"a": Unsaveable()}, tmp_path / "model.zt")
    assert dead.exists()
    assert os.listdir(tmp_path) == [dead.name]
