"""Messages of every version, field by field."""

from __future__ import annotations

import struct

import pytest

from tests.unit.foreign.hdf5.parts import UNDEFINED, window_of
from ztensor.errors import FormatError
from ztensor.foreign.hdf5.header import Kind, Message
from ztensor.foreign.hdf5.messages import (
    Filter,
    Index,
    Layout,
    Link,
    Place,
    Space,
    parse_fill,
    parse_filters,
    parse_layout,
    parse_link,
    parse_space,
)

WINDOW = window_of({}, 64)


# --- Spaces and fill values -------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("rank", [0, 1, 32, 33])
def test_spaces(version: int, rank: int) -> None:
    shape, most = tuple(range(rank)), tuple(range(1, rank + 1))
    head = bytes((version, rank, 1, 1)) + (bytes(4) if version == 1 else b"")
    body = head + struct.pack(f"<{2 * rank}Q", *shape, *most)
    if version in (1, 2) and rank <= 32:
        assert parse_space(WINDOW, body) == Space(shape, most)
        fixed = body[:2] + b"\0" + body[3 : len(body) - 8 * rank]
        assert parse_space(WINDOW, fixed) == Space(shape, shape)
    else:
        with pytest.raises(FormatError, match="a dataspace is unknown"):
            parse_space(WINDOW, body)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_space_of_no_element_at_all(kind: int) -> None:
    assert parse_space(WINDOW, bytes((2, 0, 0, kind))).shape == (None if kind == 2 else ())
    assert parse_space(WINDOW, bytes((1, 0, 0, kind)) + bytes(4)).shape == ()


VALUE = b"\7\0"
SIZED = struct.pack("<i", 2) + VALUE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\1\2\2\1" + SIZED, VALUE),
        (b"\1\2\2\0" + SIZED, VALUE),  # in the first version it is always there
        (b"\2\2\2\1" + SIZED, VALUE),
        (b"\2\2\2\0", None),
        (b"\3\x20" + SIZED, VALUE),
        (b"\3\x1f", None),
        (b"\2\2\2\1" + struct.pack("<i", 0), None),
        (b"\2\2\2\1" + struct.pack("<i", -1), None),
        (b"\2\2\2\1" + struct.pack("<i", 1) + b"\7", b"\7"),
    ],
)
def test_fill_values(body: bytes, expected: bytes | None) -> None:
    assert parse_fill(body, is_old=False) == expected


def test_a_fill_value_of_the_old_message() -> None:
    assert parse_fill(SIZED, is_old=True) == VALUE
    assert parse_fill(struct.pack("<i", 0), is_old=True) is None
    with pytest.raises(FormatError, match="a fill value is cut"):
        parse_fill(SIZED[:-1], is_old=True)


@pytest.mark.parametrize("body", [b"\1\2\2\1" + SIZED[:-1], b"\2\2\2\1" + SIZED[:-1]])
def test_a_fill_value_that_is_cut(body: bytes) -> None:
    with pytest.raises(FormatError, match="a fill value is cut"):
        parse_fill(body, is_old=False)


@pytest.mark.parametrize("version", [0, 4])
def test_a_fill_value_of_another_version(version: int) -> None:
    with pytest.raises(FormatError, match="a fill value's version is unknown"):
        parse_fill(bytes((version,)) + b"\2\2\1" + SIZED, is_old=False)


# --- Filters ----------------------------------------------------------------------------------


def pipeline(version: int, *filters: tuple[int, bytes, tuple[int, ...]]) -> bytes:
    body = bytes((version, len(filters))) + (bytes(6) if version == 1 else b"")
    for code, name, values in filters:
        is_named = version == 1 or code >= 256
        whole = (name + bytes(-len(name) % 8 if version == 1 else 0)) if is_named else b""
        body += struct.pack("<H", code)
        body += struct.pack("<H", len(whole)) if is_named else b""
        body += struct.pack("<HH", 0, len(values)) + whole
        body += struct.pack(f"<{len(values)}I", *values)
        body += bytes(4) if version == 1 and len(values) % 2 else b""
    return body


