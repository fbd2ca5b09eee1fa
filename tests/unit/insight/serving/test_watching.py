from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.insight.serving.watching import OpenedFiles
from ztensor.numpy import save, save_file


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{i}.zt" for i in range(5)]
    for i, file in enumerate(files):
        save_file({f"w{i}": np.full(3, i)}, file)
    return files


def test_a_change_is_reported_until_it_is_undone(shards: list[Path]) -> None:
    with ztensor.open(shards[0].parent) as reader:
        opened = OpenedFiles([reader])
    before = shards[3].stat()
    os.utime(shards[3], ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    assert [opened.changed(3) for _ in range(4)] == [None, *[("3.zt", "has changed")] * 3]
    assert opened.changed() == ("3.zt", "has changed")
    os.utime(shards[3], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened.changed() is None
    shards[1].unlink()
    assert opened.changed() == ("1.zt", "is gone")
    with ztensor.open(save({"w": np.ones(3)})) as reader:
        assert OpenedFiles([reader]).changed() is None  # bytes in memory do not change
