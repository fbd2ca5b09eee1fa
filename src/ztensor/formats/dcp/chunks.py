"""The chunks of `.metadata` and where they lie, as columns, and which place is that of which chunk.

Records come one by one, and many as `Block`s; from here on both are columns. A column is checked as
a whole.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import Beneath
from ztensor.formats.dcp.pickles import Block, IrregularError
from ztensor.formats.dcp.table import NO_PLACE, File, Form, Place
from ztensor.formats.dcp.vocabulary import items_of, record_of
from ztensor.formats.pt.pickled import misfit
from ztensor.formats.pt.values import counts
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Bytes of memory: of a chunk and of a place beside their axes, also while they are matched, of an
# axis, of a file or a name, of an offset that is known.
_CHUNK_COST, _PLACE_COST, _AXIS_COST, _NAME_COST, _KNOWN_COST = 160, 240, 40, 300, 180
_STEPS = 8  # of a chunk, and of its place
_MOST_CODE = 1 << 62


# --- Columns --------------------------------------------------------------------------------


def _count(rows: Iterable[object]) -> int:
    return sum(row.count if isinstance(row, Block) else 1 for row in rows)


def _fields(rows: Iterable[object], kind: str, names: Sequence[str]) -> list[list[object]]:
    """Return the fields of records of one kind as columns, None where a record has not one."""
    columns: list[list[object]] = [[] for _ in names]
    for row in rows:
        if not isinstance(row, Block):
            fields = record_of(row, kind).fields()
            for name, column in zip(names, columns, strict=True):
                column.append(fields.get(name))
        elif row.kind != kind:
            raise IrregularError
        else:
            for name, column in zip(names, columns, strict=True):
                column.extend(row.columns.get(name) or itertools.repeat(None, row.count))
    return columns


def _texts(values: Sequence[object]) -> Sequence[str]:
    for value in values:
        if type(value) is not str:
            raise misfit("a name in .metadata", "text", value)
    return values  # type: ignore[return-value]


def _numbered(texts: Sequence[str]) -> tuple[Array, dict[str, int]]:
    """Return texts as numbers, and the number of each."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in texts], np.int64), numbers


def _integers(values: list[object], what: str) -> Array:
    if set(map(type, values)) != {int} or not 0 <= min(values) <= max(values) < 1 << 63:  # type: ignore[type-var, operator]
        for value in values:
            counts((value,), what)
    return np.array(values, np.int64)


