"""A user who may only read a file keeps its writers out, or passes for one of them."""

from __future__ import annotations

import os
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from tests.attacks.users import (
    ALICE,
    BOB,
    MALLORY,
    PROJECT,
    TWO_USERS,
    act_as,
    common,
    meanwhile,
)
from ztensor.numpy import save_file
from ztensor.source import locking

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["common"]

fcntl = pytest.importorskip("fcntl", reason="the locks of Windows are another module")

pytestmark = [
    TWO_USERS,
    pytest.mark.skipif(
        not hasattr(fcntl, "F_OFD_SETLK"), reason="this system has no locks only writers can take"
    ),
]


@pytest.fixture
def path(common: Path) -> Path:
    """A file of Alice's that everyone reads, in a folder of hers."""
    made = common / "m.zt"
    save_file({"a": np.arange(1000)}, made)
    os.chown(common, ALICE, ALICE)
    os.chown(made, ALICE, ALICE)
    made.chmod(0o644)
    return made


def whole_file(path: Path, kind: int) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("@hhqqi0q", kind, 0, 0, 0, 0))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def flocked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


HOLDS: dict[str, Callable[[Path], int]] = {
    "flock": flocked,
    "read lock": lambda path: whole_file(path, fcntl.F_RDLCK),
}

CHANGES: dict[str, Callable[[Path], object]] = {
    "set": lambda path: ztensor.set_attributes(path, {"k": 1}),
    "atomic": lambda path: ztensor.set_attributes(path, {"k": 1}, atomic=True),
    "compact": ztensor.compact,
    "migrate": ztensor.migrate,
    "repair": lambda path: ztensor.repair(path, in_place=True),
}


def test_a_reader_is_granted_no_write_lock(path: Path) -> None:
    """A mere reader asks for the lock itself."""

    def ask() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match="Bad file descriptor"):
            locking._set(descriptor, fcntl.F_WRLCK)
        assert locking.try_acquire(descriptor) is None

    act_as(MALLORY, ask)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("hold", HOLDS)
def test_a_reader_that_locks_the_file_keeps_no_writer_out(
    hold: str, change: str, path: Path
) -> None:
    """A mere reader locks the whole file in every way it can."""
    with meanwhile(MALLORY, lambda: HOLDS[hold](path)):
        act_as(ALICE, lambda: CHANGES[change](path))
        CHANGES[change](path)  # root's turn
    assert os.listdir(path.parent) == ["m.zt"]
    with ztensor.open(path) as reader:
        assert reader.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("order", ["lock first", "reader first"])
def test_two_writers_stay_apart_while_a_reader_locks_the_file(order: str, path: Path) -> None:
    """A mere reader locks the file, so that two writers do not see each other."""

    def edit() -> Any:
        editor = ztensor.Writer.append(path)
        editor.write("mine", np.ones(10))
        return editor

    def lock() -> int:
        return whole_file(path, fcntl.F_RDLCK)

    def refused() -> str:
        with pytest.raises(ztensor.SourceError) as caught:
            ztensor.set_attributes(path, {"k": 1})
        return str(caught.value.reason)

    if order == "lock first":
        with meanwhile(ALICE, edit):
            with pytest.raises(BlockingIOError):
                act_as(MALLORY, lock)
            assert refused() == act_as(ALICE, refused) == "source_locked"
    else:
        with meanwhile(MALLORY, lock), meanwhile(ALICE, edit):
            assert refused() == act_as(ALICE, refused) == "source_locked"
            assert act_as(BOB, lambda: locking.is_locked(str(path)))
    ztensor.set_attributes(path, {"k": 2})


def test_a_writer_without_a_bar_sees_one_that_was_barred(path: Path) -> None:
    """The reader lets go while the writer it barred is at work: the next one must not get in."""
    bar = whole_file(path, fcntl.F_RDLCK)
    editor = ztensor.Writer.append(path)
    editor.write("first", np.ones(10))
    os.close(bar)
    with pytest.raises(ztensor.SourceError, match="being written by another process"):
        ztensor.Writer.append(path)
    editor.finish()
    with ztensor.Writer.append(path) as editor:
        editor.write("second", np.ones(10))
    assert {"first", "second"} <= set(ztensor.open(path))
    assert os.listdir(path.parent) == ["m.zt"]


def test_writers_stay_apart_whatever_readers_do(path: Path) -> None:
    """A mere reader locks and lets go all the time, to slip two writers past each other."""
    end = threading.Event()

    def flicker() -> None:
        while not end.is_set():
            try:
                descriptor = whole_file(path, fcntl.F_RDLCK)
            except BlockingIOError:
                continue
            time.sleep(0.0005)
            os.close(descriptor)

    held = threading.Lock()
    wrong: list[str] = []

    def write() -> None:
        for _ in range(60):
            descriptor = os.open(path, os.O_RDWR)
            lock = locking.acquire(descriptor, str(path), timeout=60)
            if not held.acquire(blocking=False):
                wrong.append("two writers at once")
            else:
                time.sleep(0.0005)
                held.release()
            lock.release()
            os.close(descriptor)

    reader = threading.Thread(target=flicker)
    writers = [threading.Thread(target=write) for _ in range(3)]
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    end.set()
    reader.join()
    assert wrong == []
    assert os.listdir(path.parent) == ["m.zt"]


