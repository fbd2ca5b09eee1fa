"""The file that is being written: objects in, one file out; what `Writer` is the face of.

Blobs go out as they are given, each at the next multiple of 64; the manifest follows at `finish`.
Nothing seeks, so a target may be a pipe, and nothing needs to know how many objects will come.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor.digest import require_writable
from ztensor.encoding import ENCODINGS
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    NotRepresentableError,
    Reason,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.frameworks import adapter_of
from ztensor.layout import LAYOUTS
from ztensor.layout.elements import blocks, is_stored_as_is, require_written_bools, spell
from ztensor.model.manifest import Component, Manifest, TensorObject, WrittenObjects
from ztensor.reading.portable import portable_object, stored_object
from ztensor.tensor import Tensor, no_tensor, shape_of
from ztensor.threads import thread_count
from ztensor.threads.pool import Crew
from ztensor.writing.blob import (
    MOST_HELD_BYTES,
    SMALL_BYTES,
    BlobWriter,
    HeldBlob,
    compression_of,
    write_blob,
    write_small,
)
from ztensor.writing.canonical import CanonicalBlobs, require_canonical, require_nfc
from ztensor.writing.compressing import Compression
from ztensor.writing.copying import Copier
from ztensor.writing.frames import frames_of, require_chunk_rows
from ztensor.writing.planning import (
    aligned,
    attributes_of,
    element_type,
    plan_of,
    require_once,
    with_indices,
)
from ztensor.writing.stream import ObjectSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from ztensor.container import Emitter
    from ztensor.digest import Algorithm
    from ztensor.layout.base import Array
    from ztensor.model.manifest import Shard
    from ztensor.reading.file import FileObjects
    from ztensor.reading.objects import Objects
    from ztensor.source.appending import AppendSink
    from ztensor.source.sink import Sink

_MOST_WAITING_BYTES = 256 << 20


class Output:
    """A file that is being written; `begin` or `extend` says where to.

    As a context manager it finishes at the end and aborts on an exception.

    Args:
        emitter: writes the manifest of its version.
        compression: as for `Writer`, like all that follow.
        checksum: likewise.
        threads: likewise.
        chunk_rows: likewise.
        alignment: likewise.
        canonical: likewise.

    Attributes:
        emitter: the emitter.
        form: what blobs of the file are like.
        sink: where bytes go.
        compression: of what is written without one of its own; None for raw.
        algorithm: its digest, or None for none.
        rows: the objects that were written many at a time, as columns.
        objects: all objects by name.
        shared: names that were written without bytes of their own, and whose they have.
        attributes: the file's own key-value pairs, or None.
        version: what the manifest says.
        extra: fields of the root that no version names.
        shards: other files, as 2.x names them, in which components may stay.
        keeps_data: what is written stays as it is until the end, as where one call saves a whole
            dict; digests may then come later.
        copier: copies from other files.
        canonical: writes the blobs of a canonical file; None for another.
        also_closed: closed where this is finished or aborted.
        stream: what takes an object in pieces, while it does.
        state: `open`, `finished` or `aborted`.
    """

    sink: Sink
    copier: Copier
    canonical: CanonicalBlobs | None

    def __init__(
        self,
        emitter: Emitter,
        *,
        compression: bool | int | str,
        checksum: str | bool | None,
        threads: int | None = None,
        chunk_rows: int | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        self.emitter = emitter
        self.form = emitter.form = aligned(emitter.form, alignment, emitter.version)
        self.compression = self._compression(compression)
        self.algorithm = require_writable(checksum, self.form.checksums)
        if canonical:
            require_canonical(emitter, self.compression, self.algorithm)
        self._is_canonical = canonical
        self.attributes: dict[str, object] | None = None
        self.version = emitter.version
        self.extra: Mapping[str, object] | None = None
        self.shards: Mapping[str, Shard] = {}
        self.keeps_data = False
        written = WrittenObjects()
        self.rows = written.rows
        self.objects: MutableMapping[str, TensorObject] = written
        self.shared: dict[str, str] = {}
        self.stream: ObjectSink | None = None
        self.also_closed: AppendSink | None = None
        self.state = "open"
        self._chunk_rows = require_chunk_rows(chunk_rows)
        self._plans: dict[tuple[str, str | None], TensorObject] = {}
        self._crew = Crew(thread_count(threads))
        self._later: list[tuple[str, str, int, Future[str]]] = []
        self._prev = 0  # length of the file before this commit

    def begin(self, sink: Sink) -> None:
        """Start a new file.

        Raises:
            SourceError: its first bytes could not be written.
        """
        self.extend(sink, 0)
        try:
            sink.write(self.emitter.magic)
        except BaseException:
            sink.abort()
            raise

    def extend(self, sink: Sink, length: int) -> None:
        """Go on with a file that was `length` bytes long before this commit, 0 for a new one."""
        self.sink, self._prev = sink, length
        self.canonical = CanonicalBlobs(sink, self.form) if self._is_canonical else None
        self.copier = Copier(sink, self.algorithm, self._crew, self._chunk_rows, self.form)

    def _compression(self, asked: bool | int | str | None) -> Compression | None:  # noqa: FBT001
        how = compression_of(asked)
        return how and how._replace(encoding=self._called(how.encoding))

    def _called(self, encoding: str) -> str:
        """Return what an encoding is called in this container."""
        return self.form.encodings.get(encoding, encoding)

    # --- Objects ----------------------------------------------------------------------------

    def write(
        self,
        name: str,
        data: Any,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,  # noqa: FBT001  # called for every small tensor
        checksum: str | bool | None = None,  # noqa: FBT001
        chunk_rows: int | None = None,
        *,
        are_known: bool = False,
    ) -> None:
        """Write one object; see `Writer.write`.

        With `are_known` the attributes can be stored, and stay as they are.
        """
        self.require_ready(name)
        arrays: Mapping[str, Array]
        try:
            framework = None if type(data) is np.ndarray else adapter_of(data)
            if framework is not None:
                data = framework.stored(data)
            if type(data) is np.ndarray and (are_known or not attributes):
                plan, arrays = self.plan_array(data), {"data": data}
            else:
                if isinstance(data, Mapping) and "data" not in data:
                    raise no_tensor(data, "a Tensor, or an array")
                tensor = data if isinstance(data, Tensor) else Tensor(data)
                tensor = with_indices(tensor, self.form.indices)
                tensor.require_valid()
                if self.form.is_exact:
                    require_once(tensor)
                given = tensor.attributes if attributes is None else attributes
                plan = plan_of(tensor, given, self.form)
                self.emitter.require_object(plan)
                arrays = tensor.components
            how, algorithm = self._how(compress, checksum)
            rows = require_chunk_rows(chunk_rows) or self._chunk_rows
            if self.form.is_exact:
                require_written_bools(arrays)
        except ZTensorError as error:
            error.locate(file=self.sink.name, object_name=name)
            raise
        try:
            components = {
                role: self._write_component(name, role, plan, arrays[role], how, algorithm, rows)
                for role in plan.components
            }
        except BaseException:
            self.abort()
            raise
        # Attributes are written at the end; the caller may change its dict before.
        own = attributes if are_known else plan.attributes and copy.deepcopy(plan.attributes)
        self.objects[name] = TensorObject(plan.shape, plan.format, components, own)

    def plan_array(self, array: Array) -> TensorObject:
        """Return the plan of a plain array: what can be wrong with it is its element type.

        Raises:
            NotRepresentableError: the version has no such element type.
        """
        spelled = spell(array.dtype)
        plan = self._plans.get(spelled)
        if plan is None:
            plan = TensorObject((), "dense", {"data": Component(spelled[0], 0, 0, spelled[1])})
            self.emitter.require_object(plan)
            self._plans[spelled] = plan
        return TensorObject(array.shape, "dense", plan.components)

    def _how(
        self,
        compress: bool | int | str | None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None,  # noqa: FBT001
    ) -> tuple[Compression | None, Algorithm | None]:
        """Return how an object is encoded and its digest: its own, or those of all."""
        how, algorithm = self.compression, self.algorithm
        if compress is not None:
            how = self._compression(compress)
        if checksum is not None:
            algorithm = require_writable(checksum, self.form.checksums)
        if self._is_canonical:
            require_canonical(self.emitter, how, algorithm)
        return how, algorithm

    def _write_component(
        self,
        name: str,
        role: str,
        plan: TensorObject,
        array: Array,
        compression: Compression | None,
        algorithm: Algorithm | None,
        rows: int | None,
    ) -> Component:
        component = plan.components[role]
        if self.canonical is not None:
            return self.canonical.write(name, component, lambda: blocks(array))
        if compression is not None:
            packed = component.logical
            count = array.size if packed is None else packed.storage_count(array.size)
            is_packed = packed is not None and packed.elements_per_storage > 1
            return write_blob(
                self.sink,
                component,
                lambda: blocks(array),
                count if is_packed else array.nbytes,
                compression=compression,
                algorithm=algorithm,
                crew=self._crew,
                frames=frames_of(plan, role, rows, are_equal=self.form.is_exact),
                form=self.form,
            )
        if array.nbytes <= SMALL_BYTES:
            return write_small(self.sink, component, array, algorithm, self.form)
        is_kept = self.keeps_data and array.flags.c_contiguous and is_stored_as_is(array.dtype)
        blob = BlobWriter(self.sink, None, algorithm, self._crew, is_kept=is_kept, form=self.form)
        for block in blocks(array):
            blob.write(block)
        if blob.digest_later is not None:
            self._later.append((name, role, array.nbytes, blob.digest_later))
            # A mapping may make its arrays when asked; not too many wait for their digest.
            waiting = sum(nbytes for _, _, nbytes, digest in self._later if not digest.done())
            if waiting > _MOST_WAITING_BYTES:
                self._later[-1][3].result()
        return blob.finish(component)

    def copy(
        self,
        name: str,
        objects: Objects,
        from_name: str | None = None,
        *,
        compress: bool | int | str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Write an object of another file as it is stored there; see `Writer.copy`."""
        self.require_ready(name)
        source_name = name if from_name is None else from_name
        try:
            file = objects.part(source_name)
            how, _ = self._how(compress, None)
            self.copier.narrow(file)
            stored = stored_object(file, source_name, self.form)
            if self._is_canonical:
                stored = None
            tensor_object = stored or portable_object(file, source_name, self.form)
            self.emitter.require_object(tensor_object)
        except ZTensorError as error:
            error.locate(file=self.sink.name, object_name=name)
            raise
        there = file.object(source_name).components

        def copied(role: str, component: Component) -> Component:
            if self.canonical is not None:
                pieces = self.copier.pieces(file, source_name, role, progress)
                return self.canonical.write(name, component, pieces)
            shard = there[role].shard
            if shard is not None and shard.name in self.shards:
                return there[role]
            if stored is not None and (compress is None or not _differs(component, how)):
                return self.copier.stored(file, source_name, role, component, progress)
            kept = self._kept(file, source_name, role, how) if compress is None else how
            return self.copier.decoded(file, source_name, role, tensor_object, kept, progress)

        try:
            components = {
                role: copied(role, component)
                for role, component in sorted(tensor_object.components.items())
            }
        except BaseException as error:
            self.abort()
            if isinstance(error, ZTensorError):
                error.locate(file=file.name, object_name=source_name)
            raise
        self.objects[name] = dataclasses.replace(tensor_object, components=components)

    def _kept(
        self, file: FileObjects, name: str, role: str, others: Compression | None
    ) -> Compression | None:
        """Return how a component is encoded that is decoded to be copied: as it was, if it can."""
        there = file.object(name).components[role].encoding
        called = self._called(there)
        if file.format != "zt" or there not in ENCODINGS or called not in ENCODINGS:
            return others
        return None if called == "raw" else Compression(called)

    def share(self, name: str, of: str) -> None:
        """Write an object that has the bytes of one written before; see `Writer.share`."""
        self.require_ready(name)
        if of not in self.objects:
            raise UsageError(
                "no object of that name was written",
                file=self.sink.name,
                object_name=name,
                found=describe(of),
            )
        self.objects[name] = self.objects[of]
        if self.canonical is not None:
            self.canonical.note(name)
        self.shared[name] = self.shared.get(of, of)

    def start_stream(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        attributes: Mapping[str, object] | None,
        *,
        compress: bool | int | str | None,
        checksum: str | bool | None,
        chunk_rows: int | None,
    ) -> ObjectSink:
        """Return a sink for one dense object; see `Writer.stream`."""
        self.require_ready(name)
        if self._is_canonical:
            raise UsageError(
                "a canonical file has equal bytes once, which the end of a stream would tell",
                file=self.sink.name,
                object_name=name,
                expected="objects written as a whole",
            )
        try:
            target = element_type(dtype)
            storage, logical = spell(target)
            components = {"data": Component(storage, 0, 0, logical)}
            plan = TensorObject(
                shape_of(shape), "dense", components, attributes_of(attributes) or None
            )
            self.emitter.require_object(plan)
            plan = dataclasses.replace(plan, attributes=copy.deepcopy(plan.attributes))
            how, algorithm = self._how(compress, checksum)
            rows = require_chunk_rows(chunk_rows) or self._chunk_rows
        except ZTensorError as error:
            error.locate(file=self.sink.name, object_name=name)
            raise
        frames = frames_of(plan, "data", rows, are_equal=self.form.is_exact)
        total = LAYOUTS["dense"].expected_length(plan, "data", None)
        blob: BlobWriter | HeldBlob
        if how is not None and how.must_shrink and total is not None and total <= MOST_HELD_BYTES:
            blob = HeldBlob(self.sink, how, algorithm, self._crew, frames, self.form)
        else:
            blob = BlobWriter(
                self.sink,
                how,
                algorithm,
                self._crew,
                is_lent=True,
                frames=frames,
                form=self.form,
            )
        self.stream = ObjectSink(self, name, plan, target, blob)
        return self.stream

    def end_stream(self, name: str, tensor_object: TensorObject) -> None:
        """Take the object that came in pieces."""
        self.stream = None
        self.objects[name] = tensor_object

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Write the manifest, put the file in place, and return its length in bytes.

        Raises:
            UsageError: a stream is still open.
            ClosedError: this was finished or aborted before.
            SourceError: the file could not be put in place; what was there before still is.
        """
        self.require_open()
        self._require_no_stream()
        try:
            self._settle_digests()
            end = self.sink.barrier()
            self.sink.write(self.emitter.emit(self._manifest(), end, prev=self._prev))
            self.sink.commit()
        except BaseException:
            self.abort()
            raise
        finally:
            self._crew.close()
        self.state = "finished"
        length = self.sink.position
        self._release()
        return length

    def abort(self) -> None:
        """Forget everything; no file appears, and an old one stays. May be called again."""
        if self.state == "open":
            self.state = "aborted"
            self.stream = None
            self._crew.close()
            try:
                self.sink.abort()
            finally:
                self._release()

    def _release(self) -> None:
        if self.also_closed is not None:
            self.also_closed.close()

    def __enter__(self) -> Self:
        """Return the output itself."""
        self.require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish, or abort where an exception passes through."""
        if kind is not None:
            self.abort()
        elif self.state == "open":
            try:
                self.finish()
            except BaseException:
                self.abort()
                raise

    def __del__(self) -> None:
        """Abort what nobody finished: a half-written file is never committed."""
        if hasattr(self, "sink"):
            self.abort()

    def _manifest(self) -> Manifest:
        return Manifest(
            self.version,
            self.objects,
            self.attributes,
            extra=self.extra,
            shards=self.shards and self._named_shards(),
        )

    def _named_shards(self) -> dict[str, Shard]:
        """Return the other files without those in which no object lies any more."""
        parts = (part for one in self.objects.values() for part in one.components.values())
        used = {part.shard.name for part in parts if part.shard is not None}
        return {
            name: shard
            for name, shard in self.shards.items()
            if shard.start is None or name in used
        }

    def _settle_digests(self) -> None:
        """Put in the digests that other threads computed while this one wrote."""
        for name, role, _, digest in self._later:
            tensor_object = self.objects[name]
            component = dataclasses.replace(tensor_object.components[role], digest=digest.result())
            components = {**tensor_object.components, role: component}
            self.objects[name] = dataclasses.replace(tensor_object, components=components)
        if self._later:
            self.objects.update({new: self.objects[of] for new, of in self.shared.items()})
        self._later.clear()

    # --- Checks -----------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise where this was finished or aborted.

        Raises:
            ClosedError: it was.
        """
        if self.state != "open":
            raise ClosedError(f"the writer is {self.state}", file=self.sink.name)

    def require_ready(self, name: str) -> None:
        """Raise where no object of that name can be written now.

        Raises:
            ClosedError: this was finished or aborted.
            UsageError: a stream is open, or the name was written before.
            ArgumentTypeError: the name is no text.
            NotRepresentableError: the name is no text in UTF-8.
        """
        if self.state != "open":
            self.require_open()
        if self.stream is not None:
            self._require_no_stream()
        self.require_name(name)
        if name in self.objects:
            raise UsageError(
                "the name was written before; names are unique",
                reason=Reason.DUPLICATE_WRITE,
                file=self.sink.name,
                object_name=name,
            )
        if self.canonical is not None:
            self.canonical.require_next(name)

    def _require_no_stream(self) -> None:
        if self.stream is not None:
            raise UsageError(
                "a stream is still open; close it first",
                file=self.sink.name,
                object_name=self.stream.name,
            )

    def require_name(self, name: object) -> None:
        """Raise where an object cannot have that name.

        Raises:
            ArgumentTypeError: it is no text.
            NotRepresentableError: it is no text in UTF-8.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(
                "an object's name is text", file=self.sink.name, found=describe(name)
            )
        try:
            self.emitter.require_name(name)
            if self._is_canonical:
                require_nfc(name)
        except NotRepresentableError as error:
            error.locate(file=self.sink.name)
            raise


def _differs(component: Component, compression: Compression | None) -> bool:
    """Return whether a component is stored otherwise than is asked for; None is raw."""
    return compression is not None or component.encoding != "raw"
