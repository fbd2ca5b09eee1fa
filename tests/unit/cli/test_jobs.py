"""`--jobs` and `--scheduler`: the same results as of one process."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.flipping import flip
from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two valid files, a damaged one, and a file of another kind."""
    for number in (0, 1, 3):
        save_file(
            {"w": np.full(64, number, np.float32), "b": np.ones(3)}, tmp_path / f"{number}.zt"
        )
    flip(tmp_path / "3.zt", 70)
    (tmp_path / "5.zt").write_bytes(b"nothing")
    return tmp_path


def test_the_command_does_several_at_once(run: Run, folder: Path, tmp_path: Path) -> None:
    paths = [str(folder / f"{number}.zt") for number in (0, 3, 1)]
    ended = run("verify", *paths, "--jobs", "2", "--json")
    assert ended.code == 1
    assert [one["file"] for one in ended.json["files"]] == paths
    assert [one["outcome"] for one in ended.json["files"]] == ["ok", "damaged", "ok"]
    new = tmp_path / "new"
    ended = run("convert", paths[0], folder / "5.zt", paths[2], f"{new}/", "--to", "npz", "--json")
    assert ended.code == 4
    assert sorted(os.listdir(new)) == ["0.npz", "1.npz"]
    assert ["error" in one for one in ended.json["files"]] == [False, True, False]
    assert run("convert", paths[0], paths[2], tmp_path / "neither.zt").code == 2
    assert not (tmp_path / "neither.zt").exists()


def test_one_job_gives_what_none_gives(run: Run, folder: Path, tmp_path: Path) -> None:
    paths = [folder / "0.zt", folder / "1.zt"]
    for more in ((), ("--tensors",), ("--include", "w")):
        assert run("hash", *paths, *more, "--jobs", "1").out == run("hash", *paths, *more).out
    listing = tmp_path / "ids"
    listing.write_text(run("hash", *paths).out)
    assert run("hash", "--check", listing, "--jobs", "1").code == 0
    one = run("stats", folder / "0.zt", "--json").json
    several = run("stats", folder / "[01].zt", "w", "--json").json["files"]
    assert [os.path.basename(each["file"]) for each in several] == ["0.zt", "1.zt"]
    assert several[0]["objects"] == [each for each in one["objects"] if each["name"] == "w"]
    assert run("verify", folder / "[01].zt").lines[-1].startswith("2 files: 2 ok")
    assert run("verify", "-", *paths, "--jobs", "2").code == 2
    assert run("verify", *paths, "--jobs", "2", "--scheduler", "tcp://127.0.0.1:1").code == 2


def test_a_scheduler_of_dask_does_them(run: Run, folder: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    paths = [folder / "0.zt", folder / "1.zt"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        ended = run("hash", *paths, "--scheduler", address)
        assert sorted(ended.lines) == sorted(run("hash", *paths).lines)


def test_no_scheduler_is_one_error(run: Run, folder: Path) -> None:
    pytest.importorskip("distributed", reason="pip install distributed")
    ended = run("hash", folder / "0.zt", "--scheduler", "nowhere://x")
    assert ended.code == 1
    assert "no scheduler answers" in ended.err
