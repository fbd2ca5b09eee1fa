"""Elements in another order than ours come block by block: no more is held than a block."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

import ztensor
from ztensor.foreign import npy

if TYPE_CHECKING:
    import pytest


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
