"""The heaps of HDF5: objects of each kind, and blocks at the edges of what a table may say."""

from __future__ import annotations

import struct

import pytest

from tests.unit.foreign.hdf5.parts import UNDEFINED, leaf_2, summed, tree_2, window_of
from ztensor.errors import FormatError
from ztensor.foreign.hdf5.heaps import FractalHeap, GlobalHeaps, LocalHeap

HEAP, ROOT = 64, 512  # where the header of a heap lies, and its outermost block


def heap(
    *,
    id_length: int = 8,
    filter_length: int = 0,
    flags: int = 0,
    huge: int = UNDEFINED,
    columns: int = 2,
    first: int = 512,
    most_direct: int = 1024,
    heap_bits: int = 32,
    root: int = UNDEFINED,
    rows: int = 0,
) -> bytes:
    """Return the header of a fractal heap."""
    head = struct.pack("<4sBHHBI", b"FRHP", 0, id_length, filter_length, flags, 4096)
    head += struct.pack("<QQQQ", 0, huge, 0, UNDEFINED) + bytes(64)
    return summed(
        head + struct.pack("<HQQHHQH", columns, first, most_direct, heap_bits, 0, root, rows)
    )


def block(start: int, size: int, data: bytes, *, owner: int = HEAP) -> bytes:
    """Return a direct block that begins at `start` in its heap."""
    return (struct.pack("<4sBQI", b"FHDB", 0, owner, start) + data).ljust(size, b"\0")


def blocks(start: int, places: list[int], *, width: int = 4) -> bytes:
    """Return an indirect block."""
    head = struct.pack("<4sBQ", b"FHIB", 0, HEAP) + start.to_bytes(width, "little")
    return summed(head + struct.pack(f"<{len(places)}Q", *places))


def identifier(offset: int, length: int) -> bytes:
    return struct.pack("<BIHB", 0, offset, length, 0)


# --- Fractal heaps ----------------------------------------------------------------------------


def test_objects_lie_in_blocks_of_every_row() -> None:
    """Rows of blocks: two of 512 bytes, two more, two of 1024, then tables of 2048 bytes each."""
    starts = {0: 1024, 512: 2048, 1024: 3072, 1536: 4096, 2048: 5120, 3072: 6144}
    inner, innermost = 8192, {4096: 9216, 5120: 9728}
    places = [*starts.values(), inner, UNDEFINED]
    window = window_of(
        {
            HEAP: heap(root=ROOT, rows=4),
            ROOT: blocks(0, places),
            **{place: block(start, 1024, b"in %d" % start) for start, place in starts.items()},
            inner: blocks(4096, [innermost[4096], UNDEFINED, innermost[5120], UNDEFINED]),
            **{place: block(start, 512, b"in %d" % start) for start, place in innermost.items()},
        }
    )
    found = FractalHeap(window, HEAP)
    for start in (*starts, *innermost):
        text = b"in %d" % start
        assert found.read(identifier(start + 17, len(text))) == text


def test_a_table_in_a_heap_may_have_one_row() -> None:
    inner = 4096
    window = window_of(
        {
            HEAP: heap(root=ROOT, rows=3, most_direct=512),
            ROOT: blocks(0, [*[UNDEFINED] * 4, inner, UNDEFINED]),
            inner: blocks(2048, [UNDEFINED, 8192]),
            8192: block(2560, 512, b"object"),
        }
    )
    assert FractalHeap(window, HEAP).read(identifier(2560 + 17, 6)) == b"object"


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ({"rows": 64, "columns": 1}, True),
        ({"rows": 65, "columns": 1}, False),
        ({"first": 512, "most_direct": 512}, True),
        ({"first": 1024, "most_direct": 512}, False),
        ({"first": 0}, False),
        ({"first": 513}, False),
        ({"most_direct": 0}, False),
        ({"most_direct": 1536}, False),
        ({"columns": 0}, False),
        ({"heap_bits": 64}, True),
        ({"heap_bits": 65}, False),
        # Tables below this one would have no row at all.
        ({"rows": 3, "columns": 4, "most_direct": 512}, None),
    ],
)
def test_a_table_of_blocks_that_can_be(fields: dict[str, int], is_right: bool | None) -> None:
    made = {"rows": 1, **fields}
    count = made["rows"] * made.get("columns", 2)
    places = [UNDEFINED] * count
    if is_right is None:
        places[-1] = ROOT + 4096
    width = (made.get("heap_bits", 32) + 7) // 8
    window = window_of({HEAP: heap(root=ROOT, **made), ROOT: blocks(0, places, width=width)})
    if is_right:
        with pytest.raises(FormatError, match="does not lie in its heap"):
            FractalHeap(window, HEAP).read(identifier(0, 1))
    else:
        with pytest.raises(FormatError, match=r"table cannot be|no sizes that double"):
            FractalHeap(window, HEAP)