@pytest.mark.parametrize("version", [1, 2])
def test_filters_in_their_order(version: int) -> None:
    """Of the second version, only filters from 256 on have a name."""
    given = [
        (1, b"", (6,)),
        (255, b"", ()),
        (256, b"name\0", (1, 2)),
        (2, b"", (4,)),
        (32000, b"lzf\0", (4, 5, 6)),
    ]
    expected = tuple(Filter(code, values) for code, _, values in given)
    assert parse_filters(pipeline(version, *given)) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_as_many_filters_as_there_may_be(version: int) -> None:
    assert parse_filters(pipeline(version)) == ()
    one = (1, b"", (6,))
    assert len(parse_filters(pipeline(version, *[one] * 32))) == 32
    with pytest.raises(FormatError, match="a filter pipeline is unknown"):
        parse_filters(pipeline(version, *[one] * 33))


@pytest.mark.parametrize("version", [0, 3])
def test_filters_of_another_version(version: int) -> None:
    with pytest.raises(FormatError, match="a filter pipeline is unknown"):
        parse_filters(pipeline(version, (1, b"", (6,))))


# --- Layouts ----------------------------------------------------------------------------------


def layout_of(body: bytes) -> Layout:
    return parse_layout(WINDOW, Message(Kind.LAYOUT, body, 1000, is_shared=False, order=0))


def old_layout(version: int, kind: int, dimensions: tuple[int, ...], more: bytes = b"") -> bytes:
    body = bytes((version, len(dimensions), kind)) + bytes(5)
    body += struct.pack("<Q", 500) if kind else b""
    return body + struct.pack(f"<{len(dimensions)}I", *dimensions) + more


@pytest.mark.parametrize("version", [1, 2])
def test_layouts_of_the_first_versions(version: int) -> None:
    assert layout_of(old_layout(version, 1, (3, 4))) == Layout(Place.CONTIGUOUS, 500)
    chunked = Layout(Place.CHUNKED, 500, chunks=(3, 5), width=4)
    assert layout_of(old_layout(version, 2, (3, 5, 4))) == chunked
    compact = old_layout(version, 0, (3,), struct.pack("<I", 6) + bytes(6))
    assert layout_of(compact) == Layout(Place.COMPACT, 1000 + len(compact) - 6, 6)
    with pytest.raises(FormatError, match="compact data is cut"):
        layout_of(compact[:-1])
    for kind in (3, 4):
        with pytest.raises(FormatError, match="a layout's class is unknown"):
            layout_of(old_layout(version, kind, (3,)))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_layouts_of_later_versions(version: int) -> None:
    head = bytes((version,))
    compact = head + b"\0" + struct.pack("<H", 5) + bytes(5)
    assert layout_of(compact) == Layout(Place.COMPACT, 1004, 5)
    with pytest.raises(FormatError, match="compact data is cut"):
        layout_of(compact[:-1])
    contiguous = head + b"\1" + struct.pack("<QQ", 500, 12)
    assert layout_of(contiguous) == Layout(Place.CONTIGUOUS, 500, 12)
    assert layout_of(head + b"\3" + bytes(12)) == Layout(Place.VIRTUAL, UNDEFINED)
    with pytest.raises(FormatError, match="a layout's class is unknown"):
        layout_of(head + b"\4" + bytes(12))


@pytest.mark.parametrize("version", [0, 6])
def test_a_layout_of_another_version(version: int) -> None:
    with pytest.raises(FormatError, match="a layout's version is unknown"):
        layout_of(bytes((version, 1)) + bytes(16))


