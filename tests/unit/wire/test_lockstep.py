from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ztensor.errors import LimitError, ManifestError
from ztensor.wire import cbor, lockstep
from ztensor.wire.lockstep import (
    ARRAY,
    MAP,
    MOST_CHOICE,
    TEXT,
    UNSIGNED,
    Lanes,
    Vocabulary,
    find_all,
)

EDGES = (0, 1, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)


def lanes_over(items: Sequence[bytes], stop: int | None = None) -> Lanes:
    """Return lanes that stand before each of the items, which follow one another."""
    data = b"".join(items)
    starts = np.cumsum([0, *map(len, items)])[:-1]
    return Lanes(data, starts, len(data) if stop is None else stop)


def ends_of(items: Sequence[bytes]) -> list[int]:
    return list(itertools.accumulate(map(len, items)))


def longer(major: int, argument: int, width: int) -> bytes:
    """A head whose argument takes `width` bytes, though fewer may do."""
    return bytes([major << 5 | 23 + width.bit_length()]) + argument.to_bytes(width, "big")


# --- Heads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("major", [UNSIGNED, TEXT, ARRAY, MAP])
def test_head_reads_every_argument_side_by_side(major: int) -> None:
    items = [cbor.head(major, argument) for argument in EDGES]
    lanes = lanes_over(items)
    assert lanes.head(major).tolist() == list(EDGES)
    assert lanes.position().tolist() == ends_of(items)
    assert lanes.ok.all()


def test_head_reads_arguments_longer_than_they_need_to_be() -> None:
    items = [longer(UNSIGNED, 7, width) for width in (1, 2, 4, 8)] + [b"\x07"]
    lanes = lanes_over(items)
    assert lanes.head(UNSIGNED).tolist() == [7] * 5
    assert lanes.position().tolist() == ends_of(items)
    assert lanes.ok.all()


def test_short_heads_are_read_as_well_among_themselves() -> None:
    lanes = lanes_over([b"\x80", b"\x97", b"\x83"])
    assert lanes.head(ARRAY).tolist() == [0, 23, 3]
    assert lanes.position().tolist() == [1, 2, 3]


@pytest.mark.parametrize("first", range(256))
def test_head_accepts_what_the_decoder_accepts(first: int) -> None:
    item = bytes([first]) + b"\0" * 8
    lanes = lanes_over([item, b"\xa0" + b"\0" * 8])
    counts = lanes.head(MAP)
    assert lanes.ok.tolist() == [0xA0 <= first < 0xBC, True]
    if lanes.ok[0]:
        assert (counts[0], lanes.position()[0]) == cbor.map_head(item, 0)


def test_a_lane_that_failed_stays_failed() -> None:
    lanes = lanes_over([b"\x61\x01", b"\x01\x01"])
    lanes.head(UNSIGNED)
    lanes.head(UNSIGNED)
    assert lanes.ok.tolist() == [False, True]


# --- Literals and choices -------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3, 7, 8, 9, 15, 16, 17, 30, 64, 100])
def test_literal_compares_every_byte(length: int) -> None:
    expected = bytes(range(1, length + 1))
    items = [expected]
    for at in range(length):
        wrong = bytearray(expected)
        wrong[at] ^= 0x80
        items.append(bytes(wrong))
    lanes = lanes_over(items)
    lanes.literal(expected)
    assert lanes.ok.tolist() == [True] + [False] * length
    assert lanes.position().tolist() == ends_of(items)


def test_sees_does_not_move() -> None:
    lanes = lanes_over([b"abcdefghij", b"abcdefghiX"])
    assert lanes.sees(b"abcdefghij").tolist() == [True, False]
    assert lanes.position().tolist() == [0, 10]
    assert lanes.ok.all()


WORDS = ("f32", "bf16", "", "f8_e4m3", "complex64", "complex128", "a" * 15, "u8")


@pytest.mark.parametrize("length", range(1, MOST_CHOICE + 1))
def test_choice_compares_every_byte_of_words_that_are_all_of_one_length(length: int) -> None:
    word = "abcdefghijklmno"[:length]
    others = [word[:at] + "X" + word[at + 1 :] for at in range(length)]
    lanes = lanes_over([cbor.encode_text(text) for text in (word, *others)])
    lanes.choice(Vocabulary((word, "f32x")))
    assert lanes.ok.tolist() == [True] + [False] * length


