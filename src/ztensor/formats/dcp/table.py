"""The table of a checkpoint of others, kept as columns: tensors, their boxes, where each lies."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.ext import cached_property
from ztensor.formats.pt.values import ElementType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class File(NamedTuple):
    """A file of a checkpoint.

    Attributes:
        parts: its name, as the parts of a path beneath the folder.
        end: how many bytes of it are needed.
        taken: how many bytes are said to be of something.
        last: where the last thing in it begins.
    """

    parts: tuple[str, ...]
    end: int
    taken: int
    last: int = 0

    @property
    def name(self) -> str:
        """Return its path beneath the folder."""
        return "/".join(self.parts)


class Entry(NamedTuple):
    """A tensor.

    Attributes:
        number: which of the tensors it is.
        element: the type of its elements.
        size: its shape, in torch's elements.
        offsets: (boxes, axes) where each box begins.
        sizes: (boxes, axes) how long it is.
        places: (boxes, 4) where it lies, as `Place` has it; the file is `NO_PLACE` where nothing
            tells.
    """

    number: int
    element: ElementType
    size: tuple[int, ...]
    offsets: Array
    sizes: Array
    places: Array

    def place(self, box: int) -> Place | None:
        """Return where a box lies, None where nothing tells."""
        file, at, length, form = self.places[box].tolist()
        return None if file == NO_PLACE else Place(file, at, length, Form(form))


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The tensors and values of a checkpoint.

    Attributes:
        files: names and lengths of all of them.
        tensors: element type and shape, in torch's elements, by name.
        counts: (tensors,) how many boxes each has.
        offsets: where the boxes begin, the axes of one behind those of another.
        sizes: how long they are.
        places: (boxes, 4) see `Entry`.
        values: what is no tensor, by name: where it lies, or None where nothing tells.
        version: that of the format.
    """

    files: Sequence[File]
    tensors: Mapping[str, tuple[ElementType, tuple[int, ...]]]
    counts: Array
    offsets: Array
    sizes: Array
    places: Array
    values: Mapping[str, Place | None]
    version: str = ""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.tensors)}

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        """Return where the boxes of each tensor end, and their axes."""
        ranks = np.array([len(size) for _, size in self.tensors.values()], np.int64)
        return np.cumsum(self.counts), np.cumsum(self.counts * ranks)

    def entry(self, name: str) -> Entry:
        """Return a tensor."""
        number = self._numbers[name]
        element, size = self.tensors[name]
        count = int(self.counts[number])
        box, axis = (int(ends[number]) for ends in self._ends)
        axes = slice(axis - count * len(size), axis)
        offsets, sizes = (
            column[axes].reshape(count, len(size)) for column in (self.offsets, self.sizes)
        )
        return Entry(number, element, size, offsets, sizes, self.places[box - count : box])
