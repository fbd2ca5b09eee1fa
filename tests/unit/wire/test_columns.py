"""What is made for many items at once is what `cbor.py` makes for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ztensor.errors import NotRepresentableError
from ztensor.wire import cbor, columns


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), max_size=20))
def test_texts(texts: list[str]) -> None:
    made = [head + text for head, text in zip(*columns.encode_texts(texts), strict=True)]
    assert [one.encode("latin-1") for one in made] == list(map(cbor.encode_text, texts))


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(NotRepresentableError, match="lone surrogate"):
        columns.encode_texts(["fine", "\ud800"])


BORDERS = [0, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1]


@given(st.lists(st.sampled_from(BORDERS) | st.integers(0, (1 << 64) - 1), max_size=40))
def test_uints(numbers: list[int]) -> None:
    found: dict[int, bytes] = {}
    for places, rows in columns.encode_uints(np.array(numbers, np.uint64)):
        found.update(zip(places.tolist(), map(bytes, rows), strict=True))
    assert [found[place] for place in range(len(numbers))] == list(map(cbor.encode_uint, numbers))


def test_side_by_side() -> None:
    own = np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)
    assert columns.side_by_side(3, [b"\xff", own, b"--"]) == ["\xffab--", "\xffcd--", "\xffef--"]
