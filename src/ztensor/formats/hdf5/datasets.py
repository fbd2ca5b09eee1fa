"""Datasets as objects: their type, the place of the data, and its encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import FormatError, NotRepresentableError, Reason, describe
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    Encoding,
    TensorObject,
    element_count,
    spell,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.hdf5.attributes import MOST_BYTES, Attributes
from ztensor.formats.hdf5.chunks import read_chunks
from ztensor.formats.hdf5.data import Converted, InChunks, Unwritten, fill_of
from ztensor.formats.hdf5.filters import FILTERS, filter_name
from ztensor.formats.hdf5.header import Header, Kind, Message
from ztensor.formats.hdf5.messages import (
    Filter,
    Layout,
    Place,
    Space,
    parse_fill,
    parse_filters,
    parse_layout,
    parse_space,
)
from ztensor.formats.hdf5.types import Elements, Type, Types
from ztensor.formats.hdf5.window import Fields, Window, malformed, unknown
from ztensor.typing import Array

if TYPE_CHECKING:
    # Storage type or words for an unread type, logical type, stored and decoded elements.
    Known = tuple[str, str | None, Elements | None]

_UNREAD, _UNREAD_MESSAGE = "hdf5", "this kind of HDF5 data is not read here; read it with h5py"
TYPE_ATTRIBUTE = "ztensor.type"  # the type of an exported dataset's bits


class Datasets:
    """Makes objects of one file's datasets.

    Args:
        window: the file.
        types: the file's types.
        attributes: reads attributes and texts.

    Attributes:
        encodings: the encodings of all datasets.
    """

    def __init__(self, window: Window, types: Types, attributes: Attributes) -> None:
        self._window = window
        self._types = types
        self._attributes = attributes
        self.encodings: dict[str, Encoding] = {**RAW, _UNREAD: Absent(_UNREAD, _UNREAD_MESSAGE)}

    def read(self, header: Header) -> TensorObject | str:
        """Return a dataset as an object; a scalar string as text.

        Raises:
            FormatError: it is damaged.
            UnsupportedError: it shares messages in a way that h5py never uses.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        window = self._window
        layout_message, space_message = header.of(Kind.LAYOUT), header.of(Kind.SPACE)
        type_message = header.of(Kind.TYPE)
        if layout_message is None or space_message is None or type_message is None:
            raise malformed("a dataset has no layout")
        layout = parse_layout(window, layout_message)
        if layout.place == Place.VIRTUAL:
            return refused("virtual dataset")
        if space_message.is_shared:
            return refused("dataset with a shared dataspace")
        space = parse_space(Fields(window, space_message.body))
        attributes = self._attributes.of(header)
        kind = self._types.of(type_message.body, is_shared=type_message.is_shared)
        if kind.names:
            self._attributes.leave("names of an enum", "", kind.names)
        filters = self._filters(header.of(Kind.FILTERS))
        dtype, logical, elements = known_as(kind, attributes)
        if header.of(Kind.EXTERNAL) is not None:
            dtype, elements = "data in another file", None
        elif space.shape is None:
            dtype, elements = "null dataspace", None
        elif not space.shape and kind.text is not None and kind.size <= MOST_BYTES:
            text = self._text(layout, kind)
            if text is not None:
                return text
        for filter_ in filters:
            if filter_.code not in FILTERS:
                dtype, elements = f"data behind the filter {filter_name(filter_.code)}", None
        shape = space.shape or ()
        if elements is None:
            return refused(dtype, shape, attributes)
        component = self._component(header, layout, space, elements, filters)
        component = component._replace(dtype=dtype, type=logical)
        return TensorObject(shape, "dense", {"data": component}, attributes or None)

    def _text(self, layout: Layout, kind: Type) -> str | None:
        """Return the text of a scalar, or None if it is not UTF-8."""
        if layout.place == Place.CHUNKED:
            raise malformed("a dataset of one element has chunks")
        if not self._window.is_defined(layout.address) or layout.length == 0:
            return ""
        return self._attributes.text(kind, bytes(self._window.read(layout.address, kind.size)))

    def _filters(self, message: Message | None) -> tuple[Filter, ...]:
        if message is None:
            return ()
        if message.is_shared:
            raise unknown("shared filters")
        return parse_filters(Fields(self._window, message.body))

    def _component(
        self,
        header: Header,
        layout: Layout,
        space: Space,
        elements: Elements,
        filters: tuple[Filter, ...],
    ) -> Component:
        """Return the component; the caller fills in its type."""
        window, shape, width = self._window, space.shape or (), elements.stored.itemsize
        count = element_count(shape)
        is_chunked = layout.place == Place.CHUNKED
        if is_chunked and layout.width != width:
            raise malformed("wrong width of a chunk's elements", width, layout.width)
        if filters and not is_chunked:
            raise malformed("data that is not chunked has filters")
        word, length = f"hdf5:{len(self.encodings)}", 0
        encoding: Encoding
        if not count:
            return Component("", 0, 0, byte_order=elements.byte_order)
        if is_chunked:
            chunk_bytes = element_count(layout.chunks) * width
            table = read_chunks(window, layout, space, chunk_bytes, is_filtered=bool(filters))
            fill, length = self._fill(header, elements), table.nbytes
            encoding = InChunks(word, shape, elements, fill, window.source, layout, table, filters)
        elif layout.length == 0 or not window.is_defined(layout.address):
            encoding = Unwritten(word, shape, elements, self._fill(header, elements))
        else:
            length = count * width
            offset = self._place(layout, length)
            if elements.convert is None:
                return Component("", offset, length, byte_order=elements.byte_order)
            encoding = Converted(word, shape, elements, window.source, offset)
        self.encodings[word] = encoding
        decoded_length = count * elements.numpy.itemsize
        return Component("", 0, length, encoding=word, decoded_length=decoded_length)

    def _place(self, layout: Layout, needed: int) -> int:
        """Return the offset of data without chunks, its length checked against the shape."""
        size = self._window.source.size
        length = needed if layout.length is None else layout.length
        offset = self._window.base + layout.address
        if length != needed or offset + length > size:
            raise FormatError(
                "the length of a dataset's data differs from its shape, or it is outside the file",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"{describe(needed)} bytes within {size}",
                found=f"{describe(length)} at offset {describe(offset)}",
            )
        return offset

    def _fill(self, header: Header, elements: Elements) -> Array:
        message, is_old = header.of(Kind.FILL), False
        if message is None:
            message, is_old = header.of(Kind.OLD_FILL), True
        if message is None or message.is_shared:
            return fill_of(elements, None)
        return fill_of(elements, parse_fill(Fields(self._window, message.body), is_old=is_old))


