"""What HDF5 stores of elements, undone: each filter and each type at the edges of its rules."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from ztensor.errors import EncodingError
from ztensor.foreign.hdf5 import lzf
from ztensor.foreign.hdf5.chunks import ChunkTable
from ztensor.foreign.hdf5.datatype import Class, FloatLayout, Member, Type
from ztensor.foreign.hdf5.elements import elements_of
from ztensor.foreign.hdf5.filters import FILTERS, unfiltered
from ztensor.foreign.hdf5.messages import Filter

HALF = FloatLayout(15, 10, 5, 0, 10, 15, is_implied=True)


# --- Types ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_opaque_elements_are_as_long_as_numpy_has_them(size: int) -> None:
    found = elements_of(Type(Class.OPAQUE, size))
    if size >= 1 << 31:
        assert found is None
    else:
        assert found is not None
        assert found.numpy.itemsize == found.stored.itemsize == size


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_whole_integers(size: int, is_signed: bool, order: str) -> None:
    found = elements_of(Type(Class.INTEGER, size, order, is_signed, 0, 8 * size))
    assert found is not None
    assert found.convert is None
    letter = f"{'i' if is_signed else 'u'}{size}"
    assert found.numpy == np.dtype(f"<{letter}")
    assert found.stored == np.dtype(f"{'>' if order == 'big' else '<'}{letter}")


@pytest.mark.parametrize(("size", "offset", "precision"), [(3, 0, 24), (16, 0, 128), (2, 0, 0)])
def test_integers_numpy_has_not(size: int, offset: int, precision: int) -> None:
    assert elements_of(Type(Class.INTEGER, size, "little", True, offset, precision)) is None


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(("offset", "precision"), [(0, 1), (0, 15), (15, 1), (4, 12), (3, 5)])
def test_integers_in_some_of_the_bits(offset: int, precision: int, is_signed: bool) -> None:
    found = elements_of(Type(Class.INTEGER, 2, "big", is_signed, offset, precision))
    assert found is not None
    values = np.arange(1 << precision)
    if is_signed:
        values -= 1 << precision - 1
    stored = ((values << offset) & (((1 << precision) - 1) << offset)).astype(">u2")
    assert found.converted(stored).tolist() == values.tolist()
    assert elements_of(Type(Class.INTEGER, 2, "big", is_signed, offset, 17 - offset)) is None


@pytest.mark.parametrize(
    ("exponent_bits", "mantissa_bits", "bias", "expected"),
    [
        (5, 10, 15, 2),
        (4, 10, 7, 2),
        (5, 2, 15, 2),
        (5, 10, 16, 4),  # its smallest are smaller than those of float16
        (5, 10, 14, 4),  # its largest are larger
        (5, 11, 15, 4),
        (8, 23, 127, 4),
        (7, 23, 63, 4),
        (8, 24, 127, 8),
        (8, 23, 128, 8),
        (8, 23, 126, 8),
        (11, 52, 1023, 8),
        (11, 51, 1023, 8),
        (10, 52, 511, 8),
        (10, 53, 511, None),
        (11, 52, 1024, None),
        (11, 52, 1022, None),
        (12, 51, 1023, None),
    ],
)
def test_a_float_is_read_as_the_first_with_room_for_it(
    exponent_bits: int, mantissa_bits: int, bias: int, expected: int | None
) -> None:
    layout = FloatLayout(
        mantissa_bits + exponent_bits,
        mantissa_bits,
        exponent_bits,
        0,
        mantissa_bits,
        bias,
        is_implied=True,
    )
    size = next(size for size in (1, 2, 4, 8) if layout.sign < 8 * size)
    kind = Type(Class.FLOAT, size, "little", False, 0, 8 * size, layout)
    found = elements_of(kind)
    assert (None if found is None else found.numpy.itemsize) == expected
    assert elements_of(kind._replace(layout=layout._replace(sign=8 * size))) is None


def test_floats_of_one_byte_have_the_values_of_their_bits() -> None:
    layout = FloatLayout(7, 2, 5, 0, 2, 15, is_implied=True)
    found = elements_of(Type(Class.FLOAT, 1, "little", False, 0, 8, layout))
    assert found is not None
    values = found.converted(np.arange(256, dtype=np.uint8)).astype(float)
    # These are the upper bytes of halves.
    expected = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(float)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize(("size", "offset", "precision"), [(1, 0, 8), (2, 0, 16), (1, 3, 2)])
def test_flags_are_numbers_with_two_names(
    size: int, offset: int, precision: int, order: str
) -> None:
    base = Type(Class.INTEGER, size, order, False, offset, precision)
    stored = (1 << offset).to_bytes(size, "big" if order == "big" else "little")
    members = (Member(b"FALSE", value=bytes(size)), Member(b"TRUE", value=stored))
    found = elements_of(Type(Class.ENUM, size, members=members, base=base))
    assert found is not None
    assert found.numpy == np.dtype(bool)
    values = found.converted(np.frombuffer(bytes(size) + stored + stored, found.stored))
    assert values.tolist() == [False, True, True]
    other = (*members, Member(b"OTHER", value=bytes(size)))
    for names in (members[:1], other, (members[0], members[1]._replace(name=b"True"))):
        numbers = elements_of(Type(Class.ENUM, size, members=names, base=base))
        assert numbers is not None
        assert numbers.numpy == np.dtype(f"<u{size}")


def test_complex_numbers_are_two_equal_floats_apart() -> None:
    part = Type(
        Class.FLOAT, 4, "little", False, 0, 32, FloatLayout(31, 23, 8, 0, 23, 127, is_implied=True)
    )

    def compound(first: int, second: int, size: int) -> Any:
        members = (Member(b"r", first, part), Member(b"i", second, part))
        return elements_of(Type(Class.COMPOUND, size, members=members))

    for first, second, size in ((0, 4, 8), (4, 0, 8), (0, 4, 12), (4, 8, 12), (0, 8, 12)):
        found = compound(first, second, size)
        stored = np.zeros(2, f"V{size}").view(np.uint8).reshape(2, size)
        stored[:, first : first + 4] = np.array([[1.5], [2]], "<f4").view(np.uint8)
        stored[:, second : second + 4] = np.array([[3], [4]], "<f4").view(np.uint8)
        values = found.converted(stored.reshape(-1).view(found.stored))
        assert values.tolist() == [1.5 + 3j, 2 + 4j]
    assert compound(0, 3, 8) is None
    assert compound(0, 4, 1 << 31) is None
    assert compound(0, 4, (1 << 31) - 1) is not None


# --- Filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"\0a", b"a"),
        (b"\x1f" + bytes(range(32)), bytes(range(32))),
        (b"\0a\x20\0", b"aaaa"),  # three more of the byte before
        (b"\1ab\x20\1", b"ababa"),
        (b"\2abc\x20\2", b"abcabc"),
        (b"\3abcd\x20\3", b"abcdabc"),
        (b"\0a\xc0\0", b"a" * 9),
        (b"\0a\xe0\0\0", b"a" * 10),
        (b"\0a\xe0\5\0", b"a" * 15),
    ],
)
def test_lzf(data: bytes, expected: bytes) -> None:
    assert bytes(lzf.expand(data, len(expected))) == expected
    assert FILTERS[32000](data, (), len(expected)) == expected
    if expected:
        with pytest.raises(ValueError, match="or more"):
            lzf.expand(data, len(expected) - 1)
        with pytest.raises(ValueError, match="cut"):
            lzf.expand(data[:-1], len(expected))


def test_a_copy_begins_at_the_first_byte_or_behind_it() -> None:
    assert bytes(lzf.expand(b"\1ab\x20\1", 9)) == b"ababa"
    for data in (b"\1ab\x20\2", b"\x20\0", b"\1ab\x21\0"):
        with pytest.raises(ValueError, match="before the first"):
            lzf.expand(data, 9)
    far = b"\x1f" + bytes(32)
    assert len(lzf.expand(far * 8 + b"\x20\xff", 999)) == 259
    assert len(lzf.expand(far * 9 + b"\x21\0", 999)) == 291
    with pytest.raises(ValueError, match="before the first"):
        lzf.expand(far * 8 + b"\x21\0", 999)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8])
def test_shuffled_bytes(width: int) -> None:
    data = b"abcdefg"
    whole = len(data) // width * width
    expected = np.frombuffer(data, np.uint8, whole).reshape(width, -1).T.tobytes() if whole else b""
    assert FILTERS[2](data, (width,), 7) == expected + data[whole:]
    assert FILTERS[2](data, (), 7) == data


def test_sums_are_compared() -> None:
    body = bytes(range(1, 8))
    words = [int.from_bytes((body + b"\0")[at : at + 2], "big") for at in range(0, 8, 2)]
    first = second = 0
    for word in words:
        first = (first + word) % 65535
        second = (second + first) % 65535
    stored = struct.pack("<2H", first, second)
    assert FILTERS[3](body + stored, (), 7) == body
    for wrong in (struct.pack("<2H", first + 1, second), struct.pack("<2H", first, second + 1)):
        with pytest.raises(EncodingError):
            FILTERS[3](body + wrong, (), 7)
    assert FILTERS[3](bytes(4), (), 0) == b""
    for cut in (b"", bytes(3)):
        with pytest.raises(EncodingError):
            FILTERS[3](cut, (), 0)


def test_a_filter_that_was_skipped_is_not_undone() -> None:
    filters = (Filter(2, (2,)), Filter(32000, ()))
    data = b"\3acbd"
    assert unfiltered(data, filters, 0, 4) == b"abcd"
    assert unfiltered(data, filters, 0b01, 4) == b"acbd"
    assert unfiltered(b"acbd", filters, 0b10, 4) == b"abcd"
    assert unfiltered(data, filters, 0b11, 4) == data


@pytest.mark.parametrize(("count", "has_gaps"), [(5, True), (6, False)])
def test_a_table_of_chunks_has_gaps_where_one_is_missing(count: int, has_gaps: bool) -> None:
    numbers = np.arange(count)
    table = ChunkTable((2, 3), numbers, numbers, numbers, numbers, 0)
    assert table.has_gaps is has_gaps
