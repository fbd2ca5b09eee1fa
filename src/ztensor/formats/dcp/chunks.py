"""The chunks of `.metadata` and where they lie, as columns, and which place is that of which chunk.

Records come one by one, and many as `Block`s; from here on both are columns. Places are looked up
by text, whose hashes no file can foresee; those of numbers it can.
"""

from __future__ import annotations

import itertools
import sys
from array import array
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
_INFO_FIELDS = "relative_path", "offset", "length", "transform_descriptors"


# --- Columns --------------------------------------------------------------------------------


def _count(rows: Iterable[object]) -> int:
    return sum(row.count if isinstance(row, Block) else 1 for row in rows)


def _fields(rows: Iterable[object], kind: str, *names: str) -> list[list[object]]:
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


def _integers(values: list[object]) -> Array:
    if set(map(type, values)) != {int} or not 0 <= min(values) <= max(values) < 1 << 63:  # type: ignore[type-var, operator]
        for value in values:
            counts((value,), "the place of a chunk")
    return np.array(values, np.int64)


class Axes:
    """Tuples of numbers along axes, checked, with a text for each: one that is there often once.

    Those that are looked up have to live as long as this.

    Args:
        budget: what listing may cost.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, tuple[tuple[int, ...], str]] = {}

    def of(self, value: object, what: str) -> tuple[tuple[int, ...], str]:
        """Return the numbers, and a text that no others have.

        Raises:
            FormatError: they are none.
        """
        found = self._known.get(id(value))
        if found is None:
            numbers = counts(value, what)
            self._budget.charge_bytes(_KNOWN_COST + _AXIS_COST * len(numbers))
            found = self._known[id(value)] = numbers, str(numbers)
        return found


# --- Where everything lies ------------------------------------------------------------------


class Places:
    """Where everything lies, by name and offset.

    Args:
        storage: what the pickle says.
        axes: offsets that are checked.
        budget: what listing may cost.

    Attributes:
        rows: (places + 1, 4) as `Place` has it; the last is nowhere.
        files: what they lie in.
    """

    def __init__(self, storage: object, axes: Axes, budget: Budget) -> None:
        pairs = () if storage is None else tuple(items_of(storage, "storage_data").pairs)
        count = _count(stored for _, stored in pairs)
        budget.charge_steps(_STEPS * count)
        budget.charge_bytes(_PLACE_COST * count)
        names, offsets = _fields((index for index, _ in pairs), "MetadataIndex", "fqn", "offset")
        paths, starts, lengths, changes = _fields(
            (info for _, info in pairs), "_StorageInfo", *_INFO_FIELDS
        )
        if len(names) != len(paths):
            raise IrregularError
        files: dict[str, int] = {}
        file = np.array([files.setdefault(path, len(files)) for path in _texts(paths)], np.int64)
        budget.charge_bytes(sum(_NAME_COST + 2 * sys.getsizeof(path) for path in files))
        at, length = _integers(starts), _integers(lengths)
        form = np.array([Form.CHANGED if one else Form.RECORD for one in changes], np.int64)
        self.files = _files(list(files), file, at, length)
        nowhere = np.array([[NO_PLACE, 0, 0, 0]], np.int64)
        self.rows: Array = np.concatenate((np.stack((file, at, length, form), axis=1), nowhere))
        self._names: dict[str, str] = {}
        self._places: dict[str, int] = {}
        for row, (name, offset) in enumerate(zip(_texts(names), offsets, strict=True)):
            key = self._names.setdefault(name, str(len(self._names)))
            if offset is not None:
                numbers, text = axes.of(offset, "the offset of a chunk")
                budget.charge_bytes(_AXIS_COST * len(numbers))
                key = text + key
            if self._places.setdefault(key, row) != row:
                raise FormatError(
                    "a chunk is said to lie in two places",
                    reason=Reason.DUPLICATE_NAME,
                    found=describe(name),
                )

    def row(self, name: str, offset: str = "") -> int:
        """Return the row of what has a name and an offset, by its text, -1 where there is none.

        Without an offset it is a value, or the only chunk of a tensor.
        """
        return self._places.get(offset + self._names.get(name, "none"), -1)

    def of_value(self, name: str) -> Place | None:
        """Return where a value lies, if at all."""
        file, at, length, form = self.rows[self.row(name)].tolist()
        return None if file == NO_PLACE else Place(file, at, length, Form(form))


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

    What a process holds nothing of is left out, and what several hold is there once.

    Args:
        places: where they lie.
        axes: offsets and sizes that are checked.
        budget: what listing may cost.
    """

    def __init__(self, places: Places, axes: Axes, budget: Budget) -> None:
        self._places = places
        self._axes = axes
        self._budget = budget
        self._counts, self._rows = array("q"), array("q")
        self._offsets, self._sizes = array("q"), array("q")

    def add(self, name: str, shape: tuple[int, ...], chunks: object) -> None:
        """Add the chunks of one more tensor, by what the pickle says of them.

        Raises:
            FormatError: they are none, or have other axes than their tensor.
            LimitError: they take more than they may.
        """
        if not isinstance(chunks, list):
            raise misfit("the chunks of a tensor", "a list", chunks)
        rank, count = len(shape), _count(chunks)
        self._budget.charge_steps(count * (_STEPS + rank))
        self._budget.charge_bytes(count * (_CHUNK_COST + 3 * _AXIS_COST * rank))
        seen: set[str] = set()
        columns = _fields(chunks, "ChunkStorageMetadata", "offsets", "sizes")
        for one, other in zip(*columns, strict=True):
            offsets, text = self._axes.of(one, "the offset of a chunk")
            sizes, more = self._axes.of(other, "the size of a chunk")
            if len(offsets) != rank or len(sizes) != rank:
                found = f"{offsets}, {sizes}"
                raise misfit("a chunk in .metadata", f"{rank} axes", found, is_type=False)
            if 0 in sizes or text + more in seen:
                continue
            seen.add(text + more)
            self._offsets.extend(offsets)
            self._sizes.extend(sizes)
            row = self._places.row(name, text)
            self._rows.append(self._places.row(name) if row < 0 and count == 1 else row)
        self._counts.append(len(seen))

    def columns(self) -> tuple[Array, Array, Array, Array]:
        """Return how many chunks each tensor has, and the other columns of `chunk_table`."""
        counts, offsets, sizes, rows = (
            np.array(one, np.int64)
            for one in (self._counts, self._offsets, self._sizes, self._rows)
        )
        return counts, offsets, sizes, self._places.rows[rows]