def test_choice_tells_words_of_every_length() -> None:
    items = [cbor.encode_text(word) for word in WORDS]
    lanes = lanes_over(items)
    assert lanes.choice(Vocabulary(WORDS)).tolist() == list(range(len(WORDS)))
    assert lanes.position().tolist() == ends_of(items)
    assert lanes.ok.all()


@pytest.mark.parametrize(
    "item",
    [
        *map(cbor.encode_text, ["f33", "complex65", "complex129", "a" * 14 + "b", "a" * 16, "F32"]),
        *map(cbor.encode_text, ["f3", "f322", "complex", "zzz", "é"]),
        b"\x78\x03f32",  # a longer head than needed is another word
        b"\x43f32",
        b"\xf6",
        b"\x18\x20",
        b"\xff",
    ],
)
def test_choice_refuses_other_items(item: bytes) -> None:
    lanes = lanes_over([item.ljust(24, b"\0"), b"\x63f32"])
    lanes.choice(Vocabulary(WORDS))
    assert lanes.ok.tolist() == [False, True]


def test_choice_among_words_whose_lengths_differ_from_lane_to_lane() -> None:
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(WORDS), 500).tolist()
    lanes = lanes_over([cbor.encode_text(WORDS[pick]) for pick in picks])
    assert lanes.choice(Vocabulary(WORDS)).tolist() == picks
    assert max(map(len, WORDS)) == MOST_CHOICE


@pytest.mark.parametrize("digits", [8, 64])
def test_hexadecimal_takes_digits_of_either_case_only(digits: int) -> None:
    items = [bytes([byte]).rjust(digits, b"a") for byte in range(256)]
    lanes = lanes_over(items)
    lanes.hexadecimal(digits)
    assert bytes(np.flatnonzero(lanes.ok).astype(np.uint8)) == b"0123456789ABCDEFabcdef"
    assert lanes.position().tolist() == ends_of(items)


# --- Some of the lanes ----------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [[True, False, True], [True] * 3, [False] * 3])
def test_split_lanes_move_alone(chosen: list[bool]) -> None:
    lanes = lanes_over([b"\x01\x02", b"\x03\x04", b"\x05\x06"])
    column = np.zeros(3, np.uint64)
    with lanes.split(np.array(chosen)) as some:
        assert some.count == sum(chosen)
        column[some.index] = some.head(UNSIGNED)
    assert column.tolist() == [
        first if is_in else 0 for first, is_in in zip((1, 3, 5), chosen, strict=True)
    ]
    assert lanes.position().tolist() == [
        2 * at + is_in for at, is_in in zip(range(3), chosen, strict=True)
    ]
    assert lanes.ok.all()


def test_split_lanes_hand_back_what_failed_also_from_a_second_split() -> None:
    lanes = lanes_over([b"\x01", b"\x61", b"\x01", b"\x61"])
    with lanes.split(np.array([False, True, True, True])) as some:
        with some.split(np.array([False, True, True])) as fewer:
            fewer.head(UNSIGNED)
        assert some.ok.tolist() == [True, True, False]
    assert lanes.ok.tolist() == [True, True, True, False]


# --- Ends -----------------------------------------------------------------------------------

READINGS: dict[str, Callable[[Lanes], Any]] = {
    "head": lambda lanes: lanes.head(UNSIGNED),
    "literal": lambda lanes: lanes.literal(bytes(40)),
    "choice": lambda lanes: lanes.choice(Vocabulary(WORDS)),
    "hexadecimal": lambda lanes: lanes.hexadecimal(64),
    "skip": lambda lanes: lanes.skip(1 << 40),
    "skip each": lambda lanes: lanes.skip(np.full(lanes.count, 1 << 40)),
    "sees": lambda lanes: lanes.sees(bytes(100)),
}


@pytest.mark.parametrize("name", READINGS)
def test_no_reading_leaves_the_data(name: str) -> None:
    """Lanes that run over their end have failed, and go on reading without harm."""
    for filler in (b"\0", b"\x1b", b"\x6f", b"\xff", b"a"):
        data = filler * 40
        lanes = Lanes(data, np.arange(0, 40, 3), len(data))
        for _ in range(60):
            READINGS[name](lanes)
        assert (lanes.position() <= len(data) + 1).all()
        assert not lanes.ok[lanes.position() > len(data)].any()
        if name != "sees":
            assert not lanes.ok.any()


