"""Answers of 10 MB, and headers as long as a client takes them: one error, for little work.

The work is done in a process of its own, which may not use more processor time or memory than a
small part of what searching such answers took.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.counting import Handler, Server

pytestmark = pytest.mark.slow
pytest.importorskip("obstore", reason="obstore reads URLs")

LENGTH = 10_000_000
BODIES = {
    "letters": b"a" * LENGTH,
    "escapes": bytes(LENGTH),
    "words": b"status token <Code>http://" * (LENGTH // 26),
    "list": b"[" * LENGTH,
    "names": b"<ListBucketResult>" + b"<Contents>" * (LENGTH // 10),
}
# Calls to a server that answers everything with one body.
ACTS = {
    "a server": "ztensor.open(url + '/m.zt', storage=options)",
    "a store": "ztensor.open('s3://bucket/m.zt', storage=store)",
    "a folder": "ztensor.open('s3://bucket/folder/', storage=store)",
    "a pattern": "Store.of('s3:').expanded('s3://bucket/**/*a*b*.zt')",
    "a hub's file": "ztensor.open('hf://org/repo/m.zt', storage=options)",
    "a hub's folder": "ztensor.open('hf://org/repo', storage=options)",
    "a checkpoint": "ztensor.CheckpointManager('s3://bucket/run/', storage=store).restore()",
    "a save": "save_file({'w': small}, ztensor.Remote('s3://bucket/m.zt', store))",
    "a save in parts": "save_file({'w': large}, ztensor.Remote('s3://bucket/m.zt', store))",
}
PROGRAM = """
import resource, sys, time
import numpy as np
import obstore
import ztensor
from ztensor.numpy import save_file
from ztensor.ext import Store
url = sys.argv[1]
options = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
store = {**options, "endpoint": url, "skip_signature": True, "region": "x"}
small, large = np.zeros(10), np.zeros(5 << 20)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
try:
    ACT
except ztensor.ZTensorError as error:
    print(error, file=sys.stderr)
else:
    sys.exit("no error")
print(time.process_time() - start)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
"""


class Answers(Server):
    """Answers everything with one status, some headers and one body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(_Answer)
        self.given = status, headers, body


class _Answer(Handler):
    do_PUT = do_POST = do_DELETE = Handler.recorded

    def respond(self, owner: Answers) -> None:
        self.answer(*owner.given)


def cost(server: Answers, act: str) -> tuple[float, int]:
    """Return the seconds of processor time and the bytes of memory that an act took."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("ACT", act), server.url],
        env={"HF_ENDPOINT": server.url, "PATH": "", "ZTENSOR_STORAGE": storage(server)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seconds, kib = run.stdout.split()
    return float(seconds), int(kib) << 10


def storage(server: Answers) -> str:
    return f"endpoint={server.url},skip_signature=true,region=x"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("body", ["letters", "words"])
def test_an_error_of_10_mb_is_not_searched(act: str, body: str) -> None:
    with Answers(400, {}, BODIES[body]) as server:
        seconds, nbytes = cost(server, ACTS[act])
    assert seconds < 5
    assert nbytes < 300 << 20


@pytest.mark.parametrize("act", [act for act in ACTS if "save" not in act])
@pytest.mark.parametrize("body", ["escapes", "list", "names"])
def test_an_answer_of_10_mb_that_says_it_is_right(act: str, body: str) -> None:
    with Answers(200, {}, BODIES[body]) as server:
        seconds, nbytes = cost(server, ACTS[act])
    assert seconds < 5
    assert nbytes < 300 << 20


@pytest.mark.parametrize("act", ["a hub's folder", "a server"])
@pytest.mark.parametrize("name", ["Link", "ETag", "Location", "Content-Range"])
def test_a_header_of_60_kb(act: str, name: str) -> None:
    text = "<>;" * 20_000
    status = 302 if name == "Location" else 200
    with Answers(status, {name: text}, b"[]") as server:
        seconds, _ = cost(server, ACTS[act])
    assert seconds < 5
