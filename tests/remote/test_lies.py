"""Whatever a server answers: a right result or one error, soon, and in little memory."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.remote.faults import limits
from tests.remote.lying_server import LIES, LyingServer
from ztensor.errors import ZTensorError
from ztensor.numpy import load_file, save_file

pytestmark = pytest.mark.slow

pytest.importorskip("obstore", reason="obstore reads URLs")
MODEL = {"a": np.arange(200_000.0), "b": np.ones((300, 50), np.float32)}
OTHER = {name: array + 1 for name, array in MODEL.items()}
MIB = 1 << 20
MOST_BYTES = 96 * MIB  # an endless body may bring more within a second
MOST_SECONDS = 10.0


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(act: Callable[[], None]) -> int:
    """Return the peak growth of this process during a call, on Linux."""
    if not sys.platform.startswith("linux"):
        act()
        return 0
    before = most = resident()
    is_done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_done.wait(0.01):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        act()
    finally:
        is_done.set()
        watcher.join()
    return most - before


@pytest.mark.parametrize("lie", LIES)
def test_a_right_result_or_one_error(tmp_path: Path, lie: str) -> None:
    save_file(MODEL, tmp_path / "m.zt")
    save_file(OTHER, tmp_path / "o.zt")
    outcome: list[str] = []
    with LyingServer(
        (tmp_path / "m.zt").read_bytes(), (tmp_path / "o.zt").read_bytes(), lie
    ) as server:

        def load() -> None:
            try:
                found = load_file(f"{server.url}/m.zt", storage=limits({}))
            except ZTensorError as error:
                is_said = "the request failed" not in str(error)
                outcome.append(error.reason.value if error.reason and is_said else str(error))
            else:
                assert all((found[name] == MODEL[name]).all() for name in MODEL)
                outcome.append("right")

        start = time.monotonic()
        assert grown(load) < MOST_BYTES
        assert time.monotonic() - start < MOST_SECONDS
    assert outcome == [LIES[lie][1]]
