"""A checkpoint whose table was read, as a manifest: tensors as objects, values as attributes."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

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
from ztensor.formats.dcp.assembling import InBoxes, Lying
from ztensor.formats.dcp.beside import Beside
from ztensor.formats.dcp.records import (
    Record,
    is_safetensors,
    logical_shape,
    read_tensor,
    require_same,
)
from ztensor.formats.dcp.table import NO_PLACE, Entry, Form, Place, Table
from ztensor.formats.dcp.values import LaterAttributes
from ztensor.formats.pt.encodings import Gathered
from ztensor.formats.zip import zip_crc32
from ztensor.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


class Checkpoint:
    """A checkpoint whose table was read.

    Args:
        source: what is open as long as it is read: `.metadata`, or the folder.
        beside: what finds the other files.
        table: what it says.
        left: what of it is not given.
        limits: safety caps.
    """

    def __init__(
        self, source: Source, beside: Beside, table: Table, left: Tally, limits: Limits
    ) -> None:
        self._table = table
        self._left = left
        self._limits = limits
        self._beside = beside
        found = beside.files(table.files)
        self._lengths = [length for length, _ in found]
        files = [file for _, file in found]
        self._source = OpenFiles.behind(source, files)
        self._starts = [start for start, _ in self._source.parts][1:]
        self._require_apart()
        self._encodings: dict[str, Encoding] = dict(RAW)

    def projection(self, attributes: Mapping[str, object] | None = None) -> Projection:
        """Return it as the reader takes it.

        Args:
            attributes: those of the whole; by default the values of the table.
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
            LaterObjects(table.tensors, self._object),
            (values if table.values else None) if attributes is None else (attributes or None),
        )
        return Projection(
            manifest, self._encodings, account, source=self._source, faults=values.faults
        )

    # --- Files ------------------------------------------------------------------------------

    def _require_apart(self) -> None:
        """Raise where what is said to lie in a file is more than the file.

        Else few bytes could be very many tensors and values, and reading all of them take for ever.

        Raises:
            FormatError: so it is.
        """
        values = [place for place in self._table.values.values() if place is not None]
        places = self._table.places[self._table.places[:, 0] != NO_PLACE, :3]
        places = np.concatenate((places, np.array(values, np.int64).reshape(-1, 4)[:, :3]))
        lengths = np.array([length or 0 for length in self._lengths], np.int64)
        there = lengths[places[:, 0]]
        inside = (places[:, 1] <= there) & (places[:, 2] <= there - places[:, 1])
        some = places[inside]
        taken = np.bincount(some[:, 0], weights=some[:, 2], minlength=len(lengths))
        if (taken > lengths).any():
            file = int(np.flatnonzero(taken > lengths)[0])
            raise FormatError(
                "chunks and values of a checkpoint lie over one another",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"at most {lengths[file]} bytes",
                found=f"{taken[file]:.0f} in {describe(self._table.files[file].name, 200)}",
            )

    def _stored(self, place: Place) -> tuple[int, int, int]:
        """Return where in the whole something begins, its length, and where its file ends.

        Raises:
            FormatError: the file is not there, or is too short.
            UnsupportedError: it went through an extension.
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
                "a file of the checkpoint is shorter than .metadata says; it was cut",
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
        """Count files of the folder that `.metadata` does not name, and bytes of those it does."""
        files = self._table.files
        named = {file.parts[0] for file in files}
        for name, size in sorted(self._beside.lengths.items()):
            if name not in named and not name.endswith(".metadata"):
                left.add("file that .metadata does not name", name, nbytes=size)
        for file, start, length in zip(files, self._starts, self._lengths, strict=True):
            unnamed = (length or 0) - file.taken
            # A file of safetensors has a header that tells of its bytes.
            if unnamed > 0 and not is_safetensors(
                self._source, start + file.last, start + (length or 0)
            ):
                left.add("bytes that .metadata does not name", file.name, nbytes=unnamed)

    # --- Tensors ----------------------------------------------------------------------------

    def _object(self, name: str) -> TensorObject:
        entry = self._table.entry(name)
        element, shape = entry.element, logical_shape(entry.element, entry.size)
        if not element.width or 0 in shape:
            nowhere = Component(element.dtype, 0, 0, element.type)
            return TensorObject(shape, "dense", {"data": nowhere})
        if entry.sizes.tolist() == [list(entry.size)]:
            try:
                found = self._whole(name, entry)
            except ZTensorError:
                found = None  # who reads it is told why
            if found is not None:
                return found
        word = f"divided-{entry.number}"
        self._encodings[word] = InBoxes(
            word,
            entry,
            self._source,
            functools.partial(self._lying, name, entry),
            functools.partial(self._name, entry),
        )
        nbytes = math.prod(entry.size) * element.width
        component = Component(
            element.dtype,
            self._source.size + entry.number,  # no bytes are there
            nbytes,
            element.type,
            encoding=word,
            decoded_length=nbytes,
        )
        return TensorObject(shape, "dense", {"data": component})

    def _whole(self, name: str, entry: Entry) -> TensorObject | None:
        """Return a tensor that is one box; None where that has to be put in order."""
        place = entry.place(0)
        if place is not None and place.form is Form.ELEMENTS:
            where = self._lying(name, entry, 0)
            found = Component(entry.element.dtype, where.offset, where.nbytes, entry.element.type)
            return TensorObject(logical_shape(entry.element, entry.size), "dense", {"data": found})
        record = self._record(name, entry, 0)
        tensor, data = record.tensor, record.tensor.components.get("data")
        if tensor.format != "dense" or data is None or len(tensor.components) > 1:
            if tensor.shape != entry.size:
                require_same(tensor, entry.element, entry.size)
            return self._with_encodings(entry.number, record)
        require_same(tensor, entry.element, entry.size)
        if data.encoding == "raw":
            digest = None if record.crc is None else zip_crc32(b"", record.crc)
            return TensorObject(tensor.shape, "dense", {"data": data._replace(digest=digest)})
        if _strides(record, data, entry.size, entry.element.width) is None:
            return self._with_encodings(entry.number, record)
        return None

    def _with_encodings(self, number: int, record: Record) -> TensorObject:
        """Return the tensor of a record, its encodings under names of their own."""
        components = {}
        for role, one in record.tensor.components.items():
            word = one.encoding
            if word not in RAW:
                word = f"tensor-{number}-{role}"
                self._encodings[word] = record.encodings[one.encoding]
            components[role] = one._replace(encoding=word)
        return record.tensor._replace(components=components)

    def _name(self, entry: Entry, box: int) -> str:
        place = entry.place(box)
        file = "" if place is None else self._table.files[place.file].name
        where = f" of {describe(file, 200)}" if file else ""
        return f"chunk at {entry.offsets[box].tolist()}{where}"

    def _record(self, name: str, entry: Entry, box: int) -> Record:
        place = entry.place(box)
        if place is None:
            raise FormatError(
                ".metadata does not say where a chunk lies",
                reason=Reason.COMPONENT_MISSING,
                found=self._name(entry, box),
            )
        return read_tensor(self._source, name, *self._stored(place), self._limits)

    def _lying(self, name: str, entry: Entry, box: int) -> Lying:
        try:
            sizes = tuple(entry.sizes[box].tolist())
            place = entry.place(box)
            if place is not None and place.form is Form.ELEMENTS:
                at, length, _ = self._stored(place)
                return Lying(at, _c_strides(sizes, entry.element.width), length, None)
            record = self._record(name, entry, box)
            data = require_same(record.tensor, entry.element, sizes)
            strides = _strides(record, data, sizes, entry.element.width)
            if strides is None:
                raise UnsupportedError(
                    "a chunk is stored in a form that is read only where it is the whole tensor; "
                    "load the checkpoint with torch",
                    reason=Reason.UNKNOWN_ENCODING,
                )
        except ZTensorError as error:
            where = self._name(entry, box)
            error.found = f"{error.found}, {where}" if error.found else where
            raise
        return Lying(data.offset, strides, data.length, record.crc)


def _strides(
    record: Record, data: Component, sizes: tuple[int, ...], width: int
) -> tuple[int, ...] | None:
    """Return the bytes between neighbours of a record's elements; None where more is to be done."""
    if data.byte_order == "big":
        return None
    if data.encoding == "raw":
        return _c_strides(sizes, width)
    encoding = record.encodings.get(data.encoding)
    if not isinstance(encoding, Gathered):
        return None
    geometry = encoding.geometry
    if geometry.flags or geometry.stream is not None:
        return None
    strides = iter(geometry.stride)
    return tuple(0 if size == 1 else next(strides) for size in sizes)


def _c_strides(sizes: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return the bytes between neighbours of an array in C's order."""
    strides: list[int] = []
    for size in reversed(sizes):
        strides.append(width)
        width *= size
    return tuple(reversed(strides))