def test_a_heap_behind_a_filter_is_refused() -> None:
    head = heap(filter_length=4)[:-4]
    window = window_of({HEAP: summed(head + bytes(8 + 4 + 4))})
    with pytest.raises(FormatError, match="a heap is filtered"):
        FractalHeap(window, HEAP)


@pytest.mark.parametrize(("offset", "length"), [(17, 495), (511, 1), (0, 512)])
def test_an_object_may_end_with_its_block_and_no_later(offset: int, length: int) -> None:
    data = block(0, 512, bytes(range(1, 250)) * 2)
    found = FractalHeap(window_of({HEAP: heap(root=ROOT), ROOT: data}), HEAP)
    assert found.read(identifier(offset, length)) == data[offset : offset + length]
    for wrong in (identifier(offset, length + 1), identifier(offset + 1, length)):
        with pytest.raises(FormatError, match="does not lie in its heap"):
            found.read(wrong)


def test_a_block_belongs_to_its_heap_and_to_its_place_there() -> None:
    for wrong in (block(0, 512, b"a", owner=HEAP + 1), block(512, 512, b"a")):
        found = FractalHeap(window_of({HEAP: heap(root=ROOT), ROOT: wrong}), HEAP)
        with pytest.raises(FormatError, match="belongs elsewhere"):
            found.read(identifier(17, 1))


@pytest.mark.parametrize(
    ("id_length", "more", "most"), [(8, b"", 7), (18, b"", 16), (19, b"\0", 17), (40, b"\0", 38)]
)
def test_a_tiny_object_lies_in_its_identifier(id_length: int, more: bytes, most: int) -> None:
    """From 19 bytes on an identifier has a second byte of the object's length."""
    found = FractalHeap(window_of({HEAP: heap(id_length=id_length)}), HEAP)
    text = bytes(range(65, 65 + most))
    for length in (1, most):
        head = bytes((0x20 | length - 1,)) if not more else bytes((0x20, length - 1))
        assert found.read((head + text).ljust(id_length, b"\0")) == text[:length]


@pytest.mark.parametrize("id_length", [8, 19])
def test_a_tiny_object_is_no_longer_than_its_identifier(id_length: int) -> None:
    found = FractalHeap(window_of({HEAP: heap(id_length=id_length)}), HEAP)
    head = b"\x2f" if id_length == 8 else b"\x20\x12"
    with pytest.raises(FormatError, match="longer than its identifier"):
        found.read(head.ljust(id_length, b"\0"))


def test_an_identifier_of_a_fourth_kind_is_refused() -> None:
    found = FractalHeap(window_of({HEAP: heap()}), HEAP)
    with pytest.raises(FormatError, match="identifier of a heap is unknown"):
        found.read(b"\x30" + bytes(7))


@pytest.mark.parametrize("id_length", [8, 16])
def test_a_huge_object_is_found_by_a_tree(id_length: int) -> None:
    records = struct.pack("<QQQ", 4096, 5, 7) + struct.pack("<QQQ", 4096, 0, 8)
    parts = {
        HEAP: heap(id_length=id_length, huge=1024),
        1024: tree_2(1, 24, 2048, count=2),
        2048: leaf_2(1, records),
        4096: b"huge one",
    }
    found = FractalHeap(window_of(parts), HEAP)

    def named(key: int) -> bytes:
        return (b"\x10" + key.to_bytes(7, "little")).ljust(id_length, b"\0")

    assert found.read(named(7)) == b"huge "
    assert found.read(named(8)) == b""
    with pytest.raises(FormatError, match="a huge object is not in its heap"):
        found.read(named(9))


