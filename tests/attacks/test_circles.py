"""The memory of a refused file is freed with the error: nothing waits for the collector."""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import ztensor
from tests.attacks.shapes import FORMATS, load, write
from tests.extent import amount

pytestmark = pytest.mark.slow


@pytest.fixture
def only_what_is_new() -> Iterator[None]:
    """Let a collection look at the objects of the test only: frameworks have a million others.

    Nothing is thawed behind it, since `conftest.py` froze what lives as long as the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def circles_of(path: Path, *, recover: bool) -> list[object]:
    """Return the objects of ours that a refused file leaves to the collector."""
    gc.collect()
    gc.freeze()  # what made the file is not asked about
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        was_refused = True
        with contextlib.suppress(ztensor.ZTensorError):
            ztensor.open(path, recover=recover).close()
            was_refused = False
        gc.collect()
        return [
            one
            for one in gc.garbage
            if was_refused
            and (type(one).__module__.startswith("ztensor") or isinstance(one, types.FrameType))
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.usefixtures("only_what_is_new")
@pytest.mark.parametrize("kind", load())
def test_no_reference_cycle_keeps_a_refused_file(tmp_path: Path, kind: str) -> None:
    """Attack: one refused file after another, each kept in memory by a circle of its reader."""
    for shape, make in load()[kind].items():
        path, _ = write(kind, make, amount(10, full=40) << 10, tmp_path)
        for again in (False, True) if FORMATS[kind].recover else (False,):
            kept = circles_of(path, recover=again)
            assert kept == [], f"{kind}, {shape}: {[type(one).__name__ for one in kept]}"
