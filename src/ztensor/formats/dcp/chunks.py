"""Read the chunks of `.metadata` and their places into columns, and match each with its place.

Records come one by one or as `Block`s of many. Places are looked up by text, since a file could
choose numbers with equal hashes, but not text.
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

# Bytes of memory while chunks and places are matched: for each chunk, each place, each axis of
# both, each file or name, and each distinct offset.
_CHUNK_COST, _PLACE_COST, _AXIS_COST, _NAME_COST, _KNOWN_COST = 160, 240, 40, 300, 180
_STEPS = 8  # for a chunk, and for its place
_INFO_FIELDS = "relative_path", "offset", "length", "transform_descriptors"


# --- Columns --------------------------------------------------------------------------------


def _count(rows: Iterable[object]) -> int:
    return sum(row.count if isinstance(row, Block) else 1 for row in rows)


def _fields(rows: Iterable[object], kind: str, *names: str) -> list[list[object]]:
    """Return fields of records of one kind as columns; None if a record lacks the field."""
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
    """Checked offsets and sizes, each with a unique text; repeated objects are checked once.

    Objects are known by identity, so they must live as long as this.

    Args:
        budget: what listing may cost.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, tuple[tuple[int, ...], str]] = {}

    def of(self, value: object, what: str) -> tuple[tuple[int, ...], str]:
        """Return the numbers and their unique text.

        Raises:
            FormatError: `value` is not a sequence of lengths.
        """
        known = self._known.get(id(value))
        if known is None:
            numbers = counts(value, what)
            self._budget.charge_bytes(_KNOWN_COST + _AXIS_COST * len(numbers))
            known = self._known[id(value)] = numbers, str(numbers)
        return known


# --- Places ---------------------------------------------------------------------------------


class Places:
    """The place of every chunk and value, by name and offset.

    Args:
        storage: `storage_data` of the pickle.
        axes: checked offsets.
        budget: the cost that listing may have.

    Attributes:
        rows: (places + 1, 4) int64, the fields of `Place`; the last row is `NO_PLACE`.
        files: the files of the places.
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
                    "a chunk has two places",
                    reason=Reason.DUPLICATE_NAME,
                    found=describe(name),
                )

    def row(self, name: str, offset: str = "") -> int:
        """Return the row of a name and the text of an offset, -1 if there is none.

        Values, and the only chunk of a tensor, may have no offset.
        """
        return self._places.get(offset + self._names.get(name, "none"), -1)

    def of_value(self, name: str) -> Place | None:
        """Return the place of a value, None if it has none."""
        file, at, length, form = self.rows[self.row(name)].tolist()
        return None if file == NO_PLACE else Place(file, at, length, Form(form))


def _files(paths: list[str], file: Array, at: Array, length: Array) -> list[File]:
    """Return the files, with the bytes that places claim of each."""
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


# --- Chunks ---------------------------------------------------------------------------------


class Chunks:
    """The chunks of all tensors.

    Empty chunks are left out; a chunk of several processes is there once.

    Args:
        places: their places.
        axes: checked offsets and sizes.
        budget: the cost that listing may have.
    """

    def __init__(self, places: Places, axes: Axes, budget: Budget) -> None:
        self._places = places
        self._axes = axes
        self._budget = budget
        self._counts, self._rows = array("q"), array("q")
        self._offsets, self._sizes = array("q"), array("q")

    def add(self, name: str, shape: tuple[int, ...], chunks: object) -> None:
        """Add the chunks of one more tensor, as the pickle lists them.

        Raises:
            FormatError: they are malformed, or have another number of axes than the tensor.
            LimitError: they exceed the budget.
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
        """Return the number of chunks of each tensor, and the other columns of `chunk_table`."""
        counts, offsets, sizes, rows = (
            np.array(one, np.int64)
            for one in (self._counts, self._offsets, self._sizes, self._rows)
        )
        return counts, offsets, sizes, self._places.rows[rows]