class Axes:
    """Tuples of numbers along axes, checked: one that is there often only once.

    Those that are looked up have to live as long as this.

    Args:
        budget: what listing may cost.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, tuple[int, ...]] = {}

    def of(self, values: Sequence[object], what: str) -> tuple[Array, Array]:
        """Return how many numbers each has, -1 for None, and all numbers in a row.

        Raises:
            FormatError: some are none.
        """
        known = self._known
        for value in values:
            if id(value) not in known:
                self._budget.charge_bytes(_KNOWN_COST)
                known[id(value)] = () if value is None else counts(value, what)
        rows = [known[id(value)] for value in values]
        ranks = np.fromiter(map(len, rows), np.int64, len(rows))
        count = int(ranks.sum())
        self._budget.charge_bytes(_AXIS_COST * count)
        flat = np.fromiter(itertools.chain.from_iterable(rows), np.int64, count)
        ranks[[number for number, value in enumerate(values) if value is None]] = -1
        return ranks, flat


# --- Where everything lies ------------------------------------------------------------------


class Places:
    """Where everything lies, by name and offset.

    Args:
        storage: what the pickle says.
        axes: offsets that are checked.
        budget: what listing may cost.

    Attributes:
        names: the number of each name.
        name: of each place the number of its name.
        ranks: how many axes its offset has, -1 where it has none.
        axes: all offsets, one behind the other.
        rows: (places, 4) as `Place` has it.
        files: what they lie in.
    """

    def __init__(self, storage: object, axes: Axes, budget: Budget) -> None:
        pairs = () if storage is None else tuple(items_of(storage, "storage_data").pairs)
        count = _count(stored for _, stored in pairs)
        budget.charge_steps(_STEPS * count)
        budget.charge_bytes(_PLACE_COST * count)
        indices, infos = (
            _fields((pair[side] for pair in pairs), kind, names)
            for side, kind, names in (
                (0, "MetadataIndex", ("fqn", "offset")),
                (1, "_StorageInfo", ("relative_path", "offset", "length", "transform_descriptors")),
            )
        )
        paths, starts, lengths, changes = infos
        if len(indices[0]) != len(paths):
            raise IrregularError
        self.name, self.names = _numbered(_texts(indices[0]))
        file, paths_of = _numbered(_texts(paths))
        budget.charge_bytes(sum(_NAME_COST + 2 * sys.getsizeof(path) for path in paths_of))
        self.ranks, self.axes = axes.of(indices[1], "the offset of a chunk")
        at = _integers(starts, "the place of a chunk")
        length = _integers(lengths, "the place of a chunk")
        form = np.array([Form.CHANGED if one else Form.RECORD for one in changes], np.int64)
        self.rows: Array = np.stack((file, at, length, form), axis=1)
        self.files = _files(list(paths_of), file, at, length)
        self._values = self._of_values(budget)

    def _of_values(self, budget: Budget) -> dict[int, int]:
        """Return the rows without an offset by the numbers of their names."""
        rows = np.flatnonzero(self.ranks < 0)
        budget.charge_bytes(_NAME_COST * len(rows))
        found = dict(zip(self.name[rows].tolist(), rows.tolist(), strict=True))
        if len(found) < len(rows):
            used, often = np.unique(self.name[rows], return_counts=True)
            raise self.two_places(int(used[often > 1][0]))
        return found

    def two_places(self, name: int) -> FormatError:
        """Return the error for a chunk that lies in two places, by the number of its name."""
        return FormatError(
            "a chunk is said to lie in two places",
            reason=Reason.DUPLICATE_NAME,
            found=describe(list(self.names)[name]),
        )

    def of_value(self, name: str) -> Place | None:
        """Return where a value lies, or the only chunk of a tensor that is named so, if at all."""
        row = self._values.get(self.names.get(name, -1))
        if row is None:
            return None
        file, at, length, form = self.rows[row].tolist()
        return Place(file, at, length, Form(form))


def _files(paths: list[str], file: Array, at: Array, length: Array) -> list[File]:
    """Return the files, and how many bytes are needed of each."""
    count = len(paths)
    ends, last = np.zeros(count, np.uint64), np.zeros(count, np.int64)
    np.maximum.at(ends, file, at.astype(np.uint64) + length.astype(np.uint64))
    np.maximum.at(last, file, at)
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, file, length >> 32)  # so that no sum of them is too large
    np.add.at(low, file, length & 0xFFFFFFFF)
    columns = (ends, high, low, last)
    return [
        File(Beneath.parts_of(path), end, (many << 32) + few, start)
        for path, end, many, few, start in zip(
            paths, *(column.tolist() for column in columns), strict=True
        )
    ]


# --- Which chunk is where -------------------------------------------------------------------


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
        self._offsets: list[object] = []
        self._sizes: list[object] = []

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
        rank, count = len(size), _count(chunks)
        self._budget.charge_steps(count * (_STEPS + rank))
        self._budget.charge_bytes(count * (_CHUNK_COST + _AXIS_COST * rank))
        offsets, sizes = _fields(chunks, "ChunkStorageMetadata", ("offsets", "sizes"))
        self._offsets += offsets
        self._sizes += sizes
        self._counts.append(count)
        self._ranks.append(rank)

    def placed(self, names: Sequence[str], places: Places) -> tuple[Array, Array, Array, Array]:
        """Return how many chunks of each tensor are there, and the columns of them as in `Table`.

        What a process holds nothing of is left out, and what several hold is there once.

        Args:
            names: those of the tensors.
            places: where they lie.

        Raises:
            FormatError: a chunk has other axes than its tensor, or two places.
        """
        count = np.array(self._counts, np.int64)
        owner = np.repeat(np.arange(len(names)), count)
        ranks = np.repeat(np.array(self._ranks, np.int64), count)
        columns = []
        for what, values in (("offset", self._offsets), ("size", self._sizes)):
            found, flat = self._axes.of(values, f"the {what} of a chunk")
            if (wrong := np.flatnonzero(found != ranks)).size:
                raise misfit(
                    f"the {what} of a chunk", f"{ranks[wrong[0]]} axes", f"{values[wrong[0]]}",
                    is_type=False,
                )  # fmt: skip
            columns.append(flat)
        offsets, sizes = columns
        starts = np.cumsum(ranks) - ranks
        nothing = np.concatenate(([0], np.cumsum(sizes == 0)))
        keep = nothing[starts + ranks] == nothing[starts]
        codes = _codes(owner, ranks, (starts, offsets), (starts, sizes))
        once = np.zeros(len(owner), bool)
        once[np.unique(codes, return_index=True)[1]] = True
        keep &= once
        axes = np.repeat(keep, ranks)
        rows = self._rows(names, owner[keep], ranks[keep], offsets[axes], places)
        return np.bincount(owner[keep], minlength=len(names)), offsets[axes], sizes[axes], rows

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
        rows[found] = places.rows[boxed[order[at[found]]]]
        alone = np.array(self._counts, np.int64)[owner] == 1
        for chunk in np.flatnonzero(alone & (rows[:, 0] == NO_PLACE)).tolist():
            place = places.of_value(names[owner[chunk]])
            if place is not None:
                rows[chunk] = place
        return rows


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
