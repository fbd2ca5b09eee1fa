"""Assemble tensors from their chunks, or read boxes of them into memory of the caller.

The bytes of a raw chunk are read straight into their place, row by row if that is not contiguous.
A chunk that is read as a whole is compared with its digest, also if it comes in blocks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.boxes import Overlap, is_within, overlap
from ztensor.distributed.chunks.staging import BLOCK_BYTES, pieces_of
from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable, nbytes_of
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    ENCODINGS,
    AtOnce,
    Blocks,
    Component,
    Encoding,
    FileObjects,
    LaterObjects,
    Manifest,
    Source,
    TensorObject,
    element_count,
    empty_array,
    foreign_bytes,
    result_dtype,
    typed_array,
)
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    Whole = Callable[[Chunk], TensorObject]
    Locate = Callable[[Chunk], Component]

# The encoding of a component in several chunks; no file has this name.
WORD = "divided"
# Longer tensors in a store have their files' lengths checked first, one request for each file.
_MOST_CLAIMED = 256 << 20


class Assembler:
    """Fills memory with tensors of a chunk table, or with boxes of them.

    Args:
        table: the chunks.
        source: a first file joined with the files of the table.
        limits: the caps in force.
        verify: None checks the digests of chunks that are read as a whole, True of all chunks that
            are read, False none.
        starts: offset of each of the table's files in the source.
        locate: returns the dense component of a chunk, for a table that lacks offsets or digests.
            Boxes and places of such a table are checked when a tensor is first read.
        encodings: encodings of the components, by name.
    """

    def __init__(
        self,
        table: ChunkTable,
        source: Source,
        limits: Limits,
        *,
        verify: bool | None,
        starts: Sequence[int],
        locate: Locate | None = None,
        encodings: MutableMapping[str, Any] = ENCODINGS,
    ) -> None:
        self.table = table
        self.source = source
        self._starts = starts
        self._locate = locate
        self.encodings = encodings
        self._located: set[int] = set()
        self._beginning = dict(source.parts)
        self._verify = verify
        self._limits = limits
        self._file = FileObjects(
            source, Manifest("", {}), encodings=encodings, verify=verify, limits=limits
        )

    # --- Objects ----------------------------------------------------------------------------

    def objects(self, whole: Whole | None = None) -> Mapping[str, TensorObject]:
        """Return the objects of the tensors by name; each is made on access.

        Args:
            whole: returns the object of a `WHOLE_OBJECT` chunk, with offsets in the source.
        """
        return LaterObjects(self.table.names, functools.partial(self._object, whole))

    def _object(self, whole: Whole | None, name: str) -> TensorObject:
        table = self.table
        number = table.tensor_of[name]
        kind, shape = table.kind_of(number), table.shapes[number]
        rows = table.rows(number)
        if len(rows) == 1:
            chunk = table.chunk(rows.start)
            if chunk.encoding == WHOLE_OBJECT:
                if whole is None:
                    raise UnsupportedError("the components of the object are unknown")
                return whole(chunk)
            return TensorObject(shape, kind.format, {"data": self.component(chunk)})
        if not rows:  # no element, so no bytes either
            return TensorObject(shape, kind.format, {"data": kind.component})
        return TensorObject(shape, kind.format, {"data": self.divided(number)})

    def divided(self, number: int) -> Component:
        """Return the component of a tensor that is decoded from its chunks.

        Raises:
            UnsupportedError: the element type is unknown.
        """
        kind, nbytes = self.table.kind_of(number), self.table.nbytes(number)
        if nbytes is None:
            raise UnsupportedError(
                "the element type is unknown, so its chunks cannot be joined",
                reason=Reason.UNKNOWN_TYPE,
                found=describe(kind.type or kind.dtype),
            )
        return Component(
            kind.dtype,
            self.source.size + number,  # identifies the tensor; no bytes are there
            self.table.stored_nbytes(number),
            kind.type,
            encoding=WORD,
            decoded_length=nbytes,
        )

    def component(self, chunk: Chunk) -> Component:
        """Return the component of a chunk, with its offset in the source."""
        if self._locate is not None:
            return self._locate(chunk)
        kind = self.table.kind_of(chunk.tensor)
        decoded = None if chunk.encoding == "raw" else nbytes_of(kind, chunk.sizes)
        return Component(
            kind.dtype,
            self._starts[chunk.file] + chunk.at,
            chunk.length,
            kind.type,
            encoding=chunk.encoding,
            digest=chunk.digest,
            decoded_length=decoded,
        )

    def number_at(self, offset: int) -> int:
        """Return the tensor of a component that is made of several chunks."""
        return offset - self.source.size

    def require_length(self, tensor: int, expected: int, limits: Limits) -> None:
        """Raise if a tensor cannot decode to `expected` bytes, before they are allocated.

        Raises:
            ZTensorError: it cannot, or a file of its chunks is missing.
        """
        table = self.table
        Encoding.require_equal_length(
            table.nbytes(tensor) or 0,
            expected,
            "the tensor is not as long as its shape",
        )
        self.require_located(tensor)
        if self._locate is not None:
            return
        rows = table.rows(tensor)
        part = slice(rows.start, rows.stop)
        raw = 0
        words = np.zeros(len(rows), np.uint8) if table.encoding is None else table.encoding[part]
        for number in np.unique(words).tolist():
            if table.encodings[number] == "raw":
                raw = int(table.length[part][words == number].sum(dtype=np.uint64))
        if (encoded := expected - min(raw, expected)) > limits.decoded_bytes:
            raise LimitError(
                "encoded chunks decode to more than Limits.decoded_bytes",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {limits.decoded_bytes} bytes",
                found=str(encoded),
            )
        most = _MOST_CLAIMED if self.source.prefers_long_reads else BLOCK_BYTES
        if expected > most:  # lengths are a claim until the files have been opened
            for file in np.unique(table.file[part]).tolist():
                self._beginning[self._starts[file]].require_unchanged(ask=True)

    def require_located(self, tensor: int) -> None:
        """Raise if chunks of a tensor are missing, overlap or cannot be located; checked once.

        Raises:
            ZTensorError: they are.
        """
        if self._locate is None or tensor in self._located:
            return  # the table was checked as a whole
        self.table.require_filled(tensor)
        for _ in self._components(tensor):
            pass
        self._located.add(tensor)

    def is_summed(self, tensor: int) -> bool:
        """Return whether every chunk has a digest; True as well if reading one will fail."""
        if self._locate is None:
            return True
        try:
            self.require_located(tensor)
            return all(one.digest is not None for one in self._components(tensor))
        except ZTensorError:
            return True

    def _components(self, tensor: int) -> Iterator[Component]:
        for row in self.table.rows(tensor):
            chunk = self.table.chunk(row)
            with self.located(chunk):
                yield self.component(chunk)

    # --- Boxes ------------------------------------------------------------------------------

    def read_box(
        self, tensor: int, offsets: Sequence[int], sizes: Sequence[int], destination: Array
    ) -> None:
        """Fill an array with a box of a tensor; see `DividedObjects.read_box`.

        Raises:
            ArgumentValueError: the box is outside the tensor, or the array has another shape or is
                read-only.
            ArgumentTypeError: the array has another element type.
            FormatError: stored bytes are damaged.
            UnsupportedError: the type or an encoding is unknown.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        self._require_box(tensor, offsets, sizes, destination)
        if not destination.size:
            return
        dtype = result_dtype(self.table.kind_of(tensor).component)
        target = destination if destination.dtype == dtype else destination.view(dtype)
        self.fill(tensor, offsets, sizes, target)

    def fill(
        self,
        tensor: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        target: Array,
        see: Callable[[Chunk, Overlap, Array], None] | None = None,
        gathered: AtOnce | None = None,
    ) -> None:
        """Fill an array of the tensor's element type with a box that is inside the tensor.

        Args:
            tensor: its number.
            offsets: first element of the box along each axis.
            sizes: lengths of the box.
            target: (sizes) array to fill.
            see: called with each chunk, its overlap with the box, and `target`, once it is filled.
            gathered: collects the reads of several tensors; the caller ends it.

        Raises:
            ZTensorError: what `read_box` raises.
        """
        at_once = AtOnce(self.source) if gathered is None else gathered
        for chunk in self.table.touching(tensor, offsets, sizes):
            common = overlap(chunk.offsets, chunk.sizes, offsets, sizes)
            with self.located(chunk):
                _Part(self, chunk, common, target[common.in_target]).read(at_once)
            if see is not None:
                at_once.later(functools.partial(see, chunk, common, target))
        if gathered is None:
            at_once.end()

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """Return those of the named tensors that have several chunks, read by few requests.

        Tensors that need conversion, such as of byte order, are left out.

        Raises:
            ZTensorError: what `read_box` raises.
        """
        arrays: dict[str, Array] = {}
        at_once = AtOnce(self.source)
        for name in names:
            number = self.table.tensor_of.get(name)
            if number is None or len(self.table.rows(number)) < 2:
                continue
            kind, shape = self.table.kind_of(number), self.table.shapes[number]
            nbytes = self.table.nbytes(number)
            if nbytes is None or not kind.component.is_native():
                continue
            self.require_length(number, nbytes, self._limits)
            arrays[name] = empty_array(shape, result_dtype(kind.component))
            self.fill(number, (0,) * len(shape), shape, arrays[name], gathered=at_once)
        at_once.end()
        return arrays

    def stored(self, chunk: Chunk) -> Any:
        """Return the stored component of a chunk, through which all its bytes are read."""
        return self._file.stored(self.component(chunk))

    @contextlib.contextmanager
    def located(self, chunk: Chunk) -> Iterator[None]:
        """Add file, tensor and chunk to errors raised in this context."""
        try:
            with foreign_bytes("the chunk"):
                yield
        except ZTensorError as error:
            error.locate(file=self.name_of_file(chunk), object_name=self.table.names[chunk.tensor])
            where = self.table.described(chunk)
            error.found = f"{error.found}, {where}" if error.found else where
            raise

    def name_of_file(self, chunk: Chunk) -> str | None:
        """Return the name of a chunk's file for messages, None if the chunk has no file."""
        if chunk.file < 0:
            return None
        return self._beginning[self._starts[chunk.file]].name

    def checks(self, *, whole: bool) -> bool:
        """Return whether to check the digest of a chunk that is read, in part or as a whole."""
        return self._verify is True or (whole and self._verify is None)

    def _require_box(
        self, tensor: int, offsets: Sequence[int], sizes: Sequence[int], destination: Array
    ) -> None:
        table = self.table
        shape, name = table.shapes[tensor], table.names[tensor]
        if not isinstance(destination, np.ndarray):
            raise ArgumentTypeError(
                "the destination of a box must be an array",
                object_name=name,
                found=describe(destination, 40),
            )
        if not is_within(offsets, sizes, shape):
            raise ArgumentValueError(
                "the box is outside the tensor",
                object_name=name,
                expected=f"within shape {describe(shape)}",
                found=f"{describe(tuple(offsets))} of sizes {describe(tuple(sizes))}",
            )
        if destination.shape != tuple(sizes):
            raise ArgumentValueError(
                "the array does not fit the box",
                object_name=name,
                expected=f"shape {describe(tuple(sizes))}",
                found=f"shape {destination.shape}",
            )
        if not destination.flags.writeable:
            raise ArgumentValueError("the array is read-only", object_name=name)
        dtype = result_dtype(table.kind_of(tensor).component)
        is_alike = destination.dtype.itemsize == dtype.itemsize and destination.dtype.kind in "uV"
        if destination.dtype != dtype and not is_alike:
            raise ArgumentTypeError(
                "the array does not fit the tensor",
                object_name=name,
                expected=f"{dtype.name}, or unsigned integers of that width",
                found=destination.dtype.name,
            )


