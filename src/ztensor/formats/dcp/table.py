"""The table of a checkpoint of torch: tensors, the places of their chunks, values."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.distributed.chunks.table import Chunk, ChunkTable, Kind, TableFile
from ztensor.formats.pt.values import ElementType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

NO_PLACE = -1


class Form(enum.IntEnum):
    """The form of the bytes at a place."""

    RECORD = 0  # a file of `torch.save`
    CHANGED = 1  # a record that an extension of the writer changed
    ELEMENTS = 2  # the elements alone, in C's order


class Place(NamedTuple):
    """The bytes of a chunk or value.

    Attributes:
        file: number of the file.
        at: offset in the file.
        length: number of bytes.
        form: their form.
    """

    file: int
    at: int
    length: int
    form: Form = Form.RECORD


class File(NamedTuple):
    """A file of a checkpoint.

    Attributes:
        parts: the parts of its path in the folder.
        end: end of the last place in it.
        taken: total length of the places in it.
        last: start of the last place in it.
    """

    parts: tuple[str, ...]
    end: int
    taken: int
    last: int = 0

    @property
    def name(self) -> str:
        """Return its path in the folder."""
        return "/".join(self.parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The tensors and values of a checkpoint.

    Attributes:
        files: names and lengths of all files.
        elements: element type of each tensor.
        chunks: shapes and boxes in torch's elements; encodings are the names of `Form`, and the
            file of a chunk without a place is `NO_PLACE`.
        values: places of values by name, None for a value without a place.
        version: version of the format, or "".
    """

    files: Sequence[File]
    elements: Sequence[ElementType]
    chunks: ChunkTable
    values: Mapping[str, Place | None]
    version: str = ""


def chunk_table(
    files: Sequence[File],
    tensors: Mapping[str, tuple[ElementType, tuple[int, ...]]],
    counts: Array,
    offsets: Array,
    sizes: Array,
    places: Array,
) -> ChunkTable:
    """Return the chunks of tensors as a table.

    Args:
        files: all files.
        tensors: element types and shapes, in torch's elements, by name.
        counts: (tensors,) number of chunks of each tensor.
        offsets: where boxes begin, in the order of the tensors, the axes of one after another's.
        sizes: their lengths, in the same way.
        places: (chunks, 4) file, start, length and form, as in `Place`.
    """
    kinds = [_kind(element) for element, _ in tensors.values()]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return ChunkTable(
        names=list(tensors),
        kinds=list(numbers),
        kind=np.array([numbers[kind] for kind in kinds], np.int64),
        shapes=[size for _, size in tensors.values()],
        files=[TableFile(file.name, file.end) for file in files],
        encodings=[form.name for form in Form],
        tensor=np.repeat(np.arange(len(counts)), counts),
        file=places[:, 0],
        number=None,
        encoding=places[:, 3],
        offsets=offsets,
        sizes=sizes,
        at=places[:, 1],
        length=places[:, 2],
    )


def _kind(element: ElementType) -> Kind:
    # torch counts bytes that hold several elements.
    return Kind(element.dtype, element.type if element.per_element == 1 else None)


def place_of(chunk: Chunk) -> Place | None:
    """Return where a chunk is stored, None if `.metadata` does not say."""
    if chunk.file == NO_PLACE:
        return None
    return Place(chunk.file, chunk.at, chunk.length, Form[chunk.encoding])
