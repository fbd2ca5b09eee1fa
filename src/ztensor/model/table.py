"""Plain objects of a file by columns of numbers: for a few, and for a million.

What fills them (a manifest of ours, the header of another format) checks its rules as array
operations; what reads them lays arrays in bulk. A `TensorObject` is made when one is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import KeysView
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ztensor.model.manifest import CheckedObjects, Component, TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Uints: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Plain objects: row i of every column is about the i-th of them.

    They are dense with the one component `data`, little-endian and without attributes, and all
    is right with them that can be seen without their bytes: types and encodings are known, blobs
    lie where they may, sizes fit the shapes.

    Attributes:
        names: in the order of the file.
        offsets: first byte in the file.
        lengths: bytes on disk.
        types: places in `spellings`.
        spellings: pairs of storage type and logical type (None for none), as the model has them;
            those nothing refers to need not make sense.
        ranks: how many dimensions.
        dims: the dimensions of all objects; some of it may belong to none.
        dim_starts: where in `dims` an object's own begin.
        is_raw: whether the encoding is `raw`; else it is `packed`.
        decoded_lengths: bytes after decoding as the file says, -1 where it does not.
        digest_text: what the texts of digests lie in, each as a writer of ours spells it.
        digest_starts: where in it an object's digest begins.
        digest_lengths: how long it is, 0 where there is none.
        digest_may_cover_decoded: as `Component` has it, for all of them, like the next two.
        digest_covers_decoded: likewise.
        is_exact: likewise.
        packed: the encoding of those that are not raw.
    """

    names: list[str]
    offsets: Ints
    lengths: Ints
    types: Ints
    spellings: tuple[tuple[str, str | None], ...]
    ranks: Ints
    dims: Uints
    dim_starts: Ints
    is_raw: Bools
    decoded_lengths: Ints
    digest_starts: Ints
    digest_lengths: Ints
    digest_text: bytes = b""
    digest_may_cover_decoded: bool = False
    digest_covers_decoded: bool = False
    is_exact: bool = False
    packed: str = "zstd"

    @classmethod
    def of_raw(
        cls,
        names: list[str],
        kinds: list[tuple[tuple[str, str | None], tuple[int, ...]]],
        codes: Sequence[int] | Ints,
        offsets: Ints,
        lengths: Ints,
    ) -> Table:
        """Return a table of raw objects without digests.

        Args:
            names: in the order of the file.
            kinds: the pairs of spelling and shape there are, fewer than objects.
            codes: (count,) places in `kinds`.
            offsets: (count,) first bytes in the file.
            lengths: (count,) bytes.
        """
        count = len(names)
        spellings = {
            spelling: place for place, spelling in enumerate(dict.fromkeys(k for k, _ in kinds))
        }
        dims: list[int] = []
        rows = []
        for spelling, shape in kinds:
            rows.append((spellings[spelling], len(shape), len(dims)))
            dims += shape
        of_kinds = np.array(rows, np.int64).reshape(-1, 3)
        types, ranks, dim_starts = of_kinds[np.array(codes, np.int64)].T
        none = np.zeros(count, np.int64)
        return cls(
            names,
            offsets,
            lengths,
            types,
            tuple(spellings),
            ranks,
            np.array(dims, np.uint64),
            dim_starts,
            is_raw=np.ones(count, np.bool_),
            decoded_lengths=none - 1,
            digest_starts=none,
            digest_lengths=none,
        )

    def __len__(self) -> int:
        return len(self.names)

    def shape(self, row: int) -> tuple[int, ...]:
        """Return the shape of one object."""
        start = self.dim_starts.item(row)
        return tuple(self.dims[start : start + self.ranks.item(row)].tolist())

    def digest(self, row: int) -> str | None:
        """Return the text of one's digest, or None."""
        length = self.digest_lengths.item(row)
        if not length:
            return None
        start = self.digest_starts.item(row)
        return self.digest_text[start : start + length].decode("ascii")

    def object(self, row: int) -> TensorObject:
        """Return the object that a row is about."""
        dtype, logical = self.spellings[self.types[row]]
        decoded_length = self.decoded_lengths.item(row)
        component = Component(
            dtype,
            self.offsets.item(row),
            self.lengths.item(row),
            logical,
            "raw" if self.is_raw[row] else self.packed,
            self.digest(row),
            None if decoded_length < 0 else decoded_length,
            digest_may_cover_decoded=self.digest_may_cover_decoded,
            digest_covers_decoded=self.digest_covers_decoded,
            is_exact=self.is_exact,
        )
        return TensorObject(self.shape(row), "dense", {"data": component})

    def take(self, rows: Ints) -> Table:
        """Return some of the objects."""
        names = self.names
        some: dict[str, Any] = {key: getattr(self, key)[rows] for key in _COLUMNS}
        return dataclasses.replace(self, names=[names[row] for row in rows.tolist()], **some)


_COLUMNS = (
    "offsets",
    "lengths",
    "types",
    "ranks",
    "dim_starts",
    "is_raw",
    "decoded_lengths",
    "digest_starts",
    "digest_lengths",
)


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
        if last is not None and last[0] == name:  # who goes through objects asks for each in turn
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
