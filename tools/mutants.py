"""Mutate what must not be wrong, and see whether a test notices: `make suite SUITE=mutants`.

    python -m tools.mutants [--sample 600] [--seed 1] [--workers 2] [--resume] [PATH ...]

The mutations are those of cosmic-ray, all its kinds, of `spec/`, `io/`, `training/` and
`distributed/` by default. A sample is drawn from them with a seed; mutations of annotations, which
nothing evaluates, are not drawn. One run under coverage gives the tests that run a line.

Each worker has a clone of the checkout's last commit, in which `mutant_tests` tries one mutant
after another. Outcomes are appended to files as they come: `--resume` goes on with the sample.

A mutant that survives is code to delete or a test to write. All are printed with their diff.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from cosmic_ray.commands import init
from cosmic_ray.work_db import use_db
from tools.mutant_tests import GROUPS, MARKS, Job, outcomes

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "mutants"
JOBS, LINES, TIMES = (FOLDER / name for name in ("jobs.json", "lines", "seconds.json"))
PACKAGES = [name for packages in GROUPS for name in packages]
# Tests that run for lines which those do not reach, in a process of their own.
OTHERS = ["unit/torch", "unit/test_jax.py"]


def main() -> int:
    """Run the sample; return 0 where at least 85 % of the mutants were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="go on with the last sample")
    parser.add_argument("paths", nargs="*", default=[f"src/ztensor/{name}" for name in PACKAGES])
    options = parser.parse_args()
    if not options.resume:
        prepare(options.paths, options.workers, options.sample, options.seed)
    if not TIMES.exists():
        measure(options.workers)
    command = [sys.executable, "-m", "tools.mutant_tests", str(options.workers)]
    started = [
        subprocess.Popen([*command, str(number)], cwd=FOLDER / str(number), env=variables(number))
        for number in range(options.workers)
    ]
    failed = [process.wait() for process in started]
    return report() or max(failed)


def variables(number: int) -> dict[str, str]:
    """Return the environment of processes that test a clone's own sources."""
    hidden = {"PYTHONHOME", "COVERAGE_FILE"}
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return kept | {"PYTHONPATH": str(FOLDER / str(number) / "src")}


# --- The sample, and which tests run its lines


def prepare(paths: list[str], workers: int, count: int, seed: int) -> None:
    """Clone the last commit for each worker, and draw a sample of its mutations."""
    subprocess.run(["rm", "-rf", str(FOLDER)], check=True)  # noqa: S607
    for number in range(workers):
        folder = FOLDER / str(number)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)  # noqa: S607
    JOBS.write_text(json.dumps(sample(FOLDER / "0", paths, count, seed), indent=0), "utf-8")


def sample(root: Path, paths: list[str], count: int, seed: int) -> list[Job]:
    """Return a sample of the mutations of a clone's files, drawn with a seed."""
    files = [file for path in paths for file in sorted((root / path).rglob("*.py"))]
    files += [root / path for path in paths if path.endswith(".py")]
    unread = {str(file): unread_ranges(file) for file in files}
    jobs = []
    with use_db(str(FOLDER / "mutations.sqlite")) as database:
        init(files, database, {})
        for item in database.work_items:
            (one,) = item.mutations
            line, column = one.start_pos
            if not any(low <= (line, column) < high for low, high in unread[str(one.module_path)]):
                path = one.module_path.relative_to(root).as_posix()
                job = Job(path, one.operator_name, one.operator_args, one.occurrence, line, column)
                jobs.append(job)
    jobs.sort(key=str)
    return random.Random(seed).sample(jobs, min(count, len(jobs)))  # noqa: S311


def unread_ranges(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the ranges of a file that are annotations, or only for type checkers."""
    ranges = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        notes: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            notes.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            notes.append(node.annotation)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            notes += node.body
        for note in notes:
            if note is not None:
                start = (note.lineno, note.col_offset)  # type: ignore[attr-defined]
                ranges.append((start, (note.end_lineno, note.end_col_offset)))  # type: ignore[attr-defined]
    return ranges


class Stopwatch:
    """Plugin of pytest: keeps the seconds of each test that passes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.others.add(report.nodeid)


def measure(workers: int) -> None:
    """Run all tests once; keep which test runs which line, and how long it takes."""
    os.environ |= variables(0) | {"COVERAGE_FILE": str(LINES)}
    os.chdir(FOLDER / "0")
    folders = dict.fromkeys(path for group in (*GROUPS.values(), OTHERS) for path in group)
    tests = [f"tests/{path}" for path in folders if Path("tests", path).exists()]
    covered = [f"--cov=ztensor.{name}" for name in PACKAGES]
    options = ["-q", "-p", "no:cacheprovider", *MARKS, "--cov-context=test", "--cov-report="]
    watch = Stopwatch()
    pytest.main([*options, *covered, "-n", str(workers), *tests], plugins=[watch])
    passed = {name: seconds for name, seconds in watch.seconds.items() if name not in watch.others}
    TIMES.write_text(json.dumps(passed), "utf-8")


# --- What came of it


def report() -> int:
    """Print how many mutants were noticed, and the diff of each that was not."""
    counts = {"noticed": 0, "too long": 0, "survived": 0}
    for index, result in sorted(outcomes(FOLDER)):
        counts[result["outcome"]] += 1
        if result["outcome"] == "survived":
            print(f"--- {index} ({result['test']})\n{result['diff']}\n")
    total = sum(counts.values())
    print(f"{total} mutants: {counts}; {100 - 100 * counts['survived'] / max(total, 1):.1f} %")
    return int(counts["survived"] > 0.15 * total)


if __name__ == "__main__":
    sys.exit(main())
