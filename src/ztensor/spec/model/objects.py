"""Mappings of names to objects that build an object on access: from columns, or by a function.

Plain objects are rows of a `Table`, a structure of arrays. The parsers that fill it (of our
manifests, of headers of other formats) check their rules by array operations, and bulk loads read
its columns. `LaterObjects` calls a function per object, on first access.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ztensor.errors import FormatError, ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.locks import Lock
from ztensor.spec.model.manifest import TensorObject

Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Uints: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]


@dataclasses.dataclass(slots=True, eq=False)
class Table:
    """Plain objects as columns: row i of every column describes the i-th object.

    Each is dense with the one component `data`, without attributes, and has passed every check
    that needs no stored bytes: types and encodings are known, blobs are inside the file, sizes fit
    the shapes.

    Attributes:
        names: in the order of the file.
        kinds: templates; a row replaces offset, length and digest of its template.
        kind_of: (count,) indices into `kinds`.
        offsets: (count,) first bytes in the file.
        lengths: (count,) bytes on disk.
        digests: (count,) offsets in `text` of the digest texts, each as long as its template's.
        text: the bytes that contain the digest texts.
    """

    names: list[str]
    kinds: Sequence[TensorObject]
    kind_of: Ints
    offsets: Ints
    lengths: Ints
    digests: Ints
    text: bytes = b""

    def is_raw(self) -> Bools:
        """Return a mask of the rows whose encoding is `raw`, (count,)."""
        are_raw = [kind.components["data"].encoding == "raw" for kind in self.kinds]
        return np.array(are_raw, np.bool_)[self.kind_of]

    def digest(self, row: int) -> str | None:
        """Return the text of a row's digest; None if its objects have none."""
        template = self.kinds[self.kind_of.item(row)].components["data"].digest
        if template is None:
            return None
        start = self.digests.item(row)
        return self.text[start : start + len(template)].decode("ascii")

    def object(self, row: int) -> TensorObject:
        """Build the object of a row."""
        kind = self.kinds[self.kind_of.item(row)]
        offset, length = self.offsets.item(row), self.lengths.item(row)
        component = kind.components["data"].at(offset, length, self.digest(row))
        return TensorObject(kind.shape, "dense", {"data": component})


class TableObjects(Mapping[str, TensorObject]):
    """Objects by name, most of them in a table.

    Args:
        table: the plain objects, whose layouts were checked.
        others: the other ones, whose layouts are still to be checked.
        order: all names, each once, in the order of the file.
    """

    __slots__ = ("_last", "_order", "_rows", "others", "table")

    def __init__(self, table: Table, others: Mapping[str, TensorObject], order: list[str]) -> None:
        self.table, self.others = table, others
        self._order = order
        self._rows: dict[str, int] = {}
        self._last: tuple[str, TensorObject] | None = None

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of() or name in self.others

    def __getitem__(self, name: str) -> TensorObject:
        last = self._last
        if last is not None and last[0] == name:  # a loop over objects asks for each in turn
            return last[1]
        row = self.row(name)
        if row is None:
            return self.others[name]
        tensor_object = self.table.object(row)
        self._last = name, tensor_object
        return tensor_object

    def row(self, name: str) -> int | None:
        """Return an object's row of the table; None if it is not in the table."""
        return self._row_of().get(name)

    def _row_of(self) -> dict[str, int]:
        if not self._rows:  # built on first use: listing a file does not need it
            self._rows = {name: row for row, name in enumerate(self.table.names)}
        return self._rows


class LaterObjects(Mapping[str, TensorObject]):
    """Objects by name, each built on first access; thread-safe.

    Args:
        names: all names, each once, in the order of the file.
        make: builds the object of a name. A `ZTensorError` that it raises gets the object's name;
            a `FormatError` is kept and raised again on each later access.
        where: the approximate offset of an object's first byte, headers included, which orders
            reads; by default the order of the names.
        extents: offsets, lengths and whether each run is encoded, of all bytes of all objects, as
            `extents_of` takes them; by default unknown.
    """

    __slots__ = ("_broken", "_built", "_lock", "_make", "extents", "where")

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[str], TensorObject],
        *,
        where: Callable[[str], int] = lambda _: 0,
        extents: Callable[[], tuple[list[int], list[int], list[bool]]] = lambda: ([], [], []),
    ) -> None:
        self.where, self.extents = where, extents
        self._built: dict[str, TensorObject | None] = dict.fromkeys(names)
        self._broken: dict[str, FormatError] = {}
        self._make = make
        self._lock = Lock()

    @staticmethod
    def of_columns(
        names: list[str],
        kinds: Sequence[TensorObject],
        kind_of: Ints,
        offsets: Ints,
        lengths: Ints,
    ) -> Mapping[str, TensorObject]:
        """Return plain objects without digests as rows of one table, checked as `Table` asks.

        Args:
            names: in the order of the file.
            kinds: templates; a row replaces offset and length.
            kind_of: (count,) indices into `kinds`.
            offsets: (count,) first bytes in the file.
            lengths: (count,) bytes on disk.
        """
        no_digests = np.zeros(len(names), np.int64)
        return TableObjects(Table(names, kinds, kind_of, offsets, lengths, no_digests), {}, names)

    def __len__(self) -> int:
        return len(self._built)

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __contains__(self, name: object) -> bool:
        return name in self._built

    def __getitem__(self, name: str) -> TensorObject:
        tensor_object = self._built[name]
        if tensor_object is None:
            with self._lock:  # `make` charges the file's budget and is not thread-safe
                tensor_object = self._built[name]
                if name in self._broken:  # a second attempt would charge the budget again
                    raise copy.copy(self._broken[name])
                if tensor_object is None:
                    try:
                        with foreign_bytes("the object"):
                            tensor_object = self._built[name] = self._make(name)
                    except ZTensorError as error:
                        error.locate(object_name=name).forget_sections()
                        if isinstance(error, FormatError):
                            self._broken[name] = copy.copy(error)
                        raise
        return tensor_object
