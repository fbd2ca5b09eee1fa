"""Room that is reserved before bytes are written: only the clock shows it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ztensor.io.source.reserving import reserve
from ztensor.numpy import load_file, save_file

MIB = 1 << 20
BLOCK_BYTES = 4096


def test_reserved_room_makes_no_file_longer(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    try:
        is_reserved = reserve(descriptor, 0, 3 * MIB)  # on ext4
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    assert status.st_size == 0
    if os.name == "posix":
        assert (status.st_blocks * 512 >= 3 * MIB) is is_reserved


@pytest.mark.skipif(os.name == "nt", reason="counts blocks")
@pytest.mark.parametrize("version", ["1.2", "2.1"])
def test_a_finished_file_holds_no_room_it_does_not_use(tmp_path: Path, version: str) -> None:
    """Not behind its end, and not in the holes between tensors that lie far apart."""
    tensors = {f"t{number}": np.full(MIB // 4 + 77, number, np.float32) for number in range(5)}
    far = 65536 if version == "2.1" else None
    save_file(tensors, tmp_path / "m.zt", version=version, alignment=far, durable=True)
    used = os.stat(tmp_path / "m.zt").st_blocks * 512
    assert used <= sum(array.nbytes + 2 * BLOCK_BYTES for array in tensors.values()) + 64 * 1024
    loaded = load_file(tmp_path / "m.zt")
    assert all((loaded[name] == array).all() for name, array in tensors.items())