@pytest.mark.parametrize("id_length", [17, 20])
def test_a_huge_object_whose_place_is_in_its_identifier(id_length: int) -> None:
    """Its place and length take sixteen bytes: from 17 on there is room for them."""
    found = FractalHeap(window_of({HEAP: heap(id_length=id_length), 4096: b"huge one"}), HEAP)
    named = b"\x10" + struct.pack("<QQ", 4096, 4)
    assert found.read(named.ljust(id_length, b"\0")) == b"huge"


@pytest.mark.parametrize(("kind", "width"), [(2, 24), (1, 25)])
def test_a_tree_of_huge_objects_has_their_records(kind: int, width: int) -> None:
    parts = {
        HEAP: heap(huge=1024),
        1024: tree_2(kind, width, 2048, count=1),
        2048: leaf_2(kind, bytes(width)),
    }
    with pytest.raises(FormatError, match="other records"):
        FractalHeap(window_of(parts), HEAP).read(b"\x10" + bytes(7))


def test_a_heap_without_a_tree_has_no_huge_objects() -> None:
    with pytest.raises(FormatError, match="a huge object is not in its heap"):
        FractalHeap(window_of({HEAP: heap()}), HEAP).read(b"\x10" + bytes(7))


# --- Local and global heaps -------------------------------------------------------------------


def test_a_name_begins_anywhere_in_its_heap_and_ends_in_it() -> None:
    data = b"\0name\0\0end"
    head = struct.pack("<4sB3xQQQ", b"HEAP", 0, len(data), 0, 100)
    found = LocalHeap(window_of({0: head, 100: data}), 0)
    assert [found.text(offset) for offset in (0, 1, 3, 5, 6)] == [b"", b"name", b"me", b"", b""]
    for offset in (7, 9, len(data), 1000):
        with pytest.raises(FormatError, match="a name does not lie in its heap"):
            found.text(offset)


def collection(body: bytes, *, length: int | None = None, sign: bytes = b"GCOL") -> bytes:
    length = 16 + len(body) if length is None else length
    return struct.pack("<4sB3xQ", sign, 1, length) + body


def entry(number: int, size: int, data: bytes = b"") -> bytes:
    return struct.pack("<HHIQ", number, 1, 0, size) + data.ljust((size + 7) // 8 * 8, b"\0")


def free(size: int) -> bytes:
    return struct.pack("<HHIQ", 0, 0, 0, size).ljust(size, b"\0")


def test_objects_of_a_global_heap() -> None:
    body = entry(1, 8, b"abcdefgh") + entry(2, 3, b"ijk") + free(32) + entry(3, 0)
    heaps = GlobalHeaps(window_of({64: collection(body)}))
    assert heaps.read(64, 1, 8) == b"abcdefgh"
    assert heaps.read(64, 2, 2) == b"ij"
    assert heaps.read(64, 3, 0) == b""  # it is the last, and ends with the heap
    for number, length in ((1, 9), (2, 4), (3, 1), (4, 0), (0, 1)):
        with pytest.raises(FormatError, match="a text does not lie in its heap"):
            heaps.read(64, number, length)


def test_a_global_heap_may_hold_nothing() -> None:
    for body in (b"", bytes(15), free(16), free(40)):
        heaps = GlobalHeaps(window_of({64: collection(body)}))
        with pytest.raises(FormatError, match="a text does not lie in its heap"):
            heaps.read(64, 1, 1)


@pytest.mark.parametrize(
    "data", [collection(b"", length=15), collection(b"", length=0), collection(b"", sign=b"GCOM")]
)
def test_a_global_heap_is_as_long_as_its_head(data: bytes) -> None:
    with pytest.raises(FormatError, match="no global heap is here"):
        GlobalHeaps(window_of({64: data})).read(64, 1, 1)


@pytest.mark.parametrize(
    "last", [free(0), struct.pack("<HHIQ", 0, 0, 0, 17), struct.pack("<HHIQ", 5, 1, 0, 1)]
)
def test_the_last_object_of_a_global_heap_ends_in_it(last: bytes) -> None:
    heaps = GlobalHeaps(window_of({64: collection(entry(1, 3, b"abc") + last)}, 256))
    with pytest.raises(FormatError, match="a size that cannot be"):
        heaps.read(64, 1, 3)
