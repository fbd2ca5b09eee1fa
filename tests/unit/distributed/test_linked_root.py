"""A root that is a link: another checkpoint may be behind it, and nothing is written there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.distributed import PartWriter, commit, repair


def by_parts(folder: Path) -> None:
    with PartWriter(folder) as writer:
        writer.add("t", np.full(3, 2.0))
        commit(folder, [writer.finish()])


def by_increments(folder: Path) -> None:
    folder.rename(folder.parent / "step-00000005")
    manager = ztensor.CheckpointManager(folder.parent, increments=True, background=False)
    manager.save(5, {"t": np.full(3, 2.0)})


def by_repair(folder: Path) -> None:
    with PartWriter(folder.parent / "parts", save_id=1, processes=1) as writer:
        writer.add("t", np.full(3, 2.0))
        writer.finish()
    for part in (folder.parent / "parts").iterdir():
        part.rename(folder / part.name)
    (folder.parent / "other" / "checkpoint.zt").write_bytes(b"ZTEN1000 damaged")
    repair(folder)


@pytest.mark.parametrize("leads", ["to another", "nowhere"])
@pytest.mark.parametrize("save", [by_parts, by_increments, by_repair])
def test_nothing_is_written_through_a_root_that_is_a_link(
    save: Callable[[Path], None], leads: str, tmp_path: Path
) -> None:
    other, folder = tmp_path / "other", tmp_path / "folder"
    for one in (other, folder, tmp_path / "parts"):
        one.mkdir()
    by_parts(other)
    target = other / ("checkpoint.zt" if leads == "to another" else "nothing.zt")
    (folder / "checkpoint.zt").symlink_to(target)
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    if save is by_repair:
        before["checkpoint.zt"] = b"ZTEN1000 damaged"
    with pytest.raises(ztensor.ZTensorError, match=r"is a link|No such file"):
        save(folder)
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before
