"""Mutate what must not be wrong, and see whether a test notices: `make suite SUITE=mutants`.

    python tools/mutants.py [--sample 600] [--seed 1] [--workers 2] [PATH ...]

The mutations are those of cosmic-ray, all its kinds, of `spec/`, `io/`, `training/` and
`distributed/` by default. A sample is drawn from them with a seed; mutations of annotations, which
nothing evaluates, are not drawn. Each worker has a clone of the checkout's last commit, in which
one mutation after another is written to disk. The tests that run its line are known from one run
under coverage; they run until one fails, and all tests of the package where a line runs at import.

A mutant that survives is code to delete or a test to write. All are printed with their diff.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import coverage
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "mutants"
PACKAGES = ("spec", "io", "training", "distributed")
SECONDS = 240.0  # what the tests of one mutant may take; a mutant that takes longer is noticed
# Tests of a package, in the order they run: first those that mirror it.
TESTS = {
    "spec": ["unit/spec", "corpus", "golden", "property", "unit/io/reading", "unit/io/writing"],
    "io": ["unit/io", "corpus", "golden", "property", "unit/formats/test_saving.py"],
    "training": ["unit/training", "unit/torch"],
    "distributed": ["unit/distributed", "distributed", "unit/formats/dcp"],
}
CONFIG = """
[cosmic-ray]
module-path = {paths}
timeout = {seconds}
excluded-modules = []
test-command = {command}

[cosmic-ray.distributor]
name = "local"
"""


def main() -> int:
    """Run the sample; return 0 where at least 85 % of the mutants were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--test", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", default=[f"src/ztensor/{name}" for name in PACKAGES])
    options = parser.parse_args()
    if options.test:
        return test_the_mutated_file()
    clones = [clone(number) for number in range(options.workers)]
    first = session(clones[0], options.paths)
    chosen = sample(first, clones[0], options.sample, options.seed)
    for number, folder in enumerate(clones):
        if number:
            session(folder, options.paths)
        keep(folder, set(chosen[number :: len(clones)]))
    measure(clones[0], options.workers)
    command = [sys.executable, "-m", "cosmic_ray.cli", "exec", "mutants.toml", "mutants.sqlite"]
    for process in [subprocess.Popen(command, cwd=folder) for folder in clones]:
        process.wait()
    return report(clones)


def clone(number: int) -> Path:
    """Return a fresh clone of the checkout's last commit."""
    folder = FOLDER / str(number)
    subprocess.run(["rm", "-rf", str(folder)], check=True)  # noqa: S607
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)  # noqa: S607
    return folder


def session(folder: Path, paths: list[str]) -> Path:
    """Write the configuration of a clone, and list every mutation in its session."""
    config, found = folder / "mutants.toml", folder / "mutants.sqlite"
    command = shlex.join([sys.executable, str(folder / "tools" / "mutants.py"), "--test"])
    text = CONFIG.format(paths=json.dumps(paths), seconds=SECONDS, command=json.dumps(command))
    config.write_text(text, "utf-8")
    cosmic_ray(folder, "init", config.name, found.name)
    return found


def cosmic_ray(folder: Path, *arguments: str) -> None:
    """Run cosmic-ray in a clone."""
    subprocess.run([sys.executable, "-m", "cosmic_ray.cli", *arguments], cwd=folder, check=True)


def place(item: object) -> tuple[object, ...]:
    """Return what a mutation is in every session: ids of jobs are drawn anew for each."""
    (one,) = item.mutations  # type: ignore[attr-defined]
    return (
        str(one.module_path),
        one.operator_name,
        one.occurrence,
        one.start_pos,
        str(one.operator_args),
    )


def sample(found: Path, folder: Path, count: int, seed: int) -> list[tuple[object, ...]]:
    """Return a sample of the mutations of a session, drawn with a seed."""
    unread: dict[str, list[tuple[tuple[int, int], tuple[int, int]]]] = {}
    places = []
    with use_db(str(found)) as database:
        for item in database.work_items:
            path, *_ = spot = place(item)
            if str(path) not in unread:
                unread[str(path)] = unread_ranges(folder / str(path))
            start = item.mutations[0].start_pos
            if not any(low <= start < high for low, high in unread[str(path)]):
                places.append(spot)
    places.sort(key=str)
    return random.Random(seed).sample(places, min(count, len(places)))  # noqa: S311


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


