"""A user who may only read a file holds up its edits, but never passes for a writer."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.users import (
    ALICE,
    BOB,
    MALLORY,
    TWO_USERS,
    act_as,
    common,
    meanwhile,
)
from tests.refusals import refused
from ztensor.ext import locking
from ztensor.numpy import save_file

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

CHANGES: dict[str, Callable[[Path, Any], object]] = {
    "set": lambda path, how: ztensor.edit.set_attributes(path, {"k": 1}, **how),
    "atomic": lambda path, how: ztensor.edit.set_attributes(path, {"k": 1}, atomic=True, **how),
    "compact": lambda path, how: ztensor.compact(path, **how),
    "migrate": lambda path, how: ztensor.migrate(path, **how),
    "repair": lambda path, how: ztensor.repair(path, in_place=True, **how),
}


def test_a_reader_is_granted_no_write_lock(path: Path) -> None:
    """A mere reader asks for the lock itself."""

    def ask() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match="Bad file descriptor"):
            whole_file(path, fcntl.F_WRLCK)
        assert locking.try_acquire(descriptor) is None

    act_as(MALLORY, ask)


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_that_has_a_read_lock_holds_up_edits_alone(change: str, path: Path) -> None:
    """Edits are refused until it lets go, or overrule it; saves and readers never ask."""
    with meanwhile(MALLORY, lambda: HOLDS["read lock"](path)):
        for lock in (True, False):
            before = path.read_bytes()
            if lock:
                with refused(ztensor.SourceError, ztensor.Reason.SOURCE_LOCKED):
                    act_as(ALICE, lambda: CHANGES[change](path, {}))
                assert path.read_bytes() == before
            else:
                act_as(ALICE, lambda: CHANGES[change](path, {"lock": False}))
        assert not locking.is_locked(str(path))
        act_as(ALICE, lambda: save_file({"a": np.arange(3)}, path))
    CHANGES[change](path, {})
    assert os.listdir(path.parent) == ["m.zt"]
    with ztensor.open(path) as reader:
        assert reader.verify().ok


def test_a_reader_that_has_a_flock_holds_up_nothing(path: Path) -> None:
    with meanwhile(MALLORY, lambda: HOLDS["flock"](path)):
        act_as(ALICE, lambda: ztensor.edit.set_attributes(path, {"k": 1}))
        assert not locking.is_locked(str(path))
    assert ztensor.open(path).attributes == {"k": 1}


def test_two_writers_stay_apart_beside_readers(path: Path) -> None:
    """A writer has the lock: no reader gets one, and the next writer is refused."""

    def edit() -> Any:
        editor = ztensor.Editor(path)
        editor.write("mine", np.ones(10))
        return editor

    def refused() -> str:
        with pytest.raises(ztensor.SourceError) as caught:
            ztensor.edit.set_attributes(path, {"k": 1})
        return str(caught.value.reason)

    with meanwhile(ALICE, edit):
        with pytest.raises(BlockingIOError):
            act_as(MALLORY, lambda: whole_file(path, fcntl.F_RDLCK))
        assert refused() == act_as(ALICE, refused) == "source_locked"
        assert act_as(BOB, lambda: locking.is_locked(str(path)))
    ztensor.edit.set_attributes(path, {"k": 2})


@pytest.mark.parametrize("hold", HOLDS)
def test_readers_notice_a_change_in_place_under_any_lock(hold: str, path: Path) -> None:
    """A mere reader holds the lock: others take a change in place for an append."""
    with ztensor.open(path) as reader, meanwhile(MALLORY, lambda: HOLDS[hold](path)):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"changed")
        os.utime(path, ns=(0, 0))
        assert not locking.is_locked(str(path))
        with pytest.raises(ztensor.SourceError, match="changed in place"):
            reader["a"]
