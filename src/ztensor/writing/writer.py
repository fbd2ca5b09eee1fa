"""Mirror of the reader: objects in, one file out, as a whole or not at all.

Blobs go out as they are given, each at the next multiple of 64; the manifest follows at `finish`.
Nothing seeks, so a target may be a pipe, and nothing needs to know how many objects will come.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from ztensor.boundary import public, public_inside, turn
from ztensor.container import EMITTERS, LATEST
from ztensor.digest import (
    Algorithm,
    Digest,
    digest_of,
    parse_digest,
    require_match,
    require_writable,
)
from ztensor.encoding import ENCODINGS
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    NotRepresentableError,
    Reason,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.layout import LAYOUTS
from ztensor.layout.elements import BLOCK_BYTES, blocks, is_stored_as_is, spell
from ztensor.model.dtype import LOGICAL_TYPES
from ztensor.model.manifest import Component, Manifest, TensorObject, WrittenObjects
from ztensor.model.suffixes import require_ours
from ztensor.source.paths import is_path, path_text
from ztensor.source.sink import Durable, FileSink, Sink, sink_of
from ztensor.tensor import Tensor, is_torch, no_tensor, shape_of
from ztensor.threads import Crew, thread_count
from ztensor.writing.blob import BlobWriter, level_of
from ztensor.writing.frames import Frames, frames_of, require_chunk_rows
from ztensor.writing.overlaps import Overlaps
from ztensor.writing.planning import (
    attributes_of,
    element_type,
    require_whole_bytes,
    with_u64_indices,
)
from ztensor.writing.stream import ObjectSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Unpack

    import numpy.typing as npt

    from ztensor.container import Emitter
    from ztensor.edit.editor import Editor
    from ztensor.layout.base import Array
    from ztensor.reading.reader import ManifestReader
    from ztensor.source.base import Source
    from ztensor.typing import EditOptions, ElementType, Path, Target, TensorLike, TorchTensor


_MOST_WAITING_BYTES = 256 << 20


@public
class Writer:
    """Writes a zTensor file.

    The file appears when it is finished; until then, and after an exception or `abort`, what was
    at the path is untouched. As a context manager it finishes at the end and aborts on an
    exception.

    Args:
        path: a path, or a file object open for writing bytes, which need not be seekable.
        version: `"1.2.0"`, `"1.1.0"` or `"0.1.0"`.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
        checksum: `"crc32c"`, `"sha256"` or None.
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

    Raises:
        ArgumentValueError: an argument has an unknown value, or the path another format's suffix.
        NotRepresentableError: the version cannot hold the attributes.
        SourceError: the target cannot be created.
    """

    def __init__(
        self,
        path: Target,
        *,
        version: str = LATEST,
        compression: bool | int | str = False,
        checksum: str | bool | None = "crc32c",
        attributes: Mapping[str, object] | None = None,
        durable: Durable = "auto",
        threads: int | None = None,
        format: Literal["zt"] | None = None,
        chunk_rows: int | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        if metadata is not None and attributes is not None:
            raise ArgumentValueError("metadata and attributes are one thing; pass one of them")
        if is_path(path):
            require_ours(path_text(path), format)
        emitter = EMITTERS.get(version) if isinstance(version, str) else None
        if emitter is None:
            raise ArgumentValueError(
                "unknown version", expected=f"one of {', '.join(EMITTERS)}", found=describe(version)
            )
        self._prepare(
            emitter(),
            compression=compression,
            checksum=checksum,
            threads=threads,
            chunk_rows=chunk_rows,
        )
        given = attributes_of(attributes if metadata is None else metadata)
        if given is not None:
            self._emitter.check_attributes(given)
            self._attributes = copy.deepcopy(given)
        self._begin(sink_of(path, durable=durable))

    _prev = 0  # length of the file before this commit
    _extra: Mapping[str, object] | None = None  # fields of the root that no version names
    # What is written stays as it is until the end: true where one call saves a whole dict.
    _keeps_data = False
    _attributes: dict[str, object] | None
    # Who copies many objects may have their bytes decoded before they are asked for.
    _chunks: Callable[[ManifestReader, str, str], Iterator[memoryview]] = staticmethod(
        lambda reader, name, role: reader._portable_chunks(name, role)
    )

    def _prepare(
        self,
        emitter: Emitter,
        *,
        compression: bool | int | str,
        checksum: str | bool | None,
        threads: int | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self._emitter = emitter
        self._level = level_of(compression)
        self._chunk_rows = require_chunk_rows(chunk_rows)
        self._algorithm = require_writable(checksum)
        self._attributes = None
        written = WrittenObjects()
        self._rows = written.rows
        self._objects: MutableMapping[str, TensorObject] = written
        self._shared: dict[str, str] = {}
        # By what was copied: where it is now, and the digests that were checked.
        self._copied: dict[
            tuple[Source, int, int],
            tuple[int, dict[tuple[Digest | None, str], str | None]],
        ] = {}
        self._overlaps: dict[Source, Overlaps] = {}
        self._narrowed: set[ManifestReader] = set()
        self._recoded: dict[tuple[object, ...], tuple[Component, set[Digest]]] = {}
        self._plans: dict[tuple[str, str | None], TensorObject] = {}
        self._crew = Crew(thread_count(threads))
        self._later: list[tuple[str, str, int, Future[str]]] = []
        self._stream: ObjectSink | None = None
        self._state = "open"

    def _begin(self, sink: Sink) -> None:
        """Start a new file."""
        self._sink = sink
        try:
            sink.write(self._emitter.magic)
        except BaseException:
            sink.abort()
            raise

    @classmethod
    def append(cls, path: Path, **options: Unpack[EditOptions]) -> Editor:
        """Return a writer that adds objects to a finished file; see `ztensor.edit.Editor`.

        Raises:
            FormatError: the file is damaged; the message says how to repair it.
            SourceError: it cannot be opened for writing, or another process is writing it.
        """
        from ztensor.edit.editor import Editor

        return Editor(path, **options)

    # --- Objects ----------------------------------------------------------------------------

    @public_inside
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
            data: a `Tensor`, an array (also non-contiguous, byte-swapped, 0-d or empty), or a torch
                tensor, dense or sparse, on any device.
            attributes: key-value pairs of the object; a tensor's own by default.
            compress: as the writer's `compression`, for this object; None takes the writer's.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        try:
            self._write(
                name, data, attributes, compress=compress, checksum=checksum, chunk_rows=chunk_rows
            )
        except Exception as error:
            turn(error)
            raise

    def _write(
        self,
        name: str,
        data: Any,
        attributes: Mapping[str, object] | None,
        *,
        compress: bool | int | str | None,
        checksum: str | bool | None,
        chunk_rows: int | None,
    ) -> None:
        self._require_ready(name)
        arrays: Mapping[str, Array]
        try:
            if is_torch(data):
                from ztensor.torch.values import from_torch

                data = from_torch(data)
            if type(data) is np.ndarray and not attributes:
                plan, arrays = self._plan_array(data), {"data": data}
            else:
                if isinstance(data, Mapping) and "data" not in data:
                    raise no_tensor(data, "a Tensor, or an array")
                tensor = data if isinstance(data, Tensor) else Tensor(data)
                tensor = with_u64_indices(tensor)
                tensor.require_valid()
                plan = self._plan(tensor, tensor.attributes if attributes is None else attributes)
                self._emitter.check_object(plan)
                arrays = tensor.components
            level = self._level if compress is None else level_of(compress)
            algorithm = self._algorithm if checksum is None else require_writable(checksum)
            rows = require_chunk_rows(chunk_rows) or self._chunk_rows
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        try:
            components = {
                role: self._write_component(
                    name,
                    role,
                    component,
                    arrays[role],
                    level,
                    algorithm,
                    frames_of(plan, role, rows),
                )
                for role, component in plan.components.items()
            }
        except BaseException:
            self.abort()
            raise
        # Attributes are written at the end; the caller may change his before.
        own = plan.attributes and copy.deepcopy(plan.attributes)
        self._objects[name] = TensorObject(plan.shape, plan.format, components, own)

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
        reader: ManifestReader,
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
            reader: an open reader of the other file.
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
        try:
            reader = reader.reader_of(source_name)
            level = self._level if compress is None else level_of(compress)
            self._narrow(reader)
            stored = reader._stored_object(source_name)
            tensor_object = reader._portable_object(source_name) if stored is None else stored
            self._emitter.check_object(tensor_object)
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        try:
            components = {
                role: self._recode_component(
                    reader, source_name, role, tensor_object, level, progress
                )
                if stored is None or (compress is not None and _differs(component, level))
                else self._copy_component(reader, source_name, role, component, progress)
                for role, component in tensor_object.components.items()
            }
        except BaseException as error:
            self.abort()
            if isinstance(error, ZTensorError):
                error.locate(file=reader.name, object_name=source_name)
            raise
        self._objects[name] = dataclasses.replace(tensor_object, components=components)

    def _narrow(self, reader: ManifestReader) -> None:
        """Grant nobody more of a new file than of the one whose bytes it gets."""
        if isinstance(self._sink, FileSink) and reader not in self._narrowed:
            self._narrowed.add(reader)
            for rights in reader._source_rights():
                self._sink.narrow(rights)

    def share(self, name: str, of: str) -> None:
        """Write an object that has the bytes of one written before; only its name is new.

        Raises:
            UsageError: the name was written before, or `of` was not, or the writer is finished.
        """
        self._require_ready(name)
        if of not in self._objects:
            raise UsageError(
                "no object of that name was written",
                file=self._sink.name,
                object_name=name,
                found=describe(of),
            )
        self._objects[name] = self._objects[of]
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
            compress: as the writer's `compression`, for this object; None takes the writer's.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it.
            UsageError: the name was written before, or the writer is finished.
        """
        self._require_ready(name)
        try:
            target = element_type(dtype)
            storage, logical = spell(target)
            components = {"data": Component(storage, 0, 0, logical)}
            plan = TensorObject(
                shape_of(shape), "dense", components, attributes_of(attributes) or None
            )
            self._emitter.check_object(plan)
            plan = dataclasses.replace(plan, attributes=copy.deepcopy(plan.attributes))
            level = self._level if compress is None else level_of(compress)
            algorithm = self._algorithm if checksum is None else require_writable(checksum)
            rows = require_chunk_rows(chunk_rows) or self._chunk_rows
        except ZTensorError as error:
            error.locate(file=self._sink.name, object_name=name)
            raise
        blob = BlobWriter(self._sink, level, algorithm, frames=frames_of(plan, "data", rows))
        self._stream = ObjectSink(self, name, plan, target, blob)
        return self._stream

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Write the manifest, put the file in place, and return its length in bytes.

        Raises:
            UsageError: a stream is still open.
            ClosedError: the writer was finished or aborted before.
            SourceError: the file could not be put in place; what was there before still is.
        """
        self._require_open()
        if self._stream is not None:
            raise UsageError(
                "a stream is still open; close it first",
                file=self._sink.name,
                object_name=self._stream.name,
            )
        try:
            self._settle_digests()
            end = self._sink.barrier()
            self._sink.write(self._emitter.emit(self._new_manifest(), end, prev=self._prev))
            self._sink.commit()
        except BaseException:
            self.abort()
            raise
        finally:
            self._crew.close()
        self._state = "finished"
        return self._sink.position

    def abort(self) -> None:
        """Forget everything; no file appears, and an old one stays. May be called again."""
        if self._state == "open":
            self._state = "aborted"
            self._stream = None
            self._crew.close()
            self._sink.abort()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        self._require_open()
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
        elif self._state == "open":
            try:
                self.finish()
            except BaseException:
                self.abort()
                raise

    def __del__(self) -> None:
        """Abort a writer nobody finished: a half-written file is never committed."""
        if getattr(self, "_state", "") == "open" and hasattr(self, "_sink"):
            self.abort()

    def __repr__(self) -> str:
        """Return target, version and state."""
        return (
            f"<ztensor.Writer {describe(self._sink.name)} version {self._emitter.version}, "
            f"{len(self._objects)} objects, {self._state}>"
        )

    def _new_manifest(self) -> Manifest:
        return Manifest(self._emitter.version, self._objects, self._attributes, extra=self._extra)

    # --- Parts ------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._state != "open":
            raise ClosedError(f"the writer is {self._state}", file=self._sink.name)

    def _require_ready(self, name: str) -> None:
        self._require_open()
        if self._stream is not None:
            raise UsageError(
                "a stream is still open; close it first",
                file=self._sink.name,
                object_name=self._stream.name,
            )
        self._require_name(name)
        if name in self._objects:
            raise UsageError(
                "the name was written before; names are unique",
                reason=Reason.DUPLICATE_WRITE,
                file=self._sink.name,
                object_name=name,
            )

    def _require_name(self, name: object) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                "an object's name is text", file=self._sink.name, found=describe(name)
            )
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise NotRepresentableError(
                "the name holds a lone surrogate, which is no text in UTF-8",
                file=self._sink.name,
                found=describe(name),
            ) from error

    def _plan_array(self, array: Array) -> TensorObject:
        """Return the plan of a plain array: what can be wrong with it is its element type."""
        spelled = spell(array.dtype)
        plan = self._plans.get(spelled)
        if plan is None:
            plan = TensorObject((), "dense", {"data": Component(spelled[0], 0, 0, spelled[1])})
            self._emitter.check_object(plan)
            self._plans[spelled] = plan
        return TensorObject(array.shape, "dense", plan.components)

    def _plan(self, tensor: Tensor, attributes: Mapping[str, object] | None) -> TensorObject:
        """Return the object as the manifest will have it, but for places, lengths and digests."""
        components = {}
        layout = LAYOUTS.get(tensor.format)
        for role in sorted(tensor.components, key=lambda text: text.encode("utf-8", "replace")):
            storage, logical = spell(tensor.components[role].dtype)
            if layout is not None and role == layout.main_role:
                logical = tensor.type
            components[role] = Component(storage, 0, 0, logical)
            if tensor.format != "dense" or role != "data":
                require_whole_bytes(role, tensor.components[role].size, components[role])
        if tensor.format == "dense" and tensor.type not in (None, *LOGICAL_TYPES):
            pass  # an unknown logical type may pack its elements: no size equation holds
        elif tensor.format == "dense":
            tensor.numpy()  # the size equation
        if not components and tensor.format in LAYOUTS:
            raise ArgumentValueError("the tensor has no components")
        return TensorObject(
            tensor.shape, tensor.format, components, attributes_of(attributes) or None
        )

    def _write_component(
        self,
        name: str,
        role: str,
        component: Component,
        array: Array,
        level: int | None,
        algorithm: Algorithm | None,
        frames: Frames,
    ) -> Component:
        is_kept = self._keeps_data and array.flags.c_contiguous and is_stored_as_is(array.dtype)
        blob = BlobWriter(self._sink, level, algorithm, self._crew, is_kept=is_kept, frames=frames)
        for block in blocks(array):
            blob.write(block)
        if blob.digest_later is not None:
            self._later.append((name, role, array.nbytes, blob.digest_later))
            # A mapping may make its arrays when asked; not too many wait for their digest.
            waiting = sum(nbytes for _, _, nbytes, digest in self._later if not digest.done())
            if waiting > _MOST_WAITING_BYTES:
                self._later[-1][3].result()
        return blob.finish(component)

    def _settle_digests(self) -> None:
        """Put in the digests that other threads computed while this one wrote."""
        for name, role, _, digest in self._later:
            tensor_object = self._objects[name]
            component = dataclasses.replace(tensor_object.components[role], digest=digest.result())
            components = {**tensor_object.components, role: component}
            self._objects[name] = dataclasses.replace(tensor_object, components=components)
        if self._later:
            self._objects.update({new: self._objects[of] for new, of in self._shared.items()})
        self._later.clear()

    def _recode_component(
        self,
        reader: ManifestReader,
        name: str,
        role: str,
        tensor_object: TensorObject,
        level: int | None,
        progress: Callable[[int], None] | None,
    ) -> Component:
        """Write a component's decoded bytes, or find them written for another that has them."""
        component = tensor_object.components[role]
        there = reader._object(name).components[role]
        key = reader._source, dataclasses.replace(there, digest=None, extra=None), level
        digest = None if there.digest is None else parse_digest(there.digest)
        is_known = digest is not None and digest.known is not None
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if is_known and digest not in checked:  # nobody has asked yet whether it is right
                for _ in reader.decoded_chunks(name, role):
                    pass
        else:
            frames = frames_of(tensor_object, role, self._chunk_rows)
            blob = BlobWriter(self._sink, level, self._algorithm, self._crew, frames=frames)
            for chunk in self._chunks(reader, name, role):
                blob.write(chunk)
                if progress is not None:
                    progress(chunk.nbytes)
            placed, checked = blob.finish(component), set()
            has_place = getattr(reader._stored(there).encoding(), "has_place", False)
            if there.encoding in ENCODINGS or has_place:  # another format's may have none
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return dataclasses.replace(placed, extra=component.extra)

    def _copy_component(
        self,
        reader: ManifestReader,
        name: str,
        role: str,
        component: Component,
        progress: Callable[[int], None] | None,
    ) -> Component:
        key = (reader._source, component.offset, component.length)
        digest = None if component.digest is None else parse_digest(component.digest)
        algorithm = self._algorithm if digest is None else digest.known
        found: str | None = None
        if key not in self._copied:
            overlaps = self._overlaps.get(reader._source)
            run = overlaps and overlaps.around(component.offset, component.length)
            if run:
                start = self._copy_run(reader, component, run, progress)
                self._copied[key] = start + component.offset - run[0], {}
            else:
                placed = self._copy_blob(reader, component, algorithm, progress)
                found = placed.digest
                self._copied[key] = placed.offset, {}
        offset, checked = self._copied[key]
        stated = digest, component.encoding
        if stated not in checked:  # what others say of the same bytes is no check of this
            if found is None and algorithm is not None:
                found = digest_of(algorithm, reader._stored(component).stored().pieces(BLOCK_BYTES))
            text = component.digest or found
            if digest is not None and found is not None:
                try:
                    require_match(digest, parse_digest(found).expected)
                except DigestMismatchError:
                    if not component.digest_may_cover_decoded or component.encoding == "raw":
                        raise
                    for _ in reader.decoded_chunks(name, role):  # raises where it covers neither
                        pass
                    text = found
            checked[stated] = text
        return dataclasses.replace(component, offset=offset, digest=checked[stated])

    def _copy_run(
        self,
        reader: ManifestReader,
        component: Component,
        run: tuple[int, int],
        progress: Callable[[int], None] | None,
    ) -> int:
        """Copy the run of overlapping blobs a component is in, once; return where it begins."""
        key = reader._source, *run
        if key not in self._copied:
            whole = dataclasses.replace(component, offset=run[0], length=run[1])
            self._copied[key] = self._copy_blob(reader, whole, None, progress).offset, {}
        return self._copied[key][0]

    def _copy_blob(
        self,
        reader: ManifestReader,
        component: Component,
        algorithm: Algorithm | None,
        progress: Callable[[int], None] | None,
    ) -> Component:
        """Copy stored bytes, and return the component with its place and their digest."""
        blob = BlobWriter(self._sink, None, algorithm)
        first = BLOCK_BYTES - self._sink.position % BLOCK_BYTES  # so no write is cut in two
        for piece in reader._stored(component).stored().pieces(BLOCK_BYTES, first=first):
            blob.write(piece)
            if progress is not None:
                progress(piece.nbytes)
        reader._stored(component).stored()  # raises where a program wrote into the file meanwhile
        return blob.finish(component)

    def _expect(self, objects: Iterable[tuple[ManifestReader, str]]) -> None:
        """Say what will be copied, so that blobs which overlap are copied once.

        Args:
            objects: reader and name there of each; of one file only once.
        """
        blobs: dict[Source, list[tuple[int, int]]] = {}
        for reader, name in objects:
            home = reader.reader_of(name)
            blobs.setdefault(home._source, []).extend(
                (component.offset, component.length)
                for component in home._object(name).components.values()
            )
        self._overlaps.update({source: Overlaps(found) for source, found in blobs.items()})

    def _stream_done(self, name: str, tensor_object: TensorObject) -> None:
        self._stream = None
        self._objects[name] = tensor_object


def _differs(component: Component, level: int | None) -> bool:
    """Return whether a component is stored otherwise than a level (None: raw) asks for."""
    return level is not None or component.encoding != "raw"
