"""Verbs that read, on a model in several files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flipping import flip
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of three shards and their index."""
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = {name: np.full(1000, number, np.float32) for number, name in enumerate("abc")}
    save_file(tensors, folder / "m.zt", max_shard_size=4000)
    assert len(list(folder.iterdir())) == 4
    return folder


def test_verify_names_the_shard(run: Run, folder: Path) -> None:
    shard = folder / "m-00002-of-00003.zt"
    flip(shard, 64)
    ended = run("verify", folder)
    assert ended.code == ExitCode.FAILED
    assert shard.name in ended.out + ended.err


def test_info_of_a_set_adds_its_files_up(run: Run, folder: Path) -> None:
    ended = run("info", folder)
    assert ended.code == 0
    assert "files    3 files" in ended.out
    whole = run("info", folder, "--json").json
    parts = [run("info", file, "--json").json for file in whole["files"]]
    assert len(parts) == 3
    for key in ("nbytes", "object_count", "component_count", "stored_nbytes", "digested_count"):
        assert whole[key] == sum(part[key] for part in parts)
    assert whole["manifest"] is whole["dead_nbytes"] is None
