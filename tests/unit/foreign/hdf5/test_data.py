"""Datasets in chunks, at the edges of what is read of them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import Reason

h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")


def made(fill: Callable[[Any], object]) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file)
    return buffer.getvalue()


@pytest.mark.parametrize("more", [0, 1])
def test_a_chunk_is_stored_in_as_many_bytes_as_a_filter_may_make_of_it(more: int) -> None:
    """Twice its own, and 4096 for what says how it is stored."""
    numbers = np.arange(64, dtype="u1")

    def fill(file: Any) -> None:
        data = file.create_dataset("a", (64,), "u1", chunks=(64,), compression="gzip")
        stored = zlib.compress(numbers.tobytes()).ljust(2 * 64 + 4096 + more, b"\0")
        data.id.write_direct_chunk((0,), stored)

    reader = ztensor.open(made(fill))
    if more:
        with pytest.raises(ztensor.FormatError, match="stored in too many bytes"):
            reader.read("a")
    else:
        assert np.array_equal(reader["a"], numbers)


def test_what_is_decoded_may_be_as_long_as_the_limit() -> None:
    """Whole chunks count, and not only what of them lies in the dataset."""
    numbers = np.arange(30, dtype="<i4")
    data = made(lambda file: file.create_dataset("a", data=numbers, chunks=(16,), shuffle=True))
    enough = ztensor.Limits(decoded_bytes=2 * 16 * 4)
    assert np.array_equal(ztensor.open(data, limits=enough)["a"], numbers)
    reader = ztensor.open(data, limits=ztensor.Limits(decoded_bytes=2 * 16 * 4 - 1))
    with pytest.raises(ztensor.LimitError) as caught:
        reader.read("a")
    assert caught.value.reason == Reason.LIMIT_DECODED
