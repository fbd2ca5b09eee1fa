"""The chunks of many tensors as columns: what each tensor is, and where its boxes lie.

Rows are in the order of their tensors, so that those of one are neighbours. Nothing here makes an
object for a chunk but who asks for one, and every claim is checked for all rows at once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.chunks.boxes import Fill, overlapping_pair, touching
from ztensor.digest import ALGORITHMS
from ztensor.errors import FormatError, Reason, ZTensorError, describe
from ztensor.layout.elements import result_dtype, storage_dtype
from ztensor.locks import cached_property
from ztensor.model.dtype import element_count
from ztensor.model.manifest import Component
from ztensor.model.showing import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Of the encodings of a table: where the manifest of the file it lies in tells how it is stored.
WHOLE_OBJECT = "object"
_BATCH = 1 << 14  # rows that are looked at together: they stay in cache
_FILL_BATCH = 1 << 20  # the same, where each time all tensors are gone through


class Kind(NamedTuple):
    """What tensors of a table have in common.

    Attributes:
        dtype: storage type.
        type: logical type, or None.
        format: the layout.
    """

    dtype: str
    type: str | None = None
    format: str = "dense"

    @property
    def component(self) -> Component:
        """Return a component of this kind that lies nowhere."""
        return Component(self.dtype, 0, 0, self.type)

    @property
    def unit(self) -> tuple[int, int] | None:
        """Return how many bytes hold how many elements; None where that is not known here."""
        return _unit(self.dtype, self.type)


@functools.cache
def _unit(dtype: str, type: str | None) -> tuple[int, int] | None:
    component = Component(dtype, 0, 0, type)
    if type is not None and component.logical is None:
        return None
    try:
        per_unit = 1 if component.logical is None else component.logical.elements_per_storage
        whole = result_dtype(component) if per_unit == 1 else storage_dtype(component)
    except ZTensorError:
        return None
    return whole.itemsize, per_unit


class TableFile(NamedTuple):
    """A file that chunks lie in.

    Attributes:
        name: its name beneath the folder.
        size: its length in bytes.
        digest: `algorithm:hex` over its manifest, or "".
    """

    name: str
    size: int
    digest: str = ""


class Chunk(NamedTuple):
    """One row of a table.

    Attributes:
        row: its number; -1 of one that is in no table yet.
        tensor: the number of its tensor.
        file: the number of its file.
        number: which of the objects of the tensor's name it is in that file, from 0.
        encoding: how it is stored.
        offsets: where the box begins.
        sizes: how long it is.
        at: where its bytes begin in the file.
        length: how many are stored.
        digest: `algorithm:hex` over them, or None.
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
    """The chunks of many tensors. Arrays are not written to.

    Attributes:
        names: of each tensor; each once.
        kinds: what tensors are, few in number.
        kind: (tensors) places in `kinds`.
        shapes: of each tensor.
        files: what chunks lie in.
        encodings: how chunks are stored, few in number; `WHOLE_OBJECT` among them.
        tensor: (chunks) the tensor of each, not falling.
        file: (chunks) places in `files`.
        number: (chunks) which of the objects of that name in its file it is; None where all are 0.
        encoding: (chunks) places in `encodings`; None where all are the first.
        offsets: (all axes of all chunks) where the boxes begin, one row behind the other.
        sizes: likewise: how long they are.
        at: (chunks) where the bytes begin in the file.
        length: (chunks) how many are stored.
        digest: (chunks, bytes) digests over the stored bytes; None where there are none.
        algorithm: what computes them.
        content: (chunks, 16) xxh3-128 over the decoded bytes; None where it was not asked for.
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
        """Return how many chunks there are."""
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
        dtype = self.tensor.dtype  # numbers of another one would have all rows copied
        known = min(len(self.names), int(np.iinfo(dtype).max) + 1)
        found: Array = np.full(len(self.names) + 1, len(self.tensor), np.int64)
        found[:known] = np.searchsorted(self.tensor, np.arange(known).astype(dtype))
        return found

    @cached_property
    def _first_axes(self) -> Array:
        """Return where the boxes of each tensor begin in `offsets` and `sizes`."""
        counts = np.diff(self._first_rows) * self.ranks
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))

    def rows(self, tensor: int) -> range:
        """Return the rows of a tensor."""
        return range(int(self._first_rows[tensor]), int(self._first_rows[tensor + 1]))

    def boxes(self, tensor: int) -> tuple[Array, Array]:
        """Return where the boxes of a tensor begin and how long they are: (chunks, axes) each."""
        part = slice(int(self._first_axes[tensor]), int(self._first_axes[tensor + 1]))
        shape = len(self.rows(tensor)), int(self.ranks[tensor])
        return self.offsets[part].reshape(shape), self.sizes[part].reshape(shape)

    def kind_of(self, tensor: int) -> Kind:
        """Return what a tensor is."""
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

    def touching(
        self, tensor: int, offsets: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[Chunk]:
        """Yield the chunks of a tensor that have elements in a box."""
        first = self.rows(tensor).start
        for row in touching(*self.boxes(tensor), offsets, sizes).tolist():
            yield self.chunk(first + row)

    def nbytes(self, tensor: int) -> int | None:
        """Return how many bytes a dense tensor decodes to; None where its type is unknown."""
        return nbytes_of(self.kind_of(tensor), self.shapes[tensor])

    def stored_nbytes(self, tensor: int) -> int:
        """Return how many bytes the chunks of a tensor have as they are stored."""
        rows = self.rows(tensor)
        return int(self.length[rows.start : rows.stop].sum(dtype=np.uint64))

    # --- Is it right? -----------------------------------------------------------------------

    def require_valid(self) -> None:
        """Raise where the chunks cannot be those of the tensors.

        Every box lies in its shape, those of a tensor fill it, each element once; every chunk lies
        in its file, and a raw one is as long as its box.

        Raises:
            FormatError: so it is; the message names the tensor.
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

    def _wrong(self, row: int, message: str) -> FormatError:
        """Return the error for a row."""
        chunk = self.chunk(row)
        error = broken(
            f"a chunk {message}",
            found=f"chunk at {list(chunk.offsets)} of sizes {list(chunk.sizes)}, {chunk.length} "
            f"bytes at {chunk.at}",
        )
        error.object_name = self.names[chunk.tensor]
        return error

    def _require_places(self) -> None:
        """Raise where a file, an encoding or a place in a file is none."""
        if not len(self):
            return
        if int(self.file.max()) >= len(self.files):
            raise broken(
                "a chunk lies in a file that is not listed",
                expected=f"one of {len(self.files)}",
                found=str(int(self.file.max())),
            )
        if (0 if self.encoding is None else int(self.encoding.max())) >= len(self.encodings):
            raise broken("a chunk has an encoding that is not listed")
        sizes = np.fromiter((file.size for file in self.files), np.int64, len(self.files))
        for start in range(0, len(self), _BATCH):
            some = slice(start, start + _BATCH)
            ends = self.at[some].astype(np.int64) + self.length[some].astype(np.int64)
            wrong = ends > sizes[self.file[some]]
            if wrong.any():
                raise self._wrong(start + int(np.flatnonzero(wrong)[0]), "does not lie in its file")

    def _require_boxes(self) -> None:
        """Raise where boxes leave their shape, overlap, leave elements out, or are too long."""
        slabs = _Slabs(self.tensor, self._first_rows)
        ranks = np.unique(self.ranks).tolist()
        shapes = {rank: self._shapes_of_rank(rank) for rank in ranks}
        is_raw = self._is_raw()
        units = [kind.unit if kind.format == "dense" else None for kind in self.kinds]
        for start in range(0, len(self), _BATCH):
            some = np.arange(start, min(start + _BATCH, len(self)))
            of_row = self.ranks[self.tensor[some]]
            slabs.begin(some)
            for rank in ranks:
                rows = some if len(ranks) == 1 else some[of_row == rank]
                if not len(rows):
                    continue
                offsets, sizes = self._boxes_of(rows, rank)
                tensors = self.tensor[rows]
                whole = shapes[rank][tensors]
                wrong = (offsets + sizes > whole).any(axis=1)
                if wrong.any():
                    row = int(rows[np.flatnonzero(wrong)[0]])
                    raise self._wrong(row, "does not lie in its tensor")
                counts = sizes.astype(np.float64).prod(axis=1)
                self._require_lengths(rows, tensors, counts, is_raw, units)
                slabs.see(rows, offsets, sizes, whole)
            slabs.end()
        left = np.flatnonzero(~slabs.are_full)
        if len(left):
            self._require_filled(left, slabs.are_full, shapes)

    def _boxes_of(self, rows: Array, rank: int) -> tuple[Array, Array]:
        """Return the boxes of rows of one rank: (rows, axes) int64 each."""
        tensors = self.tensor[rows]
        first = self._first_axes[tensors] + (rows - self._first_rows[tensors]) * rank
        if rank and int(first[-1]) - int(first[0]) == (len(rows) - 1) * rank:  # all are neighbours
            part = slice(int(first[0]), int(first[-1]) + rank)
            offsets, sizes = self.offsets[part], self.sizes[part]
        else:
            places = first[:, None] + np.arange(rank)
            offsets, sizes = self.offsets[places], self.sizes[places]
        shape = len(rows), rank
        return offsets.reshape(shape).astype(np.int64), sizes.reshape(shape).astype(np.int64)

    def _is_raw(self) -> Array | None:
        """Return which encodings are raw, by their numbers; None where no chunk is."""
        raw = np.array([word == "raw" for word in self.encodings] or [False], np.bool_)
        return raw if raw.any() else None

    def _require_lengths(
        self,
        rows: Array,
        tensors: Array,
        counts: Array,
        is_raw: Array | None,
        units: list[tuple[int, int] | None],
    ) -> None:
        """Raise where raw chunks are not as long as their boxes.

        Counts are floats: exact below 2^53, and more lies in no file.
        """
        if is_raw is None:
            return
        words = np.zeros(len(rows), np.intp) if self.encoding is None else self.encoding[rows]
        kinds = self.kind[tensors]
        for number, unit in enumerate(units):
            if unit is None:
                continue
            nbytes = np.ceil(counts / unit[1]) * unit[0]
            wrong = is_raw[words] & (kinds == number)
            wrong &= nbytes != self.length[rows].astype(np.float64)
            if wrong.any():
                row = int(rows[np.flatnonzero(wrong)[0]])
                raise self._wrong(row, "is not as long as its box")

    def _require_filled(self, left: Array, is_done: Array, shapes: Mapping[int, Array]) -> None:
        """Raise where the boxes of some tensors overlap, or leave elements out."""
        fill, count = Fill(), len(self.names)
        rows = np.flatnonzero(~is_done[self.tensor])
        for rank, whole in shapes.items():
            found = np.zeros((count, 2), np.uint64)
            own = rows[self.ranks[self.tensor[rows]] == rank]
            for start in range(0, len(own), _FILL_BATCH):
                part = own[start : start + _FILL_BATCH]
                found += fill.sums(*self._boxes_of(part, rank), self.tensor[part], count)
            found %= fill.primes
            some = left[self.ranks[left] == rank]
            zeros = np.zeros((len(some), rank), np.int64)
            expected = fill.sums(zeros, whole[some], np.arange(len(some)), len(some))
            wrong = (expected != found[some]).any(axis=1)
            if wrong.any():
                raise self._unfilled(int(some[np.flatnonzero(wrong)[0]]))

    def _shapes_of_rank(self, rank: int) -> Array:
        """Return the shapes of the tensors of so many axes, zeros for the others."""
        shapes = np.zeros((len(self.names), rank), np.int64)
        if rank:
            chosen = np.flatnonzero(self.ranks == rank)
            shapes[chosen] = np.array([self.shapes[number] for number in chosen.tolist()])
        return shapes

    def _unfilled(self, tensor: int) -> FormatError:
        offsets, sizes = self.boxes(tensor)
        pair = overlapping_pair(offsets, sizes)
        covered = sum(element_count(tuple(one)) for one in sizes.tolist()[:10_000])
        if pair is not None:
            first, second = (
                f"{offsets[one].tolist()} of sizes {sizes[one].tolist()}" for one in pair
            )
            error = broken(
                "two chunks of a tensor overlap", found=f"chunks at {first} and at {second}"
            )
        else:
            error = broken(
                "the chunks of a tensor do not cover it",
                expected=f"{element_count(self.shapes[tensor])} elements",
                found=f"{describe(covered)} in {counted(len(offsets), 'chunk')}",
            )
        error.object_name = self.names[tensor]
        return error


