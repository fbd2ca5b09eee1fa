"""`ztensor convert` of a whole folder of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    old = tmp_path / "old"
    old.mkdir()
    tensors = {"a": np.arange(6, dtype=np.float32), "b": np.ones((2, 3), np.float16)}
    ztensor.numpy.save_file(tensors, old / "model.safetensors", max_shard_size=20)
    (old / "config.json").write_text("{}")
    return old


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_there_and_back(run: Run, folder: Path, tmp_path: Path) -> None:
    new, back = tmp_path / "new", tmp_path / "back"
    shown = run("convert", folder, new, "--dry-run")
    assert shown.code == 0
    assert "model.zt.index.json" in shown.out
    assert not new.exists()
    said = run("convert", folder, f"{new}/", "--json").json
    assert {one["file"]: one["action"] for one in said["steps"]}["config.json"] == "copy"
    assert said["output"] == str(new)
    assert said["object_count"] == 2
    assert run("convert", folder, new).code == 2
    assert run("convert", folder, new, "--force").code == 0
    assert run("convert", new, back, "--to", "safetensors").code == 0
    assert names(back) == names(folder)
    assert run("convert", folder, tmp_path / "one.zt").code == 0
    assert (tmp_path / "one.zt").is_file()
    assert run("convert", folder, tmp_path / "new.zt", "--pickled").code == 2


@pytest.mark.parametrize(
    "option",
    ["--dequantize", "--delete-input", "--include=a", "--dtype=float16", "--max-shard-size=1MB"],
)
def test_options_for_files_are_refused(run: Run, folder: Path, tmp_path: Path, option: str) -> None:
    assert run("convert", folder, tmp_path / "new", option).code == 2
    assert not (tmp_path / "new").exists()
