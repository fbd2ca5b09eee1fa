"""Verifying a set reads only the files with chosen objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ztensor
from ztensor.io.shards.naming import shard_paths
from ztensor.numpy import save_file


def test_only_files_that_hold_what_is_asked_for_are_looked_at(tmp_path: Path) -> None:
    save_file({name: np.ones(1000, "f4") for name in "abc"}, tmp_path / "m.zt", max_shard_size=4000)
    broken = tmp_path / shard_paths("m.zt", 3)[2]
    broken.write_bytes(broken.read_bytes()[:-9])
    with ztensor.open(tmp_path) as reader:
        for names, objects in (("a", 1), (["a", "b"], 2)):
            report = reader.verify(names)
            assert (report.objects, report.problems) == (objects, ())
        assert [one.path[0] for one in reader.verify("c").problems] == [str(broken)]
        assert [one.path[0] for one in reader.verify().problems] == [str(broken)]
