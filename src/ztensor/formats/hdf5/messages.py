"""The messages of a header but the datatype, each as a value: shape, layout, filters, links."""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

from ztensor.formats.hdf5.header import Message
from ztensor.formats.hdf5.window import Window, malformed

_MOST_RANK = 32  # HDF5's own


class Space(NamedTuple):
    """A dataspace.

    Attributes:
        shape: dimensions, or None where there is no element at all.
        most: what each may grow to; the undefined length where that is without a limit.
    """

    shape: tuple[int, ...] | None
    most: tuple[int, ...]


class Place(enum.IntEnum):
    """How a dataset's data is stored, by the format's numbers."""

    COMPACT = 0
    CONTIGUOUS = 1
    CHUNKED = 2
    VIRTUAL = 3


class Index(enum.IntEnum):
    """How chunks are found; the numbers of layout version 4, and 0 for the tree of the others."""

    TREE_1 = 0
    SINGLE = 1
    IMPLICIT = 2
    FIXED = 3
    EXTENSIBLE = 4
    TREE_2 = 5


class Layout(NamedTuple):
    """Where a dataset's data is.

    Attributes:
        place: how it is stored.
        address: of the data, or of the index of its chunks; may be undefined.
        length: bytes of what is not chunked; None where old files do not say.
        chunks: shape of a chunk.
        width: bytes of an element, as the layout says.
        lookup: how chunks are found.
        single: stored length and skipped filters of an only chunk, or None.
        are_edges_plain: chunks that reach out of the dataset are not filtered.
    """

    place: Place
    address: int
    length: int | None = None
    chunks: tuple[int, ...] = ()
    width: int = 0
    lookup: Index = Index.TREE_1
    single: tuple[int, int] | None = None
    are_edges_plain: bool = False


class Filter(NamedTuple):
    """A filter of a dataset: its number, and numbers that say how it was applied."""

    code: int
    parameters: tuple[int, ...]


class Link(NamedTuple):
    """A name in a group.

    Attributes:
        name: its bytes.
        address: of the header it leads to, or None where it is no hard link.
        target: the path of a soft link, or None.
        order: place in the order in which links were made.
    """

    name: bytes
    address: int | None
    target: bytes | None = None
    order: int = 0


def parse_space(window: Window, body: bytes) -> Space:
    """Return a dataspace.

    Raises:
        FormatError: it is damaged.
    """
    version, rank, flags, kind = struct.unpack_from("<4B", body)
    if version not in (1, 2) or rank > _MOST_RANK:
        raise malformed("a dataspace is unknown", "version 1 or 2, rank 0 to 32", (version, rank))
    if version == 2 and kind == 2:
        return Space(None, ())
    sizes = window.record(f"{rank}L")
    start = 8 if version == 1 else 4
    shape = sizes.unpack_from(body, start)
    most = sizes.unpack_from(body, start + sizes.size) if flags & 1 else shape
    return Space(shape, most)


def parse_fill(body: bytes, *, is_old: bool) -> bytes | None:
    """Return the bytes of an element that was never written, or None for zeros.

    Raises:
        FormatError: the message is damaged.
    """
    if is_old:
        start, has_value = 0, True
    else:
        version = body[0]
        if version in (1, 2):
            start, has_value = 4, version == 1 or bool(body[3])
        elif version == 3:
            start, has_value = 2, bool(body[1] & 0x20)
        else:
            raise malformed("a fill value's version is unknown", "1 to 3", version)
    if not has_value:
        return None
    (length,) = struct.unpack_from("<i", body, start)
    start += 4
    if length <= 0:  # undefined, or the default
        return None
    if start + length > len(body):
        raise malformed("a fill value is cut", length, len(body) - start)
    return body[start : start + length]


