"""The chunks of many tensors as columns: kind and shape of each tensor, place of each chunk.

Rows are in the order of their tensors, so the chunks of one tensor are neighbours. A `Chunk` is
made only on request, and all rows are checked at once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.distributed.chunks.boxes import find_misfit, touching
from ztensor.errors import FormatError, Reason, ZTensorError, counted, describe
from ztensor.ext import (
    ALGORITHMS,
    Component,
    cached_property,
    element_count,
    result_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# An encoding of a table: the manifest of the chunk's file has the components.
WHOLE_OBJECT = "object"
_CHUNK_COST, _AXIS_COST = 100, 28  # bytes for each chunk, and for each of its axes
_BATCH = 1 << 14  # rows checked together, so that they stay in cache


class Kind(NamedTuple):
    """Storage type, logical type and layout, which many tensors of a table have in common."""

    dtype: str
    type: str | None = None
    format: str = "dense"

    @property
    def component(self) -> Component:
        """Return an empty component of this kind."""
        return Component(self.dtype, 0, 0, self.type)

    @property
    def unit(self) -> tuple[int, int] | None:
        """Return the bytes of a unit and the elements in it, None for an unknown type."""
        return _unit(self.dtype, self.type)


@functools.cache
def _unit(dtype: str, type: str | None) -> tuple[int, int] | None:
    component = Component(dtype, 0, 0, type)
    if type is not None and component.logical is None:
        return None
    try:
        whole = result_dtype(component).itemsize
    except ZTensorError:
        return None
    if component.logical is None or component.logical.elements_per_storage == 1:
        return whole, 1
    return component.logical.storage_per_element, component.logical.elements_per_storage


class TableFile(NamedTuple):
    """A file of chunks: name in the folder, length, digest of its manifest or ""."""

    name: str
    size: int
    digest: str = ""


class Chunk(NamedTuple):
    """One row of a table.

    Attributes:
        row: its row, -1 for a chunk that is not in a table yet.
        tensor: index into the table's names; `file` into its files.
        number: counts the objects of the tensor in that file, from 0.
        offsets: first element of the box along each axis; `sizes` are its lengths.
        at: offset of its bytes in the file; `length` is their number.
        digest: `algorithm:hex` over these, or None.
        content: xxh3-128 over the decoded bytes, or None.
    """

    row: int
    tensor: int
    file: int
    number: int
    encoding: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    at: int
    length: int
    digest: str | None
    content: bytes | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class ChunkTable:
    """The chunks of many tensors. Its arrays are read-only by convention.

    Attributes:
        names: unique names of the tensors.
        kinds: few in number; `kind` (tensors,) has the index of each tensor.
        shapes: shapes of the tensors.
        files: files of the chunks; `file` (chunks,) has the index of each chunk.
        encodings: few in number, `WHOLE_OBJECT` among them; `encoding` (chunks,) has the index of
            each chunk, None if all are the first.
        tensor: (chunks,) the tensor of each, ascending.
        number: (chunks,) see `Chunk`; None if all are 0.
        offsets: (axes of all chunks,) first elements of the boxes, one box after another; so are
            `sizes`.
        at: (chunks,) offset of the bytes in the file; `length` (chunks,) is their number.
        digest: (chunks, bytes) of the stored bytes, by `algorithm`; None without digests.
        content: (chunks, 16) uint8, xxh3-128 of the decoded bytes; None if not requested.
    """

    names: Sequence[str]
    kinds: Sequence[Kind]
    kind: Array
    shapes: Sequence[tuple[int, ...]]
    files: Sequence[TableFile]
    encodings: Sequence[str]
    tensor: Array
    file: Array
    number: Array | None
    encoding: Array | None
    offsets: Array
    sizes: Array
    at: Array
    length: Array
    digest: Array | None = None
    algorithm: str = ""
    content: Array | None = None

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self.tensor)

    @cached_property
    def tensor_of(self) -> Mapping[str, int]:
        """Return the number of each tensor by its name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def ranks(self) -> Array:
        """Return the number of axes of each tensor."""
        count = len(self.shapes)
        return np.fromiter((len(shape) for shape in self.shapes), np.int64, count)

    @cached_property
    def _first_rows(self) -> Array:
        dtype = self.tensor.dtype  # another dtype would copy all rows
        known = min(len(self.names), int(np.iinfo(dtype).max) + 1)
        first: Array = np.full(len(self.names) + 1, len(self.tensor), np.int64)
        first[:known] = np.searchsorted(self.tensor, np.arange(known).astype(dtype))
        return first

    @cached_property
    def _first_axes(self) -> Array:
        """Return the index into `offsets` and `sizes` of the first box of each tensor."""
        counts = np.diff(self._first_rows) * self.ranks
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))

    def rows(self, tensor: int) -> range:
        """Return the rows of a tensor."""
        return range(int(self._first_rows[tensor]), int(self._first_rows[tensor + 1]))

    def boxes(self, tensor: int) -> tuple[Array, Array]:
        """Return offsets and sizes of the boxes of a tensor: (chunks, axes) each."""
        part = slice(int(self._first_axes[tensor]), int(self._first_axes[tensor + 1]))
        shape = len(self.rows(tensor)), int(self.ranks[tensor])
        return self.offsets[part].reshape(shape), self.sizes[part].reshape(shape)

    def kind_of(self, tensor: int) -> Kind:
        """Return the kind of a tensor."""
        return self.kinds[int(self.kind[tensor])]

    def chunk(self, row: int) -> Chunk:
        """Return one row."""
        tensor = int(self.tensor[row])
        rank = int(self.ranks[tensor])
        first = int(self._first_axes[tensor]) + (row - int(self._first_rows[tensor])) * rank
        digest = None
        if self.digest is not None:
            digest = ALGORITHMS[self.algorithm].spell(self.digest[row].tobytes().hex())
        return Chunk(
            row,
            tensor,
            int(self.file[row]),
            0 if self.number is None else int(self.number[row]),
            self.encodings[0 if self.encoding is None else int(self.encoding[row])],
            tuple(self.offsets[first : first + rank].tolist()),
            tuple(self.sizes[first : first + rank].tolist()),
            int(self.at[row]),
            int(self.length[row]),
            digest,
            None if self.content is None else self.content[row].tobytes(),
        )

    def described(self, chunk: Chunk) -> str:
        """Return the name of a chunk and its file for messages."""
        file = f" of {describe(self.files[chunk.file].name, 200)}" if chunk.file >= 0 else ""
        return f"chunk at {list(chunk.offsets)}{file}"

    def touching(
        self, tensor: int, offsets: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[Chunk]:
        """Yield the chunks of a tensor that have elements in a box."""
        first = self.rows(tensor).start
        for row in touching(*self.boxes(tensor), offsets, sizes).tolist():
            yield self.chunk(first + row)

    def nbytes(self, tensor: int) -> int | None:
        """Return the decoded bytes of a dense tensor, None if its type is unknown."""
        return nbytes_of(self.kind_of(tensor), self.shapes[tensor])

    def stored_nbytes(self, tensor: int) -> int:
        """Return the stored bytes of all chunks of a tensor."""
        rows = self.rows(tensor)
        return int(self.length[rows.start : rows.stop].sum(dtype=np.uint64))

    # --- Checks -----------------------------------------------------------------------------

    @property
    def check_cost(self) -> int:
        """Return the most bytes of memory that `require_valid` takes."""
        return _CHUNK_COST * len(self) + _AXIS_COST * len(self.offsets)

    def require_valid(self) -> None:
        """Raise unless the chunks of each tensor tile its shape and are inside their files.

        A raw chunk must also be as long as its box.

        Raises:
            FormatError: a chunk is wrong; the error names the tensor.
        """
        if len(self.tensor) and (
            int(self.tensor.max()) >= len(self.names)
            or (len(self) > 1 and bool((self.tensor[1:] < self.tensor[:-1]).any()))
        ):
            raise broken("the chunks are not in the order of the tensors")
        if int(self._first_axes[-1]) != len(self.offsets) or len(self.sizes) != len(self.offsets):
            raise broken(
                "the boxes have another number of axes than their tensors",
                expected=str(int(self._first_axes[-1])),
                found=f"{len(self.offsets)} and {len(self.sizes)}",
            )
        self._require_places()
        self._require_boxes()

    def require_filled(self, tensor: int) -> None:
        """Raise if the boxes of one tensor leave its shape, overlap or leave elements out.

        Raises:
            FormatError: a chunk is wrong; the error names it.
        """
        offsets, sizes = self.boxes(tensor)
        shape = np.array(self.shapes[tensor], np.int64).reshape(1, -1)
        first = self.rows(tensor).start
        wrong = (sizes > shape - offsets).any(axis=1)
        if wrong.any():
            error = self._wrong(first + int(np.argmax(wrong)), "is outside its tensor")
            error.reason = Reason.OUT_OF_BOUNDS
            raise error
        misfit = find_misfit(offsets, sizes, np.zeros(len(offsets), np.intp), shape)
        if misfit is not None:
            raise self._misfit(tensor, misfit.element, first + np.array(misfit.boxes, np.int64))

    def _wrong(self, row: int, message: str) -> FormatError:
        """Return the error for a row."""
        chunk = self.chunk(row)
        error = broken(
            f"a chunk {message}",
            found=f"{self.described(chunk)}, of sizes {list(chunk.sizes)}, {chunk.length} bytes at "
            f"{chunk.at}",
        )
        error.object_name = self.names[chunk.tensor]
        return error

    def _require_places(self) -> None:
        """Raise if a chunk has an unknown file or encoding, or is outside its file."""
        if not len(self):
            return
        if int(self.file.max()) >= len(self.files):
            raise broken(
                "a chunk is in a file that is not listed",
                expected=f"one of {len(self.files)}",
                found=str(int(self.file.max())),
            )
        if (0 if self.encoding is None else int(self.encoding.max())) >= len(self.encodings):
            raise broken("a chunk has an encoding that is not listed")
        sizes = np.fromiter((file.size for file in self.files), np.int64, len(self.files))
        wrong = self.at.astype(np.int64) + self.length.astype(np.int64) > sizes[self.file]
        if wrong.any():
            raise self._wrong(int(np.argmax(wrong)), "is outside its file")

    def _require_boxes(self) -> None:
        """Raise if boxes do not tile their shapes, or raw chunks are not as long as their boxes."""
        for rank in np.unique(self.ranks).tolist():
            chosen = np.flatnonzero(self.ranks == rank)
            listed = [self.shapes[number] for number in chosen.tolist()]
            shapes = np.array(listed, np.int64).reshape(len(listed), rank)
            place = np.zeros(len(self.names), np.int32)
            place[chosen] = np.arange(len(chosen))
            rows = np.flatnonzero(self.ranks[self.tensor] == rank)
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH]
                offsets, sizes = (column.astype(np.int64) for column in self._boxes_of(batch, rank))
                wrong = (sizes > shapes[place[self.tensor[batch]]] - offsets).any(axis=1)
                if wrong.any():
                    raise self._wrong(int(batch[np.argmax(wrong)]), "is outside its tensor")
                self._require_lengths(batch, sizes.prod(axis=1, dtype=np.float64))
            misfit = find_misfit(*self._boxes_of(rows, rank), place[self.tensor[rows]], shapes)
            if misfit is not None:
                raise self._misfit(int(chosen[misfit.tensor]), misfit.element, rows[misfit.boxes])

    def _boxes_of(self, rows: Array, rank: int) -> tuple[Array, Array]:
        """Return the boxes of rows of one rank: (rows, axes) each."""
        tensors = self.tensor[rows]
        first = self._first_axes[tensors] + (rows - self._first_rows[tensors]) * rank
        places = first[:, None] + np.arange(rank)
        return self.offsets[places], self.sizes[places]

    def _require_lengths(self, rows: Array, counts: Array) -> None:
        """Raise if raw chunks are not as long as their boxes.

        `counts` (rows,) are the elements of the boxes as floats, exact below 2^53; no file is
        larger.
        """
        is_raw: Array = np.array([word == "raw" for word in self.encodings])
        words = np.zeros(len(rows), np.intp) if self.encoding is None else self.encoding[rows]
        kinds = self.kind[self.tensor[rows]]
        for number, kind in enumerate(self.kinds):
            unit = kind.unit if kind.format == "dense" else None
            if unit is not None:
                nbytes = np.ceil(counts * unit[0] / unit[1])
                wrong = is_raw[words] & (kinds == number) & (nbytes != self.length[rows])
                if wrong.any():
                    raise self._wrong(int(rows[np.argmax(wrong)]), "is not as long as its box")

    def _misfit(self, tensor: int, element: list[int], rows: Array) -> FormatError:
        """Return the error for an element that is in no chunk, or in several (`rows`)."""
        chunks = [self.chunk(row) for row in rows[:2].tolist()]
        if chunks:
            error = broken(
                "two chunks of a tensor overlap",
                found=" and ".join(map(self.described, chunks)),
            )
        else:
            error = broken(
                "the chunks of a tensor do not cover it",
                expected=f"{element_count(self.shapes[tensor])} elements",
                found=f"{counted(len(self.rows(tensor)), 'chunk')} without the one at {element}",
            )
        error.object_name = self.names[tensor]
        return error


def nbytes_of(kind: Kind, shape: tuple[int, ...]) -> int | None:
    """Return the decoded bytes of a dense tensor of a kind, None for an unknown type."""
    unit = kind.unit
    if unit is None:
        return None
    width, per_unit = unit
    return -(-element_count(shape) * width // per_unit)


def broken(message: str, expected: str | None = None, found: str | None = None) -> FormatError:
    """Return the error for a malformed table."""
    return FormatError(message, reason=Reason.SHARD_INDEX, expected=expected, found=found)
