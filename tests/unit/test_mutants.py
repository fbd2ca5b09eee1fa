"""`make mutants` turns what it says, in its own process and in those that are started."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.tree import ROOT, SOURCE
from tests.turning import VARIABLE, mutants_of

PROGRAM = """
import sys
from tests import turning

turning.install()
from ztensor.model.showing import counted

turning.hits()
print(counted(1, "object"), *turning.hits() & {sys.argv[1]})
turning.turn(sys.argv[1])
print(counted(1, "object"), counted(2, "object"))
"""


def _printed(program: str, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SOURCE.parent}", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def _name(module: str, written: str) -> str:
    return next(one.name for one in mutants_of(module) if one.written == written)


def test_a_comparison_is_noted_and_turned() -> None:
    name = _name("model/showing.py", "count == 1")
    assert _printed(PROGRAM, name) == [f"1 object {name}", "1 objects 2 object"]


def test_a_process_that_is_started_turns_the_same() -> None:
    name = _name("model/showing.py", "count == 1")
    program = PROGRAM.replace("turning.turn(sys.argv[1])", "")
    assert _printed(program, name, **{VARIABLE: name})[1] == "1 objects 2 object"


def test_each_comparison_of_a_chain_is_one_of_its_own() -> None:
    found = mutants_of("source/paths.py") + mutants_of("foreign/pt/pickle_machine.py")
    chain = [one for one in found if one.written in ("0 <= place", "place < count")]
    assert {one.turned for one in chain} == {"0 < place", "place <= count"}
    assert len({one.name for one in found}) == len(found)


@pytest.mark.parametrize("room", ["reading", "wire"])
def test_every_comparison_that_is_written_is_found(room: str) -> None:
    for module in (SOURCE / room).rglob("*.py"):
        nodes = ast.walk(ast.parse(module.read_bytes()))
        count = sum(len(node.ops) for node in nodes if isinstance(node, ast.Compare))
        assert len(mutants_of(module.relative_to(SOURCE).as_posix())) == count
