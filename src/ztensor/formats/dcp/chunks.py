"""The chunks of `.metadata` and where they lie, as columns, and which place is that of which chunk.

Half a million chunks come as runs of records that are columns already, few as records one by one;
from here on both are the same columns.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import Beneath
from ztensor.formats.dcp.columns import Block, Column
from ztensor.formats.dcp.table import NO_PLACE, Form, Place, Table
from ztensor.formats.dcp.vocabulary import Record, items_of, record_of
from ztensor.formats.pt.pickled import misfit
from ztensor.formats.pt.values import counts
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Bytes of memory: of a chunk and of a place beside their axes, also while they are matched, of an
# axis, of a file or a name, of an offset that is known.
_CHUNK_COST, _PLACE_COST, _AXIS_COST, _NAME_COST, _KNOWN_COST = 100, 120, 40, 300, 180
_STEPS = 8  # of a chunk, and of its place
_MOST_CODE = 1 << 62


class Axes:
    """Tuples of numbers along axes, checked: one that is there often only once.

    Those that are looked up have to live as long as this.

    Args:
        budget: what listing may cost.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, tuple[int, ...]] = {}

    def of(self, value: object, what: str) -> tuple[int, ...]:
        """Return the numbers.

        Raises:
            FormatError: they are none.
        """
        found = self._known.get(id(value))
        if found is None:
            found = counts(value, what)
            self._budget.charge_bytes(_KNOWN_COST)
            self._known[id(value)] = found
        return found


class Places:
    """Where everything lies, by name and offset.

    Args:
        table: where the files are added.
        storage: what the pickle says.
        axes: offsets that are checked.
        budget: what listing may cost.

    Attributes:
        names: the number of each name.
        name: of each place the number of its name.
        ranks: how many axes its offset has, -1 where it has none.
        axes: all offsets, one behind the other.
        rows: (places, 4) the file, where, how long, what is there.
    """

    def __init__(self, table: Table, storage: object, axes: Axes, budget: Budget) -> None:
        self._table = table
        self._known = axes
        self._budget = budget
        self._files: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self._columns = [array("q") for _ in range(6)]
        self._flat = array("q")
        for index, stored in () if storage is None else items_of(storage, "storage_data").pairs:
            if not (isinstance(index, Block) and isinstance(stored, Block)):
                self._add(index, stored)
            elif not self._add_block(index, stored):
                for one, other in zip(index.records(), stored.records(), strict=True):
                    self._add(one, other)
        name, ranks, *rows = (np.frombuffer(one, np.int64) for one in self._columns)
        self.name, self.ranks, self.rows = name, ranks, rows
        self.axes: Array = np.frombuffer(self._flat, np.int64)
        self._values = self._of_values()
        self._fill_files()

    def _add(self, index: object, stored: object) -> None:
        """Add where one thing lies."""
        self._budget.charge_steps(_STEPS)
        named = record_of(index, "MetadataIndex").fields()
        info = record_of(stored, "_StorageInfo").fields()
        name, offset = named.get("fqn"), named.get("offset")
        path = info.get("relative_path")
        if not isinstance(name, str) or not isinstance(path, str):
            raise misfit("a name in .metadata", "text", path if isinstance(name, str) else name)
        at, length = counts((info.get("offset"), info.get("length")), "the place of a chunk")
        axes = () if offset is None else self._known.of(offset, "the offset of a chunk")
        self._budget.charge_bytes(_PLACE_COST + _AXIS_COST * len(axes))
        form = Form.CHANGED if info.get("transform_descriptors") else Form.RECORD
        rank = -1 if offset is None else len(axes)
        row = self._name(name), rank, self._file(path), at, length, form
        for column, number in zip(self._columns, row, strict=True):
            column.append(number)
        self._flat.extend(axes)

    def _add_block(self, index: Block, stored: Block) -> bool:
        """Add where very many things lie; return whether their records are as they always are."""
        if not (_is_of(index, "MetadataIndex") and _is_of(stored, "_StorageInfo")):
            return False
        named, info = index.columns, stored.columns
        changed = info.get("transform_descriptors")
        wanted = [named.get("fqn"), named.get("offset")]
        wanted += [info.get(name) for name in ("relative_path", "offset", "length")]
        if None in wanted or (changed is not None and not changed.is_none()):
            return False
        count = len(index)
        self._budget.charge_steps(_STEPS * count)
        self._budget.charge_bytes(_PLACE_COST * count)
        fqn, offset, path, at, length = (one for one in wanted if one is not None)
        names, files = self._numbers(fqn, self._name), self._numbers(path, self._file)
        begins, lengths, axes = at.numbers(), length.numbers(), offset.tuples()
        if names is None or files is None or begins is None or lengths is None or axes is None:
            return False
        ranks, flat = axes
        self._budget.charge_bytes(_AXIS_COST * len(flat))
        form = np.full(count, int(Form.RECORD))
        _append(self._columns, (names, ranks, files, begins, lengths, form))
        _append([self._flat], [flat])
        return True

    @staticmethod
    def _numbers(column: Column, number: Callable[[str], int]) -> Array | None:
        """Return the number of the text of each row; None where some are no texts."""
        found = column.strings()
        if found is None:
            return None
        used, which = np.unique(found[0], return_inverse=True)
        numbers: Array = np.array([number(found[1][one]) for one in used.tolist()], np.int64)[which]
        return numbers

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _file(self, path: str) -> int:
        file = self._files.get(path)
        if file is None:
            self._budget.charge_bytes(_NAME_COST + 2 * sys.getsizeof(path))
            file = self._files[path] = self._table.add_file(Beneath.parts_of(path), 0)
        return file

    def _of_values(self) -> dict[int, int]:
        """Return the rows without an offset by the numbers of their names."""
        rows = np.flatnonzero(self.ranks < 0)
        self._budget.charge_bytes(_NAME_COST * len(rows))
        found = dict(zip(self.name[rows].tolist(), rows.tolist(), strict=True))
        if len(found) < len(rows):
            used, often = np.unique(self.name[rows], return_counts=True)
            raise self.two_places(int(used[often > 1][0]))
        return found

    def two_places(self, name: int) -> FormatError:
        """Return the error for a chunk that lies in two places, by the number of its name."""
        found = next(one for one, number in self.names.items() if number == name)
        return FormatError(
            "a chunk is said to lie in two places",
            reason=Reason.DUPLICATE_NAME,
            found=describe(found),
        )

    def _fill_files(self) -> None:
        """Tell of each file how many bytes are needed of it."""
        table, (file, at, length, _) = self._table, self.rows
        count = len(table.files)
        ends, last = np.zeros(count, np.uint64), np.zeros(count, np.int64)
        np.maximum.at(ends, file, at.astype(np.uint64) + length.astype(np.uint64))
        np.maximum.at(last, file, at)
        high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.add.at(high, file, length >> 32)  # so that no sum of them is too large
        np.add.at(low, file, length & 0xFFFFFFFF)
        table.ends[:], table.last[:] = ends.tolist(), last.tolist()
        table.taken[:] = [
            (one << 32) + other for one, other in zip(high.tolist(), low.tolist(), strict=True)
        ]

    def of_value(self, name: str) -> Place | None:
        """Return where a value lies, or the only chunk of a tensor that is named so, if at all."""
        row = self._values.get(self.names.get(name, -1))
        if row is None:
            return None
        file, at, length, form = (int(column[row]) for column in self.rows)
        return Place(file, at, length, Form(form))