def known_as(kind: Type, attributes: dict[str, object]) -> Known:
    """Return the types of a dataset's elements.

    The attribute with the type of exported bits is removed from `attributes`.
    """
    elements = kind.elements
    if elements is None:
        return kind.words, None, None
    if kind.is_opaque:
        named = _named(attributes.get("dtype"), kind.size)
        return (*named, elements) if named else (kind.words, None, None)
    if elements.is_bfloat16:
        return "bf16", None, elements
    try:
        spelled = spell(elements.numpy.newbyteorder("="))
    except NotRepresentableError:
        return describe(str(elements.numpy)), None, None
    bits = _named(attributes.get(TYPE_ATTRIBUTE), elements.numpy.itemsize)
    if bits is not None and elements.numpy.kind == "u":
        spelled = bits
        del attributes[TYPE_ATTRIBUTE]
    return (*spelled, elements)


def refused(
    words: str, shape: tuple[int, ...] = (), attributes: dict[str, object] | None = None
) -> TensorObject:
    """Return an object that is listed, and raises UnsupportedError when it is read."""
    component = Component(f"HDF5 {words}", 0, 0, encoding=_UNREAD, decoded_length=0)
    return TensorObject(shape, "dense", {"data": component}, attributes or None)


def _named(word: object, width: int) -> tuple[str, str | None] | None:
    """Return the storage and logical type of a name, long or short, or None.

    Elements must have this width in bytes.
    """
    for storage in STORAGE_TYPES.values():
        if word in (storage.name, storage.long_name) and storage.width == width:
            return storage.name, None
    for logical in LOGICAL_TYPES.values():
        if (
            word in (logical.name, logical.long_name)
            and logical.storage_per_element == logical.elements_per_storage
            and STORAGE_TYPES[logical.dtype].width == width
        ):
            return logical.dtype, logical.name
    return None
