"""Objects that are read one by one: what they are, and whose memory they share."""

from __future__ import annotations

import numpy as np

from ztensor.numpy import load, save
from ztensor.reading.each import OWN_BYTES

MIB = 1 << 20


def test_a_large_encoded_tensor_keeps_no_others_in_memory() -> None:
    """From 4 MiB on it has memory of its own; smaller neighbours share theirs."""
    tensors = {"a": np.zeros(OWN_BYTES, np.uint8)}
    tensors |= {name: np.full(MIB, 7, np.uint8) for name in "bcdefg"}
    found = load(save(tensors, compression=True))
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    assert not np.may_share_memory(found["a"].base, found["b"].base)
    assert np.may_share_memory(found["b"].base, found["g"].base)
