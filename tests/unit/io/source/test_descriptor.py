"""The number of an open file is given back once, also where it is 0: the input may be closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from ztensor.converting.whole_folder import WholeFolder
from ztensor.io.source.local import Descriptor
from ztensor.io.source.sink import FileSink
from ztensor.training.checkpoints.folder_lock import folder_in_use, idle_folder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize(
    "hold",
    [
        lambda path: folder_in_use(str(path)),
        lambda path: idle_folder(str(path)),
        lambda path: WholeFolder(str(path / "new"), overwrite=False, durable=False),
        lambda path: closing(Aborted(path)),
    ],
    ids=["folder in use", "idle folder", "new folder", "new file"],
)
def test_a_lock_is_let_go_whatever_its_number(
    tmp_path: Path, hold: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    with hold(tmp_path):
        assert is_open(0)
    assert not is_open(0)


class Aborted:
    """A file that is written, and given up at its close."""

    def __init__(self, folder: Path) -> None:
        self.close = FileSink(str(folder / "m.zt")).abort
