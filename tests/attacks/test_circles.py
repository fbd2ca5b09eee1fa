"""What a refused file was read into is gone when the error is: nothing waits for the collector."""

from __future__ import annotations

import contextlib
import gc
import types
from typing import TYPE_CHECKING

import pytest

import ztensor
from tests.attacks.shapes import FORMATS, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", load())
def test_no_circle_keeps_what_was_read(tmp_path: Path, kind: str) -> None:
    """Attack: one refused file after another, each kept in memory by a circle of its reader."""
    name, recover = FORMATS[kind]
    for shape, make in load()[kind].items():
        made = make(40 << 10)
        files = made if isinstance(made, dict) else {name: made}
        for file, data in files.items():
            (tmp_path / file).write_bytes(data)
        path = tmp_path / next(iter(files))
        with_recovery = (False, True) if recover else (False,)
        for again in with_recovery:
            gc.disable()
            gc.freeze()  # what was there before is not gone through: with frameworks that is slow
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                was_refused = True
                with contextlib.suppress(ztensor.ZTensorError):
                    ztensor.open(path, recover=again).close()
                    was_refused = False
                gc.collect()
                kept = [
                    one
                    for one in gc.garbage
                    if type(one).__module__.startswith("ztensor")
                    or isinstance(one, types.FrameType)
                ]
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.unfreeze()
                gc.enable()
            assert kept == [] or not was_refused, (
                f"{kind}, {shape}: {[type(one).__name__ for one in kept]}"
            )
