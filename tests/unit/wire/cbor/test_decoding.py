"""Items by themselves, what a strict reading says of what is cut, and what reading costs."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from ztensor.errors import LimitError, ManifestError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.wire import cbor

MIB = 1 << 20


def budget(nbytes: int) -> Budget:
    return Budget(Limits(cost_floor=nbytes, cost_factor=0), 0)


# --- By themselves ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("00", "17", "1818", "20", "40", "4131", "5f4131ff", "5fff", "7fff", "7f6161ff"),
        *("60", "6161", "77" + "61" * 23, "780161", "7817" + "61" * 23, "7818" + "61" * 24),
        *("80", "8101", "9f01ff", "a0", "a1616101", "c101", "f4", "f6", "f93c00"),
    ],
)
def test_an_item_by_itself_is_what_it_is_in_an_array(text: str) -> None:
    item = bytes.fromhex(text)
    for behind in (b"", b"\0", b"\xff"):
        value, end = cbor.decode_item(b"\0" + item + behind, 1)
        assert [value] == cbor.decode(b"\x81" + item)
        assert end == 1 + len(item)


@pytest.mark.parametrize("data", [b"", b"a", b"\x61a"])
def test_behind_the_end_there_is_no_item(data: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        cbor.decode_item(data, len(data))
    assert caught.value.reason is Reason.CBOR_TRUNCATED
    assert caught.value.message.endswith(f"at byte {len(data)}")
    for head in (cbor.map_head, cbor.array_head):
        with pytest.raises(ManifestError) as caught:
            head(data, len(data))
        assert caught.value.reason is Reason.CBOR_TRUNCATED


@pytest.mark.parametrize(("count", "offset"), [(22, 4), (23, 4), (24, 0)])
def test_of_few_items_the_one_that_is_missing_is_told(count: int, offset: int) -> None:
    """Of more, that there cannot be so many."""
    for major, item in ((4, b"\0"), (5, b"\0")):
        head = cbor.head(major, count)
        with pytest.raises(ManifestError) as caught:
            cbor.decode(head + item * (4 - len(head)))
        assert caught.value.reason is Reason.CBOR_TRUNCATED
        assert caught.value.message.endswith(f"at byte {offset}")


# --- Strictly -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"\x62a", b"\x78\x18a"])
def test_a_cut_key_that_begins_like_the_one_before_is_cut(key: bytes) -> None:
    """Neither is it the same key, nor one that comes too late."""
    with pytest.raises(ManifestError) as caught:
        cbor.decode(b"\xa2\x61a\0" + key, strict=True)
    assert caught.value.reason is Reason.CBOR_TRUNCATED


@pytest.mark.parametrize("strict", [False, True])
def test_a_key_twice_is_told_where_nothing_follows_it(*, strict: bool) -> None:
    with pytest.raises(ManifestError) as caught:
        cbor.decode(b"\xa2\x61a\0\x61a", strict=strict)
    assert caught.value.reason is Reason.CBOR_DUPLICATE_KEY


# --- What it costs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("190100", "1a00010000", "1b0000000100000000", "390100", "3a00010000"),
        *("3b0000000100000000", "f93c00", "fa3fc00000", "fb3ff199999999999a", "6161", "62c3bc"),
        *("4161", "7f6161ff", "80", "a0", "9f00ff", "c100", "f4"),
    ],
)
@pytest.mark.parametrize("way", ["array", "map", "open array", "open map"])
def test_what_an_item_takes_is_charged(text: str, way: str) -> None:
    """Texts that are alike are one in memory: they differ here."""
    count = 600
    item = bytes.fromhex(text)
    some = Budget(DEFAULT_LIMITS, 0)
    before = some.bytes_left
    if "array" in way:
        data = item * count
        data = cbor.head(4, count) + data if way == "array" else b"\x9f" + data + b"\xff"
        value = cbor.decode(data, budget=some)
        assert isinstance(value, list)
        inside = value
    else:
        data = b"".join(cbor.encode_text(f"{number}") + item for number in range(count))
        data = cbor.head(5, count) + data if way == "map" else b"\xbf" + data + b"\xff"
        value = cbor.decode(data, budget=some)
        assert isinstance(value, dict)
        inside = [*value.values(), *value]
    each = {id(one): sys.getsizeof(one) for one in inside}
    assert before - some.bytes_left >= sys.getsizeof(value) + sum(each.values())


@pytest.mark.parametrize("is_open", [False, True])
def test_maps_are_charged_where_their_keys_are_there_already(*, is_open: bool) -> None:
    pairs = b"".join(cbor.encode_text(f"{number}") + b"\xf4" for number in range(400))
    one = b"\xbf" + pairs + b"\xff" if is_open else cbor.head(5, 400) + pairs
    costs = []
    for count in (1, 9):
        some = Budget(DEFAULT_LIMITS, 0)
        before = some.bytes_left
        value = cbor.decode(cbor.head(4, count) + one * count, budget=some)
        costs.append(before - some.bytes_left)
    assert isinstance(value, list)
    assert costs[1] - costs[0] >= sum(map(sys.getsizeof, value[1:]))


def peak_of_a_refusal(data: bytes, nbytes: int) -> int:
    """Return the memory that reading took until the budget ended it."""
    tracemalloc.start()
    try:
        with pytest.raises(LimitError) as caught:
            cbor.decode(data, budget=budget(nbytes))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.reason is Reason.LIMIT_COST
    return peak


@pytest.mark.parametrize(
    ("data", "nbytes", "most"),
    [
        (cbor.head(2, MIB) + bytes(MIB), MIB, MIB // 2),
        (cbor.head(3, MIB) + b"a" * MIB, MIB, MIB // 2),
        (cbor.head(3, MIB) + "😀".encode() + b"a" * (MIB - 4), 3 * MIB, 2 * MIB),
        (cbor.head(4, 20_000) + b"\x80" * 20_000, MIB // 8, MIB // 4),
        (b"\x9f" + b"\x80" * 20_000 + b"\xff", MIB // 8, MIB // 2),
    ],
    ids=["bytes", "text", "wide text", "many arrays", "many arrays, uncounted"],
)
def test_what_the_budget_has_no_room_for_is_not_made(data: bytes, nbytes: int, most: int) -> None:
    assert peak_of_a_refusal(data, nbytes) < most


def test_bytes_in_chunks_are_never_wide() -> None:
    """Of a text every character may take four bytes, if one does."""
    chunk = cbor.head(2, 1 << 16) + b"\xff" * (1 << 16)
    data = b"\x5f" + chunk * 2 + b"\xff"
    assert cbor.decode(data, budget=budget(3 << 17)) == b"\xff" * (1 << 17)
