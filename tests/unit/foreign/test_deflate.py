"""Deflated streams that are read in part: how far one looks, and what it then knows of the rest."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from ztensor.encoding.zstd import Held
from ztensor.errors import EncodingError, Reason
from ztensor.foreign.deflate import Stream, head

DATA = np.random.default_rng(1).bytes(1 << 18)


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def held(packed: bytes) -> Held:
    return Held(memoryview(packed))


CUT = deflated(DATA)[:-9]


@pytest.mark.parametrize("start", [0, 1, len(DATA) // 2, len(DATA) - 1000])
def test_a_part_is_given_without_a_look_at_what_follows(start: int) -> None:
    found = b"".join(Stream(len(DATA)).pieces(held(CUT), start, start + 9))
    assert found == DATA[start : start + 9]


@pytest.mark.parametrize("kept", [0, 1, 40, 1000])
def test_the_head_of_a_cut_stream_is_what_it_gives(kept: int) -> None:
    found = head(held(deflated(DATA)[:kept]), 2000)
    assert len(found) < 2000
    assert DATA.startswith(found)
    assert head(held(deflated(DATA)), 2000) == DATA[:2000]


def test_the_head_of_what_is_no_stream_is_refused() -> None:
    with pytest.raises(EncodingError) as caught:
        head(held(b"\xff" * 9), 10)
    assert caught.value.reason is Reason.ENCODING_MALFORMED