def keep(folder: Path, chosen: set[tuple[object, ...]]) -> None:
    """Mark the other mutations of a session as skipped."""
    skipped = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
    with use_db(str(folder / "mutants.sqlite")) as database:
        for item in list(database.work_items):
            if place(item) not in chosen:
                database.set_result(item.job_id, skipped)


def pytest(folder: Path, arguments: list[str], **variables: str) -> int:
    """Run tests of a clone against its own sources, and return pytest's exit code."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "COVERAGE_FILE"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"PYTHONPATH": str(folder / "src"), **variables}
    marks = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not fuzz and not interop"]
    command = [sys.executable, "-m", "pytest", *marks, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def tests_of(folder: Path, packages: set[str]) -> list[str]:
    """Return the tests of packages, in the order in which they run."""
    tests = [f"tests/{path}" for name in PACKAGES if name in packages for path in TESTS[name]]
    return [path for path in dict.fromkeys(tests) if (folder / path).exists()]


def measure(folder: Path, workers: int) -> None:
    """Run all tests once, and keep which test runs which line."""
    sources = [f"--cov=ztensor.{name}" for name in PACKAGES]
    pytest(
        folder,
        [*sources, "--cov-context=test", "--cov-report=", "-n", str(workers),
         *tests_of(folder, set(PACKAGES))],
        COVERAGE_FILE=str(FOLDER / "lines"),
    )  # fmt: skip


def test_the_mutated_file() -> int:
    """Run the tests that may notice the one change of a clone; called in the clone."""
    shown = subprocess.run(
        ["git", "diff", "--unified=0", "--", "src"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    path = next(line.removeprefix("+++ b/") for line in shown if line.startswith("+++ "))
    spans = [line.split()[1].removeprefix("-").split(",") for line in shown if line[:2] == "@@"]
    lines = {
        line
        for first, *count in spans
        for line in range(int(first), int(first) + int(count[0] if count else 1))
    }
    names = tests_that_run(path, lines)
    chosen = ROOT / "mutants.txt"
    chosen.write_text("\n".join(names or tests_of(ROOT, {path.split("/")[2]})), "utf-8")
    return pytest(ROOT, ["-x", f"@{chosen.name}"])


def tests_that_run(path: str, lines: set[int]) -> list[str]:
    """Return the tests that run lines of a file; none where a line runs at import."""
    data = coverage.CoverageData(str(ROOT.parent / "lines"))
    data.read()
    file = next((name for name in data.measured_files() if name.endswith(path)), None)
    if file is None:
        return []
    contexts = data.contexts_by_lineno(file)
    found = {context for line in lines for context in contexts.get(line, ())}
    return [] if "" in found else sorted(context.rpartition("|")[0] for context in found)


def report(clones: list[Path]) -> int:
    """Print how many mutants were noticed, and the diff of each that was not."""
    outcomes: dict[str, int] = {}
    for folder in clones:
        with use_db(str(folder / "mutants.sqlite"), WorkDB.Mode.open) as database:
            for _, result in database.results:
                if result.worker_outcome == WorkerOutcome.SKIPPED:
                    continue
                word = str(getattr(result.test_outcome, "value", result.worker_outcome))
                outcomes[word] = outcomes.get(word, 0) + 1
                if result.test_outcome == TestOutcome.SURVIVED:
                    print(result.diff)
    total, survived = sum(outcomes.values()), outcomes.get(TestOutcome.SURVIVED.value, 0)
    print(f"{total} mutants: {outcomes}; {100 * (total - survived) / max(total, 1):.1f} % noticed")
    return int(survived > 0.15 * total)


if __name__ == "__main__":
    sys.exit(main())
