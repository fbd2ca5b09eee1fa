"""The table of a checkpoint of others, kept as columns: tensors, their boxes, where each lies."""

from __future__ import annotations

import dataclasses
import enum
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.formats.pt.values import ElementType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

NO_PLACE = -1


class Form(enum.IntEnum):
    """What lies at a place."""

    RECORD = 0  # as `torch.save` writes it
    CHANGED = 1  # one that went through an extension of the writer
    ELEMENTS = 2  # the elements alone, in C's order


class Place(NamedTuple):
    """Where something lies.

    Attributes:
        file: the number of the file.
        at: its first byte there.
        length: how many bytes.
        form: what is there.
    """

    file: int
    at: int
    length: int
    form: Form = Form.RECORD


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A tensor.

    Attributes:
        element: the type of its elements.
        size: its shape, in torch's elements.
        first: the first row of its chunks.
        count: how many chunks it has.
        axis: where the axes of the first are in the flat columns.
    """

    element: ElementType
    size: tuple[int, ...]
    first: int
    count: int
    axis: int


class Table:
    """The tensors and values of a checkpoint.

    Attributes:
        files: names of the files, each as the parts of a path beneath the folder.
        ends: of each file how many bytes of it are needed.
        taken: of each file how many bytes are said to be of something.
        last: of each file where the last thing in it begins.
        tensors: by name.
        values: what is no tensor, by name: where it lies, or None where nothing tells.
        version: that of the format.
    """

    def __init__(self) -> None:
        self.files: list[tuple[str, ...]] = []
        self.ends: list[int] = []
        self.taken: list[int] = []
        self.last: list[int] = []
        self.tensors: dict[str, Entry] = {}
        self.values: dict[str, Place | None] = {}
        self.version = ""
        self._offsets, self._sizes = array("q"), array("q")
        self._columns = tuple(array("q") for _ in Place._fields)

    def add_file(self, parts: tuple[str, ...], taken: int) -> int:
        """Add a file of which so many bytes are known, and return its number."""
        self.files.append(parts)
        self.ends.append(taken)
        self.taken.append(taken)
        self.last.append(0)
        return len(self.files) - 1

    def add(
        self,
        name: str,
        element: ElementType,
        size: tuple[int, ...],
        chunks: Sequence[tuple[tuple[int, ...], tuple[int, ...], Place | None]],
    ) -> None:
        """Add a tensor, and its chunks: where each begins, how long it is, where it lies."""
        first, axis = len(self._columns[0]), len(self._offsets)
        for offsets, sizes, _ in chunks:
            self._offsets.extend(offsets)
            self._sizes.extend(sizes)
        places = [place or (NO_PLACE, 0, 0, 0) for _, _, place in chunks]
        for column, numbers in zip(self._columns, zip(*places, strict=True), strict=False):
            column.extend(numbers)
        self.tensors[name] = Entry(element, size, first, len(chunks), axis)

    def extend(self, offsets: Array, sizes: Array, places: Array) -> None:
        """Add chunks as columns behind those that are there; their tensors tell of them.

        Args:
            offsets: where each begins, the axes of one behind those of another.
            sizes: how long it is.
            places: (chunks, 4) where each lies; the file is `NO_PLACE` where nothing tells.
        """
        for column, numbers in zip(
            (self._offsets, self._sizes, *self._columns), (offsets, sizes, *places.T), strict=True
        ):
            column.frombytes(np.ascontiguousarray(numbers, np.int64).data.cast("B"))

    def boxes(self, entry: Entry) -> tuple[Array, Array]:
        """Return where the chunks of a tensor begin, and how long they are: (chunks, axes) each."""
        shape = entry.count, len(entry.size)
        axes = slice(entry.axis, entry.axis + entry.count * len(entry.size))
        offsets, sizes = (
            np.array(column[axes], np.int64).reshape(shape)
            for column in (self._offsets, self._sizes)
        )
        return offsets, sizes

    def place(self, entry: Entry, chunk: int) -> Place | None:
        """Return where a chunk of a tensor lies, None where nothing tells."""
        file, at, length, form = (column[entry.first + chunk] for column in self._columns)
        return None if file == NO_PLACE else Place(file, at, length, Form(form))

    def every_place(self) -> Array:
        """Return where all chunks and values lie that lie anywhere: (places, 3) int64 numbers.

        A row has the number of the file, the first byte and how many.
        """
        chunks = np.stack([np.array(one, np.int64) for one in self._columns[:3]], axis=1)
        others = [place[:3] for place in self.values.values() if place is not None]
        values = np.array(others, np.int64).reshape(-1, 3)
        found: Array = np.concatenate((chunks[chunks[:, 0] >= 0], values))
        return found
