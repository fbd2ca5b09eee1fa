"""The bytes of a tree's shape: columns from which the nodes of the tree take values in turn.

Nodes are in pre-order, one byte each in `kinds`. A node takes its other data from the columns of
their type: a dict its number of entries from `counts`, a float its value from `floats`. The columns
are one CBOR map of byte strings, little-endian, so that a hundred thousand leaves cost a few calls
of NumPy instead of a hundred thousand items of CBOR.

| column | holds |
| --- | --- |
| `kinds` | u8: the kind of each node, as `Node` numbers them |
| `counts` | u64: entries of a container, length of a packed list, number of a leaf |
| `words` | u32: index into the distinct texts, for keys, texts and names of types |
| `ints`, `floats` | i64, f64: values |
| `text`, `text_lengths` | concatenated UTF-8 of the distinct texts; u32: characters of each |
| `bytes`, `bytes_lengths` | concatenated byte strings; u64: length of each |
| `leaves` | u32: index of the text that is the object name of each leaf |
"""

from __future__ import annotations

import enum
import sys
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ManifestError, Reason, describe
from ztensor.ext import cbor
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Bytes of memory for a value of each column as a Python object, containers included.
_COSTS = {
    "kinds": 16,
    "counts": 64,
    "words": 24,
    "ints": 40,
    "floats": 32,
    "text_lengths": 80,
    "bytes_lengths": 48,
    "leaves": 16,
}
# Memory for each stored byte that is not charged: a million stored numbers are meant.
_FREE_FACTOR = 16


class Node(enum.IntEnum):
    """The kinds of nodes; their numbers are in files and never change."""

    NONE = 0
    FALSE = 1
    TRUE = 2
    INT = 3  # ints: the value
    FLOAT = 4  # floats: the value
    TEXT = 5  # words: the text
    BYTES = 6  # bytes: the value
    LIST = 7  # counts: its length; its items follow
    TUPLE = 8  # likewise
    DICT = 9  # counts: its entries; each key and its value follow
    TEXT_DICT = 10  # counts: its entries; words: all keys; the values follow
    INT_DICT = 11  # counts: its entries; ints: all keys; the values follow
    INT_LIST = 12  # counts: its length; ints: its items
    INT_TUPLE = 13  # likewise
    FLOAT_LIST = 14  # counts: its length; floats: its items
    FLOAT_TUPLE = 15  # likewise
    LEAF = 16  # counts: number of the leaf; words: framework of its value
    MADE = 17  # words: name of a type; one node follows, the value that it is made of
    RECORD = 18  # words: sort and name of a class; counts: fields; words: theirs; values follow


_INTEGERS = {"kinds": "u1", "counts": "<u8", "words": "<u4", "ints": "<i8", "leaves": "<u4"}
_LENGTHS = {"text_lengths": "<u4", "bytes_lengths": "<u8"}


class Columns:
    """Columns that an encoder appends to."""

    __slots__ = ("byte_strings", "counts", "floats", "ints", "kinds", "leaves", "texts", "words")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.counts: list[int] = []
        self.words: list[int] = []
        self.ints: list[int] = []
        self.floats: list[float] = []
        self.texts: dict[str, int] = {}
        self.byte_strings: list[bytes] = []
        self.leaves: list[int] = []

    def word(self, text: str) -> int:
        """Return the index of a text among the distinct texts."""
        return self.texts.setdefault(text, len(self.texts))

    def packed(self) -> bytes:
        """Return the columns as one CBOR map; those without a value are left out.

        Raises:
            UnicodeEncodeError: a text has a lone surrogate.
        """
        columns = {name: np.array(getattr(self, name), kind) for name, kind in _INTEGERS.items()}
        columns["kinds"] = np.frombuffer(self.kinds, np.uint8)
        columns["floats"] = np.array(self.floats, "<f8")
        columns["text_lengths"] = np.array([len(text) for text in self.texts], "<u4")
        columns["bytes_lengths"] = np.array([len(data) for data in self.byte_strings], "<u8")
        packed = {name: column.tobytes() for name, column in columns.items()}
        packed["text"] = "".join(self.texts).encode()
        packed["bytes"] = b"".join(self.byte_strings)
        return cbor.encode({name: data for name, data in packed.items() if data})