class Chunks:
    """The chunks of all tensors.

    Args:
        axes: offsets and sizes that are checked.
        budget: what listing may cost.
    """

    def __init__(self, axes: Axes, budget: Budget) -> None:
        self._axes = axes
        self._budget = budget
        self._counts: list[int] = []
        self._ranks: list[int] = []
        self._offsets, self._sizes = array("q"), array("q")

    def add(self, size: tuple[int, ...], chunks: object) -> None:
        """Add the chunks of one more tensor.

        Args:
            size: its shape.
            chunks: what the pickle says of them.

        Raises:
            FormatError: they are none.
            LimitError: they take more than they may.
        """
        if not isinstance(chunks, list):
            raise misfit("the chunks of a tensor", "a list", chunks)
        rank = len(size)
        count = sum(len(one) if isinstance(one, Block) else 1 for one in chunks)
        self._budget.charge_steps(count * (_STEPS + rank))
        self._budget.charge_bytes(count * (_CHUNK_COST + 2 * _AXIS_COST * rank))
        for one in chunks:
            if not isinstance(one, Block):
                self._add(one, rank)
            elif not self._add_block(one, rank):
                for each in one.records():
                    self._add(each, rank)
        self._counts.append(count)
        self._ranks.append(rank)

    def _add(self, chunk: object, rank: int) -> None:
        box = record_of(chunk, "ChunkStorageMetadata").fields()
        offsets = self._axes.of(box.get("offsets"), "the offset of a chunk")
        sizes = self._axes.of(box.get("sizes"), "the size of a chunk")
        if len(offsets) != rank or len(sizes) != rank:
            raise misfit(
                "a chunk in .metadata", f"{rank} axes", f"{offsets}, {sizes}", is_type=False
            )
        self._offsets.extend(offsets)
        self._sizes.extend(sizes)

    def _add_block(self, block: Block, rank: int) -> bool:
        """Add very many; return whether their records are as they always are."""
        if not _is_of(block, "ChunkStorageMetadata"):
            return False
        found = []
        for name in ("offsets", "sizes"):
            column = block.columns.get(name)
            axes = None if column is None else column.tuples()
            if axes is None or (axes[0] != rank).any():
                return False
            found.append(axes[1])
        _append((self._offsets, self._sizes), found)
        return True

    def placed(self, names: Sequence[str], places: Places, table: Table) -> list[int]:
        """Put all chunks into a table, and return how many those of each tensor are there.

        What a process holds nothing of is left out, and what several hold is there once.

        Args:
            names: those of the tensors.
            places: where they lie.
            table: where they are put.

        Raises:
            FormatError: two places are given for one chunk.
        """
        count = np.array(self._counts, np.int64)
        owner = np.repeat(np.arange(len(names)), count)
        ranks = np.repeat(np.array(self._ranks, np.int64), count)
        offsets, sizes = (np.frombuffer(one, np.int64) for one in (self._offsets, self._sizes))
        starts = np.cumsum(ranks) - ranks
        nothing = np.concatenate(([0], np.cumsum(sizes == 0)))
        keep = nothing[starts + ranks] == nothing[starts]
        codes = _codes(owner, ranks, (starts, offsets), (starts, sizes))
        once = np.zeros(len(owner), bool)
        once[np.unique(codes, return_index=True)[1]] = True
        keep &= once
        axes = np.repeat(keep, ranks)
        rows = self._rows(names, owner[keep], ranks[keep], offsets[axes], places)
        table.extend(offsets[axes], sizes[axes], rows)
        kept: list[int] = np.bincount(owner[keep], minlength=len(names)).tolist()
        return kept

    def _rows(
        self, names: Sequence[str], owner: Array, ranks: Array, offsets: Array, places: Places
    ) -> Array:
        """Return where each chunk lies: (chunks, 4)."""
        unknown = len(places.names)
        numbers: Array = np.array([places.names.get(name, unknown) for name in names], np.int64)
        boxed = np.flatnonzero(places.ranks >= 0)
        all_ranks = np.concatenate((places.ranks[boxed], ranks))
        codes = _codes(
            np.concatenate((places.name[boxed], numbers[owner])),
            all_ranks,
            (np.cumsum(all_ranks) - all_ranks, np.concatenate((places.axes, offsets))),
        )
        theirs, ours = codes[: len(boxed)], codes[len(boxed) :]
        order = np.argsort(theirs, kind="stable")
        theirs = theirs[order]
        if (twice := np.flatnonzero(theirs[1:] == theirs[:-1])).size:
            raise places.two_places(int(places.name[boxed[order[twice[0]]]]))
        rows = np.zeros((len(owner), len(Place._fields)), np.int64)
        rows[:, 0] = NO_PLACE
        at = np.searchsorted(theirs, ours)
        found = np.flatnonzero(at < len(theirs))
        found = found[theirs[at[found]] == ours[found]]
        row = boxed[order[at[found]]]
        for number, column in enumerate(places.rows):
            rows[found, number] = column[row]
        alone = np.array(self._counts, np.int64)[owner] == 1
        for chunk in np.flatnonzero(alone & (rows[:, 0] == NO_PLACE)).tolist():
            place = places.of_value(names[owner[chunk]])
            if place is not None:
                rows[chunk] = place
        return rows