class _Part:
    """Reads the wanted part of one chunk into its place.

    Args:
        assembler: the assembler.
        chunk: the chunk.
        common: its overlap with the wanted box.
        target: the array to fill.
    """

    def __init__(self, assembler: Assembler, chunk: Chunk, common: Overlap, target: Array) -> None:
        self._assembler = assembler
        self._chunk = chunk
        self._common = common
        self._target = target
        self._stored = assembler.stored(chunk)

    def read(self, at_once: AtOnce) -> None:
        """Fill the target now, or by reads that are added to `at_once`."""
        component = self._stored.component
        in_place = component.is_native()
        is_whole = self._common.sizes == self._chunk.sizes
        if not self._target.size:
            return
        if is_whole and in_place and component.encoding == "raw":
            self._read_raw(at_once)
        elif is_whole and in_place and self._target.flags.c_contiguous:
            self._stored.decoded(self._target.nbytes, self._target.reshape(-1).view(np.uint8))
        elif not (in_place and self._read_box(is_whole=is_whole)):
            fill = None
            if in_place and not is_whole:
                fill = self._stored.filler(self._chunk.sizes, self._chunk.row)
            if fill is None:
                self._target[...] = self._decoded()[self._common.source]
            else:
                self._read_part(fill, at_once)

    def _read_box(self, *, is_whole: bool) -> bool:
        """Fill the target if the chunk's encoding reads boxes; return whether it does."""
        stored = self._stored
        wanted = [range(part.start, part.stop) for part in self._common.source]
        if stored.component.encoding == "raw" or not stored.read_box(wanted, self._target):
            return False
        if self._assembler.checks(whole=is_whole):
            stored.check()
        return True

    def _decoded(self) -> Array:
        """Return the whole chunk as new memory."""
        component = self._stored.component
        array = typed_array(component, self._stored.decoded(component.decoded_length))
        return array[: element_count(self._chunk.sizes)].reshape(self._chunk.sizes)

    def _read_raw(self, at_once: AtOnce) -> None:
        """Read all of a raw chunk."""
        target = self._target
        if not self._assembler.source.prefers_long_reads:
            self._stored.fill_pieces(pieces_of(target))
            return
        is_run = target.flags.c_contiguous
        whole = target if is_run else empty_array(target.shape, target.dtype)
        memory = whole.reshape(-1).view(np.uint8).data
        at_once.add(self._stored.component.offset, memory)

        def end() -> None:
            with self._assembler.located(self._chunk):
                self._stored.require_filled(memory)
            if not is_run:
                target[...] = whole

        at_once.later(end)

    def _read_part(self, fill: Callable[..., None], at_once: AtOnce) -> None:
        """Read some of the decoded bytes."""
        for place in _blocks(self._target):
            part = self._target[place]
            is_run = part.flags.c_contiguous
            block = part if is_run else empty_array(part.shape, part.dtype)
            wanted = [
                range(whole.start, whole.stop)[within]
                for whole, within in itertools.zip_longest(
                    self._common.source, place, fillvalue=slice(None)
                )
            ]
            fill(wanted, block, at_once)
            if not is_run:
                at_once.later(functools.partial(np.copyto, part, block))


def _blocks(target: Array) -> Iterator[tuple[slice, ...]]:
    """Yield the blocks in which an array is filled: the whole array if it is contiguous."""
    most = target.nbytes if target.flags.c_contiguous else BLOCK_BYTES
    blocks = Blocks(target.shape, target.itemsize, most)
    for start, stop in itertools.pairwise(blocks.ends()):
        yield blocks.place(start, stop)
