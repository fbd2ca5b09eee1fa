"""What reading a tensor takes beside it: no second copy, and frames where they are listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.tracing import traced
from ztensor.numpy import save_file


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_filling_an_array_takes_no_other_memory(tmp_path: Path, version: str) -> None:
    """read_into of a 0.1 object made all of it twice."""
    save_file({"x": np.ones(1 << 20, np.float32)}, tmp_path / "m.zt", version=version)
    target = np.zeros(1 << 20, np.float32)
    with ztensor.open(tmp_path / "m.zt") as reader:
        reader.read_into("x", target)  # what is loaded late
        target[:] = 0
        with traced() as memory:
            reader.read_into("x", target)
            peak = memory()[1]
    assert target.all()
    assert peak < target.nbytes // 4
