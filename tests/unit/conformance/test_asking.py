"""Programs that end in every way: each call is bounded, and no shell has a part in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ztensor.conformance import Answer, Ended
from ztensor.conformance.answer import parse_answer
from ztensor.conformance.asking import OUTPUT_BYTES, ask


def call(
    code: str, path: str = "f.zt", *, seconds: float = 60, memory: int | None = None
) -> Answer:
    return ask([sys.executable, "-S", "-c", code], path, seconds=seconds, memory=memory)


def test_exit_codes() -> None:
    assert call("").ended is Ended.ACCEPTED
    assert call("raise SystemExit(3)").ended is Ended.REFUSED
    assert call("1/0") == Answer(Ended.CRASHED, "exit code 1")


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_a_signal() -> None:
    assert call("import os; os.kill(os.getpid(), 9)") == Answer(Ended.CRASHED, "killed by signal 9")


def test_the_path_is_one_word_whatever_is_in_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a b; $(touch x) 'c'")
    answer = call("import sys, json; print(json.dumps({'objects': {sys.argv[1]: {}}}))", path)
    assert answer.objects == {path: {}}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_program_that_does_not_end() -> None:
    for code in (
        "import time; time.sleep(600)",
        "import os, time; os.close(1); time.sleep(600)",
        "import subprocess, sys; subprocess.call([sys.executable, '-c', 'input()'], stdin=-1)",
    ):
        assert call(code, seconds=1).ended is Ended.TIMED_OUT


def test_output_without_end() -> None:
    answer = call("import os\nwhile True: os.write(1, b' ' * 65536)")
    assert answer == Answer(Ended.CRASHED, f"it printed more than {OUTPUT_BYTES >> 20} MiB")


def test_nothing_is_typed_in_and_errors_are_thrown_away(capfd: pytest.CaptureFixture[str]) -> None:
    answer = call("import sys; sys.stderr.write('x' * 100000); print(sys.stdin.read() or '{}')")
    assert answer.ended is Ended.ACCEPTED
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux caps another process")
def test_memory() -> None:
    code = "import time\ntime.sleep(1)\nx = bytes(1 << 32)"
    assert call(code, memory=1 << 30) == Answer(Ended.CRASHED, "exit code 1")


@pytest.mark.parametrize(
    "output",
    [b"hello", b"[1]", b"{", b"[" * 100_000, b'{"objects": []}', b'{"objects": {"a": 1}}',
     b'{"verified": "yes"}', b"\xff"],
)  # fmt: skip
def test_output_that_is_no_answer(output: bytes) -> None:
    answer = parse_answer(0, output)
    assert answer.ended is Ended.CRASHED
    assert answer.why


def test_output_that_is_one() -> None:
    objects = {"w": {"shape": [2]}}
    text = json.dumps({"objects": objects, "verified": None, "more": 1}).encode()
    assert parse_answer(0, text) == Answer(Ended.ACCEPTED, "", objects, None)
    assert parse_answer(3, b"\n") == Answer(Ended.REFUSED)
    assert parse_answer(0, b'{"verified": false}') == Answer(Ended.ACCEPTED, verified=False)
