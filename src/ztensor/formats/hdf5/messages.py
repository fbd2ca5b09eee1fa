"""The messages of a header as values: shape, layout, fill value, filters, links."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ztensor.formats.hdf5.header import Message
from ztensor.formats.hdf5.window import Fields, Window, malformed

_MOST_RANK = 32  # HDF5's own


class Space(NamedTuple):
    """A dataspace.

    Attributes:
        shape: dimensions; None for a null dataspace.
        most: the maximal dimensions; the undefined length if unlimited.
    """

    shape: tuple[int, ...] | None
    most: tuple[int, ...]


class Place(enum.IntEnum):
    """The storage of a dataset's data, by the format's numbers."""

    COMPACT = 0
    CONTIGUOUS = 1
    CHUNKED = 2
    VIRTUAL = 3


class Index(enum.IntEnum):
    """The index of chunks: the numbers of layout version 4, and 0 for the older tree."""

    TREE_1 = 0
    SINGLE = 1
    IMPLICIT = 2
    FIXED = 3
    EXTENSIBLE = 4
    TREE_2 = 5


class Layout(NamedTuple):
    """The layout of a dataset.

    Attributes:
        place: the kind of storage.
        address: the address of the data, or of the index of its chunks; may be undefined.
        length: bytes of data without chunks; None in old files.
        chunks: shape of a chunk.
        width: bytes of an element.
        lookup: the kind of index.
        single: stored length and skipped filters of a single filtered chunk; else None.
        are_edges_plain: chunks that reach beyond the dataset are not filtered.
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
    """A filter of a dataset: its number, and its parameters."""

    code: int
    parameters: tuple[int, ...]


class Link(NamedTuple):
    """A name in a group.

    Attributes:
        name: its bytes.
        address: the address of the target's header; None unless it is a hard link.
        target: the path of a soft link; else None.
        order: place in the order in which links were created.
    """

    name: bytes
    address: int | None
    target: bytes | None = None
    order: int = 0


def parse_space(fields: Fields) -> Space:
    """Return a dataspace.

    Raises:
        FormatError: it is damaged.
    """
    version, rank, flags, kind = fields.take("4B")
    if version not in (1, 2) or rank > _MOST_RANK:
        raise malformed("a dataspace is unknown", "version 1 or 2, rank 0 to 32", (version, rank))
    if version == 2 and kind == 2:
        return Space(None, ())
    fields.skip(4 if version == 1 else 0)
    shape = fields.take(f"{rank}L")
    return Space(shape, fields.take(f"{rank}L") if flags & 1 else shape)


def parse_fill(fields: Fields, *, is_old: bool) -> bytes | None:
    """Return the bytes of the fill value; None stands for zeros.

    Raises:
        FormatError: the message is damaged.
    """
    if not is_old:
        version, flags = fields.take("BB")
        if not 1 <= version <= 3:
            raise malformed("a fill value's version is unknown", "1 to 3", version)
        has_value = bool(flags & 0x20) if version == 3 else version == 1 or fields.take("BB")[1]
        if not has_value:
            return None
        fields.skip(2 if version == 1 else 0)
    length = fields.one("i")
    return fields.raw(length) if length > 0 else None  # undefined, or the default


def parse_filters(fields: Fields) -> tuple[Filter, ...]:
    """Return the filters of a dataset in the order in which they were applied.

    Raises:
        FormatError: the message is damaged.
    """
    version, count = fields.take("BB")
    if version not in (1, 2) or count > 32:
        raise malformed("a filter pipeline is unknown", "version 1 or 2, 32 filters", version)
    is_old, filters = version == 1, []
    fields.skip(6 if is_old else 0)
    for _ in range(count):
        code = fields.one("H")
        name = fields.one("H") if is_old or code >= 256 else 0
        _, values = fields.take("HH")
        fields.skip(name + 7 & -8 if is_old else name)
        filters.append(Filter(code, fields.take(f"{values}I")))
        fields.skip(values % 2 * 4 if is_old else 0)
    return tuple(filters)