@pytest.mark.parametrize("hold", HOLDS)
def test_readers_notice_a_change_in_place_whoever_locks_the_file(hold: str, path: Path) -> None:
    """A mere reader holds the lock: others take a change in place for an append."""
    with ztensor.open(path) as reader, meanwhile(MALLORY, lambda: HOLDS[hold](path)):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"changed")
        os.utime(path, ns=(0, 0))
        assert not locking.is_locked(str(path))
        with pytest.raises(ztensor.SourceError, match="changed in place"):
            reader["a"]


def test_a_lock_file_is_opened_by_writers_only(path: Path) -> None:
    """The lock file beside a file is held by who may only read."""
    os.chown(path, ALICE, PROJECT)
    for mode, of_the_lock in [(0o644, 0o600), (0o664, 0o660), (0o666, 0o666), (0o646, 0o606)]:
        path.chmod(mode)
        bar = whole_file(path, fcntl.F_RDLCK)
        editor = ztensor.Writer.append(path)
        status = os.stat(path.with_name(".m.zt.lock"))
        assert (status.st_uid, status.st_gid) == (ALICE, PROJECT)
        assert oct(status.st_mode & 0o7777) == oct(of_the_lock)
        editor.abort()
        os.close(bar)


def fifo(place: Path) -> None:
    os.mkfifo(place)


def link(place: Path) -> None:
    place.symlink_to("/dev/zero")


def regular(place: Path) -> None:
    place.write_bytes(b"")
    place.chmod(0o666)


PLANTED: dict[str, Callable[[Path], object]] = {
    "fifo": fifo,
    "link": link,
    "folder": os.mkdir,
    "file": regular,
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_lock_file_keeps_no_writer_out(planted: str, path: Path) -> None:
    """A stranger puts something under the name of the lock file, and locks it if it can be."""
    path.parent.chmod(0o1777)
    place = path.with_name(".m.zt.lock")

    def plant() -> object:
        PLANTED[planted](place)
        if planted != "file":
            return None
        descriptor = os.open(place, os.O_RDWR)
        fcntl.fcntl(
            descriptor,
            fcntl.F_OFD_SETLK,
            struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0),
        )
        return descriptor

    with meanwhile(MALLORY, plant):
        begin = time.monotonic()
        act_as(ALICE, lambda: ztensor.set_attributes(path, {"k": 1}))
        bar = whole_file(path, fcntl.F_RDLCK)  # both at once: refused, neither hung nor fooled
        with pytest.raises(ztensor.SourceError) as caught:
            act_as(ALICE, lambda: ztensor.set_attributes(path, {"k": 2}))
        assert caught.value.reason is ztensor.Reason.SOURCE_LOCKED
        os.close(bar)
        assert time.monotonic() - begin < 30


def test_a_dead_writers_lock_file_is_taken_over(path: Path) -> None:
    """A writer dies that a reader had barred; what it left keeps nobody out."""
    left = path.with_name(".m.zt.lock")
    left.write_bytes(b"")
    os.chown(left, ALICE, ALICE)
    left.chmod(0o600)
    ztensor.set_attributes(path, {"k": 1})
    bar = whole_file(path, fcntl.F_RDLCK)
    act_as(ALICE, lambda: ztensor.set_attributes(path, {"k": 2}))
    os.close(bar)
    assert not left.exists()


@pytest.mark.slow
def test_who_can_make_no_lock_file_is_told(path: Path) -> None:
    """A reader bars the writers, in a folder where these cannot put a file."""
    os.chown(path.parent, 0, 0)
    bar = whole_file(path, fcntl.F_RDLCK)
    with pytest.raises(ztensor.SourceError, match="no lock file can be made") as caught:
        act_as(ALICE, lambda: ztensor.set_attributes(path, {"k": 1}))
    assert caught.value.reason is ztensor.Reason.SOURCE_LOCKED
    os.close(bar)
    act_as(ALICE, lambda: ztensor.set_attributes(path, {"k": 1}))


@pytest.mark.parametrize(
    ("mode", "owner", "group", "keeps_out"),
    [
        (0o664, BOB, PROJECT, True),
        (0o664, BOB, BOB, False),
        (0o644, BOB, PROJECT, False),
        (0o644, ALICE, ALICE, True),
        (0o666, BOB, BOB, True),
    ],
)
def test_whose_lock_file_is_a_writers(
    path: Path, mode: int, owner: int, group: int, keeps_out: bool
) -> None:
    """Only who may write a file keeps others from it by a lock file."""
    os.chown(path, ALICE, PROJECT)
    path.chmod(mode)
    place = path.with_name(".m.zt.lock")
    place.touch()
    os.chown(place, owner, group)
    writer = os.open(place, os.O_RDWR)
    assert locking.try_acquire(writer)
    assert locking.is_locked(str(path)) is keeps_out
    os.close(writer)
    assert not locking.is_locked(str(path))
