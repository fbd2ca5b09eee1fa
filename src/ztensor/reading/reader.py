"""List and read the objects of one opened file.

For every object: are its types known, is each component what it should be (`component.py` decides
in which order that is looked at), do the parts make the layout. What the manifest alone shows was
checked when the file was opened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np

from ztensor.boundary import public, public_inside, turn
from ztensor.digest import ALGORITHMS, Sum
from ztensor.digest import digest_of as digest_of_bytes
from ztensor.encoding import ENCODINGS
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    LayoutError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.layout import LAYOUTS, View
from ztensor.layout.base import Array
from ztensor.layout.elements import (
    blocks,
    require_known,
    result_dtype,
    typed_array,
    whole_elements,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.model.dtype import element_count
from ztensor.reading.component import Fetching
from ztensor.source.base import Range
from ztensor.source.local import FileSource
from ztensor.tensor import Tensor, is_torch
from ztensor.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ztensor.encoding import Encoding
    from ztensor.metadata import TensorMetadata
    from ztensor.model.account import Unrepresented
    from ztensor.model.manifest import Component, Manifest, TensorObject
    from ztensor.reading.component import StoredComponent
    from ztensor.reading.slices import TensorSlice
    from ztensor.source.base import Source
    from ztensor.source.rights import Rights
    from ztensor.typing import TorchTensor


class Location(NamedTuple):
    """Where a component's stored bytes lie, for other I/O engines.

    Attributes:
        path: the file, or None where it is only in memory.
        offset: first byte in the file.
        length: how many bytes.
    """

    path: str | None
    offset: int
    length: int


@public
class ManifestReader(Mapping[str, Array | Any]):
    """A mapping from object names to arrays over one source; `ztensor.Reader` adds the opening.

    Args:
        source: the file's bytes; closed with the reader.
        manifest: what they mean.
        format: the name of the container format.
        encodings: how components are stored, by the word for it.
        account: gives what the file says that neither objects nor attributes do.
        sums: the format's own checksums over more than one component.
        verify: None checks digests on copying reads, True also before a view is first handed
            out, False never.
        limits: the caps in force.
    """

    def __init__(
        self,
        source: Source,
        manifest: Manifest,
        *,
        format: str = "zt",  # the 1.2 API's word
        encodings: Mapping[str, Encoding] = ENCODINGS,
        account: Callable[[], Sequence[Unrepresented]] = tuple,
        sums: Sequence[Sum] = (),
        verify: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._source = source
        self._manifest = manifest
        self._format = format
        self._encodings = encodings
        self._account = account
        self._sums = sums
        self._verify = verify
        self._limits = limits
        self._is_closed = False
        self._fetching = Fetching(source, encodings, limits, verify=verify)

    # --- The file ---------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """Return the name of the container format: `zt`."""
        return self._format

    @property
    def version(self) -> str:
        """Return the version text of the file, such as `1.2.0`."""
        return self._manifest.version

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the file's own key-value pairs; empty where there are none."""
        return dict(with_dicts(self._manifest.attributes or {}))

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the file says that neither its objects nor its attributes do.

        A zTensor file says nothing else. One of another format may hold a graph, code, or values
        for which there is no word here; it is named by kind, place, count and length, and whoever
        copies the file loses it.

        Raises:
            FormatError: the file is damaged.
            SourceError: it cannot be read.
        """
        self._require_open()
        try:
            return tuple(self._account())
        except ZTensorError as error:
            error.locate(file=self.name)
            raise

    @property
    def name(self) -> str:
        """Return the path, or a description where there is none."""
        return self._source.name

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole file."""
        return self._source.size

    def close(self) -> None:
        """Give back the file; arrays that are views of it stay valid. May be called again."""
        self._is_closed = True
        self._fetching.runs.clear()
        self._source.close()

    def __enter__(self) -> Self:
        """Return the reader itself."""
        self._require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the reader."""
        self.close()

    def __repr__(self) -> str:
        """Return file, version and how many objects there are."""
        state = " (closed)" if self._is_closed else ""
        return (
            f"<ztensor.Reader {describe(self._source.name)} version {describe(self.version)}, "
            f"{len(self._manifest.objects)} objects{state}>"
        )

    # --- The mapping ------------------------------------------------------------------------

    def keys(self) -> list[str]:  # type: ignore[override]  # a list is what the 1.2 API gives
        """Return all names, in the order of the file."""
        return list(self._manifest.objects)

    def __iter__(self) -> Iterator[str]:
        """Iterate over names in the order of the file."""
        return iter(self._manifest.objects)

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._manifest.objects)

    # A mapping would compare all values: two readers are the same when they are one.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __contains__(self, name: object) -> bool:
        """Return whether there is an object of that name; nothing is read."""
        return isinstance(name, str) and name in self._manifest.objects

    def __getitem__(self, name: str) -> Array | Any:
        """Return a dense object as an array, and one of another layout as a `Tensor`.

        Raw data is a view of the file, copied only where it is written to; see `read_numpy`.
        """
        tensor_object = self._object(name)
        if tensor_object.format == "dense":
            return self._dense(name, tensor_object, copy=False)
        return self.read(name)

    # --- Reading ----------------------------------------------------------------------------

    @overload
    def metadata(self, name: str) -> TensorMetadata: ...  # type: ignore[overload-overlap]
    @overload
    def metadata(self, name: Iterable[str]) -> list[TensorMetadata]: ...
    def metadata(self, name: str | Iterable[str]) -> TensorMetadata | list[TensorMetadata]:
        """Return shape, types, attributes and components; no data is read.

        Args:
            name: one name, or several for a list.

        Raises:
            ObjectNotFoundError: no object of that name.
        """
        from ztensor.metadata import describe_object

        if isinstance(name, str):
            return describe_object(name, self._object(name))
        return [describe_object(one, self._object(one)) for one in self._several(name)]

    @overload
    def read(self, name: str, *, copy: bool = False) -> Tensor: ...  # type: ignore[overload-overlap]
    @overload
    def read(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Tensor]: ...
    @public_inside
    def read(self, name: str | Iterable[str], *, copy: bool = False) -> Tensor | dict[str, Tensor]:
        """Return an object of any layout with all its components.

        Args:
            name: one name, or several for a dict.
            copy: False gives views of the file where the data is raw; True always new memory.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged or do not make the layout.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        try:
            if isinstance(name, str):
                return self._tensor(name, self._object(name), copy=copy)
            names = self._several(name)
            return {one: self._tensor(one, self._object(one), copy=copy) for one in names}
        except Exception as error:
            turn(error)
            raise

    @overload
    def read_numpy(self, name: str, *, copy: bool = False) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def read_numpy(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Array]: ...
    @public_inside
    def read_numpy(
        self, name: str | Iterable[str], *, copy: bool = False
    ) -> Array | dict[str, Array]:
        """Return dense objects as arrays of their shape, in native byte order.

        Raw little-endian data is a view of the file that outlives the reader; writing to it
        copies the page and never reaches the file. Compressed data is new memory. bfloat16, fp8
        and fp4 come as the types of ml_dtypes; a scalar is a 0-d array.

        Args:
            name: one name, or several for a dict.
            copy: True always gives new memory, checked against its digest.

        Raises:
            UsageError: the object is not dense; the message says what to call.
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        try:
            if isinstance(name, str):
                return self._dense(name, self._object(name), copy=copy)
            names = self._several(name)
            return {one: self._dense(one, self._object(one), copy=copy) for one in names}
        except Exception as error:
            turn(error)
            raise

    def read_tensors(self, names: Iterable[str], *, copy: bool = False) -> dict[str, Array]:
        """Return several dense objects as a dict of arrays; `read_numpy` by its older name."""
        return self.read_numpy([names] if isinstance(names, str) else names, copy=copy)

    @overload
    def read_into(self, name: str, dst: Array | TorchTensor) -> None: ...
    @overload
    def read_into(self, name: Mapping[str, Array] | Mapping[str, TorchTensor]) -> None: ...
    def read_into(
        self,
        name: str | Mapping[str, Array] | Mapping[str, TorchTensor],
        dst: Array | TorchTensor | None = None,
    ) -> None:
        """Fill arrays of the caller with dense objects.

        Args:
            name: a name with `dst`, or a mapping from names to arrays.
            dst: a writable array of the object's shape and element type; also a torch tensor, on
                any device.

        Raises:
            ArgumentValueError: an array has another shape, or is read-only.
            ArgumentTypeError: it has another element type, or is no array.
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged.
        """
        targets = {name: dst} if isinstance(name, str) else name
        if not isinstance(targets, Mapping):
            raise ArgumentTypeError(
                "read_into takes a name and an array, or a mapping from names to arrays",
                file=self.name,
                found=describe(name, 40),
            )
        for one, target in targets.items():
            self._fill(one, self._object(one), target)

    def get_slice(self, name: str) -> TensorSlice:
        """Return a lazy object: `reader.get_slice(name)[10:20, ::2]` reads what it needs.

        Dense objects are indexed like arrays; of sparse and quantized ones rows are selected.

        Raises:
            UsageError: the object is of a layout whose rows are not known here.
            ObjectNotFoundError: no object of that name.
            UnsupportedError: the element type is unknown.
            LimitError: a dense object has more dimensions than `Limits.rank`.
        """
        from ztensor.reading.slices import slice_of

        return slice_of(self, name, self._object(name))

    def location(self, name: str, component: str = "data") -> Location:
        """Return where a component's stored bytes lie, for other I/O engines.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        tensor_object = self._object(name)
        found = tensor_object.components.get(component)
        if found is None:
            error = ObjectNotFoundError.named(
                component, tensor_object.components, self.name, "component"
            )
            error.object_name = name
            error.hint = f"it has {', '.join(map(describe, tensor_object.components))}"
            raise error
        return Location(self._source.path, found.offset, found.length)

    def _source_rights(self) -> set[Rights]:
        """Return the rights of the files whose bytes this reads; none of bytes in memory.

        Raises:
            ClosedError: the reader is closed.
            SourceError: the system does not tell.
            UnsupportedError: a file that another one names is behind a link that leads away.
        """
        found = {self._source.rights()} if isinstance(self._source, FileSource) else set()
        for encoding in self._encodings.values():
            # Only encodings of other formats have bytes in other files: ONNX.
            rights_beside = getattr(encoding, "rights", None)
            if rights_beside is not None:
                found.add(rights_beside())
        return found

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what Dask calls the file: another one that takes its place is called otherwise.

        Raises:
            SourceError: the bytes are in no file of the system, and cannot be read.
        """
        return ("ztensor.Reader", self._identity())

    def _identity(self) -> object:
        """Return what tells these bytes from others: of a file its place and times."""
        if isinstance(self._source, FileSource):
            return self._source.identity()
        whole = Range(self._source, 0, self._source.size)
        return digest_of_bytes(ALGORITHMS["sha256"], whole.pieces())

    def _token_of(self, name: str) -> tuple[object, ...]:
        """Return what tells an object from others, in any file.

        Digests do where they are strong. A crc32c is not: one replacement in four thousand million
        has the same.
        """
        tensor_object = self._object(name)
        components = sorted(tensor_object.components.items())
        parts: list[object] = []
        for role, one in components:
            how = one.dtype, one.type, one.encoding, one.byte_order, one.nonzero_is_true
            parts.append((role, *how, one.digest))
        if not all((one.digest or "").startswith("sha256:") for _, one in components):
            parts += [(one.offset, one.length) for _, one in components]
            parts.append(self._identity())
            for _, one in components:  # those of ONNX may be in files of their own
                beside = getattr(self._encodings.get(one.encoding), "identity", None)
                parts += [] if beside is None else [beside()]
        meaning = tensor_object.shape, tensor_object.format, repr(tensor_object.attributes)
        return *meaning, *parts

    def reader_of(self, name: str) -> ManifestReader:
        """Return the reader of the file an object is in: this one, where there is one file."""
        return self

    def _select(self, names: Iterable[str]) -> Self:
        """Return a reader of some of the objects, over the same open file."""
        return self._with_objects({name: self._object(name) for name in names})

    def _with_objects(
        self,
        objects: Mapping[str, TensorObject],
        encodings: Mapping[str, Encoding] | None = None,
    ) -> Self:
        """Return a reader of other objects over the same open file."""
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        part._manifest = dataclasses.replace(self._manifest, objects=objects)
        if encodings is not None:
            part._encodings = encodings
            part._fetching = self._fetching.with_encodings(encodings)
        return part

    # --- The engine -------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def _object(self, name: str) -> TensorObject:
        self._require_open()
        found = self._manifest.objects.get(name) if isinstance(name, str) else None
        if found is None:
            raise self._not_found(name)
        return found

    def _several(self, names: Iterable[str]) -> Iterable[str]:
        if not hasattr(names, "__iter__"):
            raise ArgumentTypeError(
                "expected a name, or several", file=self.name, found=describe(names, 40)
            )
        return names

    def _not_found(self, name: object) -> ZTensorError:
        if not isinstance(name, str):
            return ArgumentTypeError(
                "an object's name is text", file=self.name, found=describe(name)
            )
        return ObjectNotFoundError.named(name, self, self.name)

    def _require_dense(self, name: str, tensor_object: TensorObject) -> None:
        if tensor_object.format != "dense":
            raise ArgumentTypeError(
                "the object is not dense; read(name) gives its components, "
                "read(name).to_dense() the array where the layout has one",
                file=self.name,
                object_name=name,
                found=f"format {describe(tensor_object.format)}",
            )
        if len(tensor_object.shape) > self._limits.rank:
            raise LimitError(
                "the object has more dimensions than Limits.rank; read(name) gives its components",
                reason=Reason.LIMIT_RANK,
                file=self.name,
                object_name=name,
                expected=f"at most {self._limits.rank}",
                found=str(len(tensor_object.shape)),
            )

    @contextmanager
    def _located(self, name: str, role: str | None = None) -> Iterator[None]:
        try:
            yield
        except ZTensorError as error:
            error.locate(file=self.name, object_name=name, component=role)
            if self.format != "zt":
                error.forget_sections()
            raise

    def _dense(self, name: str, tensor_object: TensorObject, *, copy: bool) -> Array:
        self._require_dense(name, tensor_object)
        with self._located(name):
            array = self._component(name, tensor_object, "data", None, copy=copy)
            if array.shape == tensor_object.shape:
                return array
            return self._as_tensor(tensor_object, {"data": array}).numpy()

    def _tensor(self, name: str, tensor_object: TensorObject, *, copy: bool) -> Tensor:
        layout = LAYOUTS.get(tensor_object.format)
        if layout is None and tensor_object.is_opaque:
            raise UnsupportedError(
                "the layout is unknown, and only it tells what the stored bytes are",
                reason=Reason.UNKNOWN_LAYOUT,
                file=self.name,
                object_name=name,
                expected=f"one of {', '.join(LAYOUTS)}",
                found=describe(tensor_object.format),
            )
        arrays: dict[str, Array] = {}
        entries = None
        with self._located(name):
            for role in roles_in_order(tensor_object):
                array = self._component(name, tensor_object, role, entries, copy=copy)
                arrays[role] = array
                if layout is not None and entries is None:
                    last = int(array[-1]) if array.size and array.dtype.kind in "iu" else 0
                    entries = layout.entries_told(role, array.size, last)
            if layout is not None and tensor_object.format == "dense":
                with suppress(LayoutError, LimitError):  # flat where NumPy has no such shape
                    arrays["data"] = layout.to_dense(View(tensor_object.shape, arrays, {}))
            tensor = self._as_tensor(
                tensor_object, {role: arrays[role] for role in tensor_object.components}
            )
            tensor.require_valid()
        return tensor

    def _as_tensor(self, tensor_object: TensorObject, arrays: dict[str, Array]) -> Tensor:
        layout = LAYOUTS.get(tensor_object.format)
        main = None if layout is None else tensor_object.components.get(layout.main_role)
        declared = main.type if main is not None and main.logical is None else None
        view = View(tensor_object.shape, arrays, with_dicts(tensor_object.attributes or {}))
        return Tensor._of_view(view, tensor_object.format, declared)

    def _component(
        self, name: str, tensor_object: TensorObject, role: str, entries: int | None, *, copy: bool
    ) -> Array:
        """Return a component as a flat array of its elements, every check done."""
        component = tensor_object.components[role]
        with self._located(name, role):
            require_known(component)
            stored = self._stored(component)
            stored.encoding()  # known?
            data: memoryview | Array
            if component.encoding == "raw":
                data = stored.raw(copy=copy)
            else:
                layout = LAYOUTS.get(tensor_object.format)
                expected = component.known_decoded_length
                if layout is not None:
                    expected = layout.expected_length(tensor_object, role, entries)
                data = stored.decoded(expected)
            array = typed_array(component, data)
            if role == "data" and tensor_object.format == "dense":
                packed = component.logical
                if packed is not None and packed.elements_per_storage > 1:
                    return array[: element_count(tensor_object.shape)]  # the rest is padding
            return array

    def _stored(self, component: Component) -> StoredComponent:
        """Return the way to a component's bytes: all that reads them goes through it."""
        return self._fetching.of(component)

    def decoded_chunks(self, name: str, role: str = "data") -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order, in pieces of a few MiB, without holding all.

        Byte order is little-endian. Each piece is valid until the next. A digest is checked unless
        the reader was opened with `verify=False`, at the end: by then the pieces are out.

        Args:
            name: the object's name.
            role: the component's.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        self.location(name, role)
        tensor_object = self._object(name)
        if tensor_object.is_opaque:
            self._tensor(name, tensor_object, copy=False)  # raises, and says why
        component = tensor_object.components[role]
        chunks = self._chunks(name, tensor_object, role)
        if component.byte_order == "little" and not component.has_free_bools:
            yield from chunks
            return
        with self._located(name, role):
            for piece in whole_elements(component, chunks):
                yield from blocks(typed_array(component, piece))

    def _portable_object(self, name: str) -> TensorObject:
        """Return an object as 1.2 has it once decoded: raw, little-endian, its indices u64.

        Places, lengths and digests are those of the file; the bytes are `_portable_chunks`.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
                bytes are.
        """
        tensor_object = self._object(name)
        self._require_meaning(name, tensor_object)
        changed = {
            role: dataclasses.replace(
                component,
                dtype="u64" if _is_index(tensor_object, role) else component.dtype,
                byte_order="little",
                nonzero_is_true=False,
            )
            for role, component in tensor_object.components.items()
            if not _is_portable(tensor_object, role)
        }
        if not changed:
            return tensor_object
        components = {**tensor_object.components, **changed}
        return dataclasses.replace(tensor_object, components=components)

    def _require_meaning(self, name: str, tensor_object: TensorObject) -> None:
        """Raise where nobody but the format an object comes from could tell what its bytes are."""
        if tensor_object.is_opaque:
            self._tensor(name, tensor_object, copy=False)  # raises, and says why
        if self._format != "zt":  # our own words are kept, also those of later releases
            for role, component in tensor_object.components.items():
                with self._located(name, role):
                    require_known(component)
                    self._stored(component).encoding()

    def _portable_chunks(self, name: str, role: str) -> Iterator[memoryview]:
        """Yield `decoded_chunks`, indices as u64: the bytes `_portable_object` speaks of.

        Raises:
            LayoutError: indices are no integers, or one is negative.
            ZTensorError: what `decoded_chunks` raises.
        """
        self.location(name, role)
        chunks = self.decoded_chunks(name, role)
        tensor_object = self._object(name)
        component = dataclasses.replace(tensor_object.components[role], byte_order="little")
        if not _is_index(tensor_object, role) or component.dtype == "u64":
            yield from chunks
            return
        with self._located(name, role):
            for piece in whole_elements(component, chunks):
                indices = typed_array(component, piece)
                if indices.dtype.kind not in "iu" or int(indices.min()) < 0:
                    raise LayoutError(
                        "indices are integers, none of them negative",
                        reason=Reason.INDEX_DTYPE,
                        found=f"{indices.min()} of {indices.dtype.name}",
                    )
                yield from blocks(indices.astype(np.uint64))

    def _chunks(self, name: str, tensor_object: TensorObject, role: str) -> Iterator[memoryview]:
        """Yield a component's decoded bytes in the order they are stored in, its digest checked."""
        component = tensor_object.components[role]
        expected = self._decoded_length(name, tensor_object, role)
        with self._located(name, role):
            yield from self._stored(component).checked_pieces(expected)

    def _stored_object(self, name: str) -> TensorObject | None:
        """Return an object whose stored bytes can be copied into a file of 1.1 or 1.2.

        Returns:
            The object, compressed components with their decoded length; None where the bytes
            mean something else there and the object has to be decoded: big-endian data and bools
            of 0.1, indices that are not u64, what only another format knows to decode, or to
            check.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
                bytes are.
        """
        tensor_object = self._object(name)
        self._require_meaning(name, tensor_object)
        changed = {}
        for role, component in tensor_object.components.items():
            has_foreign_digest = self._format != "zt" and component.digest is not None
            if (
                not _is_portable(tensor_object, role)
                or has_foreign_digest
                or (
                    ENCODINGS.get(component.encoding) is not self._encodings.get(component.encoding)
                )
            ):
                return None
            if component.encoding in ENCODINGS and component.encoding != "raw":
                decoded_length = self._decoded_length(name, tensor_object, role)
                changed[role] = dataclasses.replace(component, decoded_length=decoded_length)
        if not changed:
            return tensor_object
        components = {**tensor_object.components, **changed}
        return dataclasses.replace(tensor_object, components=components)

    def _decoded_length(self, name: str, tensor_object: TensorObject, role: str) -> int:
        """Return how many bytes a compressed component decodes to; decodes where nothing tells."""
        component = tensor_object.components[role]
        known = known_length(tensor_object, role)
        if known is None:
            with self._located(name, role):
                known = self._stored(component).decoded_length()
        return known

    def _fill(self, name: str, tensor_object: TensorObject, target: Any) -> None:
        self._require_dense(name, tensor_object)
        with self._located(name, "data"):
            if is_torch(target):
                from ztensor.torch.devices import fill

                fill(self, name, tensor_object, target)
                return
            if not isinstance(target, np.ndarray):
                raise ArgumentTypeError(
                    "read_into fills an array", expected="numpy.ndarray", found=describe(target, 40)
                )
            target = np.asarray(target)  # a matrix, for one, cannot be filled flat
            component = tensor_object.components["data"]
            dtype = result_dtype(component)
            fits = target.dtype.newbyteorder("=") == dtype
            if target.shape != tensor_object.shape or not fits:
                kind = ArgumentValueError if fits else ArgumentTypeError
                raise kind(
                    "the array does not fit the object",
                    expected=f"shape {describe(tensor_object.shape)} of {dtype.name}",
                    found=f"shape {target.shape} of {target.dtype.name}",
                )
            if not target.flags.writeable:
                raise ArgumentValueError("the array is read-only")
            stored = self._stored(component)
            is_plain = target.flags.c_contiguous and target.dtype.isnative and target.size > 0
            if is_plain and stored.is_in_place(target.nbytes):
                stored.fill(target.reshape(-1).view(np.uint8).data)
            else:
                target[...] = self._dense(name, tensor_object, copy=True)


def roles_in_order(tensor_object: TensorObject) -> list[str]:
    """Return an object's roles, those first that tell how long others are."""
    layout = LAYOUTS.get(tensor_object.format)
    first = layout.read_order if layout is not None else ()
    return [*first, *(role for role in tensor_object.components if role not in first)]


def known_length(tensor_object: TensorObject, role: str) -> int | None:
    """Return the decoded length of a component as far as the manifest and the layout tell it."""
    known = tensor_object.components[role].known_decoded_length
    layout = LAYOUTS.get(tensor_object.format)
    if known is None and layout is not None:
        return layout.expected_length(tensor_object, role, None)
    return known


def _is_portable(tensor_object: TensorObject, role: str) -> bool:
    """Return whether a component's decoded bytes are as 1.2 has them."""
    component = tensor_object.components[role]
    return (
        component.byte_order == "little"
        and not component.has_free_bools
        and not (component.dtype != "u64" and _is_index(tensor_object, role))
    )


def _is_index(tensor_object: TensorObject, role: str) -> bool:
    layout = LAYOUTS.get(tensor_object.format)
    return layout is not None and role in layout.index_roles
