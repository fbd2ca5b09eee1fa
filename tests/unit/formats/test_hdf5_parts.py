"""Structures of HDF5 that h5py never writes, put together byte by byte: read, or refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ztensor.errors import FormatError
from ztensor.ext import source_of
from ztensor.formats.hdf5 import chunks, header, messages, trees, types
from ztensor.formats.hdf5.checksum import lookup3
from ztensor.formats.hdf5.window import Fields, Window
from ztensor.limits import Budget, Limits

UNDEFINED = 2**64 - 1
AT = 64  # where an index is


def summed(body: bytes) -> bytes:
    """Return a structure with its checksum behind it."""
    return body + lookup3(body).to_bytes(4, "little")


def window_of(parts: Mapping[int, bytes], size: int = 0) -> Window:
    """Return the window on a file that has each part at its address, and zeros elsewhere."""
    data = bytearray(max([size, *(place + len(part) for place, part in parts.items())]))
    for place, part in parts.items():
        data[place : place + len(part)] = part
    source = source_of(bytes(data), mapped=False)
    return Window(source, 0, Budget(Limits(), source.size), 8, 8)


def tree_2(kind: int, width: int, root: int, count: int = 1) -> bytes:
    """Return the header of a version 2 tree of one leaf."""
    head = struct.pack("<4sBBIHHBB", b"BTHD", 0, kind, 4096, width, 0, 100, 40)
    return summed(head + struct.pack("<QHQ", root, count, count))


def leaf_2(kind: int, records: bytes) -> bytes:
    return summed(struct.pack("<4sBB", b"BTLF", 0, kind) + records)


# --- Messages ---------------------------------------------------------------------------------


def message(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("<BHB", kind, len(body), flags) + body


def header_of(body: bytes) -> Window:
    return window_of({0: summed(struct.pack("<4sBBH", b"OHDR", 2, 1, len(body)) + body)}, 2000)


def layout_of(body: bytes) -> messages.Layout:
    return messages.parse_layout(
        window_of({}, 64), header.Message(header.Kind.LAYOUT, body, 1000, is_shared=False, order=0)
    )


def old_layout(version: int, kind: int, dimensions: tuple[int, ...], more: bytes = b"") -> bytes:
    body = bytes((version, len(dimensions), kind)) + bytes(5)
    body += struct.pack("<Q", 500) if kind else b""
    return body + struct.pack(f"<{len(dimensions)}I", *dimensions) + more


def test_chunks_of_the_first_layouts() -> None:
    for version in (1, 2):
        found = layout_of(old_layout(version, 2, (3, 5, 4)))
        assert (found.address, found.chunks, found.width) == (500, (3, 5), 4)


# --- Types ------------------------------------------------------------------------------------

INTEGER_CLASS, FLOAT_CLASS, TIME, COMPOUND, ENUM, ARRAY = 0, 1, 2, 6, 8, 10  # of the format


def fields_of(body: bytes) -> Fields:
    return Fields(window_of({}, 64), body)


def parse(body: bytes) -> types.Type:
    return types.parse_type(fields_of(body))


def kind_of(kind: int, size: int, *, version: int = 3, flags: int = 0) -> bytes:
    return struct.pack("<BBHI", version << 4 | kind, flags & 0xFF, flags >> 8, size)


def integer(size: int, offset: int, precision: int, flags: int = 0) -> bytes:
    head = kind_of(INTEGER_CLASS, size, version=1, flags=flags)
    return head + struct.pack("<HH", offset, precision)


def float_of(size: int, precision: int, *places: int) -> bytes:
    """Return a float: the places of sign, exponent and mantissa with their bits, and the bias."""
    sign, *others = places
    head = kind_of(FLOAT_CLASS, size, flags=sign << 8 | 0x20)
    return head + struct.pack("<HHBBBBI", 0, precision, *others)


def compound(size: int, parts: Mapping[bytes, tuple[int, bytes]]) -> bytes:
    width = (size.bit_length() + 7) // 8
    body = kind_of(COMPOUND, size, flags=len(parts))
    for name, (offset, part) in parts.items():
        body += name + b"\0" + offset.to_bytes(width, "little") + part
    return body


INTEGER, FLOAT = integer(4, 0, 32), float_of(4, 32, 31, 23, 8, 0, 23, 127)


def test_a_field_of_the_first_version_may_be_an_array() -> None:
    head = kind_of(COMPOUND, 8, version=1, flags=1) + b"a".ljust(8, b"\0")
    assert parse(head + struct.pack("<IB27x", 0, 2) + INTEGER).words == "compound"


def test_complex_numbers_are_two_equal_floats_apart() -> None:
    for first, second, size in ((0, 4, 8), (4, 0, 8), (4, 8, 12), (0, 8, 12)):
        found = parse(compound(size, {b"r": (first, FLOAT), b"i": (second, FLOAT)})).elements
        assert found is not None
        stored = np.zeros(2, f"V{size}").view(np.uint8).reshape(2, size)
        stored[:, first : first + 4] = np.array([[1.5], [2]], "<f4").view(np.uint8)
        stored[:, second : second + 4] = np.array([[3], [4]], "<f4").view(np.uint8)
        values = found.converted(stored.reshape(-1).view(found.stored))
        assert values.tolist() == [1.5 + 3j, 2 + 4j]
    for second, size in ((3, 8), (4, 1 << 31)):
        parts = {b"r": (0, FLOAT), b"i": (second, FLOAT)}
        assert parse(compound(size, parts)).elements is None


@pytest.mark.parametrize(
    ("exponent", "mantissa", "bias", "expected"),
    [
        (5, 10, 15, 2), (5, 10, 16, 4), (5, 11, 15, 4), (8, 23, 127, 4), (8, 24, 127, 8),
        (8, 23, 128, 8), (11, 52, 1023, 8), (10, 53, 511, None), (11, 52, 1024, None),
        (12, 51, 1023, None),
    ],
)  # fmt: skip
def test_a_float_is_read_as_the_first_type_that_holds_it(
    exponent: int, mantissa: int, bias: int, expected: int | None
) -> None:
    sign = mantissa + exponent
    size = next(size for size in (1, 2, 4, 8) if sign < 8 * size)
    found = parse(float_of(size, 8 * size, sign, mantissa, exponent, 0, mantissa, bias)).elements
    assert (None if found is None else found.numpy.itemsize) == expected


def test_flags_in_some_of_the_bits() -> None:
    names = b"FALSE\0TRUE\0\0\x08"
    found = parse(kind_of(ENUM, 1, flags=2) + integer(1, 3, 2) + names).elements
    assert found is not None
    assert found.converted(np.array([0, 8, 8], np.uint8)).tolist() == [False, True, True]


def test_numbers_that_numpy_cannot_have() -> None:
    beyond = float_of(4, 32, 32, 23, 8, 0, 23, 127)  # the sign is behind its 4 bytes
    for size, body in (
        (3, integer(3, 0, 24, flags=8)),
        (1, integer(1, 0, 0)),
        (1, integer(1, 3, 6)),
        (4, beyond),
    ):
        assert parse(body).elements is None
        assert parse(kind_of(ENUM, size, flags=1) + body + b"a\0" + bytes(size)).elements is None


# --- Refusals ---------------------------------------------------------------------------------


def chunks_of(
    parts: Mapping[int, bytes], lookup: messages.Index, shape: tuple[int, ...] = (9,)
) -> Any:
    window = window_of(parts, 1 << 16)
    layout = messages.Layout(
        messages.Place.CHUNKED, AT, chunks=(1,) * len(shape), width=1, lookup=lookup
    )
    return chunks.read_chunks(
        window, layout, messages.Space(shape, shape), 1, is_filtered=lookup == messages.Index.TREE_2
    )


def fixed(bitmap: int) -> dict[int, bytes]:
    """Return a fixed array of 17 chunks, with entries in two pages of sixteen."""
    head = struct.pack("<4sBBBBQQ", b"FAHD", 0, 0, 8, 4, 17, 1024)
    prefix = struct.pack("<4sBBQ", b"FADB", 0, 0, AT) + bytes((bitmap,))
    pages = b"".join(summed(struct.pack(f"<{n}Q", *range(n))) for n in (16, 1))
    return {AT: summed(head), 1024: summed(prefix) + pages}


def test_a_fixed_array_in_pages() -> None:
    assert chunks_of(fixed(0xC0), messages.Index.FIXED, (17,)).offsets.tolist() == [*range(16), 0]


def test_a_single_chunk_that_is_filtered_has_its_length_in_the_layout() -> None:
    for length in (77, 1000, 1001):
        body = struct.pack("<5B2HBQIQ", 4, 2, 2, 2, 2, 300, 4, messages.Index.SINGLE, length, 2, 0)
        read = layout_of(body), messages.Space((300,), (300,)), 1200
        if length > 1000:  # than the file
            with pytest.raises(FormatError):
                chunks.read_chunks(window_of({}, 1000), *read, is_filtered=True)
        else:
            found = chunks.read_chunks(window_of({}, 1000), *read, is_filtered=True)
            assert (found.lengths.tolist(), found.skipped.tolist()) == ([length], [2])


def test_pointers_of_a_tree_are_as_wide_as_the_most_records_below() -> None:
    """Nodes of 4096 bytes have 510 records; a count over two levels needs three bytes."""
    head = struct.pack("<4sBBIHHBB", b"BTHD", 0, 5, 4096, 8, 2, 100, 40)
    parts = {
        0: summed(head + struct.pack("<QHQ", 1000, 0, 1)),
        1000: summed(struct.pack("<4sBBQHHB", b"BTIN", 0, 5, 2000, 0, 1, 0)),
        2000: summed(struct.pack("<4sBBQH", b"BTIN", 0, 5, 3000, 1)),
        3000: leaf_2(5, b"a record"),
    }
    assert [body for *_, body in trees.walk_tree_2(window_of(parts), 0, {5: (8,)})] == [
        b"",
        b"",
        b"a record",
    ]


CALLS: dict[str, Callable[[], object]] = {
    "more chunks than can be counted": lambda: chunks_of(
        {}, messages.Index.TREE_1, (1 << 32, 1 << 31)
    ),
    "a tree has other records": lambda: chunks_of(
        {AT: tree_2(11, 20, 1024), 1024: leaf_2(11, bytes(20))}, messages.Index.TREE_2
    ),
    "a page beyond the end of an index": lambda: chunks_of(
        fixed(0xE0), messages.Index.FIXED, (17,)
    ),
    "a datatype is unknown": lambda: parse(kind_of(12, 4)),
    "a datatype has no bytes": lambda: parse(integer(0, 0, 0)),
    "a name in a datatype has no end": lambda: parse(kind_of(COMPOUND, 8, flags=1) + b"ab"),
    "an array has another size": lambda: parse(
        kind_of(ARRAY, 23) + struct.pack("<B2I", 2, 3, 2) + INTEGER
    ),
    "a field leads out of its compound": lambda: parse(compound(8, {b"a": (5, INTEGER)})),
    "an enum has another size": lambda: parse(kind_of(ENUM, 5, flags=1) + INTEGER),
    "a message must be understood": lambda: header.read_header(
        header_of(message(0x70, b"", 0x80)), 0
    ),
    "a dataspace is unknown": lambda: messages.parse_space(fields_of(bytes((3, 0, 0, 0)))),
    "a fill value's version is unknown": lambda: messages.parse_fill(
        fields_of(b"\4" + bytes(9)), is_old=False
    ),
    "a filter pipeline is unknown": lambda: messages.parse_filters(fields_of(b"\3\1" + bytes(20))),
    "a layout's version is unknown": lambda: layout_of(b"\6\1" + bytes(16)),
    "a layout's class is unknown": lambda: layout_of(b"\3\4" + bytes(12)),
    "layout's class is unknown": lambda: layout_of(old_layout(1, 3, (3,))),
    "a chunk has no such shape": lambda: layout_of(b"\3\2\2" + struct.pack("<Q2I", 500, 0, 4)),
    "an index of chunks is unknown": lambda: layout_of(bytes((4, 2, 0, 2, 1, 5, 4, 6)) + bytes(20)),
    "a link's version is unknown": lambda: messages.parse_link(fields_of(b"\2" + bytes(20))),
    "a shared message's version is unknown": lambda: types.Types(window_of({}, 64)).of(
        bytes((4, 2)) + bytes(8), is_shared=True
    ),
    "a node does not belong to its tree": lambda: [
        *trees.walk_tree_2(
            window_of({0: tree_2(5, 8, 1000), 1000: leaf_2(6, bytes(8))}), 0, {5: (8,)}
        )
    ],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_damaged_structures_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(FormatError):
        call()