def test_an_item_may_end_where_the_window_ends_and_not_behind_it() -> None:
    data = b"\x18\x07\x18\x07"
    for stop, ok in ((4, True), (3, False)):
        lanes = Lanes(data, np.array([0, 2]), stop)
        lanes.head(UNSIGNED)
        assert lanes.ok.tolist() == [True, ok]


def test_the_bytes_before_the_first_lane_do_not_matter() -> None:
    data = bytes(1000) + b"\x19\x01\x00" + bytes(1000)
    lanes = Lanes(data, np.array([1000]), 1003)
    assert lanes.head(UNSIGNED).tolist() == [256]
    assert lanes.position().tolist() == [1003]
    assert lanes.ok.all()


# --- Search ---------------------------------------------------------------------------------

PATTERN = b"\xa3eshape"


def everywhere(data: bytes, start: int) -> list[int]:
    last = len(data) - 8
    return [at for at in range(start, last) if data.startswith(PATTERN, at)]


@pytest.mark.parametrize("stride", [1, 7, 64, 1 << 20])
def test_find_all_finds_every_place(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "_STRIDE", stride)
    rng = np.random.default_rng(stride)
    for _ in range(20):
        parts = [
            (PATTERN, PATTERN[:-1], b"\xa3", bytes(rng.integers(0, 256, 5, np.uint8)))[kind]
            for kind in rng.integers(0, 4, 60)
        ]
        data = b"".join(parts)
        for start in (0, 1, 50):
            found = find_all(data, start, PATTERN, most=1000)
            assert found is not None
            assert found.tolist() == everywhere(data, start)


def test_find_all_gives_up_beyond_a_number() -> None:
    data = PATTERN * 9 + bytes(8)
    found = find_all(data, 0, PATTERN, most=9)
    assert found is not None
    assert len(found) == 9
    assert find_all(data, 0, PATTERN, most=8) is None


@pytest.mark.parametrize("data", [b"", b"\xa3", PATTERN, PATTERN + b"\0"])
def test_find_all_in_little(data: bytes) -> None:
    found = find_all(data, 0, PATTERN, most=9)
    assert found is not None
    assert found.tolist() == []
    beyond = find_all(data, 5000, PATTERN, most=9)
    assert beyond is not None
    assert beyond.tolist() == []


@pytest.mark.slow
def test_find_all_needs_little_memory_where_every_byte_may_begin_one() -> None:
    data = b"\xa3" * (64 << 20)
    tracemalloc.start()
    try:
        found = find_all(data, 0, PATTERN, most=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert len(found) == 0
    assert peak < 48 << 20


# --- What cbor.py lends ---------------------------------------------------------------------


def test_decode_item_says_where_the_item_ends() -> None:
    data = b"\x01" + cbor.encode({"a": [1, 2]}) + b"\xff\xff"
    assert cbor.decode_item(data, 1) == ({"a": [1, 2]}, len(data) - 2)


def test_decode_item_counts_depth_from_itself() -> None:
    data = b"\x00" + cbor.encode([[1]])
    assert cbor.decode_item(data, 1, depth=2) == ([[1]], 4)
    with pytest.raises(LimitError):
        cbor.decode_item(data, 1, depth=1)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x80", b"\xbf\xff", b"\xb9\x01", b"\xbc"])
def test_map_head_wants_a_definite_map(data: bytes) -> None:
    with pytest.raises(ManifestError):
        cbor.map_head(data, 0)


def test_map_head_gives_count_and_first_pair() -> None:
    assert cbor.map_head(b"\x00\xb9\x01\x00", 1) == (256, 4)
    assert cbor.map_head(b"\xa0", 0) == (0, 1)


def test_the_data_goes_with_the_lanes() -> None:
    """Cursors that held themselves kept a manifest until the collector of circles came."""
    data = bytearray(1 << 12)
    gc.disable()
    try:
        lanes = Lanes(bytes(data), np.zeros(1, np.int64), 1 << 11)
        with lanes.split(np.ones(1, np.bool_)) as some:
            some.skip(1)
        gone = weakref.ref(lanes._bytes)
        del lanes, some
        assert gone() is None
    finally:
        gc.enable()
