"""Make a manifest of the table of a checkpoint: tensors as objects, values as attributes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ztensor.distributed.chunks.assembling import Assembler
from ztensor.distributed.chunks.encoding import with_divided
from ztensor.distributed.chunks.table import Chunk
from ztensor.distributed.lazy_files import OpenFiles
from ztensor.errors import (
    ContainerError,
    FormatError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    Component,
    Encoding,
    LaterObjects,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
    Unrepresented,
)
from ztensor.formats.base import RAW
from ztensor.formats.dcp.beside import Beside
from ztensor.formats.dcp.records import (
    Record,
    Strided,
    is_safetensors,
    logical_shape,
    read_tensor,
    require_same,
)
from ztensor.formats.dcp.table import NO_PLACE, Form, Place, Table, place_of
from ztensor.formats.dcp.values import LaterAttributes
from ztensor.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


class Checkpoint:
    """A checkpoint of which the table has been read.

    Args:
        source: `.metadata`, or the folder; open as long as the checkpoint.
        beside: finds and opens the other files.
        table: the table.
        left: the loss report of the table.
        limits: safety caps.
    """

    def __init__(
        self, source: Source, beside: Beside, table: Table, left: Tally, limits: Limits
    ) -> None:
        self._table = table
        self._left = left
        self._limits = limits
        self._beside = beside
        lazy = beside.files(table.files)
        self._lengths = [length for length, _ in lazy]
        files = [file for _, file in lazy]
        self._source = OpenFiles.behind(source, files)
        self._starts = [start for start, _ in self._source.parts][1:]
        self._require_apart()
        self._encodings: dict[str, Encoding] = dict(RAW)
        self._located: dict[int, Component] = {}
        self._assembler = Assembler(
            table.chunks,
            self._source,
            limits,
            verify=None,
            starts=self._starts,
            locate=self._locate,
            encodings=self._encodings,
        )

    def projection(self, attributes: Mapping[str, object] | None = None) -> Projection:
        """Return the manifest, encodings and loss report for the reader.

        Args:
            attributes: attributes of the file; by default the values of the table.
        """
        table = self._table
        values = LaterAttributes(table.values, self._stored, self._source, self._limits)

        def account() -> list[Unrepresented]:
            whole = Tally()
            whole.extend(self._left())
            whole.extend(values.left())
            self._tally_files(whole)
            return whole()

        manifest = Manifest(
            table.version,
            LaterObjects(table.chunks.names, self._object),
            (values if table.values else None) if attributes is None else (attributes or None),
        )
        return Projection(
            manifest,
            with_divided(self._assembler),
            account,
            source=self._source,
            faults=values.faults,
        )

    # --- Files ------------------------------------------------------------------------------

    def _require_apart(self) -> None:
        """Raise if chunks and values claim more bytes of a file than it has.

        Otherwise a small file could hold a huge number of tensors, all of the same bytes.

        Raises:
            FormatError: they claim more.
        """
        chunks = self._table.chunks
        values = [place[:3] for place in self._table.values.values() if place is not None]
        places = np.stack((chunks.file, chunks.at, chunks.length), axis=1)
        places = places[chunks.file != NO_PLACE]
        places = np.concatenate((places, np.array(values, np.int64).reshape(-1, 3)))
        lengths = np.array([length or 0 for length in self._lengths], np.int64)
        room = lengths[places[:, 0]]
        inside = places[(places[:, 1] <= room) & (places[:, 2] <= room - places[:, 1])]
        taken = np.bincount(inside[:, 0], weights=inside[:, 2], minlength=len(lengths))
        if (taken > lengths).any():
            file = int(np.flatnonzero(taken > lengths)[0])
            raise FormatError(
                "chunks and values of a checkpoint overlap in their file",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"at most {lengths[file]} bytes",
                found=f"{taken[file]:.0f} in {describe(self._table.files[file].name, 200)}",
            )

    def _stored(self, place: Place) -> tuple[int, int, int]:
        """Return the start of a place in the joined source, its length, and the end of its file.

        Raises:
            FormatError: the file is missing or too short.
            UnsupportedError: an extension of the writer changed the bytes.
        """
        name = describe(self._table.files[place.file].name, 200)
        length = self._lengths[place.file]
        if length is None:
            raise ContainerError(
                "a file of the checkpoint is not in the folder",
                reason=Reason.SHARD_FILE,
                expected=name,
                found="none",
            )
        if place.at + place.length > length:
            raise FormatError(
                "a file of the checkpoint is shorter than .metadata says",
                reason=Reason.TRUNCATED,
                expected=f"{place.at + place.length} bytes",
                found=f"{length} in {name}",
            )
        if place.form is Form.CHANGED:
            raise UnsupportedError(
                "the bytes went through an extension of the writer, as one that compresses; load "
                "the checkpoint with torch",
                reason=Reason.UNKNOWN_ENCODING,
            )
        start = self._starts[place.file]
        return start + place.at, place.length, start + length

    def _tally_files(self, left: Tally) -> None:
        """Report files that `.metadata` does not name, and bytes of files that it does not name."""
        files = self._table.files
        named = {file.parts[0] for file in files}
        for name, size in sorted(self._beside.lengths.items()):
            if name not in named and not name.endswith(".metadata"):
                left.add("file that .metadata does not name", name, nbytes=size)
        for file, start, length in zip(files, self._starts, self._lengths, strict=True):
            unnamed = (length or 0) - file.taken
            # The header of a safetensors file describes all its bytes.
            if unnamed > 0 and not is_safetensors(
                self._source, start + file.last, start + (length or 0)
            ):
                left.add("bytes that .metadata does not name", file.name, nbytes=unnamed)

    # --- Tensors ----------------------------------------------------------------------------

    def _object(self, name: str) -> TensorObject:
        chunks = self._table.chunks
        number = chunks.tensor_of[name]
        element, size = self._table.elements[number], chunks.shapes[number]
        shape = logical_shape(element, size)
        if not element.width or 0 in shape:
            nowhere = Component(element.dtype, 0, 0, element.type)
            return TensorObject(shape, "dense", {"data": nowhere})
        rows = chunks.rows(number)
        if len(rows) == 1 and (chunk := chunks.chunk(rows.start)).sizes == size:
            try:
                whole = self._whole(chunk)
            except ZTensorError:
                whole = None  # reading the tensor reports the error
            if whole is not None:
                return whole
        data = self._assembler.divided(number)
        data = data._replace(length=data.decoded_length or 0, type=element.type)
        return TensorObject(shape, "dense", {"data": data})

    def _whole(self, chunk: Chunk) -> TensorObject | None:
        """Return the tensor of one chunk; None if its elements are not in C's order."""
        element = self._table.elements[chunk.tensor]
        shape = logical_shape(element, chunk.sizes)
        if chunk.encoding == Form.ELEMENTS.name:
            elements = self._locate(chunk)._replace(type=element.type)
            return TensorObject(shape, "dense", {"data": elements})
        record = self._record(chunk)
        tensor, data = record.tensor, record.tensor.components.get("data")
        if tensor.format != "dense" or data is None or len(tensor.components) > 1:
            if tensor.shape != chunk.sizes:
                require_same(tensor, element, chunk.sizes)
            return self._with_encodings(chunk.tensor, record)
        require_same(tensor, element, chunk.sizes)
        if data.encoding == "raw":
            return TensorObject(tensor.shape, "dense", {"data": record.summed(data)})
        if record.strides(data, chunk.sizes) is None:
            return self._with_encodings(chunk.tensor, record)
        return None

    def _with_encodings(self, number: int, record: Record) -> TensorObject:
        """Return the tensor of a record; its encodings are registered under unique names."""
        components = {}
        for role, one in record.tensor.components.items():
            word = one.encoding
            if word not in RAW:
                word = f"tensor-{number}-{role}"
                self._encodings[word] = record.encodings[one.encoding]
            components[role] = one._replace(encoding=word)
        return record.tensor._replace(components=components)

    def _record(self, chunk: Chunk) -> Record:
        place = place_of(chunk)
        if place is None:
            raise FormatError(
                ".metadata does not say where a chunk is", reason=Reason.COMPONENT_MISSING
            )
        name = self._table.chunks.names[chunk.tensor]
        return read_tensor(self._source, name, *self._stored(place), self._limits)

    def _locate(self, chunk: Chunk) -> Component:
        """Return the dense component of a chunk; the CRC-32 of its zip member is the digest.

        Raises:
            ZTensorError: the chunk has no place, its file is missing, or its record is damaged or
                of another tensor.
        """
        if chunk.row not in self._located:
            self._located[chunk.row] = self._component(chunk)
        return self._located[chunk.row]

    def _component(self, chunk: Chunk) -> Component:
        element, place = self._table.elements[chunk.tensor], place_of(chunk)
        kind = self._table.chunks.kind_of(chunk.tensor)
        if place is not None and place.form is Form.ELEMENTS:
            at, length, _ = self._stored(place)
            return Component(kind.dtype, at, length, kind.type)
        record = self._record(chunk)
        data = require_same(record.tensor, element, chunk.sizes)._replace(type=kind.type)
        if data.encoding == "raw" and data.byte_order != "big":
            return record.summed(data)
        strides = record.strides(data, chunk.sizes)
        if strides is None:
            raise UnsupportedError(
                "a chunk is stored in a form that is read only if it is the whole tensor; "
                "load the checkpoint with torch",
                reason=Reason.UNKNOWN_ENCODING,
            )
        word = f"chunk-{chunk.row}"
        self._encodings[word] = Strided(word, element.width, chunk.sizes, strides)
        nbytes = math.prod(chunk.sizes) * element.width
        return record.summed(data._replace(encoding=word, decoded_length=nbytes))
