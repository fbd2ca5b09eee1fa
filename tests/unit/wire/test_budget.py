"""What reading an item of CBOR costs is asked for before it is taken."""

from __future__ import annotations

import tracemalloc

import pytest

from ztensor.errors import LimitError, Reason
from ztensor.limits import Budget, Limits
from ztensor.wire import cbor

LENGTH = 1 << 20


def budget(nbytes: int) -> Budget:
    return Budget(Limits(cost_floor=nbytes, cost_factor=0), 0)


@pytest.mark.parametrize("major", [2, 3], ids=["bytes", "text"])
def test_pieces_are_put_together_where_the_budget_has_room_for_the_whole(major: int) -> None:
    """Each piece alone has room; of the text a character in four bytes makes all others wide."""
    first = "😀".encode() if major == 3 else b"four"
    piece = cbor.head(major, LENGTH) + b"a" * LENGTH
    data = bytes((major << 5 | 31,)) + cbor.head(major, 4) + first + piece * 2 + b"\xff"
    value = cbor.decode(data, budget=budget(12 * LENGTH))
    assert value == (first + b"a" * 2 * LENGTH if major == 2 else first.decode() + "a" * 2 * LENGTH)
    del value
    tracemalloc.start()
    try:
        with pytest.raises(LimitError) as caught:
            cbor.decode(data, budget=budget(3 * LENGTH))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.reason is Reason.LIMIT_COST
    assert peak < (8 if major == 3 else 5.5) * LENGTH
