"""Files of a checkpoint are opened when they are read, and some are closed again for others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.distributed.saving import save
from ztensor.errors import ClosedError, Reason, SourceError

ROWS = np.arange(400.0).reshape(200, 2)
MOST_OPEN = 128


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Save each row into a file of its own; return the files in the order of the rows."""
    save(tmp_path, {"w": ROWS}, processes=len(ROWS))
    return sorted(tmp_path.glob("0*.zt"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files")
def test_few_files_are_open_and_those_used_last_stay_so(files: list[Path]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with ztensor.open(files[0].parent) as reader:
        part = reader.get_slice("w")
        assert len(os.listdir("/proc/self/fd")) - before < 4
        for number, row in enumerate(ROWS):
            assert (part[number] == row).all()
        assert len(os.listdir("/proc/self/fd")) - before < MOST_OPEN + 4
        for path in (files[0], files[-1]):
            path.with_name("new").write_bytes(path.read_bytes())
            path.with_name("new").replace(path)
        with refused(SourceError, Reason.SOURCE_CHANGED):  # opened again, and another file
            part[0]
        assert (part[-1] == ROWS[-1]).all()  # still open
    with pytest.raises(ClosedError):
        part[1]
    assert len(os.listdir("/proc/self/fd")) == before
