"""The file that is being written: how what is copied into it is encoded there."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save

ZEROS = np.zeros((300, 100))
WORDS = {"1.2.0": "zstd", "2.1": "zt.zstd-seekable/1"}


def copied(data: bytes, version: str, compress: Any, compression: Any) -> str:
    """Return the encoding of the copy, which holds the same."""
    target = io.BytesIO()
    with ztensor.open(data) as reader, ztensor.Writer(
        target, version=version, compression=compression
    ) as writer:  # fmt: skip
        writer.copy("w", reader, compress=compress)
    with ztensor.open(target.getvalue()) as reader:
        assert reader.verify(deep=True).outcome == "ok"
        assert np.array_equal(reader["w"], ZEROS)
        return reader.metadata("w").components["data"].encoding


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.parametrize("version", WORDS)
@pytest.mark.parametrize("old", WORDS)
def test_a_copy_is_encoded_as_it_was_or_as_it_is_told(
    old: str, version: str, is_encoded: bool, compression: bool
) -> None:
    """What the version calls otherwise is decoded and encoded anew, and stays what it was."""
    data = save({"w": ZEROS}, version=old, compression=is_encoded)
    zstd = WORDS[version]
    if old == version or not compression:
        assert copied(data, version, None, compression) == (zstd if is_encoded else "raw")
    assert copied(data, version, True, compression) == zstd
    assert copied(data, version, False, compression) == "raw"
