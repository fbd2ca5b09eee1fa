"""Answers of 10 MB, and headers as long as a client takes them: one error, for little work.

The work is done in a process of its own, which may not use more processor time or memory than a
small part of what searching such answers took.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.lying_server import LyingServer

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


Answer = tuple[int, dict[str, str], bytes]
LONG: dict[str, Answer] = {
    f"an error of {name}": (400, {}, BODIES[name]) for name in ("letters", "words")
}
RIGHT: dict[str, Answer] = {name: (200, {}, BODIES[name]) for name in ("escapes", "list", "names")}
HEADERS: dict[str, Answer] = {
    f"a header {name}": (302 if name == "Location" else 200, {name: "<>;" * 20_000}, b"[]")
    for name in ("Link", "ETag", "Location", "Content-Range")
}
# Answers of 10 MB, and of 60 kB in a header, and the acts that get them.
CASES = [
    (act, name, answer)
    for answers, acts in (
        (LONG, ACTS),
        (RIGHT, [act for act in ACTS if "save" not in act]),
        (HEADERS, ["a hub's folder", "a server"]),
    )
    for name, answer in answers.items()
    for act in acts
]


@pytest.mark.parametrize(
    ("act", "answer"),
    [pytest.param(act, answer, id=f"{act}, {name}") for act, name, answer in CASES],
)
def test_a_long_answer_is_not_searched(act: str, answer: Answer) -> None:
    """One error, in a small part of the processor time and memory that searching it took."""
    with LyingServer(b"", b"", lambda liar: liar.answer(*answer)) as server:
        storage = f"endpoint={server.url},skip_signature=true,region=x"
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM.replace("ACT", ACTS[act]), server.url],
            env={"HF_ENDPOINT": server.url, "PATH": "", "ZTENSOR_STORAGE": storage},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    seconds, kib = map(float, run.stdout.split())
    assert seconds < 5
    assert kib < 300 << 10
