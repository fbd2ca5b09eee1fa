"""Turn one comparison at a time and see whether the tests of that module notice: `make mutants`.

    python tests/mutants.py                 200 mutants, the same for the same seed
    python tests/mutants.py --count 20 --seed 7
    python tests/mutants.py --module reading/slices.py --count 0     all of one module
    python tests/mutants.py --again FILE    those that survived, as an earlier run printed them
    python tests/mutants.py --wide          asks the tests of other modules, too; prints which
    python tests/mutants.py --control       turns nothing: a test that fails does so by itself

The tests of the chosen modules (`tests/tree.py` says which) are read once and run once, to learn
which comparisons each comes by. Then a process is forked for each mutant, which runs the tests that
come by it, the quickest first. What is compared while a module is imported is turned in a new
process, if need be. A mutant is killed where one of them fails or hangs. Prints what
survived; exits with 1 where fewer than 90 % of those that matter were killed. A survivor that
changes nothing but speed, or nothing at all, stands in `tests/survivors.py` with the reason.
"""

from __future__ import annotations

import argparse
import functools
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started by path

from tests import turning
from tests.survivors import EQUAL
from tests.tree import ROOT, SOURCE, files_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.turning import Mutant

ROOMS = (
    "reading", "writing", "container", "layout", "encoding", "edit", "sharded", "foreign", "wire",
    "source", "model",
)  # fmt: skip
LEAST_KILLED = 0.9
# A mutant is given up after so much of the time that its tests took unturned, quickest first.
_MOST_SECONDS = 60.0
_MOST_SECONDS_AT_IMPORT = 300
_MEMORY_BYTES = 12 << 30
MARKS = "not fuzz and not interop"
_SURVIVED = re.compile(r"SURVIVED ([^:]+):\d+ (.*) -> (.*?)(?: \|.*)?$")

_REMEMBERING = type(functools.cache(str))


class _Known(NamedTuple):
    """What one run of the tests told.

    Attributes:
        seconds: how long each test took, by its place; a test that failed is not there.
        tests: for each comparison the places of the tests that come by it.
    """

    seconds: dict[int, float]
    tests: dict[str, list[int]]


class Mutants:
    """Pytest's loop: runs the tests once, and then again for each mutant.

    Attributes:
        killed: how many mutants a test noticed.
        equal: how many survivors have their reason in `EQUAL`.
    """

    def __init__(
        self, chosen: Sequence[Mutant], jobs: int, *, is_wide: bool, is_control: bool
    ) -> None:
        self.killed = self.equal = 0
        self._chosen, self._jobs, self._is_wide = chosen, jobs, is_wide
        self._is_control = is_control
        self._has_failed = False
        self._at_import: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do everything; the tests are known and none has run."""
        self._at_import = turning.hits()
        known = self._learned(session.items)
        print(f"{len(session.items)} tests, {len(known.seconds)} of them pass", flush=True)
        for mutant, killer in self._each(session.items, known):
            what = f"{mutant.module}:{mutant.line} {mutant.written} -> {mutant.turned}"
            if killer:
                self.killed += 1
                if self._is_wide or self._is_control:
                    print(f"NOTICED {what} | {killer}", flush=True)
            else:
                reason = EQUAL.get(mutant.module, {}).get(mutant.written)
                self.equal += reason is not None
                untested = (
                    ""
                    if mutant.name in known.tests or mutant.name in self._at_import
                    else "no test comes by"
                )
                print(f"SURVIVED {what} | {reason or untested}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self._has_failed = self._has_failed or report.failed

    def _learned(self, items: Sequence[pytest.Item]) -> _Known:
        """Run every test in processes of their own, a part of the files in each."""
        known = _Known({}, {})
        files = sorted({item.path for item in items})
        with tempfile.TemporaryDirectory() as folder:
            children = {}
            for part in range(self._jobs):
                mine = set(files[part :: self._jobs])
                answer = Path(folder, str(part))
                child = _forked(Path(folder, f"tests-{part}"))
                if child == 0:
                    places = [place for place, item in enumerate(items) if item.path in mine]
                    answer.write_bytes(pickle.dumps(self._ran(items, places)))
                    os._exit(0)
                children[child] = answer
            for child, answer in children.items():
                if os.waitpid(child, 0)[1]:
                    raise RuntimeError("the tests did not come to an end with nothing turned")
                told: _Known = pickle.loads(answer.read_bytes())
                known.seconds.update(told.seconds)
                for name, tests in told.tests.items():
                    known.tests.setdefault(name, []).extend(tests)
        for tests in known.tests.values():
            tests.sort(key=known.seconds.__getitem__)
        return known

    def _ran(self, items: Sequence[pytest.Item], places: Sequence[int]) -> _Known:
        known = _Known({}, {})
        turning.hits()
        for count, place in enumerate(places):
            after = items[places[count + 1]] if count + 1 < len(places) else None
            begin = time.perf_counter()
            passes = self._passes(items[place], after)
            seconds = time.perf_counter() - begin
            names = turning.hits()
            if passes:
                known.seconds[place] = seconds
                for name in names:
                    known.tests.setdefault(name, []).append(place)
        return known

    def _passes(self, item: pytest.Item, after: pytest.Item | None) -> bool:
        self._has_failed = False
        _forget()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return not self._has_failed

    def _each(self, items: Sequence[pytest.Item], known: _Known) -> Iterator[tuple[Mutant, str]]:
        """Give each mutant with the test that notices it, or no text, as soon as that is known."""
        running: dict[int, tuple[Mutant, float, Path]] = {}
        waiting = list(reversed(self._chosen))
        with tempfile.TemporaryDirectory() as folder:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    mutant = waiting.pop()
                    tests = self._tests_of(mutant, items, known)
                    if not tests:
                        yield mutant, self._killer_at_import(mutant)
                        continue
                    place = Path(folder, mutant.name.replace("/", "-"))
                    child = _forked(place)
                    if child == 0:
                        turning.turn("" if self._is_control else mutant.name)
                        (place / "killer").write_text(self._killer(items, tests))
                        os._exit(0)
                    expected = sum(known.seconds[test] for test in tests)
                    running[child] = mutant, time.monotonic() + 30 + 5 * expected, place
                child = os.waitpid(-1, os.WNOHANG)[0] if running else 0
                if child:
                    mutant, _, place = running.pop(child)
                    told = place / "killer"
                    killer = told.read_text() if told.exists() else "a hang or a crash"
                    yield mutant, killer or self._killer_at_import(mutant)
                    shutil.rmtree(place, ignore_errors=True)
                    continue
                for child, (_, latest, _) in running.items():
                    if time.monotonic() > latest:
                        os.killpg(child, signal.SIGKILL)
                time.sleep(0.01)

    def _killer_at_import(self, mutant: Mutant) -> str:
        """Run the tests of the module where a comparison is turned before anything is imported."""
        if mutant.name not in self._at_import or self._is_control:
            return ""
        if _pass_anew(mutant.module, mutant.name) or not _pass_anew(mutant.module, ""):
            return ""  # where they fail in any case, that says nothing
        return "a test where it is turned before the import"

    def _tests_of(self, mutant: Mutant, items: Sequence[pytest.Item], known: _Known) -> list[int]:
        own = set(files_for(Path(mutant.module)))
        taken, seconds = [], 0.0
        for test in known.tests.get(mutant.name, ()):
            if self._is_wide or items[test].path in own:
                seconds += known.seconds[test]
                taken.append(test)
            if seconds > _MOST_SECONDS:
                break
        return taken

    def _killer(self, items: Sequence[pytest.Item], tests: Sequence[int]) -> str:
        """Run tests until one fails; return its name, or no text."""
        for count, test in enumerate(tests):
            after = items[tests[count + 1]] if count + 1 < len(tests) else None
            if not self._passes(items[test], after):
                return items[test].nodeid
        return ""


@functools.cache
def _pass_anew(module: str, name: str) -> bool:
    """Return whether the tests of a module pass in a new process that turns a comparison."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m", MARKS,
             *map(str, files_for(Path(module)))],
            cwd=ROOT, capture_output=True, check=False, timeout=_MOST_SECONDS_AT_IMPORT,
            env={**os.environ, turning.VARIABLE: name},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _forget() -> None:
    """Empty what functions of ztensor remember: else only the first test comes by what they do."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == SOURCE.name:
            for value in list(vars(module).values()):
                if isinstance(value, _REMEMBERING):
                    value.cache_clear()


def _forked(folder: Path) -> int:
    """Fork; the child prints nothing, writes its files below `folder` and can be killed whole."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
        tempfile.tempdir = None
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
    return child


