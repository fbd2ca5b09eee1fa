"""Mutate what must not be wrong, and see whether a test notices: `make suite SUITE=mutants`.

    python tools/mutants.py [--sample 600] [--seed 1] [--workers 2] [PATH ...]

The mutations are those of cosmic-ray, all its kinds, of `spec/`, `io/`, `training/` and
`distributed/` by default. A sample is drawn from them with a seed; mutations of annotations, which
nothing evaluates, are not drawn. Each worker has a clone of the checkout's last commit, in which
one mutation after another is written to disk and the tests of its package run until one fails.

A mutant that survives is code to delete or a test to write. All are printed with their diff.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shlex
import subprocess
import sys
from pathlib import Path

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


def test_the_mutated_file() -> int:
    """Run the tests of the package whose file differs from the last commit; called in a clone."""
    changed = subprocess.run(
        ["git", "diff", "--name-only", "--", "src"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    packages = {path.split("/")[2] for path in changed} or set(PACKAGES)
    tests = [f"tests/{path}" for name in PACKAGES if name in packages for path in TESTS[name]]
    there = [path for path in tests if (ROOT / path).exists()]
    marks = ["-m", "not slow and not fuzz and not interop"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *marks, *there]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


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
