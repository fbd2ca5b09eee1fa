"""`Writer`: objects in, one file out.

Blobs go out as they are given, each at the next multiple of the version's alignment; the manifest
follows at `finish`. Nothing seeks, so a target may be a pipe, and nothing needs to know how many
objects will come.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

import numpy as np

from ztensor.aliases import WriterAliases
from ztensor.errors import UsageError, ZTensorError, describe
from ztensor.interactive import Hinted
from ztensor.io.formats import require_ours
from ztensor.io.reading.reader import ObjectReader
from ztensor.io.source.paths import is_path, path_text
from ztensor.io.source.sink import sink_of
from ztensor.io.writing.blob import BlobOptions, pad, write_component
from ztensor.io.writing.canonical import require_canonical
from ztensor.io.writing.output import Output
from ztensor.io.writing.planning import (
    attributes_of,
    plan_of,
    plan_of_stream,
    stored_value,
)
from ztensor.io.writing.stream import ObjectSink, blob_of_stream
from ztensor.options import ObjectOptions, WriteOptions, require_options
from ztensor.showing import counted
from ztensor.spec.container import LATEST, emitter_of
from ztensor.spec.layout.elements import blocks, is_stored_as_is, require_written_bools
from ztensor.spec.model.dtype import decoded_size
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.model.rules import align

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Unpack

    from ztensor.accepted import Durable, ElementType, Target, TensorLike
    from ztensor.io.reading.objects import Objects
    from ztensor.io.source.base import Sink
    from ztensor.spec.layout.base import Array


# Of shorter arrays the bytes take less time to write than the steps of any other object.
_SMALL_BYTES = 32 << 10


class Writer(Output, Hinted, WriterAliases):
    """Writes a zTensor file.

    The file appears when it is finished; until then, and after an exception or `abort`, what was
    at the path is untouched. As a context manager it finishes at the end and aborts on an
    exception.

    Args:
        path: a path, or a file object open for writing bytes, which need not be seekable; or a
            sink, which decides where bytes go.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
            Components that zstd makes no smaller are stored raw.
        attributes: the file's own key-value pairs.
        durable: see `ztensor.typing.SaveOptions`.
        threads: how many compress and hash beside the writing; see `ztensor.typing.LoadOptions`.
        format: `"zt"` writes a zTensor file also where the path has another format's suffix.
        options: see `ztensor.typing.WriteOptions`.

    Raises:
        ArgumentValueError: an argument has an unknown value, or the path another format's suffix.
        NotRepresentableError: the version cannot hold the attributes.
        SourceError: the target cannot be created.
    """

    def __init__(
        self,
        path: Target | Sink,
        *,
        compression: bool | int | str = False,
        attributes: Mapping[str, object] | None = None,
        durable: Durable = "auto",
        threads: int | None = None,
        format: Literal["zt"] | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        require_options("Writer", options, WriteOptions)
        given = attributes_of(attributes)
        if is_path(path):
            require_ours(path_text(path), format)
        self._prepare(compression, threads, **options)
        if given is not None:
            self.draft.set_attributes(given)
        self._begin(sink_of(path, durable=durable))

    def _prepare(
        self,
        compression: bool | int | str,  # noqa: FBT001  # as the option has it
        threads: int | None,
        *,
        version: str = LATEST,
        checksum: str | bool | None = True,
        chunk_rows: int | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        """Look at the options of a new file; see `WriteOptions`."""
        super().__init__(
            emitter_of(version),
            compression=compression,
            checksum=checksum,
            threads=threads,
            chunk_rows=chunk_rows,
            alignment=alignment,
            canonical=canonical,
        )

    # --- Objects ----------------------------------------------------------------------------

    def write(
        self,
        name: str,
        data: TensorLike,
        **options: Unpack[ObjectOptions],
    ) -> None:
        """Write one object.

        The data is stored before this returns and may be changed or dropped then.

        Args:
            name: the object's name; any text, each once.
            data: a `Tensor`, an array (also non-contiguous, byte-swapped, 0-d or empty), or a value
                of torch, JAX or SciPy, dense or sparse, on any device.
            options: see `ztensor.typing.ObjectOptions`.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        plain = None
        if type(data) is np.ndarray and not options:
            plain = data
            kind = self._kinds.get((data.shape, data.dtype))
            if kind is not None:
                self._write_alike(name, data, kind)
                return
        require_options("write", options, ObjectOptions)
        self._require_ready(name)
        try:
            plan, arrays = self._plan(data, options.get("attributes"))
            how = self._own_options(options)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        try:
            components = {
                role: self._write_component(name, plan, role, arrays[role], how)
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
            self._digest = None if how.algorithm is None else how.algorithm.whole()
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
        self.draft.objects.data[name] = kind, offset, digest

    def _own_options(
        self,
        own: ObjectOptions,
    ) -> BlobOptions:
        """Return the options of an object: its own, and the writer's for those that are None."""
        options = self._options.with_own(
            own.get("compress"), own.get("checksum"), own.get("chunk_rows")
        )
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
            options = None if compress is None else self._own_options({"compress": compress})
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
        self.draft.objects[name] = plan._replace(components=components)

    def share(self, name: str, of: str) -> None:
        """Write an object that has the bytes of one written before; only its name is new.

        Raises:
            UsageError: the name was written before, or `of` was not, or the writer is finished.
        """
        self._require_ready(name)
        entry = self.draft.objects.data.get(of)
        if entry is None:
            raise UsageError(
                "no object of that name was written",
                file=self._sink.name,
                object_name=name,
                found=describe(of),
            )
        self.draft.objects.data[name] = entry
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
        **options: Unpack[ObjectOptions],
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
            options: see `ztensor.typing.ObjectOptions`. An object of more than 4 MiB stays
                compressed where that saves nothing: only its end would tell.

        Raises:
            NotRepresentableError: the version cannot hold it.
            UsageError: the name was written before, or the writer is finished.
        """
        require_options("stream", options, ObjectOptions)
        self._require_ready(name)
        try:
            if self._canonical is not None:
                raise UsageError(
                    "a canonical file has equal bytes once, which the end of a stream would tell",
                    expected="objects written as a whole",
                )
            plan, element = plan_of_stream(shape, dtype, options.get("attributes"))
            self.draft.emitter.require_object(plan)
            how = self._own_options(options)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        # Attributes are written at the end; the caller may change its dict before.
        plan = plan._replace(attributes=copy.deepcopy(plan.attributes))
        blob = blob_of_stream(self._sink, plan, how, self._crew)
        self._streamed = name
        return ObjectSink(self, name, plan, element, blob, self._end_stream)

    def __repr__(self) -> str:
        """Return target, version and state."""
        return (
            f"<ztensor.Writer {describe(self._sink.name)} version {self.draft.emitter.version}, "
            f"{counted(len(self.draft.objects), 'object')}, {self.state}>"
        )
