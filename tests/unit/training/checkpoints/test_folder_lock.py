"""Folders of steps in use: several managers may write one, and none removes it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ztensor.training.checkpoints import folder_lock

if TYPE_CHECKING:
    import pytest


def test_a_folder_in_use_is_not_idle(tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    with folder_lock.folder_in_use(folder), folder_lock.folder_in_use(folder):
        assert os.path.isdir(folder)
        with folder_lock.idle_folder(folder) as is_idle:
            assert is_idle is False
    with folder_lock.idle_folder(folder) as is_idle:
        assert is_idle is True
    with folder_lock.idle_folder(str(tmp_path / "gone")) as is_idle:
        assert is_idle is None


def test_a_system_without_locks_makes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "fcntl", None)
    with folder_lock.folder_in_use(str(tmp_path / "folder")):
        assert os.listdir(tmp_path) == ["folder"]
    with folder_lock.idle_folder(str(tmp_path / "folder")) as is_idle:
        assert is_idle is None