def parse_filters(body: bytes) -> tuple[Filter, ...]:
    """Return the filters in the order in which they were applied.

    Raises:
        FormatError: the message is damaged.
    """
    version, count = body[0], body[1]
    if version not in (1, 2) or count > 32:
        raise malformed("a filter pipeline is unknown", "version 1 or 2, 32 filters", body[:2])
    at = 8 if version == 1 else 2
    filters = []
    for _ in range(count):
        (code,) = struct.unpack_from("<H", body, at)
        at += 2
        name_length = 0
        if version == 1 or code >= 256:
            (name_length,) = struct.unpack_from("<H", body, at)
            at += 2
        _, values = struct.unpack_from("<HH", body, at)
        at += 4 + ((name_length + 7) // 8 * 8 if version == 1 else name_length)
        parameters = struct.unpack_from(f"<{values}I", body, at)
        at += 4 * (values + values % 2 if version == 1 else values)
        filters.append(Filter(code, parameters))
    return tuple(filters)


def parse_layout(window: Window, message: Message) -> Layout:
    """Return where a dataset's data is.

    Raises:
        FormatError: the message is damaged.
    """
    body = message.body
    version = body[0]
    if version in (1, 2):
        return _old_layout(window, message)
    if not 3 <= version <= 5:
        raise malformed("a layout's version is unknown", "1 to 5", version)
    kind = body[1]
    if kind == Place.COMPACT:
        (length,) = struct.unpack_from("<H", body, 2)
        if 4 + length > len(body):
            raise malformed("compact data is cut", length, len(body) - 4)
        return Layout(Place.COMPACT, message.address + 4, length)
    if kind == Place.CONTIGUOUS:
        address, length = window.record("OL").unpack_from(body, 2)
        return Layout(Place.CONTIGUOUS, address, length)
    if kind == Place.VIRTUAL:
        return Layout(Place.VIRTUAL, window.undefined)
    if kind != Place.CHUNKED:
        raise malformed("a layout's class is unknown", "0 to 3", kind)
    if version == 3:
        rank = body[2]
        (address,) = window.record("O").unpack_from(body, 3)
        dimensions = struct.unpack_from(f"<{rank}I", body, 3 + window.offset_size)
        return _chunked(dimensions, address=address)
    return _indexed_layout(window, body)


def _chunked(dimensions: tuple[int, ...], **others: Any) -> Layout:
    if len(dimensions) < 2 or len(dimensions) > _MOST_RANK + 1 or not all(dimensions):
        raise malformed("a chunk has no such shape", "2 to 33 numbers above 0", dimensions)
    return Layout(Place.CHUNKED, chunks=dimensions[:-1], width=dimensions[-1], **others)


def _old_layout(window: Window, message: Message) -> Layout:
    """Return the layout of versions 1 and 2: rank first, then the class."""
    body = message.body
    rank, kind = body[1], body[2]
    start = 8
    address = window.undefined
    if kind != Place.COMPACT:
        (address,) = window.record("O").unpack_from(body, start)
        start += window.offset_size
    dimensions = struct.unpack_from(f"<{rank}I", body, start)
    start += 4 * rank
    if kind == Place.CHUNKED:
        return _chunked(dimensions, address=address)
    if kind == Place.CONTIGUOUS:
        return Layout(Place.CONTIGUOUS, address)
    if kind != Place.COMPACT:
        raise malformed("a layout's class is unknown", "0 to 2", kind)
    (length,) = struct.unpack_from("<I", body, start)
    if start + 4 + length > len(body):
        raise malformed("compact data is cut", length, len(body) - start - 4)
    return Layout(Place.COMPACT, message.address + start + 4, length)


def _indexed_layout(window: Window, body: bytes) -> Layout:
    """Return the layout of versions 4 and 5, chunked: the index is of one of five kinds."""
    _, _, flags, rank, width = struct.unpack_from("<5B", body)
    at = 5 + rank * width
    dimensions = tuple(
        int.from_bytes(body[start : start + width], "little") for start in range(5, at, width or 1)
    )
    (kind,) = struct.unpack_from("<B", body, at)
    at += 1
    if not Index.SINGLE <= kind <= Index.TREE_2:
        raise malformed("an index of chunks is unknown", "1 to 5", kind)
    single = None
    if kind == Index.SINGLE and flags & 2:
        single = window.record("LI").unpack_from(body, at)
        at += window.length_size + 4
    # How the arrays and the tree are built is said in their own headers, too.
    at += {Index.FIXED: 1, Index.EXTENSIBLE: 5, Index.TREE_2: 6}.get(Index(kind), 0)
    (address,) = window.record("O").unpack_from(body, at)
    return _chunked(
        dimensions,
        address=address,
        lookup=Index(kind),
        single=single,
        are_edges_plain=bool(flags & 1),
    )


# Of a link's flags.
_NAME_WIDTH, _HAS_ORDER, _HAS_KIND, _HAS_CODING = 0x03, 0x04, 0x08, 0x10
_HARD, _SOFT = 0, 1


def parse_link(window: Window, body: bytes | bytearray) -> Link:
    """Return the link that a message, or an object of a heap, describes.

    Raises:
        FormatError: it is damaged.
    """
    version, flags = struct.unpack_from("<BB", body)
    if version != 1:
        raise malformed("a link's version is unknown", 1, version)
    at = 2
    kind = _HARD
    order = 0
    if flags & _HAS_KIND:
        (kind,) = struct.unpack_from("<B", body, at)
        at += 1
    if flags & _HAS_ORDER:
        (order,) = struct.unpack_from("<Q", body, at)
        at += 8
    if flags & _HAS_CODING:
        at += 1
    width = 1 << (flags & _NAME_WIDTH)
    length = int.from_bytes(body[at : at + width], "little")
    at += width
    name = bytes(body[at : at + length])
    at += length
    if at > len(body):
        raise malformed("a link is cut", at, len(body))
    if kind == _HARD:
        return Link(name, window.record("O").unpack_from(body, at)[0], order=order)
    if kind != _SOFT:
        return Link(name, None, order=order)
    (length,) = struct.unpack_from("<H", body, at)
    at += 2
    if at + length > len(body):
        raise malformed("a soft link is cut", length, len(body) - at)
    return Link(name, None, bytes(body[at : at + length]), order)