def _is_of(block: Block, kind: str) -> bool:
    return isinstance(block.like, Record) and block.like.kind == kind


def _append(columns: Sequence[array[int]], found: Sequence[Array]) -> None:
    for column, numbers in zip(columns, found, strict=True):
        column.frombytes(np.ascontiguousarray(numbers, np.int64).data.cast("B"))


def _codes(first: Array, ranks: Array, *axes: tuple[Array, Array]) -> Array:
    """Return numbers that are equal where `first`, the ranks and all axes are.

    Args:
        first: a number from 0 on.
        ranks: how many axes there are.
        axes: where those of each row begin, and the axes of all.
    """
    codes, beyond = np.zeros(len(first), np.int64), 0
    for rank in np.unique(ranks).tolist():
        rows = np.flatnonzero(ranks == rank)
        code = first[rows]
        for starts, flat in axes:
            for axis in range(rank):
                code = _paired(code, flat[starts[rows] + axis])
        used, which = np.unique(code, return_inverse=True)
        codes[rows] = which + beyond
        beyond += len(used)
    return codes


def _paired(code: Array, other: Array) -> Array:
    """Return numbers that are equal where both are."""
    if (int(code.max()) + 1) * (int(other.max()) + 1) >= _MOST_CODE:
        code, other = (np.unique(one, return_inverse=True)[1] for one in (code, other))
    return code * (int(other.max()) + 1) + other