class _Slabs:
    """Tells which tensors are cut along one axis, chunk behind chunk: most are, and these are full.

    Rows are looked at some neighbours at a time: `begin`, `see` for those of each rank, `end`.

    Args:
        tensor: the tensor of each row.
        first_rows: the first row of each tensor, and behind the last one how many there are.

    Attributes:
        are_full: (tensors) which are full, once all rows were seen.
    """

    def __init__(self, tensor: Array, first_rows: Array) -> None:
        self._tensor = tensor
        self._first_rows = first_rows
        self.are_full: Array = np.diff(first_rows) > 0
        self._before = (0, -1)  # where the row before ends, and the axis it is cut along

    def begin(self, rows: Array) -> None:
        """Take some rows, all neighbours."""
        self._rows = rows
        self._axis = np.zeros(len(rows), np.int64)  # -1 where a box is cut along several
        self._start, self._stop, self._length = (np.zeros(len(rows), np.int64) for _ in range(3))

    def see(self, rows: Array, offsets: Array, sizes: Array, whole: Array) -> None:
        """Take the boxes of some of these rows, all of one rank and in their shapes."""
        part = rows - self._rows[0]
        cut = np.zeros(len(rows), np.int16)
        axis = np.zeros(len(rows), np.int64)
        rank = offsets.shape[1]
        for one in range(rank):
            is_cut = sizes[:, one] != whole[:, one]
            cut += is_cut
            axis[is_cut] = one
        if rank:
            every = np.arange(len(rows))
            self._start[part] = offsets[every, axis]
            self._stop[part] = offsets[every, axis] + sizes[every, axis]
            self._length[part] = whole[every, axis]
        else:
            self._stop[part] = self._length[part] = 1
        axis[cut > 1] = -1
        self._axis[part] = axis

    def end(self) -> None:
        """Note which tensors the rows do not fill."""
        rows, axis, stop = self._rows, self._axis, self._stop
        tensor = self._tensor[rows]
        is_first = rows == self._first_rows[tensor]
        is_last = rows == self._first_rows[tensor + 1] - 1
        before, along = (
            np.concatenate((np.array([one]), column[:-1]))
            for one, column in zip(self._before, (stop, axis), strict=True)
        )
        follows = np.where(is_first, self._start == 0, (self._start == before) & (axis == along))
        wrong = ~follows | (is_last & (stop != self._length)) | (axis < 0)
        self.are_full[tensor[wrong]] = False
        self._before = int(stop[-1]), int(axis[-1])


def nbytes_of(kind: Kind, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes a dense tensor of a kind decodes to; None where that is unknown."""
    unit = kind.unit
    if unit is None:
        return None
    width, per_unit = unit
    return -(-element_count(shape) // per_unit) * width


def broken(message: str, expected: str | None = None, found: str | None = None) -> FormatError:
    """Return the error for a table that cannot be true."""
    return FormatError(message, reason=Reason.SHARD_INDEX, expected=expected, found=found)