@pytest.mark.parametrize("rank", [0, 1, 32, 33])
def test_chunks_have_one_to_as_many_axes_as_a_shape(rank: int) -> None:
    """Behind their axes stands the width of an element."""
    dimensions = (1,) * (rank + 1)
    body = b"\3\2" + bytes((rank + 1,)) + struct.pack(f"<Q{rank + 1}I", 500, *dimensions)
    if 1 <= rank <= 32:
        assert layout_of(body) == Layout(Place.CHUNKED, 500, chunks=dimensions[1:], width=1)
    else:
        with pytest.raises(FormatError, match="a chunk has no such shape"):
            layout_of(body)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_chunk_has_elements(place: int) -> None:
    dimensions = [3, 5, 4]
    dimensions[place] = 0
    with pytest.raises(FormatError, match="a chunk has no such shape"):
        layout_of(b"\3\2\3" + struct.pack("<Q3I", 500, *dimensions))


INDEXES = {
    Index.SINGLE: b"",
    Index.IMPLICIT: b"",
    Index.FIXED: b"\x0a",
    Index.EXTENSIBLE: bytes(5),
    Index.TREE_2: bytes(6),
}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("flags", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_of_each_kind(kind: Index, flags: int, version: int) -> None:
    """How an only chunk is stored is said where it is filtered, and of no other index."""
    body = bytes((version, 2, flags, 3, 2)) + struct.pack("<3HB", 300, 5, 4, kind)
    is_told = kind == Index.SINGLE and bool(flags & 2)
    body += struct.pack("<QI", 77, 1) if is_told else b""
    body += INDEXES[kind] + struct.pack("<Q", 500)
    assert layout_of(body) == Layout(
        Place.CHUNKED,
        500,
        chunks=(300, 5),
        width=4,
        lookup=kind,
        single=(77, 1) if is_told else None,
        are_edges_plain=bool(flags & 1),
    )


@pytest.mark.parametrize("kind", [0, 6])
def test_an_index_of_another_kind(kind: int) -> None:
    body = bytes((4, 2, 0, 2, 1, 5, 4, kind)) + bytes(20)
    with pytest.raises(FormatError, match="an index of chunks is unknown"):
        layout_of(body)


# --- Links ------------------------------------------------------------------------------------

HARD, SOFT, EXTERNAL = 0, 1, 64


def link(kind: int, name: bytes, more: bytes, *, flags: int = 0, order: int = 5) -> bytes:
    body = bytes((1, flags | (8 if kind else 0))) + (bytes((kind,)) if kind or flags & 8 else b"")
    body += struct.pack("<Q", order) if flags & 4 else b""
    body += b"\1" if flags & 16 else b""
    return body + len(name).to_bytes(1 << (flags & 3), "little") + name + more


@pytest.mark.parametrize("flags", range(32))
def test_links(flags: int) -> None:
    order = 5 if flags & 4 else 0
    address = struct.pack("<Q", 500)
    found = parse_link(WINDOW, link(HARD, b"name", address, flags=flags))
    assert found == Link(b"name", 500, order=order)
    soft = link(SOFT, b"name", struct.pack("<H", 5) + b"/a/bc", flags=flags)
    assert parse_link(WINDOW, soft) == Link(b"name", None, b"/a/bc", order)
    with pytest.raises(FormatError, match="a soft link is cut"):
        parse_link(WINDOW, soft[:-1])
    for more in (b"", b"\4\0abcd"):
        external = link(EXTERNAL, b"name", more, flags=flags)
        assert parse_link(WINDOW, external) == Link(b"name", None, order=order)


def test_a_link_whose_name_is_cut() -> None:
    whole = link(EXTERNAL, b"name", b"")
    with pytest.raises(FormatError, match="a link is cut"):
        parse_link(WINDOW, whole[:-1])


@pytest.mark.parametrize("version", [0, 2])
def test_a_link_of_another_version(version: int) -> None:
    body = bytes((version,)) + link(HARD, b"name", bytes(8))[1:]
    with pytest.raises(FormatError, match="a link's version is unknown"):
        parse_link(WINDOW, body)