def main() -> int:
    """Run a sample; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", action="append", help="below src/ztensor")
    parser.add_argument("--again", type=Path, help="what an earlier run printed")
    parser.add_argument("--wide", action="store_true", help="try the tests of other modules, too")
    parser.add_argument("--control", action="store_true", help="turn nothing")
    options = parser.parse_args()
    modules = options.module or sorted(
        path.relative_to(SOURCE).as_posix()
        for room in ROOMS
        for path in (SOURCE / room).rglob("*.py")
    )
    every = [mutant for module in modules for mutant in turning.mutants_of(module)]
    if options.again:
        lines = options.again.read_text("utf-8").splitlines()
        survived = {match.groups() for line in lines if (match := _SURVIVED.match(line))}
        every = [one for one in every if (one.module, one.written, one.turned) in survived]
        options.count = 0
    count = min(options.count or len(every), len(every))
    chosen = random.Random(options.seed).sample(every, count)
    print(f"{len(chosen)} of {len(every)} comparisons, seed {options.seed}", flush=True)
    files = sorted({file for mutant in chosen for file in files_for(Path(mutant.module))})
    if options.wide:
        files = sorted(file for file in (ROOT / "tests").rglob("test_*.py"))
    turning.install()
    with tempfile.TemporaryDirectory() as folder:
        # What starts Python finds this first, and reads ztensor as we do.
        Path(folder, "sitecustomize.py").write_text(
            f"import sys; sys.path.append({str(ROOT)!r})\n"
            "from tests import turning; turning.install()\n"
        )
        os.environ["PYTHONPATH"] = folder
        loop = Mutants(chosen, options.jobs, is_wide=options.wide, is_control=options.control)
        status = pytest.main(
            [
                "-qs", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--no-summary",
                "-m", MARKS, "--rootdir", str(ROOT), *map(str, files),
            ],
            plugins=[loop],
        )  # fmt: skip
    if status:
        return int(status)
    if options.control:
        print(f"{loop.killed} of {len(chosen)} failed with nothing turned")
        return int(loop.killed > 0)
    matter = len(chosen) - loop.equal
    part = loop.killed / max(matter, 1)
    print(f"{loop.killed} of {matter} killed ({part:.0%}), {loop.equal} change nothing")
    return 0 if part >= LEAST_KILLED else 1


if __name__ == "__main__":
    sys.exit(main())
