"""Datatypes of HDF5: every class and version, at the edges of what a message may say."""

from __future__ import annotations

import struct

import pytest

from ztensor.errors import FormatError
from ztensor.foreign.hdf5.datatype import Class, Type, parse

DEEPEST = 32


def head(kind: int, size: int, *, version: int = 1, flags: int = 0) -> bytes:
    return struct.pack("<BBHI", version << 4 | kind, flags & 0xFF, flags >> 8, size)


def integer(size: int = 4, *, flags: int = 0, version: int = 1) -> bytes:
    body = struct.pack("<HH", 0, 8 * size)
    return head(Class.INTEGER, size, flags=flags, version=version) + body


def name(text: bytes, version: int) -> bytes:
    text += b"\0"
    return text if version > 2 else text + bytes(-len(text) % 8)


def refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse(body)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("size", [0, 1, 4])
def test_versions_and_sizes(version: int, size: int) -> None:
    body = integer(size, version=version)
    if 1 <= version <= 5 and size:
        assert parse(body) == Type(Class.INTEGER, size, precision=8 * size)
    else:
        refused(body)


@pytest.mark.parametrize("kind", [Class.INTEGER, Class.BITFIELD])
@pytest.mark.parametrize("flags", [0, 1, 8, 9])
def test_integers(kind: Class, flags: int) -> None:
    body = head(kind, 2, flags=flags) + struct.pack("<HH", 3, 10)
    found = parse(body)
    assert (found.offset, found.precision) == (3, 10)
    assert found.order == ("big" if flags & 1 else "little")
    assert found.is_signed is (kind == Class.INTEGER and bool(flags & 8))
    refused(body[:-1])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Class.TIME, bytes(2)),
        (Class.STRING, b""),
        (Class.OPAQUE, b"tag\0\0\0\0\0"),
        (Class.REFERENCE, b""),
    ],
)
def test_classes_without_more(kind: Class, body: bytes) -> None:
    """In a compound the next field shows where each ends."""
    length = 3 if kind == Class.OPAQUE else 0
    one = head(kind, 4, flags=length) + body
    assert parse(one) == Type(kind, 4)
    whole = name(b"a", 3) + b"\0" + one + name(b"b", 3) + b"\4" + integer()
    found = parse(head(Class.COMPOUND, 8, version=3, flags=2) + whole)
    assert [member.type for member in found.members] == [parse(one), parse(integer())]
    refused(head(12, 4))


@pytest.mark.parametrize("flags", [0, 1])
def test_text_and_lists_of_any_length(flags: int) -> None:
    found = parse(head(Class.VARIABLE, 16, flags=flags | 2 << 4) + integer(1))
    assert (found.is_text, found.is_string, found.padding) == (bool(flags), bool(flags), 2)
    assert found.base == parse(integer(1))


@pytest.mark.parametrize("kind", [Class.VARIABLE, Class.COMPLEX, Class.ARRAY])
def test_types_nest_as_deep_as_is_read(kind: Class) -> None:
    def nested(levels: int) -> bytes:
        more = struct.pack("<BI", 1, 1) if kind == Class.ARRAY else b""
        return (head(kind, 4, version=3) + more) * levels + integer()

    found: Type | None = parse(nested(DEEPEST))
    for _ in range(DEEPEST):
        assert found is not None
        found = found.base
    assert found == parse(integer())
    refused(nested(DEEPEST + 1))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_arrays_are_as_long_as_their_elements(version: int) -> None:
    for size, is_right in ((23, False), (24, True), (25, False)):
        axes = struct.pack("<B", 2) + (b"" if version > 2 else bytes(3)) + struct.pack("<2I", 3, 2)
        body = head(Class.ARRAY, size, version=version) + axes
        body += (b"" if version > 2 else bytes(8)) + integer()
        if is_right:
            assert parse(body).shape == (3, 2)
            refused(body[:-1])
        else:
            refused(body)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("text", [b"", b"abcdefg", b"abcdefgh"])
@pytest.mark.parametrize("offset", [0, 4, 5])
def test_fields_lie_in_their_compound(version: int, text: bytes, offset: int) -> None:
    width = 1 if version > 2 else 4
    parts = [name(text, version) + offset.to_bytes(width, "little")]
    parts += [bytes(28)] if version == 1 else []
    body = head(Class.COMPOUND, 8, version=version, flags=1) + b"".join(parts) + integer()
    if offset + 4 <= 8:
        (member,) = parse(body).members
        assert (member.name, member.offset, member.type) == (text, offset, parse(integer()))
    else:
        refused(body)
    for stop in range(len(body)):
        refused(body[:stop])


def test_a_field_of_the_first_version_may_be_an_array() -> None:
    more = bytes((2,)) + bytes(27)
    body = name(b"a", 1) + bytes(4) + more + integer()
    (member,) = parse(head(Class.COMPOUND, 8, flags=1) + body).members
    assert member.type == Type(Class.ARRAY, 8, base=parse(integer()))


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_enum_has_a_value_for_each_name(version: int, size: int) -> None:
    names = name(b"FALSE", version) + name(b"TRUE", version)
    values = bytes(size) + (1).to_bytes(size, "little")
    body = head(Class.ENUM, size, version=version, flags=2) + integer(size) + names + values
    found = parse(body)
    assert [(member.name, member.value) for member in found.members] == [
        (b"FALSE", values[:size]),
        (b"TRUE", values[size:]),
    ]
    assert found.has_names is False
    assert parse(body[:1] + b"\1" + body[2:]).has_names is True
    refused(body[:-1])
    refused(head(Class.ENUM, size + 1, version=version, flags=2) + integer(size) + names + values)
