"""Reading one component: its checks and the memory they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.tracing import traced
from tests.unit.io.reading.counted import far
from ztensor.errors import DigestMismatchError, FormatError
from ztensor.ext import ObjectReader
from ztensor.numpy import save, save_file
from ztensor.testing.builder import draft

MIB = 1 << 20


WAYS: dict[str, Callable[[ObjectReader], Any]] = {
    "whole": lambda reader: reader.read_numpy("w", copy=True),
    "slices": lambda reader: reader.read_slices({"w": ...})["w"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("checksum", ["crc32c", None])
def test_long_bytes_from_far_away_are_held_to_their_digest(way: str, checksum: str | None) -> None:
    """They are fetched in several parts, each hashed in its turn."""
    value = np.arange(9 * MIB // 8)
    data = bytearray(save({"w": value}, checksum=checksum))
    assert np.array_equal(WAYS[way](far(bytes(data))[0]), value)
    data[-2 * MIB] ^= 1
    if checksum is not None:
        with pytest.raises(DigestMismatchError):
            WAYS[way](far(bytes(data))[0])
    assert np.sum(WAYS[way](far(bytes(data), verify=False)[0]) != value) == 1


@pytest.mark.parametrize("verify", [None, False])
def test_frames_that_hold_too_little_are_refused_before_memory_is_taken(
    verify: bool | None,
) -> None:
    made = draft("1.2.0")
    made.objects["packed"]["shape"] = [64 * MIB]
    made.component("packed")["uncompressed_length"] = 128 * MIB
    reader = far(made.to_bytes(), verify=verify)[0]
    with traced() as memory:
        with pytest.raises(FormatError):
            reader.read_numpy("packed", copy=True)
        _, peak = memory()
    assert peak < 8 * MIB


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_filling_an_array_takes_no_other_memory(tmp_path: Path, version: str) -> None:
    save_file({"x": np.ones(1 << 20, np.float32)}, tmp_path / "m.zt", version=version)
    target = np.zeros(1 << 20, np.float32)
    with ztensor.open(tmp_path / "m.zt") as reader:
        reader.read_into("x", target)  # imports on first use
        target[:] = 0
        with traced() as memory:
            reader.read_into("x", target)
            peak = memory()[1]
    assert target.all()
    assert peak < target.nbytes // 4
