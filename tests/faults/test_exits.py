"""Programs that end while something is written; `exits.py` has them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ztensor
from tests.faults.exits import KINDS, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    from tests.remote.s3_server import S3Server

    with S3Server() as server:
        server.make_bucket("runs")
        yield server.storage()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "store"])
def test_what_was_begun_is_there_when_the_program_has_ended(name: str, tmp_path: Path) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    verdict = run(name, str(tmp_path))
    assert verdict in ({"new", "old, as the program says"} if KINDS[name].may_lose else {"new"})


def test_what_was_begun_is_in_the_store_when_the_program_has_ended(store: dict[str, str]) -> None:
    assert run("store", "s3://runs/own", store) == "new"


LATE = """
import sys, threading, time
import ztensor, numpy
def train():
    threading.main_thread().join()
    time.sleep(0.1)  # Python waits for this thread, and begins no other
    ztensor.save_tree({"w": numpy.ones(9), "v": numpy.ones(1 << 20)}, sys.argv[1])
    ztensor.CheckpointManager(sys.argv[2]).save(1, {"w": numpy.ones(9)})
threading.Thread(target=train).start()
"""


def test_what_a_thread_saves_first_after_the_main_thread_is_there(tmp_path: Path) -> None:
    """The modules that make threads are loaded only then, when none can be registered any more."""
    target, run_folder = tmp_path / "m.zt", tmp_path / "run"
    program = [sys.executable, "-c", LATE, str(target), str(run_folder)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    with ztensor.open(target, verify=True) as reader:
        assert len(reader) > 0
    with ztensor.open(run_folder / "step-00000001.zt", verify=True) as reader:
        assert len(reader) > 0
