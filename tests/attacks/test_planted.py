"""Something waits under a name we will open: a pipe that blocks, a link that leads elsewhere."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.attacks.users import ALICE, MALLORY, ON_POSIX, TWO_USERS, act_as, common
from ztensor.ext import FileSink, Place, locking
from ztensor.numpy import save_file

__all__ = ["common"]

pytestmark = ON_POSIX

TEMPORARY = ".model.zt.0123456789abcdef.tmp"


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """End a test that waits for a pipe."""

    def ring(*_: object) -> None:
        raise TimeoutError("blocked")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def a_socket(place: Path) -> None:
    here = os.getcwd()
    os.chdir(place.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def a_hard_link(place: Path) -> None:
    precious = place.with_name("precious")
    precious.write_bytes(b"precious")
    os.link(precious, place)


def a_link(place: Path) -> None:
    precious = place.with_name("precious")
    precious.write_bytes(b"precious")
    place.symlink_to(precious)


PLANTED: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": a_socket,
    "folder": os.mkdir,
    "link": a_link,
    "hard link": a_hard_link,
    "device": lambda place: place.symlink_to("/dev/zero"),
}


@contextlib.contextmanager
def left_alone(planted: str, place: Path) -> Iterator[None]:
    """Plant something, and require it and the file it leads to as they were afterwards."""
    PLANTED[planted](place)
    before, precious = place.lstat(), place.with_name("precious")
    yield
    assert os.path.samestat(place.lstat(), before)
    if precious.exists():
        assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_file_under_a_temporarys_name_is_left_alone(planted: str, tmp_path: Path) -> None:
    """A FIFO at `.model.zt.<16 hex>.tmp` blocks every save of that target."""
    with left_alone(planted, tmp_path / TEMPORARY):
        for _ in range(2):
            save_file({"a": np.ones(3)}, tmp_path / "model.zt")
            ztensor.compact(tmp_path / "model.zt")


@pytest.mark.slow
@TWO_USERS
def test_only_ones_own_temporaries_are_swept(common: Path) -> None:
    """Another user creates a file under a temporary's name and waits for root to delete it."""
    common.chmod(0o777)
    place = common / TEMPORARY
    act_as(MALLORY, lambda: place.write_bytes(b"theirs"))
    act_as(ALICE, lambda: save_file({"a": np.ones(3)}, common / "model.zt"))
    save_file({"a": np.ones(3)}, common / "model.zt")
    assert place.read_bytes() == b"theirs"


@pytest.mark.parametrize("planted", PLANTED)
def test_a_question_for_the_lock_never_blocks(planted: str, tmp_path: Path) -> None:
    """A FIFO under the name of a file."""
    PLANTED[planted](tmp_path / "model.zt")
    assert not locking.is_locked(str(tmp_path / "model.zt"))


def torn(path: Path) -> Path:
    save_file({"a": np.arange(2000)}, path)
    with ztensor.Editor(path) as editor:
        editor.write("more", np.zeros(100))
    os.truncate(path, path.stat().st_size - 10)
    return path


@pytest.mark.parametrize("planted", PLANTED)
def test_a_tail_takes_a_name_that_is_free(planted: str, tmp_path: Path) -> None:
    """Something waits at `FILE.tail-1` when root repairs a file in its place."""
    path = torn(tmp_path / "model.zt")
    with left_alone(planted, tmp_path / "model.zt.tail-1"):
        report = ztensor.repair(path, in_place=True)
    assert report.tail_path == f"{path}.tail-2"


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_tails_name_that_is_taken_in_between_is_not_written_to(
    planted: str, nameless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is put at `FILE.tail-1` between the look for a free name and the end."""
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    place = tmp_path / "m.tail-1"
    sink = FileSink(Place(str(place), is_new=True))
    sink.write(b"secret")
    with left_alone(planted, place), pytest.raises(ztensor.SourceError) as caught:
        sink.commit()
    assert caught.value.errno == errno.EEXIST
    assert {path.name for path in tmp_path.iterdir()} <= {"m.tail-1", "precious"}


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_name_is_taken_once(
    nameless: bool, has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two take one free name at once, on file systems with and without hard links."""
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        if not has_links:

            def refuse(*_: object, **__: object) -> None:
                raise PermissionError(1, "Operation not permitted")

            monkeypatch.setattr(os, "link", refuse)
    sinks = [FileSink(Place(str(tmp_path / "m"), is_new=True)) for _ in range(2)]
    for number, sink in enumerate(sinks):
        sink.write(str(number).encode())
    sinks[0].commit()
    with pytest.raises(ztensor.SourceError) as caught:
        sinks[1].commit()
    assert caught.value.errno == errno.EEXIST
    assert (tmp_path / "m").read_bytes() == b"0"
    assert os.listdir(tmp_path) == ["m"]
    with pytest.raises(ztensor.SourceError):
        FileSink(Place(str(tmp_path / "m"), is_new=True))


@pytest.mark.parametrize("derived", ["index", "shard"])
def test_no_link_is_followed_that_the_caller_did_not_name(derived: str, tmp_path: Path) -> None:
    """A link waits at the name of an index or a shard, which the caller never wrote."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    names = {"index": "m.zt.index.json", "shard": "m-00001-of-00002.zt"}
    (tmp_path / names[derived]).symlink_to(precious)
    tensors = {"a": np.ones(1000), "b": np.zeros(1000)}
    save_file(tensors, tmp_path / "m.zt", max_shard_size=8000)
    assert precious.read_bytes() == b"precious"
    assert set(ztensor.open(tmp_path / "m.zt")) == {"a", "b"}
    assert not (tmp_path / names[derived]).is_symlink()


@pytest.mark.slow
@TWO_USERS
def test_a_link_of_another_user_in_a_folder_of_all_is_refused(common: Path) -> None:
    """A link to a user's file is in a folder like `/tmp`, under the name that the user saves to."""
    common.chmod(0o1777)
    home = common / "home"
    home.mkdir()
    os.chown(home, ALICE, ALICE)
    (home / "precious").write_bytes(b"precious")
    link = common / "m.zt"

    def save() -> None:
        save_file({"a": np.ones(3)}, link)

    act_as(MALLORY, lambda: link.symlink_to(home / "precious"))
    for uid in (0, ALICE):
        with pytest.raises(ztensor.SourceError, match="link of another user") as caught:
            act_as(uid, save)
        assert isinstance(caught.value, PermissionError)
    assert (home / "precious").read_bytes() == b"precious"
    link.unlink()
    act_as(ALICE, lambda: link.symlink_to(home / "precious"))  # the user's own link is followed
    act_as(ALICE, save)
    assert link.is_symlink()
    assert set(ztensor.open(home / "precious")) == {"a"}
    assert stat.S_ISREG((home / "precious").lstat().st_mode)
