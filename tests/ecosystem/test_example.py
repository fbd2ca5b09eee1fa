"""`examples/transformers_folder.py` in the environments with its libraries."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers_folder.py"
# Printed lines, by library.
SHOWN = {
    "transformers": [
        f"{model}, {way}"
        for model in ("llama", "mixtral", "gpt2")
        for way in ("loaded from .zt", "converted back")
    ],
    "diffusers": ["a pipeline"],
    "peft": ["an adapter"],
    "timm": ["a model of timm"],
}


def test_the_example_shows_equal_results_of_all_that_is_installed(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLE],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    for library, names in SHOWN.items():
        if importlib.util.find_spec(library) is None:
            assert f"{library} is not installed" in lines
        else:
            assert not [name for name in names if f"{name}: equal" not in lines], run.stdout
    assert "DIFFERENT" not in run.stdout
