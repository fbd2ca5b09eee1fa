"""Objects by name that are made when one is asked for: out of columns of numbers, or one by one.

Plain objects are rows of a `Table`. What fills it (a manifest of ours, the header of another
format) checks its rules as array operations; what reads it views arrays in bulk. Other formats
describe each object when it is asked for, `LaterObjects`.
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

    names: list[str]
    kinds: Sequence[TensorObject]
    kind_of: Ints
    offsets: Ints
    lengths: Ints
    digests: Ints
    text: bytes = b""

    def is_raw(self) -> Bools:
        """Return (count,) whether the encoding is `raw`."""
        are_raw = [kind.components["data"].encoding == "raw" for kind in self.kinds]
        return np.array(are_raw, np.bool_)[self.kind_of]

    def digest(self, row: int) -> str | None:
        """Return the text of a row's digest, or None."""
        template = self.kinds[self.kind_of.item(row)].components["data"].digest
        if template is None:
            return None
        start = self.digests.item(row)
        return self.text[start : start + len(template)].decode("ascii")

    def object(self, row: int) -> TensorObject:
        """Return the object that a row is about."""
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
        found = self.table.object(row)
        self._last = name, found
        return found

    def row(self, name: str) -> int | None:
        """Return the row of the table that an object is in; None where it is in none."""
        return self._row_of().get(name)

    def _row_of(self) -> dict[str, int]:
        if not self._rows:  # listing a file needs none
            self._rows = {name: row for row, name in enumerate(self.table.names)}
        return self._rows


class LaterObjects(Mapping[str, TensorObject]):
    """Objects by name, each made when it is first asked for; threads may share them.

    Args:
        names: all of them, each once, in the order of the file.
        make: describes one. What it raises of ours is told the object's name, and each later caller
            gets it again.
        where: about where the bytes of one begin in the file, those that say what it is included;
            by default they lie in the order of the names.
        extents: where all of that lies, as `extents_of` takes it: offsets, lengths, and whether
            each is encoded; by default that is unknown.
    """

    __slots__ = ("_broken", "_found", "_lock", "_make", "extents", "where")

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[str], TensorObject],
        *,
        where: Callable[[str], int] = lambda _: 0,
        extents: Callable[[], tuple[list[int], list[int], list[bool]]] = lambda: ([], [], []),
    ) -> None:
        self.where, self.extents = where, extents
        self._found: dict[str, TensorObject | None] = dict.fromkeys(names)
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
        """Return plain objects without digests, all of them rows of a table.

        They are dense with the one component `data`, without attributes, and all is right with them
        that can be seen without their bytes.

        Args:
            names: in the order of the file.
            kinds: objects, of which a row has all but offset and length.
            kind_of: (count,) places in `kinds`.
            offsets: (count,) first bytes in the file.
            lengths: (count,) bytes on disk.
        """
        no_digests = np.zeros(len(names), np.int64)
        return TableObjects(Table(names, kinds, kind_of, offsets, lengths, no_digests), {}, names)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> TensorObject:
        found = self._found[name]
        if found is None:
            with self._lock:  # what is charged and remembered while one is made is not shared
                found = self._found[name]
                if name in self._broken:  # to look again would charge the file's budget again
                    raise copy.copy(self._broken[name])
                if found is None:
                    try:
                        with foreign_bytes("the object"):
                            found = self._found[name] = self._make(name)
                    except ZTensorError as error:
                        error.locate(object_name=name).forget_sections()
                        if isinstance(error, FormatError):
                            self._broken[name] = copy.copy(error)
                        raise
        return found
