"""`Writer`: write objects to one file.

Blobs are written in the order of the calls, each at the next multiple of the version's alignment;
the manifest follows at `finish`. The target is never sought in, so it may be a pipe, and the number
of objects need not be known.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from ztensor.aliases import WriterAliases
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    NotRepresentableError,
    Reason,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.interactive import Hinted
from ztensor.io.formats import FORMATS
from ztensor.io.reading.reader import ObjectReader
from ztensor.io.source.paths import is_path, path_text
from ztensor.io.source.sink import sink_of
from ztensor.io.writing.blob import Blob, FrameBlob, Pieces, start_blob, write_component
from ztensor.io.writing.canonical import CanonicalBlobs
from ztensor.io.writing.copying import Copier
from ztensor.io.writing.options import BlobOptions
from ztensor.io.writing.planning import Draft, plan_of, plan_of_stream
from ztensor.io.writing.stream import ObjectSink
from ztensor.locks import cached_property
from ztensor.options import ObjectOptions, WriteOptions, require_options
from ztensor.showing import counted
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.layout.elements import Blocks, is_stored_as_is
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.threads.pool import Pool
from ztensor.threads.sharing import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Unpack

    from ztensor.accepted import Durable, ElementType, Target, TensorLike
    from ztensor.io.shards.objects import Objects
    from ztensor.io.source.base import Sink
    from ztensor.spec.layout.base import Array


# Arrays up to this length are written by template: the other steps would take longer than they.
_SMALL_BYTES = 32 << 10
_PADDING = bytes(4096)


class Writer(Hinted, WriterAliases):
    """Writes a zTensor file.

    The file appears when it is finished; until then, and after an exception or `abort`, an old file
    at the path is untouched. As a context manager it finishes at the end and aborts on an
    exception.

    Args:
        path: a path, or a file object open for writing bytes, seekable or not; or a sink.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
            Components that zstd makes no smaller are stored raw. For `"planes"` see
            `ztensor.typing.ModelOptions`.
        attributes: the file's own key-value pairs.
        durable: see `ztensor.typing.SaveOptions`.
        threads: the number of threads that compress and hash; see `ztensor.typing.LoadOptions`.
        format: `"zt"` writes a zTensor file even if the path has another format's suffix.
        options: see `ztensor.typing.WriteOptions`.

    Attributes:
        state: `"open"`, `"finished"` or `"aborted"`.
        draft: the manifest so far, for the library's own packages.
        copier: copies components of other files, likewise.

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
        if format != "zt" and is_path(path):
            FORMATS.require_ours(path_text(path), format)
        self._prepare(compression=compression, threads=threads, **options)
        if attributes is not None:
            self.draft.set_attributes(attributes)
        self._begin(sink_of(path, durable=durable))

    def _prepare(
        self,
        emitter: Emitter | None = None,
        *,
        version: str = EMITTERS.latest,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        threads: int | None = None,
        chunk_rows: int | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        """Check the options of a file; `_begin` follows before the first object."""
        emitter = emitter or EMITTERS.named(version)
        how = BlobOptions(emitter.form).asked(compression, checksum, chunk_rows, alignment)
        emitter.form, self._options = how.form, how
        self.draft = Draft(emitter)
        self.state: Literal["open", "finished", "aborted"] = "open"
        self._canonical = CanonicalBlobs(emitter.version, how) if canonical else None
        self._threads = None if threads is None else thread_count(threads)
        self._streamed: str | None = None  # the object with an open stream
        self._shared: dict[str, str] = {}
        # The template of small arrays, by shape and element type.
        self._templates: dict[tuple[tuple[int, ...], np.dtype[Any]], int] = {}
        self._sayable: set[object] = set()  # kinds of objects that the version can hold
        self._digest: Callable[[bytes], str] | None = how.algorithm and how.algorithm.whole()

    def _begin(self, sink: Sink, previous_length: int = 0) -> None:
        """Start a new file, or continue one of that length, with its blobs in the sink."""
        self._sink, self._previous_length = sink, previous_length
        if not sink.position:
            sink.write(self.draft.emitter.magic)  # an error leaves the constructor

    @cached_property
    def copier(self) -> Copier:
        """Return the copier of components of other files."""
        is_decoded = self._canonical is not None
        return Copier(self._sink, self._options, self._component, is_decoded=is_decoded)

    @cached_property
    def _crew(self) -> Pool:
        """Return the pool of threads that compress and hash."""
        return Pool(thread_count(self._threads))

    # --- Objects ----------------------------------------------------------------------------

    def write(
        self,
        name: str,
        data: TensorLike,
        **options: Unpack[ObjectOptions],
    ) -> None:
        """Write one object.

        The data is stored before this returns; the caller may change it afterwards.

        Args:
            name: the object's name; any text, each once.
            data: a `Tensor`, an array (also non-contiguous, byte-swapped, 0-d or empty), or a value
                of torch, JAX or SciPy, dense or sparse, on any device.
            options: see `ztensor.typing.ObjectOptions`.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what to do instead.
            UsageError: the name was written before, or the writer is finished.
            SourceError: a write failed. The writer is then aborted.
        """
        if type(data) is np.ndarray and not options:
            template = self._templates.get((data.shape, data.dtype))
            if template is None and data.nbytes <= _SMALL_BYTES:
                template = self._template_of(data)
            if template is not None:
                self._write_by_template(name, data, template)
                return
        require_options("write", options, ObjectOptions)
        self._require_ready(name)
        with self._located(name):
            plan, arrays = plan_of(data, options.get("attributes"), self._options.form)
            plain = plan.only_data
            if plain is None or (plan.shape, plain) not in self._sayable:
                self.draft.emitter.require_object(plan)
                self._sayable.add((plan.shape, plain))  # many are of one kind
            how = self._own_options(options)
        components = {}
        with self._located(name, is_last=True):
            for role, component in plan.components.items():
                pieces = functools.partial(Blocks.of, arrays[role])
                length = component.known_decoded_length
                components[role] = self._component(plan, role, pieces, length, how)
        # Attributes are written at the end; the caller may change its dict before.
        own = plan.attributes and copy.deepcopy(plan.attributes)
        self.draft.objects[name] = plan._replace(components=components, attributes=own)

    def _template_of(self, array: Array) -> int | None:
        """Register the template for arrays of this shape and type; return its index.

        None if such arrays are written one by one.
        """
        form = self._options.form
        if self._options.compression is not None or self._canonical is not None:
            return None
        if form.is_exact and array.dtype.kind == "b":  # each bool is checked
            return None
        try:
            plan, _ = plan_of(array, None)
            self.draft.emitter.require_object(plan)
        except NotRepresentableError:
            return None  # `write` raises the same, with the name
        if not is_stored_as_is(array.dtype):
            return None
        digest = self._digest and self._digest(b"")
        component = plan.components["data"]._replace(digest=digest)
        templates = self.draft.objects.kinds
        templates.append(plan._replace(components={"data": component}))
        number = self._templates[array.shape, array.dtype] = len(templates) - 1
        return number

    def _write_by_template(self, name: str, array: Array, template: int) -> None:
        """Write an array by its template."""
        self._require_ready(name)
        sink, alignment = self._sink, self._options.form.alignment
        try:
            if alignment > len(_PADDING):  # the padding may be a hole
                start_blob(sink, alignment)
            padding = _PADDING[: -sink.position % alignment]
            offset, data = sink.position + len(padding), array.tobytes()
            sink.write(padding + data)
            digest = self._digest and self._digest(data)
        except BaseException:
            self.abort()
            raise
        self.draft.objects.data[name] = template, offset, digest

    def _own_options(self, own: ObjectOptions) -> BlobOptions:
        options = self._options.asked(
            own.get("compress"), own.get("checksum"), own.get("chunk_rows")
        )
        if self._canonical is not None:
            self._canonical.require_options(options)
        return options

    def _component(
        self,
        plan: TensorObject,
        role: str,
        pieces: Pieces,
        length: int | None,
        options: BlobOptions,
    ) -> Component:
        if self._canonical is not None:
            return self._canonical.write(self._sink, plan.components[role], pieces)
        return write_component(self._sink, plan, role, pieces, length, options, self._crew)

    def copy(
        self,
        name: str,
        reader: ObjectReader | Objects,
        from_name: str | None = None,
        *,
        compress: bool | int | str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Copy the stored bytes of an object of another file, checked but not decoded.

        Encoding, digest, attributes and unknown fields are kept; objects that share bytes there
        share them here. Components that the version stores in another way are decoded and encoded,
        piece by piece: big-endian data and bools of 0.1, indices that are not u64, encodings of
        other formats.

        Args:
            name: the object's name here.
            reader: an open reader of the other file, or its `objects`.
            from_name: its name there, by default the same.
            compress: as for `write`, to change the encoding; None keeps it.
            progress: called with the bytes of each piece that was written.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what to do instead.
            UsageError: the name was written before, or the writer is finished.
            ObjectNotFoundError: the reader has no object of that name.
            DigestMismatchError: the stored bytes are damaged. The writer is then aborted.
            SourceError: a read or a write failed. The writer is then aborted.
        """
        self._require_ready(name)
        source_name = name if from_name is None else from_name
        with self._located(name):
            objects = reader.objects if isinstance(reader, ObjectReader) else reader
            file = objects.part(source_name)
            options = None if compress is None else self._own_options({"compress": compress})
            planned = self.copier.plan(file, source_name)
            self.draft.emitter.require_object(planned[0])
        with self._located(source_name, file.name, is_last=True):
            components = self.copier.components(
                file, source_name, planned, options, progress, self.draft.shards
            )
        self.draft.objects[name] = planned[0]._replace(components=components)

    def share(self, name: str, of: str) -> None:
        """Write an alias: another name for an object that was written before.

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
        self._shared[name] = self._shared.get(of, of)

    @property
    def shared(self) -> dict[str, str]:
        """Return the aliases: names without bytes of their own, and the names they share."""
        return dict(self._shared)

    def stream(
        self,
        name: str,
        shape: Sequence[int],
        dtype: ElementType,
        **options: Unpack[ObjectOptions],
    ) -> ObjectSink:
        """Return a sink for the elements of a dense object, in pieces.

        For tensors larger than memory: `with writer.stream("w", (10**6, 512), "float32") as sink:`
        and then `sink.write(rows)`, from the first row to the last. No other object can be written
        until it is closed.

        Args:
            name: the object's name.
            shape: its shape.
            dtype: element type: a long or short name, a logical type's name, a NumPy type or a
                `torch.dtype`.
            options: see `ztensor.typing.ObjectOptions`. An object of more than 4 MiB stays
                compressed even if that saves nothing, which is known only at its end.

        Raises:
            NotRepresentableError: the version cannot hold it.
            UsageError: the name was written before, or the writer is finished.
        """
        require_options("stream", options, ObjectOptions)
        self._require_ready(name)
        with self._located(name):
            if self._canonical is not None:
                raise UsageError(
                    "a canonical file stores equal bytes once, so nothing is streamed to it",
                    expected="objects written as a whole",
                )
            plan, element = plan_of_stream(shape, dtype, options.get("attributes"))
            self.draft.emitter.require_object(plan)
            how = self._own_options(options).of(plan)
        # Attributes are written at the end; the caller may change its dict before.
        plan = plan._replace(attributes=copy.deepcopy(plan.attributes))
        blob: Blob | FrameBlob
        if how.compression is None:
            blob = Blob(self._sink, how, self._crew)
        else:
            blob = FrameBlob(self._sink, plan, how, self._crew)
        self._streamed = name
        return ObjectSink(self, name, plan, element, blob)

    def _end_stream(self, name: str, tensor_object: TensorObject) -> None:
        self.draft.objects[name] = tensor_object
        self._streamed = None

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Write the manifest, put the file in place, and return its length in bytes.

        Raises:
            UsageError: a stream is still open.
            ClosedError: the writer was finished or aborted before.
            SourceError: the file could not be put in place; an old file is kept.
        """
        self._require_idle()
        with self._located(None, is_last=True):
            self._sink.commit(self.draft.emit(self._sink.end_blobs(), self._previous_length))
        self._end("finished")
        return self._sink.position

    def abort(self) -> None:
        """Drop everything; no file appears, and an old one stays. May be called again."""
        if self.state == "open":
            self._end("aborted")

    def _end(self, state: Literal["finished", "aborted"]) -> None:
        """Close the threads, and abort the sink unless the file is finished."""
        self.state, self._streamed = state, None
        if "_crew" in self.__dict__:
            self._crew.close()
        if state == "aborted":
            self._sink.abort()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        self._require_open()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish, or abort after an exception."""
        try:
            if kind is None and self.state == "open":
                self.finish()
        finally:
            self.abort()

    def __del__(self) -> None:
        """Abort an unfinished file: it is never committed."""
        if hasattr(self, "_sink"):
            self.abort()

    # --- Checks -----------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self.state != "open":
            raise ClosedError(f"the writer is {self.state}", file=self._sink.name)

    def _require_ready(self, name: str) -> None:
        if self.state != "open" or self._streamed is not None:
            self._require_idle()
        if type(name) is not str or not name.isascii() or self._options.form.is_exact:
            self._require_name(name)
        entries = self.draft.objects.data
        if name in entries:
            raise UsageError(
                "the name was written before; names are unique",
                reason=Reason.DUPLICATE_WRITE,
                file=self._sink.name,
                object_name=name,
            )
        if self._canonical is not None:
            with self._located(name):
                self._canonical.require_next(name, next(reversed(entries), None))

    def _require_idle(self) -> None:
        self._require_open()
        if self._streamed is not None:
            raise UsageError(
                "a stream is still open; close it first",
                file=self._sink.name,
                object_name=self._streamed,
            )

    def _require_name(self, name: object) -> None:
        with self._located(None):
            if not isinstance(name, str):
                raise ArgumentTypeError("an object's name is text", found=describe(name))
            self.draft.emitter.require_name(name)

    @contextlib.contextmanager
    def _located(
        self, name: str | None, file: str | None = None, *, is_last: bool = False
    ) -> Iterator[None]:
        """Add file and object to an error.

        Args:
            name: the object; None if the error is about the file.
            file: the file; by default the one that is written.
            is_last: whether bytes are written: after an error the writer is then aborted.
        """
        try:
            yield
        except BaseException as error:
            if is_last:
                self.abort()
            if isinstance(error, ZTensorError):
                error.locate(file=file or self._sink.name, object_name=name)
            raise

    def __repr__(self) -> str:
        """Return target, version and state."""
        return (
            f"<ztensor.Writer {describe(self._sink.name)} version {self.draft.emitter.version}, "
            f"{counted(len(self.draft.objects), 'object')}, {self.state}>"
        )
