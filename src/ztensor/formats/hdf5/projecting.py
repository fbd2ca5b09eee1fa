"""HDF5 files, Keras weights among them, as objects and attributes.

No bytes of a file reach libhdf5: the modules beside this one parse them, each read checked and each
structure met once. Links that leave the file, virtual datasets and external storage are never
followed.

What is in a file becomes an object by its path without the leading slash (Keras has
`layers/dense/vars/0`):

- Contiguous and compact numbers without filters are byte ranges, big-endian ones too: mapped, not
  copied.
- Chunks, without filters or behind deflate, shuffle, Fletcher-32 and LZF, are decoded a block of
  rows at a time. What was never written is the fill value.
- Numbers in a form NumPy lacks (12 bits in two bytes, other floats) become the next wider one of
  its own.
- bfloat16: as a float type of that form, or as Keras stores it, opaque with an attribute `dtype`.
- Strings, compounds, references, other opaque types, null dataspaces, virtual datasets, external
  storage, other filters and links out of the file are listed, and refused when they are read.
- A group with several hard links is walked once, so a cycle ends. A soft link is an object where
  it leads to a dataset by hard links alone; it is left out where it leads to a group or nowhere.

Attributes of the root are the file's. Those of another group are under its path with the leading
slash, and so is the text of a scalar string dataset. Texts, numbers and arrays of them are kept.
"""

from __future__ import annotations

import dataclasses
import posixpath
import struct
from typing import Literal, NamedTuple

import numpy as np

from ztensor.errors import (
    FormatError,
    LimitError,
    NotRepresentableError,
    Reason,
    describe,
)
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    Encoding,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
    element_count,
    spell,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.hdf5.attributes import MOST_BYTES, Attributes, shared_address, text_of
from ztensor.formats.hdf5.chunks import ChunkTable, read_chunks
from ztensor.formats.hdf5.data import Converted, InChunks, Unwritten, fill_of
from ztensor.formats.hdf5.datatype import Class, Type, parse
from ztensor.formats.hdf5.elements import Elements, elements_of
from ztensor.formats.hdf5.filters import FILTERS, filter_name
from ztensor.formats.hdf5.groups import Group, group_of, links_of
from ztensor.formats.hdf5.header import Header, Kind, read_header
from ztensor.formats.hdf5.heaps import GlobalHeaps
from ztensor.formats.hdf5.messages import (
    Filter,
    Layout,
    Link,
    Place,
    Space,
    parse_fill,
    parse_filters,
    parse_layout,
    parse_space,
)
from ztensor.formats.hdf5.superblock import open_window
from ztensor.formats.hdf5.window import malformed, unknown
from ztensor.limits import Budget

_UNREAD, _UNREAD_MESSAGE = "hdf5", "this kind of HDF5 data is not read here; read it with h5py"
TYPE_ATTRIBUTE = "ztensor.type"  # names what the bits of an exported dataset mean

_OBJECT_COST, _GROUP_COST = 1000, 400  # bytes of memory that one takes


class _Known(NamedTuple):
    """How the elements of a dataset are stored and read.

    Attributes:
        dtype: the storage type's name, or words for what no type here holds.
        type: the logical type's name, or None.
        elements: how they are read; None where they cannot be.
    """

    dtype: str
    type: str | None = None
    elements: Elements | None = None

    @property
    def byte_order(self) -> Literal["little", "big"]:
        """Return the order of the bytes in the file, of elements that are kept as they are."""
        if self.elements is None or self.elements.convert is not None:
            return "little"
        stored = self.elements.stored
        return "little" if stored == stored.newbyteorder("<") else "big"


@dataclasses.dataclass(frozen=True, slots=True)
class _Item:
    """What a header is: a group, a text, an object, or else (a stored type) nothing here.

    Attributes:
        group: where the links of a group are.
        value: a group's attributes, or the text of a dataset.
        object: a dataset.
        nbytes: how long its attributes and texts are.
    """

    group: Group | None = None
    value: object = None
    object: TensorObject | None = None
    nbytes: int = 0


def project(source: Source, budget: Budget) -> Projection:
    """Return what an HDF5 file holds; see the module's docstring.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it shares messages in a way that h5py never asks for.
        LimitError: groups are nested deeper than `Limits.depth`, or listing the file costs more
            than one of its length may.
        SourceError: it cannot be read.
    """
    try:
        return _Walk(source, budget).run()
    except (struct.error, IndexError) as error:  # fields that a message is too short for
        raise malformed("a message is cut") from error