def parse_layout(window: Window, message: Message) -> Layout:
    """Return the layout of a dataset.

    Raises:
        FormatError: the message is damaged.
    """
    fields = Fields(window, message.body)
    version = fields.one("B")
    if version in (1, 2):
        return _old_layout(fields, message.address)
    if not 3 <= version <= 5:
        raise malformed("a layout's version is unknown", "1 to 5", version)
    kind = fields.one("B")
    if kind == Place.COMPACT:
        return _compact(fields, message.address, fields.one("H"))
    if kind == Place.CONTIGUOUS:
        return Layout(Place.CONTIGUOUS, *fields.take("OL"))
    if kind == Place.VIRTUAL:
        return Layout(Place.VIRTUAL, window.undefined)
    if kind != Place.CHUNKED:
        raise malformed("a layout's class is unknown", "0 to 3", kind)
    if version == 3:
        rank, address = fields.take("BO")
        return _chunked(address, fields.take(f"{rank}I"))
    return _indexed_layout(fields)


def _compact(fields: Fields, address: int, length: int) -> Layout:
    """Return the layout of data in the message itself, at the current field."""
    start = fields.at
    fields.raw(length)
    return Layout(Place.COMPACT, address + start, length)


def _chunked(address: int, dimensions: tuple[int, ...]) -> Layout:
    if len(dimensions) < 2 or len(dimensions) > _MOST_RANK + 1 or not all(dimensions):
        raise malformed("invalid shape of a chunk", "2 to 33 numbers above 0", dimensions)
    return Layout(Place.CHUNKED, address, chunks=dimensions[:-1], width=dimensions[-1])


def _old_layout(fields: Fields, place: int) -> Layout:
    """Return the layout of versions 1 and 2: rank first, then the class."""
    rank, kind = fields.take("BB 5x")
    if kind > Place.CHUNKED:
        raise malformed("a layout's class is unknown", "0 to 2", kind)
    address = fields.window.undefined if kind == Place.COMPACT else fields.one("O")
    dimensions = fields.take(f"{rank}I")
    if kind == Place.CHUNKED:
        return _chunked(address, dimensions)
    if kind == Place.CONTIGUOUS:
        return Layout(Place.CONTIGUOUS, address)
    return _compact(fields, place, fields.one("I"))


def _indexed_layout(fields: Fields) -> Layout:
    """Return the chunked layout of versions 4 and 5, with one of five kinds of index."""
    flags, rank, width = fields.take("3B")
    dimensions = tuple(fields.number(width) for _ in range(rank))
    kind = fields.one("B")
    if not Index.SINGLE <= kind <= Index.TREE_2:
        raise malformed("an index of chunks is unknown", "1 to 5", kind)
    single = fields.take("LI") if kind == Index.SINGLE and flags & 2 else None
    # The parameters of arrays and trees are repeated in their own headers.
    fields.skip({Index.FIXED: 1, Index.EXTENSIBLE: 5, Index.TREE_2: 6}.get(kind, 0))
    layout = _chunked(fields.one("O"), dimensions)
    return layout._replace(lookup=Index(kind), single=single, are_edges_plain=bool(flags & 1))


# Of a link's flags.
_NAME_WIDTH, _HAS_ORDER, _HAS_KIND, _HAS_CODING = 0x03, 0x04, 0x08, 0x10
_HARD, _SOFT = 0, 1


def parse_link(fields: Fields) -> Link:
    """Return the link in a message, or in an object of a heap.

    Raises:
        FormatError: it is damaged.
    """
    version, flags = fields.take("BB")
    if version != 1:
        raise malformed("a link's version is unknown", 1, version)
    kind = fields.one("B") if flags & _HAS_KIND else _HARD
    order = fields.one("Q") if flags & _HAS_ORDER else 0
    fields.skip(1 if flags & _HAS_CODING else 0)
    name = fields.raw(fields.number(1 << (flags & _NAME_WIDTH)))
    address = fields.one("O") if kind == _HARD else None
    target = fields.raw(fields.one("H")) if kind == _SOFT else None
    return Link(name, address, target, order)
