"""What a killed process left beside a folder it made goes, and an old folder comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ztensor.converting.whole_folder import WholeFolder
from ztensor.io.source import locking

pytestmark = pytest.mark.skipif(os.name == "nt", reason="nothing is swept on Windows")
DEAD = ".model.0123456789abcdef"


def left(folder: Path, *kinds: str) -> None:
    """Leave what a killed process would: a lock nobody has, and folders with a file each."""
    (folder / f"{DEAD}.lock").touch()
    for kind in kinds:
        (folder / f"{DEAD}.{kind}").mkdir()
        (folder / f"{DEAD}.{kind}" / kind).touch()


def make(folder: Path) -> None:
    with WholeFolder(str(folder / "model"), overwrite=True, durable=False) as whole:
        whole.commit()


def test_an_unfinished_folder_is_removed(tmp_path: Path) -> None:
    left(tmp_path, "new")
    make(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["model"]


def test_an_old_folder_whose_place_is_taken_is_removed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    left(tmp_path, "old")
    make(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["model"]


def test_an_old_folder_that_had_made_way_is_put_back(tmp_path: Path) -> None:
    left(tmp_path, "new", "old")
    with WholeFolder(str(tmp_path / "model"), overwrite=True, durable=False):
        assert os.listdir(tmp_path / "model") == ["old"]
    assert sorted(os.listdir(tmp_path)) == ["model"]


def test_what_a_living_process_makes_stays(tmp_path: Path) -> None:
    left(tmp_path, "new")
    holder = os.open(tmp_path / f"{DEAD}.lock", os.O_RDWR)
    assert locking.try_acquire(holder)
    make(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [f"{DEAD}.lock", f"{DEAD}.new", "model"]
    os.close(holder)


def test_other_names_stay(tmp_path: Path) -> None:
    names = (".model.0123456789abcde.new", ".models.0123456789abcdef.new", f"{DEAD}.new.txt")
    for name in names:
        (tmp_path / name).mkdir()
    make(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted((*names, "model"))
