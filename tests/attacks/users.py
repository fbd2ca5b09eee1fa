"""Other users of this machine: child processes of root that gave their rights away."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
TWO_USERS = pytest.mark.skipif(
    not (IS_ROOT and sys.platform == "linux"), reason="only root can be several users"
)
ON_POSIX = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")

# The ids need no entry in the system's tables.
ALICE, BOB, MALLORY = 4201, 4202, 4203
PROJECT, OTHERS = 4301, 4302


def _fork() -> int:
    with warnings.catch_warnings():  # of other threads, JAX's among them; the child makes few calls
        warnings.simplefilter("ignore")
        return os.fork()


def _become(uid: int, gid: int, groups: Sequence[int]) -> None:
    os.setgroups(list(groups))
    os.setgid(gid)
    os.setuid(uid)


def act_as(uid: int, work: Callable[[], Any], *, groups: Sequence[int] = ()) -> Any:
    """Run `work` as another user: return its result, or raise its exception.

    The user's main group has the same number; `groups` are the additional ones.
    """
    reading, writing = os.pipe()
    child = _fork()
    if child == 0:
        try:
            _become(uid, uid, groups)
            answer: tuple[Any, BaseException | None] = (work(), None)
        except BaseException as error:  # noqa: BLE001  # handed to the parent
            answer = (None, error)
        try:
            os.write(writing, pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer_bytes = pipe.read()
    os.waitpid(child, 0)
    result, raised = pickle.loads(answer_bytes)
    if raised is not None:
        raise raised
    return result


@contextlib.contextmanager
def meanwhile(uid: int, work: Callable[[], object]) -> Iterator[None]:
    """Keep another user's process alive that has done `work`."""
    ready_in, ready_out = os.pipe()
    end_in, end_out = os.pipe()
    child = _fork()
    if child == 0:
        try:
            os.close(end_out)
            _become(uid, uid, ())
            kept = work()
            os.write(ready_out, b"x")
            os.read(end_in, 1)
            del kept
        finally:
            os._exit(0)
    os.close(ready_out)
    os.close(end_in)
    try:
        assert os.read(ready_in, 1) == b"x", "the other process failed"
        yield
    finally:
        os.close(ready_in)
        os.close(end_out)
        os.waitpid(child, 0)


def can_read(uid: int, path: Path, *, groups: Sequence[int] = ()) -> bool:
    """Return whether a user can read a file."""

    def work() -> bool:
        try:
            path.read_bytes()
        except PermissionError:
            return False
        return True

    return bool(act_as(uid, work, groups=groups))


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that others can reach; pytest's own ones are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="ztensor-attack-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


# --- Access control lists -------------------------------------------------------------------

OWNER, USER, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF


def access_list(entries: Mapping[Any, int]) -> bytes:
    """Return an access control list as Linux stores it; keys are kinds, or kinds and ids."""
    packed = b""
    for key, rights in entries.items():
        kind, user = key if isinstance(key, tuple) else (key, _NOBODY)
        packed += struct.pack("<HHI", kind, rights, user)
    return struct.pack("<I", 2) + packed


def set_list(path: Path, acl: bytes, *, kind: str = "access") -> None:
    """Give a file an access control list, or skip the test where the file system has none."""
    if not hasattr(os, "setxattr"):
        pytest.skip("access control lists are set as Linux has them")
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", acl)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip(f"this file system keeps no access control lists: {error}")


def list_of(path: Path) -> bytes | None:
    """Return the access control list of a file; None if it has no list."""
    try:
        return os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return None
