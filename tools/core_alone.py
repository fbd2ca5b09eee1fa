"""Copy the core and its tests into an empty folder, and run them there with no wing present.

`make suite SUITE=core-alone` calls it. The core is `spec/`, `io/`, `threads/`, the files at the top
that are not a framework's, `numpy.py` and `testing/`; its tests are those of `tests/unit/spec`,
`tests/unit/io`, and the files of `tests/unit` that are named below. It prints how many tests ran
and how long that took; the exit code is pytest's.

    python tools/core_alone.py [arguments of pytest]
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ztensor"
PACKAGES = ["spec", "io", "threads", "testing"]
# Files at the top that are wings: one library each, or a line that forwards to a wing.
WINGS = {
    "accelerate.py", "aio.py", "dask.py", "diffusers.py", "divided.py", "fleet.py", "flax.py",
    "keras.py", "lightning.py", "model_folder.py", "peft.py", "scipy.py", "trainer.py",
    "transformers.py", "xarray.py",
}  # fmt: skip
TESTS = [
    "test_arguments.py", "test_bools.py", "test_buffers.py", "test_errors.py", "test_guard.py",
    "test_registry.py", "test_threads.py",
]  # fmt: skip
BESIDE = ["unit/conftest.py", "corpus", "corpus2", "golden"]


def copied(folder: Path) -> None:
    """Copy what the core is, and what tests it."""
    source, target = SOURCE, folder / "src" / "ztensor"
    target.mkdir(parents=True)
    for name in PACKAGES:
        shutil.copytree(source / name, target / name)
    for path in source.iterdir():
        if path.is_file() and path.name not in WINGS:
            shutil.copy(path, target)
    tests = ROOT / "tests"
    wanted = [*BESIDE, "unit/spec", "unit/io", *(f"unit/{name}" for name in TESTS)]
    wanted += [path.name for path in tests.glob("*.py")]
    for name in wanted:
        path, place = tests / name, folder / "tests" / name
        if path.is_dir():
            shutil.copytree(path, place)
        elif path.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    shutil.copy(ROOT / "pyproject.toml", folder)


def left_out(folder: Path) -> list[str]:
    """Remove tests that import a wing at their top, or what needs one; return their names."""
    removed: list[str] = []
    while True:
        before = len(removed)
        for path in sorted((folder / "tests").rglob("*.py")):
            if not all(_is_there(folder, name) for name in _imported(path)):
                removed.append(str(path.relative_to(folder)))
                path.unlink()
        if len(removed) == before:
            return removed


def _imported(path: Path) -> list[str]:
    """Return the modules that a file imports at its top."""
    names = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def _is_there(folder: Path, module: str) -> bool:
    """Return whether a module of ours or of the tests was copied; True of any other."""
    place = {"ztensor": folder / "src", "tests": folder}.get(module.partition(".")[0])
    if place is None:
        return True
    path = place.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def main() -> int:
    """Run the core's tests beside nothing else; return pytest's exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        without = left_out(folder)
        source = str(folder / "src")
        environment = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
        check = "import ztensor; print(ztensor.__file__)"
        where = subprocess.run(
            [sys.executable, "-c", check],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        if not where.startswith(source):
            raise SystemExit(f"the core is not what was imported: {where}")
        started = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit"]
        command += ["-m", "not wing and not slow and not fuzz and not interop", *sys.argv[1:]]
        ended = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        print(ended.stdout)
        count = re.search(r"(\d+) passed", ended.stdout)
        seconds = time.monotonic() - started
        print("files of tests that import a wing, left out:", *without, sep="\n  ")
        print(f"the core alone: {count[1] if count else 0} tests passed, {seconds:.0f} seconds")
        return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
