"""Folders on disk: how far models beneath one are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.sharded.folders import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path


def test_models_are_looked_for_three_folders_deep(tmp_path: Path) -> None:
    for name in ("one", "1/two", "1/2/three", "1/2/3/four"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "m.zt").touch()
    found = LocalFolder(str(tmp_path)).models_beneath()
    assert [name.replace("\\", "/") for name in found] == ["one", "1/two", "1/2/three"]


def test_of_very_many_folders_the_first_are_looked_into(tmp_path: Path) -> None:
    most = LocalFolder.most_looked_into
    for number in range(most + 5):
        (tmp_path / f"{number:03d}").mkdir()
        (tmp_path / f"{number:03d}" / "m.zt").touch()
    found = LocalFolder(str(tmp_path)).models_beneath()
    assert found == [f"{number:03d}" for number in range(most - 1)]  # the folder itself is one
