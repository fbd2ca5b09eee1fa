"""`Writer`: objects in, one file out.

Blobs go out as they are given, each at the next multiple of the version's alignment; the manifest
follows at `finish`. Nothing seeks, so a target may be a pipe, and nothing needs to know how many
objects will come.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Literal

import numpy as np

import ztensor
from ztensor.container import LATEST, emitter_of
from ztensor.errors import UsageError, ZTensorError, describe
from ztensor.interactive import Hinted
from ztensor.layout.elements import blocks, is_stored_as_is, require_written_bools
from ztensor.model.dtype import decoded_size
from ztensor.model.formats import require_ours
from ztensor.model.manifest import Component, TensorObject
from ztensor.model.rules import align
from ztensor.model.showing import counted
from ztensor.reading.reader import ObjectReader
from ztensor.source.paths import is_path, path_text
from ztensor.source.sink import Durable, sink_of
from ztensor.writing.blob import BlobOptions, pad, write_component
from ztensor.writing.canonical import require_canonical
from ztensor.writing.output import Output
from ztensor.writing.planning import (
    attributes_given,
    attributes_of,
    plan_of,
    plan_of_stream,
    stored_value,
)
from ztensor.writing.stream import ObjectSink, blob_of_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Unpack

    import numpy.typing as npt

    from ztensor.edit.editor import Editor
    from ztensor.layout.base import Array
    from ztensor.reading.objects import Objects
    from ztensor.source.sink import Sink
    from ztensor.typing import EditOptions, ElementType, Path, Target, TensorLike, TorchTensor


# Of shorter arrays the bytes take less time to write than the steps of any other object.
_SMALL_BYTES = 32 << 10


class Writer(Output, Hinted):
    """Writes a zTensor file.

    The file appears when it is finished; until then, and after an exception or `abort`, what was
    at the path is untouched. As a context manager it finishes at the end and aborts on an
    exception.

    Args:
        path: a path, or a file object open for writing bytes, which need not be seekable; or a
            sink, which decides where bytes go.
        version: `"1.2.0"`, `"1.1.0"`, `"0.1.0"` or `"2.1"`; `"2"` and `"2.0"` are `"2.1"`.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
            Components that zstd makes no smaller are stored raw.
        checksum: `"crc32c"`, or of 2.1 `"xxh3"`; `"sha256"`; or None. True is the first of those
            the version has.
        attributes: the file's own key-value pairs.
        durable: True flushes file and folder to disk before `finish` returns; "auto" does so when
            an existing file is replaced; False leaves it to the system.
        threads: how many compress and hash beside the writing; by default as many as there are
            cores, four at most, or what `ZTENSOR_NUM_THREADS` says.
        format: `"zt"` writes a zTensor file also where the path has another format's suffix.
        chunk_rows: of compressed tensors, how many rows (indices of the first axis) are decoded
            together, up to 16 MiB: more make smaller files, fewer make reading rows cheaper. By
            default as many as 64 KiB hold.
        metadata: another name of `attributes`, which `save_file` has; only one of them.
        alignment: of 2.1: what blobs begin at multiples of, a power of two from 4096 to 65536,
            which is the default. Less suits many small tensors.
        canonical: of 2.1: True writes the canonical form, in which the same tensors and attributes
            give the same bytes: raw, equal bytes once, xxh3. Objects are then written in the order
            of their names' bytes, and not streamed.

    Raises:
        ArgumentValueError: an argument has an unknown value, or the path another format's suffix.
        NotRepresentableError: the version cannot hold the attributes.
        SourceError: the target cannot be created.
    """

    def __init__(
        self,
        path: Target | Sink,
        *,
        version: str = LATEST,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        attributes: Mapping[str, object] | None = None,
        durable: Durable = "auto",
        threads: int | None = None,
        format: Literal["zt"] | None = None,
        chunk_rows: int | None = None,
        metadata: Mapping[str, object] | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        given = attributes_of(attributes_given(metadata, attributes))
        if is_path(path):
            require_ours(path_text(path), format)
        super().__init__(
            emitter_of(version),
            compression=compression,
            checksum=checksum,
            threads=threads,
            chunk_rows=chunk_rows,
            alignment=alignment,
            canonical=canonical,
        )
        if given is not None:
            self.draft.set_attributes(given)
        self._begin(sink_of(path, durable=durable))

    @classmethod
    def append(cls, path: Path, **options: Unpack[EditOptions]) -> Editor:
        """Return a writer that adds objects to a finished file; see `ztensor.edit.Editor`.

        Raises:
            FormatError: the file is damaged; the message says how to repair it.
            SourceError: it cannot be opened for writing, or another process is writing it.
        """
        return ztensor.Editor(path, **options)  # by the table of public names: it lies above

    # --- Objects ----------------------------------------------------------------------------

    def write(
        self,
        name: str,
        data: TensorLike,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write one object.

        The data is stored before this returns and may be changed or dropped then.

        Args:
            name: the object's name; any text, each once.
            data: a `Tensor`, an array (also non-contiguous, byte-swapped, 0-d or empty), or a value
                of torch, JAX or SciPy, dense or sparse, on any device.
            attributes: key-value pairs of the object; a tensor's own by default.
            compress: as the writer's `compression`, for this object; None takes the writer's.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        plain = None
        if (
            type(data) is np.ndarray
            and attributes is None
            and compress is None
            and checksum is None
            and chunk_rows is None
        ):
            plain = data
            kind = self._kinds.get((data.shape, data.dtype))
            if kind is not None:
                self._write_alike(name, data, kind)
                return
        self._require_ready(name)
        try:
            plan, arrays = self._plan(data, attributes)
            options = self._own_options(compress, checksum, chunk_rows)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        try:
            components = {
                role: self._write_component(name, plan, role, arrays[role], options)
                for role in plan.components
            }
        except BaseException:
            self.abort()
            raise
        # Attributes are written at the end; the caller may change its dict before.
        own = plan.attributes and copy.deepcopy(plan.attributes)
        written = TensorObject(plan.shape, plan.format, components, own)
        self.draft.objects[name] = written
        if plain is not None and self._has_kind(plain):
            self._digest = None if options.algorithm is None else options.algorithm.whole()
            self._kinds[plain.shape, plain.dtype] = len(self.draft.objects.kinds)
            self.draft.objects.kinds.append(written)

    def _plan(
        self, data: Any, attributes: Mapping[str, object] | None
    ) -> tuple[TensorObject, Mapping[str, Array]]:
        """Return an object as the manifest will have it, and the array of each component.

        Raises:
            ZTensorError: it cannot be stored.
        """
        value = data if type(data) is np.ndarray else stored_value(data)
        plan, arrays = plan_of(value, attributes, self._options.form)
        self.draft.emitter.require_object(plan)
        if self._options.form.is_exact:
            require_written_bools(arrays)
        return plan, arrays

    def _has_kind(self, array: Array) -> bool:
        """Return whether arrays of this shape and element type are written in fewer steps."""
        return (
            array.nbytes <= _SMALL_BYTES
            and self._options.compression is None
            and self._canonical is None
            and is_stored_as_is(array.dtype)
            and not (self._options.form.is_exact and array.dtype.kind == "b")  # looked at
        )

    def _write_alike(self, name: str, array: Array, kind: int) -> None:
        """Write an array of the shape and element type of one before, as that was written."""
        self._require_ready(name)
        sink = self._sink
        try:
            position = sink.position
            offset = align(position, self._options.form.alignment)
            if offset > position:
                pad(sink, offset - position)
            data = array.tobytes()
            sink.write(data)
            digest = None if self._digest is None else self._digest(data)
        except BaseException:
            self.abort()
            raise
        self.draft.objects.entries[name] = kind, offset, digest

    def _own_options(
        self,
        compress: bool | int | str | None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None,  # noqa: FBT001
        chunk_rows: int | None,
    ) -> BlobOptions:
        """Return the options of an object: its own, and the writer's for those that are None."""
        options = self._options.with_own(compress, checksum, chunk_rows)
        if self._canonical is not None:
            require_canonical(self.draft.version, options)
        return options

    def _write_component(
        self, name: str, plan: TensorObject, role: str, array: Array, options: BlobOptions
    ) -> Component:
        component = plan.components[role]
        if self._canonical is not None:
            return self._canonical.write(self._sink, name, component, lambda: blocks(array))
        nbytes = decoded_size(component.dtype, component.type, (array.size,))
        return write_component(
            self._sink,
            plan,
            role,
            lambda: blocks(array),
            array.nbytes if nbytes is None else nbytes,
            options,
            self._crew,
        )

    def write_numpy(
        self,
        name: str,
        data: npt.ArrayLike,
        *,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a dense object from an array; see `write`."""
        self.write(name, data, compress=compress, checksum=checksum, chunk_rows=chunk_rows)

    def write_torch(
        self,
        name: str,
        data: TorchTensor,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a torch tensor, dense or sparse, from any device; see `write`."""
        self.write(
            name,
            data,
            attributes=attributes,
            compress=compress,
            checksum=checksum,
            chunk_rows=chunk_rows,
        )

    def add(
        self,
        name: str,
        data: npt.ArrayLike,
        compress: bool | int | str | None = None,  # noqa: FBT001  # positional in the 1.2 API
        checksum: str | bool | None = None,  # noqa: FBT001
        *,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a dense object from an array; see `write`."""
        self.write(name, data, compress=compress, checksum=checksum, chunk_rows=chunk_rows)

    def copy(
        self,
        name: str,
        reader: ObjectReader | Objects,
        from_name: str | None = None,
        *,
        compress: bool | int | str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Write an object of another file as it is stored there, checked but not decoded.

        Encoding, digest, attributes and unknown fields are kept; objects that shared their bytes
        share them again. Only what the version spells otherwise is decoded and written anew, piece
        by piece: big-endian data and bools of 0.1, indices that are not u64, what only another
        format knows to decode.

        Args:
            name: the object's name here.
            reader: an open reader of the other file, or its `objects`.
            from_name: its name there, by default the same.
            compress: as for `write`, to have it encoded anew; None keeps how it is stored.
            progress: called with the bytes of each piece that was written.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            ObjectNotFoundError: the reader has no such object.
            DigestMismatchError: the stored bytes are damaged. The writer is then aborted.
            SourceError: bytes could not be read or stored. The writer is then aborted.
        """
        self._require_ready(name)
        source_name = name if from_name is None else from_name
        is_canonical = self._canonical is not None
        try:
            objects = reader.objects if isinstance(reader, ObjectReader) else reader
            file = objects.part(source_name)
            options = None if compress is None else self._own_options(compress, None, None)
            self.copier.narrow(file)
            plan, is_stored = self.copier.plan(file, source_name, is_decoded=is_canonical)
            self.draft.emitter.require_object(plan)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        there = file.object(source_name).components

        def copied(role: str) -> Component:
            if self._canonical is not None:
                pieces = self.copier.pieces(file, source_name, role, progress)
                return self._canonical.write(self._sink, name, plan.components[role], pieces)
            shard = there[role].shard
            if shard is not None and shard.name in self.draft.shards:
                return there[role]
            return self.copier.component(
                file, source_name, role, plan, options, progress, is_stored=is_stored
            )

        try:
            components = {role: copied(role) for role in sorted(plan.components)}
        except BaseException as error:
            self.abort()
            if isinstance(error, ZTensorError):
                error.locate(file=file.name, object_name=source_name)
            raise
        self.draft.objects[name] = dataclasses.replace(plan, components=components)

    def share(self, name: str, of: str) -> None:
        """Write an object that has the bytes of one written before; only its name is new.

        Raises:
            UsageError: the name was written before, or `of` was not, or the writer is finished.
        """
        self._require_ready(name)
        entry = self.draft.objects.entries.get(of)
        if entry is None:
            raise UsageError(
                "no object of that name was written",
                file=self._sink.name,
                object_name=name,
                found=describe(of),
            )
        self.draft.objects.entries[name] = entry
        if self._canonical is not None:
            self._canonical.note(name)
        self._shared[name] = self._shared.get(of, of)

    @property
    def shared(self) -> dict[str, str]:
        """Return which names were written without bytes of their own, and whose they have."""
        return dict(self._shared)

    def stream(
        self,
        name: str,
        shape: Sequence[int],
        dtype: ElementType,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> ObjectSink:
        """Return a sink for one dense object that takes its elements in pieces.

        For tensors larger than memory: `with writer.stream("w", (10**6, 512), "float32") as sink:`
        and then `sink.write(rows)`, from the first row to the last. Nothing else can be written
        until it is closed.

        Args:
            name: the object's name.
            shape: its shape.
            dtype: element type: a long or short name, a logical type's name, a NumPy type or a
                `torch.dtype`.
            attributes: key-value pairs of the object.
            compress: as the writer's `compression`, for this object; None takes the writer's. An
                object of more than 4 MiB stays compressed where that saves nothing: only its end
                would tell.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it.
            UsageError: the name was written before, or the writer is finished.
        """
        self._require_ready(name)
        try:
            if self._canonical is not None:
                raise UsageError(
                    "a canonical file has equal bytes once, which the end of a stream would tell",
                    expected="objects written as a whole",
                )
            plan, element = plan_of_stream(shape, dtype, attributes)
            self.draft.emitter.require_object(plan)
            options = self._own_options(compress, checksum, chunk_rows)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        # Attributes are written at the end; the caller may change its dict before.
        plan = dataclasses.replace(plan, attributes=copy.deepcopy(plan.attributes))
        blob = blob_of_stream(self._sink, plan, options, self._crew)
        self._stream = ObjectSink(self, name, plan, element, blob, self._end_stream)
        return self._stream

    def __repr__(self) -> str:
        """Return target, version and state."""
        return (
            f"<ztensor.Writer {describe(self._sink.name)} version {self.draft.emitter.version}, "
            f"{counted(len(self.draft.objects), 'object')}, {self.state}>"
        )