class Cursor:
    """Columns for a decoder: each is an iterator over Python values.

    A column that ends too early raises `StopIteration`, or an error in `several`.

    Args:
        data: the shape.
        budget: charged for the values.
        stored: bytes of the file that the shape takes.

    Attributes:
        kinds: the kind of each node.
        counts, ints, floats, byte_strings: the values of these columns.
        words: the texts at the column's indices.
        leaves: the object names of all leaves.
    """

    __slots__ = ("byte_strings", "counts", "floats", "ints", "kinds", "leaves", "words")

    def __init__(self, data: bytes | memoryview, budget: Budget, stored: int) -> None:
        columns = charged(data, budget, stored)
        try:
            text = budget.text(columns["text"])
        except UnicodeDecodeError as error:
            raise malformed("its texts are not UTF-8") from error
        texts: list[str] = _cut(text, _integers(columns, "text_lengths", "<u4"), "text")
        if len(set(texts)) != len(texts):
            raise malformed("a text is in it twice")
        words = _integers(columns, "words", "<u4")
        leaves = _integers(columns, "leaves", "<u4")
        if max(max(words, default=-1), max(leaves, default=-1)) >= len(texts):
            raise malformed("the index of a text is too large")
        lengths = _integers(columns, "bytes_lengths", "<u8")
        self.kinds: bytes = columns["kinds"]
        self.counts: Iterator[int] = iter(_integers(columns, "counts", "<u8"))
        self.words: Iterator[str] = iter([texts[word] for word in words])
        self.ints: Iterator[int] = iter(_integers(columns, "ints", "<i8"))
        self.floats: Iterator[float] = iter(_integers(columns, "floats", "<f8"))
        self.byte_strings: Iterator[bytes] = iter(_cut(columns["bytes"], lengths, "bytes"))
        self.leaves: tuple[str, ...] = tuple(texts[word] for word in leaves)

    def require_end(self) -> None:
        """Raise if a column has values that no node took.

        Raises:
            ManifestError: a column has.
        """
        for column in (self.counts, self.words, self.ints, self.floats, self.byte_strings):
            if next(column, None) is not None:
                raise malformed("a column has values that no node takes")


def charged(data: bytes | memoryview, budget: Budget, stored: int) -> dict[str, bytes]:
    """Return the columns of a shape; charge the memory of their values beyond `stored` bytes.

    Raises:
        FormatError: it is not a map of columns.
        LimitError: it would take more memory than the budget has.
    """
    columns = _columns(data, budget)
    cost = sum(
        _COSTS[name] * len(columns[name]) // np.dtype(kind).itemsize
        for name, kind in {**_INTEGERS, **_LENGTHS, "floats": "<f8"}.items()
    )
    budget.charge_bytes(max(0, cost - _FREE_FACTOR * stored))
    return columns


def with_leaves_renamed(
    data: bytes | memoryview, names: Mapping[str, str], budget: Budget, stored: int
) -> bytes:
    """Return a shape of the same tree with other object names.

    Args:
        data: the shape.
        names: new names by old names.
        budget: as for `Cursor`.
        stored: as for `Cursor`.

    Raises:
        FormatError: the shape is malformed.
        LimitError: it would take more memory than the budget has.
    """
    leaves = Cursor(data, budget, stored).leaves
    columns = _columns(data, budget)
    texts = _cut(budget.text(columns["text"]), _integers(columns, "text_lengths", "<u4"), "text")
    words = {text: number for number, text in enumerate(texts)}
    renamed = [words.setdefault(names.get(leaf, leaf), len(words)) for leaf in leaves]
    columns["leaves"] = np.array(renamed, "<u4").tobytes()
    columns["text_lengths"] = np.array([len(text) for text in words], "<u4").tobytes()
    columns["text"] = "".join(words).encode()
    return cbor.encode({name: column for name, column in columns.items() if column})


def several(column: Iterator[Any], count: int) -> list[Any]:
    """Return the next values of a column.

    Raises:
        ManifestError: the column has fewer.
    """
    values = list(islice(column, min(count, sys.maxsize)))
    if len(values) != count:
        raise malformed("a column ends too early", f"{len(values)} of {count} values")
    return values


def malformed(message: str, found: str | None = None) -> ManifestError:
    """Return the error for a malformed shape."""
    return ManifestError(
        f"the tree's shape is malformed: {message}", reason=Reason.FIELD_VALUE, found=found
    )


def _columns(data: bytes | memoryview, budget: Budget) -> dict[str, bytes]:
    value = cbor.decode(data, depth=4, budget=budget)
    columns = {*_INTEGERS, *_LENGTHS, "floats", "text", "bytes"}
    if not isinstance(value, dict) or not all(isinstance(part, bytes) for part in value.values()):
        raise malformed("its columns are not a map of byte strings", describe(value, 40))
    unknown = sorted(map(str, value.keys() - columns))
    if unknown:
        raise malformed("a column is unknown", describe(unknown[0]))
    return {name: value.get(name, b"") for name in columns}


def _integers(columns: dict[str, bytes], name: str, kind: str) -> list[Any]:
    data = columns[name]
    if len(data) % np.dtype(kind).itemsize:
        raise malformed(f"{name} is not a multiple of the size of its values", f"{len(data)} bytes")
    values: list[Any] = np.frombuffer(data, kind).tolist()
    return values


def _cut(whole: Any, lengths: list[int], name: str) -> list[Any]:
    """Cut concatenated texts or byte strings."""
    if sum(lengths) != len(whole):
        raise malformed(f"{name} has another length than its parts", f"{len(whole)}")
    return [whole[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]
