"""Elements in another order than ours come block by block: no more is held than a block."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
from ztensor.foreign import npy
from ztensor.foreign.base import gather_stored


class Bytes(NamedTuple):
    """Stored bytes in memory."""

    array: np.ndarray[Any, Any]

    @property
    def length(self) -> int:
        return self.array.nbytes

    def read(self, offset: int, length: int) -> memoryview:
        return self.array.data[offset : offset + length]


def test_elements_in_another_order_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "GATHERED_BYTES", 64)
    array = np.asfortranarray(np.arange(5 * 16, dtype=np.uint16).reshape(5, 16))
    buffer = io.BytesIO()
    np.save(buffer, array)
    with ztensor.open(buffer.getvalue()) as reader:
        pieces = [bytes(piece) for piece in reader.decoded_chunks("array")]
        assert [len(piece) for piece in pieces] == [64, 64, 32]
        assert b"".join(pieces) == array.tobytes()
        np.testing.assert_array_equal(reader.read("array", copy=True), array)


@pytest.mark.parametrize("shape", [(5,), (3, 2), (2, 1, 3)])
@pytest.mark.parametrize("step", [8, 1 << 14, 1 << 15])
def test_elements_far_from_one_another_are_gathered(shape: tuple[int, ...], step: int) -> None:
    """Along any number of axes, the last one too: a column of a wide matrix is one axis alone."""
    strides = tuple(step * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    whole = np.zeros(step * int(np.prod(shape)) + 8, np.uint8)
    expected = np.ndarray(shape, np.int64, whole, 0, strides)
    expected[...] = np.arange(expected.size).reshape(shape)
    target = np.zeros(shape, np.int64)
    gather_stored(Bytes(whole), target.dtype, strides, (), target)
    np.testing.assert_array_equal(target, expected)
