"""The fuzzer reaches every stage, and nothing that a case may not do is missed."""

from __future__ import annotations

import collections
import itertools
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ztensor
from ztensor.io.formats import FORMATS
from ztensor.testing.promise import refusal_of

pytestmark = pytest.mark.slow

FUZZ = Path(__file__).parents[2] / "fuzz"
KEPT = sorted(path for path in (FUZZ / "corpus").glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    sys.path.insert(0, str(FUZZ))  # as for a script of that folder
    try:
        return __import__("targets")
    finally:
        sys.path.remove(str(FUZZ))


def test_every_format_is_fuzzed(targets: ModuleType) -> None:
    assert set(FORMATS) <= set(targets.TARGETS)
    assert {path.parent.name for path in KEPT} <= set(targets.TARGETS)
    assert collections.Counter(targets.rounds()) == {
        name: target.share for name, target in targets.TARGETS.items()
    }


def test_cases_are_taken_and_refused_in_every_format(targets: ModuleType) -> None:
    """A target whose cases are all refused, or all taken, looks at nothing."""
    for name, target in targets.TARGETS.items():
        ends: collections.Counter[bool] = collections.Counter()
        for block in range(1, 40):
            for data, whole in itertools.islice(target.cases(1, block), 30):
                try:
                    ends[target.run(data, whole=whole)] += 1
                except ztensor.ZTensorError as error:
                    refusal_of(error, "open")
                    ends[False] += 1
            if min(ends[True], ends[False]) > 10:
                break
        assert min(ends[True], ends[False]) > 10, name


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_kept_keeps_the_promise(targets: ModuleType, path: Path) -> None:
    target, data = targets.TARGETS[path.parent.name], path.read_bytes()
    for whole in (False, True):
        try:
            target.run(data, whole=whole)
        except ztensor.ZTensorError as error:
            refusal_of(error, "open")


# --- The judge, in a process of its own, since it bounds the one it is in ---------------------


@pytest.mark.parametrize(("body", "what"), [("os._exit(3)", "died"), ("{}[1]", "KeyError")])
def test_an_escape_is_saved_and_ends_the_run_with_one(tmp_path: Path, body: str, what: str) -> None:
    program = f"""
import dataclasses, os, sys
from pathlib import Path
sys.path.insert(0, {str(FUZZ)!r})
import run, targets
run.ESCAPES = Path({str(tmp_path)!r})
run.HERE = Path({str(tmp_path.parent)!r}) / "fuzz"

def listed(data):
    if len(data) == 3:
        {body}
    return True

def seeds():
    return (b"ab", b"abcd")

bad = dataclasses.replace(targets.TARGETS["cbor"], listed=listed, seeds=seeds, cut=None)
run.TARGETS["cbor"] = bad
if __name__ == "__main__":
    sys.argv = ["run.py", "--cases", "128", "--jobs", "1", "--formats", "cbor", "--seed", "1"]
    sys.exit(run.main())
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    assert what in result.stdout
    saved = sorted(tmp_path.glob("cbor-1-*.bin"))
    assert saved
    assert all(len(path.read_bytes()) == 3 for path in saved)
    assert "--seed 1 --case cbor:" in saved[0].with_suffix(".txt").read_text()
