"""The number of an open file is given back once, also where it is 0: the input may be closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ztensor.converting.whole_folder import WholeFolder
from ztensor.io.source.local import Descriptor
from ztensor.io.source.sink import FileSink
from ztensor.training.checkpoints.folder_lock import folder_in_use, idle_folder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")


@pytest.fixture
def no_input() -> Iterator[None]:
    """As in a process that was started with its input closed: the next file is number 0."""
    kept = os.dup(0)
    os.close(0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("no_input")
def test_number_0_is_given_back(tmp_path: Path) -> None:
    assert os.open(tmp_path, os.O_RDONLY) == 0
    descriptor = Descriptor(0)
    descriptor.close()
    assert not is_open(0)
    assert os.open(tmp_path, os.O_RDONLY) == 0
    descriptor.close()  # once only: the number is another file's by now
    assert is_open(0)
    descriptor = Descriptor(0)
    del descriptor
    assert not is_open(0)


@pytest.mark.usefixtures("no_input")
def test_a_folder_is_let_go_whatever_its_number(tmp_path: Path) -> None:
    with folder_in_use(str(tmp_path)):
        assert is_open(0)
        with idle_folder(str(tmp_path)) as is_idle:
            assert is_idle is False
    assert not is_open(0)
    with idle_folder(str(tmp_path)) as is_idle:
        assert is_open(0)
        assert is_idle is True
    assert not is_open(0)
    with idle_folder(str(tmp_path / "gone")) as is_idle:
        assert is_idle is None


@pytest.mark.usefixtures("no_input")
def test_a_folder_that_was_removed_is_made_again_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    lock, folder = fcntl.flock, tmp_path / "folder"
    numbers: list[int] = []

    def remove_first(number: int, kind: int) -> None:
        if not numbers:
            folder.rmdir()
        numbers.append(number)
        lock(number, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with folder_in_use(str(folder)):
        assert folder.is_dir()
        assert len(numbers) == 2
    assert not is_open(0)


@pytest.mark.usefixtures("no_input")
def test_the_lock_of_a_new_folder_is_let_go_whatever_its_number(tmp_path: Path) -> None:
    with WholeFolder(str(tmp_path / "new"), overwrite=False, durable=False) as folder:
        assert is_open(0)
        folder.commit()
    assert not is_open(0)
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no nameless files")
@pytest.mark.usefixtures("no_input")
def test_a_new_file_has_no_name_whatever_its_number(tmp_path: Path) -> None:
    kept = [FileSink(str(tmp_path / "m.zt")) for _ in range(2)]
    assert is_open(0)
    names = os.listdir(tmp_path)
    assert names == [] or len(names) == 2  # where the file system knows none
    for one in kept:
        one.abort()
    assert not is_open(0)
