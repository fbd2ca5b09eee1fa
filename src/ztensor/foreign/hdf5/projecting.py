"""HDF5 files, Keras weights among them: read and written through h5py.

The bytes are parsed by libhdf5, a large C library, and not by us: of a hostile file it may crash
the process, and no check here can prevent that. What we add: links that leave the file, virtual
datasets and external storage are never followed, sizes are checked before memory is taken, and
whatever h5py raises becomes an error of ours. h5py reads through our own source, so that no file
is opened by name and no HDF5 handle outlives a call.

What is in a file becomes an object by its path without the leading slash (Keras has
`layers/dense/vars/0`):

- Contiguous numbers without filters are byte ranges, big-endian ones too: mapped, not copied.
- Chunks without filters, and behind deflate, shuffle, Fletcher-32 and LZF, are decoded here, a
  block of rows at a time: libhdf5 undoes these filters without a check of what comes out. LZF is
  expanded by h5py's code, once its tokens were counted.
- Compact and never written data, numbers in a form NumPy lacks, and other filters that are
  installed (n-bit, scale-offset, plugins) are left to h5py.
- bfloat16: as a float type of that form, or as Keras stores it, opaque with an attribute `dtype`.
- Strings, compounds, references, other opaque types, null dataspaces, virtual datasets, external
  storage, unknown filters and links out of the file are listed, and refused when they are read.
- A group with several hard links is walked once, so a cycle ends. A soft link is an object where
  it leads to a dataset by hard links alone; it is left out where it leads to a group or nowhere.

Attributes of the root are the file's. Those of another group are under its path with the leading
slash, and so is the text of a scalar string dataset. Texts, numbers and arrays of them are kept.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import (
    FormatError,
    LimitError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.foreign.base import RAW, ForeignEncoding, Projection
from ztensor.foreign.hdf5.data import ByLibrary, InChunks
from ztensor.foreign.hdf5.file import TYPE_ATTRIBUTE, h5py_library, opened
from ztensor.foreign.hdf5.filters import FILTERS
from ztensor.layout.elements import spell
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, element_count
from ztensor.model.manifest import Component, Manifest, TensorObject

if TYPE_CHECKING:
    from ztensor.encoding import Encoding, Stored
    from ztensor.limits import Limits
    from ztensor.source.base import Source

NAME = "hdf5"

_ATTRIBUTE_BYTES = 1 << 20
_STRINGS_BYTES = 1 << 30
# Deflate, Fletcher-32 and LZF. On short data libhdf5 (2.0.0) crashes in them, or shows its memory.
_UNCHECKED = (1, 3, 32000)
# Sign, exponent and mantissa positions and sizes as h5py gives them, and the exponent's bias.
_BFLOAT16 = ((15, 7, 8, 0, 7), 127)


class _Kind(NamedTuple):
    """How the elements of a dataset are stored and read.

    Attributes:
        dtype: the storage type's name, or words for what no type here holds.
        type: the logical type's name, or None.
        numpy: the type h5py reads them as, little-endian; None where it cannot.
        is_exact: whether they lie in the file as NumPy has them.
        byte_order: in which order.
    """

    dtype: str
    type: str | None = None
    numpy: np.dtype[Any] | None = None
    is_exact: bool = False
    byte_order: Any = "little"


def project(source: Source, limits: Limits) -> Projection:
    """Return what an HDF5 file holds; see the module's docstring.

    Raises:
        FormatError: libhdf5 cannot read it, or what it reads cannot be.
        MissingDependencyError: h5py is not installed.
        LimitError: groups are nested deeper than `Limits.depth`.
        SourceError: it cannot be read.
    """
    with opened(source) as file:
        return _Walk(source, limits, file).run()


class _Walk:
    """One walk over all groups of an open file."""

    def __init__(self, source: Source, limits: Limits, file: Any) -> None:
        self._h5py = h5py_library()
        self._source = source
        self._limits = limits
        self._file = file
        self._links = 0
        self._text_left = source.size  # many links may lead to one and the same text
        self._attributes: dict[str, object] = {}
        self._objects: dict[str, TensorObject] = {}
        self._encodings: dict[str, Encoding] = {**RAW, NAME: _Unread(NAME)}
        self._kinds: dict[tuple[bytes, bool], _Kind] = {}

    def run(self) -> Projection:
        h5py = self._h5py
        self._attributes.update(self._attributes_of(self._file))
        seen = {h5py.h5o.get_info(self._file.id).addr}
        soft: dict[str, str] = {}
        waiting = [("", self._file.id)]
        while waiting:
            path, group = waiting.pop()
            below = []
            for name, kind, target in self._links_of(path, group):
                if kind == h5py.h5l.TYPE_SOFT:
                    if ".." in target.split("/"):  # a name like any other in HDF5, which none has
                        continue
                    soft[name] = posixpath.normpath(posixpath.join("/", path, target)).strip("/")
                elif kind != h5py.h5l.TYPE_HARD:
                    self._add(name, _refused("link to another file"))
                else:
                    item = h5py.h5o.open(group, name.rpartition("/")[2].encode())
                    if isinstance(item, h5py.h5d.DatasetID):
                        self._add_dataset(name, item)
                    elif isinstance(item, h5py.h5g.GroupID):
                        address = h5py.h5o.get_info(item).addr
                        if address not in seen:
                            seen.add(address)
                            below.append((name, item))
                            self._add_group(name, h5py.Group(item))
            waiting += reversed(below)
        for name, target in soft.items():
            if target in self._objects and target not in soft:
                self._add(name, self._objects[target])
        manifest = Manifest("", self._objects, self._attributes or None)
        return Projection(NAME, manifest, self._encodings)

    def _links_of(self, path: str, group: Any) -> list[tuple[str, int, str]]:
        """Return path, kind and soft target of what a group links to."""
        if path.count("/") >= self._limits.depth:
            raise LimitError(
                "groups are nested deeper than Limits.depth; pass a larger one",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._limits.depth}",
            )
        links = []
        for raw in group:
            self._links += 1
            if self._links > self._source.size:  # a damaged tree may lead around for ever
                raise FormatError(
                    "there are more links than the file has bytes", reason=Reason.FIELD_VALUE
                )
            name = _text(raw)
            # HDF5 takes a slash for a path, which may lead through a link out of the file.
            if name is None or "/" in name or name in ("", "."):
                raise FormatError(
                    "a link's name is not UTF-8 or has a slash",
                    reason=Reason.FIELD_VALUE,
                    found=describe(raw),
                )
            kind = group.links.get_info(raw).type
            target = ""
            if kind == self._h5py.h5l.TYPE_SOFT:
                target = _text(group.links.get_val(raw)) or ""
            links.append((f"{path}/{name}" if path else name, kind, target))
        return links

    def _add(self, name: str, tensor_object: TensorObject) -> None:
        if name in self._objects:
            raise FormatError(
                "two links have the same path",
                reason=Reason.DUPLICATE_NAME,
                found=describe(name),
            )
        self._objects[name] = tensor_object

    def _add_group(self, name: str, group: Any) -> None:
        attributes = self._attributes_of(group)
        if attributes:
            self._attributes.setdefault(f"/{name}", attributes)

    def _add_dataset(self, name: str, item: Any) -> None:
        # By h5py's lower half: a model has thousands, and the upper half triples the time of each.
        h5py = self._h5py
        stored = item.get_create_plist()
        layout = stored.get_layout()
        if layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
            # Asking a virtual dataset for its shape may already open other files.
            self._add(name, _refused("virtual dataset"))
            return
        attributes = {}
        if h5py.h5a.get_num_attrs(item):
            attributes = self._attributes_of(h5py.Dataset(item))
        length = int(item.get_storage_size())
        # Behind a user block libhdf5 gives an offset also where nothing is allocated.
        is_range = (
            layout == h5py.h5d.CONTIGUOUS
            and item.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
            and length > 0
        )
        filters = [stored.get_filter(number) for number in range(stored.get_nfilters())]
        codes = {one[0] for one in filters}
        is_ours = layout == h5py.h5d.CHUNKED and codes <= set(FILTERS)
        kind = self._kind_of(item, attributes, has_bits=is_range or is_ours)
        if stored.get_external_count():
            kind = _Kind("data in another file")
        space = item.get_space()
        shape: tuple[int, ...] = ()
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            kind = _Kind("null dataspace")
        else:
            shape = space.get_simple_extent_dims()
            text = None if shape else self._small_text(h5py.Dataset(item))
            if text is not None:
                self._attributes.setdefault(f"/{name}", text)
                return
        for code in codes:
            is_needed = not (is_ours and kind.is_exact)
            if is_needed and (code in _UNCHECKED or not h5py.h5z.filter_avail(code)):
                kind = _Kind(f"data behind the filter {code}")
        if kind.numpy is None:
            self._add(name, _refused(kind.dtype, shape, attributes))
            return
        nbytes = element_count(shape) * kind.numpy.itemsize
        offset = (item.get_offset() or 0) if is_range and kind.is_exact else 0
        if offset + length > self._source.size or (offset and length != nbytes):
            raise FormatError(
                "the data of a dataset does not lie in the file as its shape needs",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"{describe(nbytes)} bytes within {self._source.size}",
                found=f"{describe(length)} at offset {describe(offset)}",
            )
        component = Component(
            kind.dtype, offset, length, type=kind.type, byte_order=kind.byte_order
        )
        if not offset and (nbytes or not kind.is_exact):
            word = f"{NAME}:{len(self._encodings)}"
            chunks: Any = stored.get_chunk() if layout == h5py.h5d.CHUNKED else None
            self._encodings[word] = (
                InChunks(
                    word,
                    self._source,
                    name,
                    shape,
                    kind.numpy,
                    chunks,
                    order=kind.byte_order,
                    filters=[(one[0], tuple(one[2])) for one in filters],
                    has_user_block=bool(self._file.userblock_size),
                )
                if is_ours and kind.is_exact
                else ByLibrary(word, self._source, name, shape, kind.numpy, chunks)
            )
            component = Component(
                kind.dtype, 0, length, type=kind.type, encoding=word, decoded_length=nbytes
            )
        self._add(name, TensorObject(shape, "dense", {"data": component}, attributes or None))

    def _kind_of(self, item: Any, attributes: dict[str, object], *, has_bits: bool) -> _Kind:
        stored = item.get_type()
        if attributes:  # which may say what the bits are
            return self._kind_of_type(stored, attributes, has_bits=has_bits)
        key = stored.encode(), has_bits
        if key not in self._kinds:
            self._kinds[key] = self._kind_of_type(stored, attributes, has_bits=has_bits)
        return self._kinds[key]

    def _kind_of_type(self, stored: Any, attributes: dict[str, object], *, has_bits: bool) -> _Kind:
        h5t = self._h5py.h5t
        if (
            has_bits  # else h5py reads it as float32
            and isinstance(stored, h5t.TypeFloatID)
            and (stored.get_fields(), stored.get_ebias()) == _BFLOAT16
            and stored.get_size() == 2
        ):
            order = "big" if stored.get_order() == h5t.ORDER_BE else "little"
            return _Kind("bf16", None, np.dtype("<u2"), is_exact=True, byte_order=order)
        try:
            dtype = stored.dtype
        except (TypeError, ValueError):  # h5py has no type for it
            return _Kind("type that h5py does not know")
        if isinstance(stored, h5t.TypeOpaqueID):
            named = _named(attributes.get("dtype"), dtype.itemsize)
            if named is None:
                return _Kind(f"opaque of {dtype.itemsize} bytes")
            return _Kind(*named, dtype, is_exact=True)
        try:
            spelled = spell(np.dtype(dtype.newbyteorder("=").str))
        except NotRepresentableError:
            return _Kind("string" if self._h5py.check_string_dtype(dtype) else describe(str(dtype)))
        bits = _named(attributes.get(TYPE_ATTRIBUTE), dtype.itemsize)
        if bits is not None and dtype.kind == "u":
            spelled = bits
            del attributes[TYPE_ATTRIBUTE]
        # Enums and numbers with padding are not equal to what NumPy would be stored as.
        plain = h5t.py_create(dtype, logical=True)
        return _Kind(
            *spelled,
            np.dtype(dtype.newbyteorder("<").str),
            is_exact=bool(stored == plain),
            byte_order="big" if dtype.str.startswith(">") else "little",
        )

    def _small_text(self, dataset: Any) -> str | None:
        if dataset.id.get_create_plist().get_external_count():
            return None
        if self._h5py.check_string_dtype(dataset.dtype) is None:
            return None
        if dataset.dtype.itemsize > _ATTRIBUTE_BYTES:
            return None
        value = self._plain(dataset[()])
        return value if isinstance(value, str) else None

    def _plain(self, value: Any) -> Any:
        plain = plain_value(value)
        for text in plain if isinstance(plain, list) else [plain]:
            self._text_left -= len(text) if isinstance(text, str) else 0
        if self._text_left < 0:
            raise FormatError(
                "there is more text than the file has bytes", reason=Reason.FIELD_VALUE
            )
        return plain

    def _attributes_of(self, item: Any) -> dict[str, object]:
        found: dict[str, object] = {}
        for key in item.attrs:
            if _text(key) is None or not self._is_small(item.attrs.get_id(key)):
                continue
            value = item.attrs[key]
            if isinstance(value, self._h5py.Empty):
                found[key] = None
                continue
            plain = self._plain(value)
            if plain is not None:
                found[key] = plain
        return found

    def _is_small(self, attribute: Any) -> bool:
        try:
            dtype, shape = attribute.dtype, attribute.shape
        except (TypeError, ValueError):  # of a type h5py does not know
            return False
        if element_count(shape or ()) * dtype.itemsize > _ATTRIBUTE_BYTES:
            return False
        text = self._h5py.check_string_dtype(dtype)
        if text is not None and text.length is None and shape:
            # Each string may be one and the same, as long as the file.
            return element_count(shape) * self._source.size <= _STRINGS_BYTES
        return text is not None or (dtype.kind in "biufV" and dtype.names is None)


def _refused(
    what: str, shape: tuple[int, ...] = (), attributes: dict[str, object] | None = None
) -> TensorObject:
    """Return an object that is listed, and raises `UnsupportedError` when it is read."""
    component = Component(f"HDF5 {what}", 0, 0, encoding=NAME, decoded_length=0)
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


def _text(raw: str | bytes) -> str | None:
    """Return text as it is, or None where it is no UTF-8."""
    try:
        return raw.decode() if isinstance(raw, bytes) else raw.encode().decode()
    except UnicodeError:
        return None


def plain_value(value: Any) -> Any:
    """Return an attribute's value as plain Python values, or None where it has none."""
    if isinstance(value, np.void):
        return None if value.dtype.names else value.tobytes()
    if isinstance(value, (bytes, str)):
        return _text(value)
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "biufSO" or (value.dtype.kind == "f" and value.itemsize > 8):
            return None
        value = value.tolist()
        if isinstance(value, (bytes, str)):
            return _text(value)
    if isinstance(value, list):
        items = [plain_value(item) for item in value]
        return None if None in items else items
    return value if isinstance(value, (bool, int, float)) else None


class _Unread(ForeignEncoding):
    """What is listed only: its element type is none, and that is said before this is asked."""

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        raise UnsupportedError(
            "this kind of HDF5 data is not read here; read it with h5py",
            reason=Reason.UNKNOWN_ENCODING,
        )