class _Walk:
    """One walk over all groups of a file."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._window, self._root, self._end = open_window(source, budget)
        self._left = Tally()
        self._at = ""  # the path that is looked at
        heaps = GlobalHeaps(self._window)
        self._reader = Attributes(self._window, heaps, self._stored_type, self._leave)
        self._attributes: dict[str, object] = {}
        self._objects: dict[str, TensorObject] = {}
        self._encodings: dict[str, Encoding] = {**RAW, _UNREAD: Absent(_UNREAD, _UNREAD_MESSAGE)}
        self._items: dict[int, _Item] = {}
        self._types: dict[int, Type] = {}
        self._parsed: dict[bytes, tuple[Type, _Known]] = {}

    def run(self) -> Projection:
        root = self._item(self._root)
        if root.group is None:
            raise malformed("the root is no group")
        if isinstance(root.value, dict):
            self._attributes.update(root.value)
        self._items[self._root] = _Item()
        soft: dict[str, str] = {}
        waiting = [("", root.group)]
        while waiting:
            path, group = waiting.pop()
            below = []
            for name, link in self._links_of(path, group):
                if link.target is not None:
                    target = text_of(link.target, self._budget) or ""
                    if ".." in target.split("/"):  # a name like any other in HDF5, which none has
                        self._left.add("soft link", name)
                        continue
                    self._budget.charge_bytes(len(path) + len(target))
                    soft[name] = posixpath.normpath(posixpath.join("/", path, target)).strip("/")
                elif link.address is None:
                    self._add(name, _refused("link to another file"))
                else:
                    self._at = name
                    item = self._item(link.address)
                    if item.group is None and item.object is None and item.value is None:
                        self._left.add("stored type, or further link to a group", name)
                    # Whoever writes the names down writes the attributes for each of them.
                    self._budget.charge_bytes(item.nbytes)
                    if item.object is not None:
                        self._add(name, item.object)
                        continue
                    if item.value is not None:
                        self._attributes.setdefault(f"/{name}", item.value)
                    if item.group is not None:  # once: groups may have many names
                        below.append((name, item.group))
                        self._items[link.address] = _Item()
            waiting += reversed(below)
        for name, target in soft.items():
            if target in self._objects and target not in soft:
                self._add(name, self._objects[target])
            else:
                self._left.add("soft link", name)
        if self._window.base:
            self._left.add("user block", nbytes=self._window.base)
        if self._end < self._source.size:
            self._left.add("bytes behind the end", nbytes=self._source.size - self._end)
        manifest = Manifest("", self._objects, self._attributes or None)
        return Projection(manifest, self._encodings, self._left)

    def _leave(self, kind: str, name: str) -> None:
        self._left.add(kind, f"{self._at}/{name}" if self._at else name)

    def _links_of(self, path: str, group: Group) -> list[tuple[str, Link]]:
        """Return the links of a group, each with its path."""
        if path.count("/") >= self._budget.limits.depth:
            raise LimitError(
                "groups are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._budget.limits.depth}",
            )
        links = []
        for link in links_of(self._window, group):
            name = text_of(link.name, self._budget)
            # HDF5 takes a slash for a path, which may lead through a link out of the file.
            if name is None or "/" in name or name in ("", "."):
                raise FormatError(
                    "a link's name is not UTF-8 or has a slash",
                    reason=Reason.FIELD_VALUE,
                    found=describe(link.name),
                )
            self._budget.charge_bytes(len(path))
            links.append((f"{path}/{name}" if path else name, link))
        return links

    def _add(self, name: str, tensor_object: TensorObject) -> None:
        if name in self._objects:
            raise FormatError(
                "two links have the same path",
                reason=Reason.DUPLICATE_NAME,
                found=describe(name),
            )
        self._objects[name] = tensor_object

    def _item(self, address: int) -> _Item:
        """Return what the header at an address is; links to one and the same share it."""
        item = self._items.get(address)
        if item is None:
            self._window.enter(address)
            before = self._reader.nbytes
            item = self._read_item(read_header(self._window, address))
            item = dataclasses.replace(item, nbytes=self._reader.nbytes - before)
            self._items[address] = item
        return item

    def _read_item(self, header: Header) -> _Item:
        kinds = {message.kind for message in header.messages}
        if Kind.SYMBOL_TABLE in kinds or Kind.LINK_INFO in kinds:
            self._budget.charge_bytes(_GROUP_COST)
            return _Item(group_of(self._window, header), self._reader.of(header) or None)
        if Kind.TYPE in kinds and Kind.SPACE in kinds:
            self._budget.charge_bytes(_OBJECT_COST)
            return self._dataset(header)
        if Kind.TYPE in kinds:
            return _Item()
        raise malformed("an object is no group, dataset or type")

    def _dataset(self, header: Header) -> _Item:
        layout_message = header.of(Kind.LAYOUT)
        space_message = header.of(Kind.SPACE)
        if layout_message is None or space_message is None:
            raise malformed("a dataset has no layout")
        layout = parse_layout(self._window, layout_message)
        if layout.place == Place.VIRTUAL:
            return _Item(object=_refused("virtual dataset"))
        if space_message.is_shared:
            return _Item(object=_refused("dataset with a shared dataspace"))
        space = parse_space(self._window, space_message.body)
        attributes = self._reader.of(header)
        kind, known = self._type_of(header, attributes)
        if kind.has_names:
            self._left.add("names of an enum", self._at, len(kind.members))
        filters = self._filters_of(header)
        if header.of(Kind.EXTERNAL) is not None:
            known = _Known("data in another file")
        elif space.shape is None:
            known = _Known("null dataspace")
        elif not space.shape and kind.is_string and kind.size <= MOST_BYTES:
            text = self._scalar_text(layout, kind)
            if text is not None:
                return _Item(value=text)
        shape = space.shape or ()
        for one in filters:
            if one.code not in FILTERS:
                known = _Known(f"data behind the filter {filter_name(one.code)}")
        if known.elements is None:
            return _Item(object=_refused(known.dtype, shape, attributes))
        component = self._component(header, layout, space, known, known.elements, filters)
        return _Item(object=TensorObject(shape, "dense", {"data": component}, attributes or None))

    def _component(
        self,
        header: Header,
        layout: Layout,
        space: Space,
        known: _Known,
        elements: Elements,
        filters: tuple[Filter, ...],
    ) -> Component:
        """Return where the data is, and how it is read."""
        shape, width = space.shape or (), elements.stored.itemsize
        stored = element_count(shape) * width
        nbytes = element_count(shape) * elements.numpy.itemsize
        length = offset = 0
        encoding: Encoding | None = None
        word = f"hdf5:{len(self._encodings)}"
        if layout.place == Place.CHUNKED:
            if layout.width != width:
                raise malformed("a chunk's elements have another width", width, layout.width)
            if nbytes:
                encoding, length = self._chunked(header, layout, space, word, elements, filters)
        elif filters:
            raise malformed("data that is not chunked has filters")
        elif nbytes and layout.length != 0 and self._window.is_defined(layout.address):
            length = stored if layout.length is None else layout.length
            offset = self._window.base + layout.address
            if length != stored or offset + length > self._source.size:
                raise FormatError(
                    "the data of a dataset does not lie in the file as its shape needs",
                    reason=Reason.OUT_OF_BOUNDS,
                    expected=f"{describe(stored)} bytes within {self._source.size}",
                    found=f"{describe(length)} at offset {describe(offset)}",
                )
            if elements.convert is not None:
                encoding = Converted(word, shape, elements, self._source, offset)
        elif nbytes:
            encoding = Unwritten(word, shape, elements, self._fill(header, elements))
        if encoding is None:
            return Component(
                known.dtype, offset, length, type=known.type, byte_order=known.byte_order
            )
        self._encodings[word] = encoding
        return Component(
            known.dtype, 0, length, type=known.type, encoding=word, decoded_length=nbytes
        )

    def _chunked(
        self,
        header: Header,
        layout: Layout,
        space: Space,
        word: str,
        elements: Elements,
        filters: tuple[Filter, ...],
    ) -> tuple[Encoding, int]:
        """Return how a dataset in chunks is read, and how many bytes all of them have."""
        chunk_bytes = element_count(layout.chunks) * layout.width
        table: ChunkTable = read_chunks(
            self._window, layout, space, chunk_bytes, is_filtered=bool(filters)
        )
        encoding = InChunks(
            word,
            space.shape or (),
            elements,
            self._source,
            layout.chunks,
            table=table,
            filters=filters,
            fill=self._fill(header, elements),
            are_edges_plain=layout.are_edges_plain,
        )
        return encoding, table.nbytes

    def _fill(self, header: Header, elements: Elements) -> np.ndarray:
        message, old = header.of(Kind.FILL), header.of(Kind.OLD_FILL)
        value = None
        if message is not None and not message.is_shared:
            value = parse_fill(message.body, is_old=False)
        elif message is None and old is not None and not old.is_shared:
            value = parse_fill(old.body, is_old=True)
        return fill_of(elements, value)

    def _filters_of(self, header: Header) -> tuple[Filter, ...]:
        message = header.of(Kind.FILTERS)
        if message is None:
            return ()
        if message.is_shared:
            raise unknown("shared filters")
        return parse_filters(message.body)

    def _stored_type(self, address: int) -> Type:
        """Return the type that is stored as an object of its own."""
        found = self._types.get(address)
        if found is None:
            message = read_header(self._window, address).of(Kind.TYPE)
            if message is None or message.is_shared:
                raise malformed("no stored type is here")
            found = self._types[address] = parse(message.body)
        return found

    def _type_of(self, header: Header, attributes: dict[str, object]) -> tuple[Type, _Known]:
        message = header.of(Kind.TYPE)
        if message is None:
            raise malformed("a dataset has no type")
        if message.is_shared:
            kind = self._stored_type(shared_address(self._window, message.body))
            return kind, _known(kind, attributes)
        if attributes:  # which may say what the bits are
            kind = parse(message.body)
            return kind, _known(kind, attributes)
        found = self._parsed.get(message.body)
        if found is None:
            kind = parse(message.body)
            self._budget.charge_bytes(_OBJECT_COST)
            found = self._parsed[message.body] = (kind, _known(kind, attributes))
        return found

    def _scalar_text(self, layout: Layout, kind: Type) -> str | None:
        """Return the text of a scalar dataset."""
        if layout.place == Place.CHUNKED:
            raise malformed("a dataset of one element has chunks")
        if not self._window.is_defined(layout.address) or layout.length == 0:
            return ""
        return self._reader.text(kind, bytes(self._window.read(layout.address, kind.size)))


_WORDS = {
    Class.INTEGER: "integer",
    Class.FLOAT: "float",
    Class.TIME: "time",
    Class.STRING: "string",
    Class.BITFIELD: "bit field",
    Class.COMPOUND: "compound",
    Class.REFERENCE: "reference",
    Class.ENUM: "enum",
    Class.VARIABLE: "list of any length",
    Class.ARRAY: "array type",
    Class.COMPLEX: "complex number",
}


def _known(kind: Type, attributes: dict[str, object]) -> _Known:
    """Return how elements of a type are stored and read."""
    if kind.kind == Class.OPAQUE:
        named = _named(attributes.get("dtype"), kind.size)
        if named is None:
            return _Known(f"opaque of {kind.size} bytes")
        return _Known(*named, elements_of(kind))
    elements = elements_of(kind)
    if elements is None:
        words = "string" if kind.is_string else _WORDS[kind.kind]
        return _Known(f"{words} of {kind.size} bytes" if kind.kind < Class.TIME else words)
    if elements.is_bfloat16:
        return _Known("bf16", None, elements)
    try:
        spelled = spell(elements.numpy.newbyteorder("="))
    except NotRepresentableError:
        return _Known(describe(str(elements.numpy)))
    bits = _named(attributes.get(TYPE_ATTRIBUTE), elements.numpy.itemsize)
    if bits is not None and elements.numpy.kind == "u":
        spelled = bits
        del attributes[TYPE_ATTRIBUTE]
    return _Known(*spelled, elements)


def _refused(
    what: str, shape: tuple[int, ...] = (), attributes: dict[str, object] | None = None
) -> TensorObject:
    """Return an object that is listed, and raises `UnsupportedError` when it is read."""
    component = Component(f"HDF5 {what}", 0, 0, encoding=_UNREAD, decoded_length=0)
    return TensorObject(shape, "dense", {"data": component}, attributes or None)


def _named(word: object, width: int) -> tuple[str, str | None] | None:
    """Return storage and logical type of a type's name, long or short, of this width."""
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
