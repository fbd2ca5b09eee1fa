"""Read and write columns of numbers and names, in which roots and parts describe their chunks.

Attributes for each chunk would be parsed item by item, and a hundred thousand of them exceed the
budget of a file. A column costs its bytes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.table import ChunkTable, Kind, broken
from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import FileObjects
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]

CONTENT_BYTES = 16  # of an xxh3-128
_WIDENED = 6  # bytes of memory for a byte of a name that is not ASCII, while it is decoded
_NAME_COST = 120  # bytes of memory for a name with its index, or for a shape
_INTEGERS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


class Columns:
    """The columns of a file, each charged before it is read.

    Args:
        file: the open file.
        budget: budget of the file.
        prefix: prefix of the names of the columns.
    """

    def __init__(self, file: FileObjects, budget: Budget, prefix: str = "") -> None:
        self._file = file
        self._budget = budget
        self._prefix = prefix

    def column(
        self,
        name: str,
        count: int | None = None,
        *,
        most: int | None = None,
        optional: bool = False,
    ) -> Any:
        """Return a column of integers that are not negative.

        Args:
            name: the column's name.
            count: its expected length, or None.
            most: the largest number allowed; 2^62 by default.
            optional: True returns None if the column is missing.

        Raises:
            FormatError: the column is missing or malformed.
            LimitError: it exceeds the budget.
        """
        stored = self._file.manifest.objects.get(self._prefix + name)
        if stored is None:
            if optional:
                return None
            raise broken("the file lacks a column", found=describe(name))
        data = stored.components.get("data")
        is_known = stored.format == "dense" and len(stored.shape) == 1 and data is not None
        if not is_known or data is None or data.type is not None or data.dtype not in _INTEGERS:
            raise broken(f"{name!r} is not a column of integers", found=describe(stored.shape))
        length = stored.shape[0]
        if count is not None and length != count:
            raise broken(
                f"{name!r} is too long or too short", expected=str(count), found=str(length)
            )
        self._budget.charge_bytes(length * _INTEGERS[data.dtype])
        array = self._file.array(self._prefix + name, copy=True)
        if len(array):
            if int(array.min()) < 0:
                raise broken(f"{name!r} has a negative number", found=str(int(array.min())))
            top = int(array.max())
            if top > (1 << 62 if most is None else most):
                raise broken(
                    f"{name!r} has a number that is too large",
                    expected=f"at most {1 << 62 if most is None else most}",
                    found=str(top),
                )
        return array

    def bytes_of(self, name: str, count: int, width: int) -> Any:
        """Return an optional column of byte strings: (count, width) uint8, or None.

        Raises:
            FormatError: the column is malformed.
        """
        flat = self.column(name, count * width, optional=True)
        if flat is None:
            return None
        if flat.dtype != np.uint8:
            raise broken(f"{name!r} has no bytes", found=flat.dtype.name)
        return flat.reshape(count, width)

    def names(self, count: int) -> list[str]:
        """Return the names of the tensors, which are unique.

        Raises:
            FormatError: a name is not UTF-8, or not unique.
        """
        lengths = self.column("tensors/name_lengths", count).astype(np.int64)
        text = self.column("tensors/names")
        if int(lengths.sum(dtype=np.float64)) != len(text) or text.dtype != np.uint8:
            raise broken("the names are too long or too short")
        self._budget.charge_bytes(_NAME_COST * count + len(text))
        self._budget.charge_steps(count)
        whole = text.tobytes()
        if not whole.isascii():
            self._budget.charge_bytes(_WIDENED * len(whole))
        ends = np.cumsum(lengths).tolist()
        try:
            names = [whole[start:end].decode() for start, end in itertools.pairwise([0, *ends])]
        except UnicodeDecodeError as error:
            raise FormatError("a name is not UTF-8", reason=Reason.CBOR_UTF8) from error
        if len(set(names)) < count:
            raise broken("two tensors have one name")
        return names

    def shapes(self, ranks: Array) -> list[tuple[int, ...]]:
        """Return the shape of each tensor.

        Raises:
            FormatError: the column has another number of lengths than the sum of `ranks`.
        """
        counts = ranks.astype(np.int64)
        flat = self.column("tensors/shape", int(counts.sum()))
        self._budget.charge_bytes(_NAME_COST * len(ranks) + 32 * len(flat))
        numbers = flat.tolist()
        ends = np.cumsum(counts).tolist()
        return [tuple(numbers[start:end]) for start, end in itertools.pairwise([0, *ends])]


def kinds_of(listed: Sequence[object]) -> list[Kind]:
    """Return the kinds of tensors that an attribute lists.

    Raises:
        FormatError: a kind is malformed.
    """
    kinds = []
    for one in listed:
        if not isinstance(one, list) or len(one) != 3 or not all(isinstance(x, str) for x in one):
            raise broken("a kind of tensors is malformed", found=describe(one))
        kinds.append(Kind(one[0], one[1] or None, one[2]))
    return kinds


def listed_kinds(kinds: Sequence[Kind]) -> list[list[str]]:
    """Return the attribute for kinds of tensors."""
    return [[kind.dtype, kind.type or "", kind.format] for kind in kinds]


def columns_of(table: ChunkTable) -> dict[str, Array]:
    """Return the columns of a table for a file, each in its shortest element type."""
    encoded = [name.encode() for name in table.names]
    shapes = list(itertools.chain.from_iterable(table.shapes))
    columns: dict[str, Any] = {
        "tensors/names": np.frombuffer(b"".join(encoded), np.uint8),
        "tensors/name_lengths": np.array([len(name) for name in encoded], np.int64),
        "tensors/kind": table.kind,
        "tensors/rank": table.ranks,
        "tensors/shape": np.array(shapes, np.int64),
        "chunks/tensor": table.tensor,
        "chunks/file": table.file,
        "chunks/object": table.number,
        "chunks/encoding": table.encoding,
        "chunks/offsets": table.offsets,
        "chunks/sizes": table.sizes,
        "chunks/at": table.at,
        "chunks/length": table.length,
        "chunks/digest": None if table.digest is None else table.digest.reshape(-1),
        "chunks/content": None if table.content is None else table.content.reshape(-1),
    }
    return {name: _shortest(one) for name, one in columns.items() if one is not None}


def _shortest(column: Array) -> Array:
    top = int(column.max()) if len(column) else 0
    for dtype in (np.uint8, np.uint16, np.uint32):
        if top <= np.iinfo(dtype).max:
            return column.astype(dtype)
    return column.astype(np.uint64)
