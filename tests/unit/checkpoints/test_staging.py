from __future__ import annotations

import numpy as np
import pytest

from ztensor.checkpoints import staging
from ztensor.checkpoints.staging import Staging
from ztensor.tree.encode import encode


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("piece", [1, 1000, 8 << 20])
def test_a_copy_in_pieces_is_the_state(
    threads: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of its bytes: of a state that was there before, and of one that is new."""
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
    monkeypatch.setattr(staging, "_PIECE", piece)
    monkeypatch.setattr(staging, "_LEAST_KEPT", 100)
    wide = np.arange(60 * 70, dtype=np.float32).reshape(60, 70)
    room = Staging()
    for _ in range(2):
        wide += 1
        tree = {
            "C": wide, "F": np.asfortranarray(wide), "rows": wide[::2], "big": wide.astype(">f4"),
            "scalar": np.array(7.0), "none": np.zeros((0, 3)), "bools": wide > 9,
        }  # fmt: skip
        encoded = encode(tree)
        copied = room.copied(encoded)
        assert copied.leaves.keys() == encoded.leaves.keys()
        for name, leaf in encoded.leaves.items():
            own = copied.leaves[name]
            assert np.array_equal(own, leaf)
            assert own.dtype == leaf.dtype
            assert not np.shares_memory(own, leaf)
