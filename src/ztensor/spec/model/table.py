"""Plain objects of a file by columns of numbers: for a few, and for a million.

What fills them (a manifest of ours, the header of another format) checks its rules as array
operations; what reads them lays arrays in bulk. A `TensorObject` is made when one is asked for.
"""

from __future__ import annotations

from collections.abc import KeysView
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ztensor.spec.model.manifest import CheckedObjects, Component, TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Uints: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


class Table:
    """Plain objects: row i of every column is about the i-th of them.

    They are dense with the one component `data`, without attributes, and all is right with them
    that can be seen without their bytes: types and encodings are known, blobs are where they may
    be, sizes fit the shapes.

    Attributes:
        names: in the order of the file.
        kinds: objects, of which a row has all but offset, length and digits of the digest.
        kind_of: (count,) places in `kinds`.
        offsets: (count,) first bytes in the file.
        lengths: (count,) bytes on disk.
        digests: (count,) where in `text` the text of a digest begins, as long as the kind's.
        text: what the digests are in.
    """

    __slots__ = ("digests", "kind_of", "kinds", "lengths", "names", "offsets", "text")

    def __init__(
        self,
        names: list[str],
        kinds: Sequence[TensorObject],
        kind_of: Ints,
        offsets: Ints,
        lengths: Ints,
        digests: Ints,
        text: bytes = b"",
    ) -> None:
        self.names = names
        self.kinds = kinds
        self.kind_of = kind_of
        self.offsets = offsets
        self.lengths = lengths
        self.digests = digests
        self.text = text

    @classmethod
    def of_raw(
        cls,
        names: list[str],
        kinds: Sequence[tuple[tuple[str, str | None], tuple[int, ...]]],
        codes: Sequence[int] | Ints,
        offsets: Ints,
        lengths: Ints,
    ) -> Table:
        """Return a table of raw objects without digests.

        Args:
            names: in the order of the file.
            kinds: the pairs of types (storage, logical or None) and shape there are.
            codes: (count,) places in `kinds`.
            offsets: (count,) first bytes in the file.
            lengths: (count,) bytes.
        """
        made = [
            TensorObject(shape, "dense", {"data": Component(dtype, 0, 0, logical)})
            for (dtype, logical), shape in kinds
        ]
        none = np.zeros(len(names), np.int64)
        return cls(names, made, np.array(codes, np.int64), offsets, lengths, none)

    def __len__(self) -> int:
        return len(self.names)

    def column(self, fact: Callable[[TensorObject, Component], Any], dtype: Any) -> Any:
        """Return (count,) what each row's kind gives, as an array of this type."""
        facts = [fact(kind, kind.components["data"]) for kind in self.kinds]
        return np.array(facts, dtype)[self.kind_of]

    def is_raw(self) -> Bools:
        """Return (count,) whether the encoding is `raw`."""
        found: Bools = self.column(lambda _, component: component.encoding == "raw", np.bool_)
        return found

    def digest(self, row: int) -> str | None:
        """Return the text of one's digest, or None."""
        like = self.kinds[self.kind_of.item(row)].components["data"].digest
        if like is None:
            return None
        start = self.digests.item(row)
        return self.text[start : start + len(like)].decode("ascii")

    def object(self, row: int) -> TensorObject:
        """Return the object that a row is about."""
        kind = self.kinds[self.kind_of.item(row)]
        like = kind.components["data"]
        component = Component(
            like.dtype,
            self.offsets.item(row),
            self.lengths.item(row),
            like.type,
            like.encoding,
            self.digest(row),
            like.decoded_length,
            like.byte_order,
            digest_may_cover_decoded=like.digest_may_cover_decoded,
            digest_covers_decoded=like.digest_covers_decoded,
            is_exact=like.is_exact,
        )
        return TensorObject(kind.shape, "dense", {"data": component})


class _Names(KeysView[str]):
    """The names of a table's objects; those of a mapping go through a generator, one by one."""

    __slots__ = ("_order",)

    def __init__(self, objects: TableObjects, order: list[str]) -> None:
        super().__init__(objects)
        self._order = order

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)


class TableObjects(CheckedObjects):
    """Objects by name, most of them in a table.

    Args:
        table: the plain objects, or what gives them when they are first asked for.
        others: the other ones.
        order: all names, each once, in the order of the file.
    """

    __slots__ = ("_last", "_order", "_rows", "_table", "others")

    def __init__(
        self,
        table: Table | Callable[[], Table],
        others: Mapping[str, TensorObject],
        order: list[str],
    ) -> None:
        self._table = table
        self.others = others
        self._order = order
        self._rows: dict[str, int] | None = None
        self._last: tuple[str, TensorObject] | None = None

    @property
    def table(self) -> Table:
        """Return the plain objects."""
        table = self._table
        if not isinstance(table, Table):
            table = self._table = table()
        return table

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of() or name in self.others

    def keys(self) -> KeysView[str]:
        """Return the names, in the order of the file."""
        return _Names(self, self._order)

    def __getitem__(self, name: str) -> TensorObject:
        last = self._last
        if last is not None and last[0] == name:  # a loop over objects asks for each in turn
            return last[1]
        row = self._row_of().get(name)
        if row is None:
            return self.others[name]
        found = self.table.object(row)
        self._last = name, found
        return found

    def row(self, name: str) -> int | None:
        """Return the row of the table that an object is in; None where it is in none."""
        return self._row_of().get(name)

    def _row_of(self) -> dict[str, int]:
        """Return the rows by name; made on first use, as listing a file needs none."""
        rows = self._rows
        if rows is None:
            names = self.table.names
            rows = self._rows = dict(zip(names, range(len(names)), strict=True))
        return rows
