"""The indexes of chunks, at the edges of what they may say."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.unit.foreign.hdf5.parts import UNDEFINED, leaf_2, summed, tree_2, window_of
from ztensor.errors import FormatError, Reason
from ztensor.foreign.hdf5.chunks import ChunkTable, read_chunks
from ztensor.foreign.hdf5.messages import Index, Layout, Place, Space
from ztensor.foreign.hdf5.window import Window

AT = 64  # where an index lies
FAR = 1 << 20


def table_of(
    window: Window,
    lookup: Index,
    shape: tuple[int, ...] = (100,),
    chunks: tuple[int, ...] = (1,),
    *,
    address: int = AT,
    most: tuple[int, ...] | None = None,
    nbytes: int = 1,
    single: tuple[int, int] | None = None,
) -> ChunkTable:
    layout = Layout(Place.CHUNKED, address, chunks=chunks, width=1, lookup=lookup, single=single)
    is_filtered = single is not None or lookup == Index.TREE_2
    return read_chunks(window, layout, Space(shape, most or shape), nbytes, is_filtered=is_filtered)


@pytest.mark.parametrize("shape", [((1 << 62),), (1 << 31, 1 << 31), (1, 1 << 62)])
def test_as_many_chunks_as_can_be_counted(shape: tuple[int, ...]) -> None:
    found = table_of(window_of({}, 64), Index.TREE_1, shape, (1,) * len(shape), address=UNDEFINED)
    assert found.grid == shape
    assert found.has_gaps
    more = (*shape[:-1], shape[-1] + 1)
    with pytest.raises(FormatError, match="more chunks than can be counted"):
        table_of(window_of({}, 64), Index.TREE_1, more, (1,) * len(shape), address=UNDEFINED)


def test_a_chunk_may_be_as_long_as_the_file_and_no_longer() -> None:
    window = window_of({}, 1000)
    found = table_of(window, Index.SINGLE, (1000,), (1000,), address=0, single=(1000, 1))
    assert (found.offsets.tolist(), found.lengths.tolist(), found.nbytes) == ([0], [1000], 1000)
    for address, length in ((0, 1001), (1, 1000), (1000, 1), (UNDEFINED - 1, 1)):
        with pytest.raises(FormatError) as caught:
            table_of(window, Index.SINGLE, address=address, chunks=(100,), single=(length, 0))
        assert caught.value.reason == Reason.OUT_OF_BOUNDS


def test_chunks_of_a_place_that_is_taken_are_refused() -> None:
    records = b"".join(struct.pack("<QBIQ", 0, 1, 0, place) for place in (3, 4, 3))
    window = window_of({AT: tree_2(11, 21, 1024, count=3), 1024: leaf_2(11, records)})
    with pytest.raises(FormatError, match="two chunks for one place"):
        table_of(window, Index.TREE_2)


@pytest.mark.parametrize("width", range(10))
def test_lengths_in_a_tree_take_one_to_eight_bytes(width: int) -> None:
    records = b"".join(
        struct.pack("<Q", 16 * place)
        + (place + 1).to_bytes(width or 1, "little")[:width]
        + struct.pack("<IQ", place, place)
        for place in (4, 7)
    )
    size = 8 + width + 4 + 8
    window = window_of({AT: tree_2(11, size, 1024, count=2), 1024: leaf_2(11, records)})
    if 1 <= width <= 8:
        found = table_of(window, Index.TREE_2)
        assert found.numbers.tolist() == [4, 7]
        assert found.lengths.tolist() == [5, 8]
        assert found.offsets.tolist() == [64, 112]
        assert found.skipped.tolist() == [4, 7]
    else:
        with pytest.raises(FormatError, match="a tree has other records"):
            table_of(window, Index.TREE_2)


@pytest.mark.parametrize("place", [99, 100])
def test_a_chunk_lies_in_its_dataset(place: int) -> None:
    records = struct.pack("<QBIQ", 0, 1, 0, place)
    window = window_of({AT: tree_2(11, 21, 1024, count=1), 1024: leaf_2(11, records)})
    if place < 100:
        assert table_of(window, Index.TREE_2).numbers.tolist() == [place]
    else:
        with pytest.raises(FormatError, match="a chunk does not lie in its dataset"):
            table_of(window, Index.TREE_2)


def test_chunks_without_an_index_lie_as_in_the_largest_shape() -> None:
    """Room is for 3 by 5 chunks, of which 2 by 3 are in the dataset now."""
    window = window_of({}, AT + 15 * 4)
    how: dict[str, Any] = {"chunks": (2, 2), "most": (6, 10), "nbytes": 4}
    found = table_of(window, Index.IMPLICIT, (4, 5), **how)
    assert found.grid == (2, 3)
    assert found.numbers.tolist() == list(range(6))
    assert found.offsets.tolist() == [AT + 4 * number for number in (0, 1, 2, 5, 6, 7)]
    assert not found.has_gaps
    with pytest.raises(FormatError) as caught:
        table_of(window_of({}, AT + 15 * 4 - 1), Index.IMPLICIT, (4, 5), **how)
    assert caught.value.reason == Reason.OUT_OF_BOUNDS


def fixed(count: int, width: int = 8, *, client: int = 0, page_bits: int = 4) -> dict[int, bytes]:
    """Return a fixed array whose entries lie in pages where there are more than sixteen."""
    head = struct.pack("<4sBBBBQQ", b"FAHD", 0, client, width, page_bits, count, 1024)
    prefix = struct.pack("<4sBBQ", b"FADB", 0, client, AT)
    entries = [struct.pack("<Q", 8 * number) for number in range(count)]
    if count <= 1 << page_bits:
        return {AT: summed(head), 1024: summed(prefix + b"".join(entries))}
    starts = range(0, count, 1 << page_bits)
    pages = (summed(b"".join(entries[start : start + (1 << page_bits)])) for start in starts)
    bitmap = bytes(
        [255] * (len(starts) // 8) + [0xFF00 >> len(starts) % 8 & 255] * (len(starts) % 8 > 0)
    )
    return {AT: summed(head), 1024: summed(prefix + bitmap) + b"".join(pages)}


@pytest.mark.parametrize("count", [1, 15, 16, 17, 32, 33, 128, 129])
def test_a_fixed_array_has_pages_where_there_is_more_than_one(count: int) -> None:
    found = table_of(window_of(fixed(count), FAR), Index.FIXED, (count,))
    assert found.numbers.tolist() == list(range(count))
    assert found.offsets.tolist() == [8 * number for number in range(count)]


@pytest.mark.parametrize(("width", "client"), [(7, 0), (9, 0), (8, 1), (13, 1)])
def test_entries_are_an_address_each(width: int, client: int) -> None:
    with pytest.raises(FormatError, match="an index has other entries"):
        table_of(window_of(fixed(3, width, client=client)), Index.FIXED)


@pytest.mark.parametrize("count", [17, 31, 32])
def test_a_page_behind_the_end_of_a_fixed_array_is_refused(count: int) -> None:
    """Its entries lie in two pages, and a third is said to be written."""
    parts = fixed(count)
    body = bytearray(parts[1024])
    assert body[14] == 0xC0
    body[14] |= 0x20
    parts[1024] = summed(bytes(body[:15])) + bytes(body[19:])
    with pytest.raises(FormatError, match="a page lies behind the end of an index"):
        table_of(window_of(parts, FAR), Index.FIXED)


def extensible(bits: int, least: int, pointers: int, *, inner: int = 4) -> dict[int, bytes]:
    """Return an extensible array of which only the first entries are written."""
    fields = (8, bits, inner, least, pointers, 10)
    head = struct.pack("<4sBB6B6QQ", b"EAHD", 0, 0, *fields, *[0] * 6, 1024)
    supers = 2 + bits - least.bit_length()
    in_index = 2 * (pointers.bit_length() - 1)
    places = max(2 * (pointers - 1) + max(supers - in_index, 0), 0)
    entries = struct.pack(f"<{inner}Q", *range(0, 8 * inner, 8))
    body = struct.pack("<4sBBQ", b"EAIB", 0, 0, AT) + entries
    return {AT: summed(head), 1024: summed(body + b"\xff" * (8 * places))}


@pytest.mark.parametrize(
    ("bits", "least", "pointers"),
    [
        (32, 16, 4), (64, 16, 4), (5, 16, 4), (1, 1, 1), (64, 128, 128), (8, 128, 2),
    ],
)  # fmt: skip
def test_an_extensible_array_grows_as_it_says(bits: int, least: int, pointers: int) -> None:
    window = window_of(extensible(bits, least, pointers), FAR)
    found = table_of(window, Index.EXTENSIBLE, most=(UNDEFINED,))
    assert found.numbers.tolist() == [0, 1, 2, 3]
    assert found.offsets.tolist() == [0, 8, 16, 24]


@pytest.mark.parametrize(
    ("bits", "least", "pointers"),
    [
        (65, 16, 4), (255, 16, 4), (4, 16, 4), (0, 1, 4), (32, 0, 4), (32, 16, 0), (32, 12, 4),
        (32, 16, 3),
    ],
)  # fmt: skip
def test_an_extensible_array_that_cannot_grow_as_it_says(
    bits: int, least: int, pointers: int
) -> None:
    window = window_of(extensible(bits, least, pointers), FAR)
    with pytest.raises(FormatError, match="an extensible array cannot be"):
        table_of(window, Index.EXTENSIBLE, most=(UNDEFINED,))
