"""Elements of a PyTorch file that are gathered: which are given piece by piece, and how far."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_pt import archive, tensor
from ztensor.errors import EncodingError, LimitError, Reason
from ztensor.foreign.deflate import Stream
from ztensor.foreign.pt.encodings import Gathered, Geometry
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.source.base import Range
from ztensor.source.memory import MemorySource

SIZE = 3, 4
DATA = bytes(range(12))


def deflated() -> Range:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = made.compress(DATA) + made.flush()
    return Range(MemorySource(data), 0, len(data))


@pytest.mark.parametrize("is_deflated", [False, True])
@pytest.mark.parametrize(
    ("stride", "is_streamed"), [((4, 1), True), ((1, 3), False)], ids=["in order", "turned"]
)
def test_what_is_inflated_in_another_order_is_held_as_a_whole(
    stride: tuple[int, int], is_deflated: bool, is_streamed: bool
) -> None:
    stored = deflated() if is_deflated else Range(MemorySource(DATA), 0, len(DATA))
    stream = Stream(len(DATA)) if is_deflated else None
    encoding = Gathered("strided-0", Geometry(SIZE, stride, 1, len(DATA), stream=stream))
    assert encoding.is_streamed(stored) == (is_streamed or not is_deflated)
    expected = np.ndarray(SIZE, "u1", DATA, 0, stride).tobytes()
    assert b"".join(encoding.decode_chunks(stored, len(DATA), DEFAULT_LIMITS)) == expected
    assert (encoding.find_runs(stored, len(DATA), DEFAULT_LIMITS) is None) == is_deflated
    with pytest.raises(EncodingError) as caught:
        list(encoding.decode_chunks(stored, None, DEFAULT_LIMITS))
    assert caught.value.reason is Reason.SIZE_MISMATCH


def test_an_element_may_be_repeated_as_often_as_the_limit_allows() -> None:
    limits = Limits(decoded_bytes=1 << 20)
    assert ztensor.open(archive(tensor((1024,), (0,))), limits=limits)["tensor"].shape == (1024,)
    with pytest.raises(LimitError) as caught:
        ztensor.open(archive(tensor((1025,), (0,))), limits=limits)["tensor"]
    assert caught.value.reason is Reason.LIMIT_DECODED
