"""HDF5 files, Keras weights among them, as objects and attributes.

No bytes of a file reach libhdf5: the modules of this package parse them, every read is checked, and
no structure is parsed twice. Links out of the file, virtual datasets and external storage are never
followed.

Datasets become objects named by their path without the leading slash, such as
`layers/dense/vars/0` of Keras:

- Contiguous and compact numbers without filters are byte ranges, big-endian ones too: mapped, not
  copied.
- Chunks without filters, or with deflate, shuffle, Fletcher-32 and LZF, are decoded a block of rows
  at a time. Elements that were never written have the fill value.
- Numbers in a form that NumPy lacks (12 bits in two bytes, other floats) become the next wider type
  of NumPy.
- bfloat16 is a float type of that form, or opaque with an attribute `dtype` as in Keras.
- Strings, compounds, references, other opaque types, null dataspaces, virtual datasets, external
  storage, other filters and links out of the file are listed, and refused when they are read.
- A group with several hard links is read once, so cycles end. A soft link is an object if it leads
  to a dataset by hard links alone; a soft link to a group or to nothing is left out.

Attributes of the root are the file's attributes. Attributes of another group are under its path
with the leading slash, and so is the text of a scalar string dataset. Texts, numbers and arrays of
them are kept.
"""

from __future__ import annotations

import posixpath
import struct
from typing import NamedTuple

from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import Manifest, Projection, Source, Tally, TensorObject
from ztensor.formats.hdf5.attributes import Attributes, text_of
from ztensor.formats.hdf5.datasets import Datasets, refused
from ztensor.formats.hdf5.groups import read_links
from ztensor.formats.hdf5.header import Header, Kind, read_header
from ztensor.formats.hdf5.messages import Link
from ztensor.formats.hdf5.superblock import open_window
from ztensor.formats.hdf5.types import Types
from ztensor.formats.hdf5.window import malformed
from ztensor.limits import Budget

_OBJECT_COST, _GROUP_COST = 1000, 400  # bytes of memory


class _Item(NamedTuple):
    """A group, a scalar string, a dataset, or a stored type (which has no attributes here).

    Attributes:
        links: the links of a group; else None.
        value: the attributes of a group, or the text of a scalar string.
        object: the object of a dataset.
        nbytes: the length of its attributes and texts.
    """

    links: list[Link] | None = None
    value: object = None
    object: TensorObject | None = None
    nbytes: int = 0


def project(source: Source, budget: Budget) -> Projection:
    """Return the contents of an HDF5 file; see the module's docstring.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it shares messages in a way that h5py never uses.
        LimitError: groups are nested deeper than `Limits.depth`, or listing the file exceeds the
            budget for its length.
        SourceError: it cannot be read.
    """
    try:
        return _Walk(source, budget).run()
    except (struct.error, IndexError) as error:  # a structure is shorter than its fields
        raise malformed("a structure is cut") from error


class _Walk:
    """One walk over all groups of a file."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._window, self._root, self._end = open_window(source, budget)
        self._left = Tally()
        self._at = ""  # the current path
        types = Types(self._window)
        self._reader = Attributes(self._window, types, self._leave)
        self._datasets = Datasets(self._window, types, self._reader)
        self._attributes: dict[str, object] = {}
        self._objects: dict[str, TensorObject] = {}
        self._soft: dict[str, str] = {}
        self._items: dict[int, _Item] = {}

    def run(self) -> Projection:
        root = self._item(self._root)
        if root.links is None:
            raise malformed("the root is not a group")
        if isinstance(root.value, dict):
            self._attributes.update(root.value)
        self._items[self._root] = _Item()
        waiting = [("", root.links)]
        while waiting:
            path, links = waiting.pop()
            below = [
                (name, inner)
                for name, link in self._named(path, links)
                if (inner := self._follow(path, name, link)) is not None
            ]
            waiting += reversed(below)
        for name, target in self._soft.items():
            if target in self._objects and target not in self._soft:
                self._add(name, self._objects[target])
            else:
                self._left.add("soft link", name)
        if self._window.base:
            self._left.add("user block", nbytes=self._window.base)
        if self._end < self._source.size:
            self._left.add("bytes behind the end", nbytes=self._source.size - self._end)
        manifest = Manifest("", self._objects, self._attributes or None)
        return Projection(manifest, self._datasets.encodings, self._left)

    def _leave(self, kind: str, name: str, count: int) -> None:
        self._left.add(kind, "/".join(filter(None, (self._at, name))), count)

    def _named(self, path: str, links: list[Link]) -> list[tuple[str, Link]]:
        """Return the links of a group, each with its path."""
        self._window.require_depth(path.count("/") + 1, "groups")
        named = []
        for link in links:
            name = text_of(link.name, self._budget)
            # A slash would make it a path, which may lead through a link out of the file.
            if name is None or "/" in name or name in ("", "."):
                raise FormatError(
                    "a link's name is not UTF-8 or has a slash",
                    reason=Reason.FIELD_VALUE,
                    found=describe(link.name),
                )
            self._budget.charge_bytes(len(path))
            named.append((f"{path}/{name}" if path else name, link))
        return named

    def _follow(self, path: str, name: str, link: Link) -> list[Link] | None:
        """Add the target of a link in the group at `path`. Return the links of a new group."""
        if link.target is not None:
            target = text_of(link.target, self._budget) or ""
            if ".." in target.split("/"):  # an ordinary name in HDF5, which no object has
                self._left.add("soft link", name)
            else:
                self._budget.charge_bytes(len(path) + len(target))
                whole = posixpath.normpath(posixpath.join("/", path, target))
                self._soft[name] = whole.strip("/")
            return None
        if link.address is None:
            self._add(name, refused("link to another file"))
            return None
        self._at = name
        item = self._item(link.address)
        # Attributes are repeated for each name.
        self._budget.charge_bytes(item.nbytes)
        if item.object is not None:
            self._add(name, item.object)
        elif item.value is not None:
            self._attributes.setdefault(f"/{name}", item.value)
        elif item.links is None:
            self._left.add("stored type, or further link to a group", name)
        if item.links is not None:  # a group with several names is read once
            self._items[link.address] = _Item()
        return item.links

    def _add(self, name: str, tensor_object: TensorObject) -> None:
        if name in self._objects:
            raise FormatError(
                "duplicate path of a link",
                reason=Reason.DUPLICATE_NAME,
                found=describe(name),
            )
        self._objects[name] = tensor_object

    def _item(self, address: int) -> _Item:
        """Return the item of the header at an address; it is cached."""
        item = self._items.get(address)
        if item is None:
            self._window.enter(address)
            before = self._reader.nbytes
            item = self._read_item(read_header(self._window, address))
            item = self._items[address] = item._replace(nbytes=self._reader.nbytes - before)
        return item

    def _read_item(self, header: Header) -> _Item:
        kinds = {message.kind for message in header.messages}
        if Kind.SYMBOL_TABLE in kinds or Kind.LINK_INFO in kinds:
            self._budget.charge_bytes(_GROUP_COST)
            return _Item(read_links(self._window, header), self._reader.of(header) or None)
        if Kind.TYPE not in kinds:
            raise malformed("neither a group nor a dataset nor a type")
        if Kind.SPACE not in kinds:
            return _Item()
        self._budget.charge_bytes(_OBJECT_COST)
        value = self._datasets.read(header)
        return _Item(value=value) if isinstance(value, str) else _Item(object=value)
