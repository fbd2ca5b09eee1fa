"""The public reader: a mapping over the `Objects` of one file or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, overload

from ztensor.aliases import ReaderAliases
from ztensor.errors import ArgumentTypeError, describe
from ztensor.interactive import Hinted, Shown
from ztensor.showing import counted
from ztensor.spec.layout.base import Array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ztensor.accepted import Index, TorchTensor
    from ztensor.io.losses import Unrepresented
    from ztensor.io.metadata import TensorMetadata
    from ztensor.io.reading.file import Location
    from ztensor.io.reading.slices import TensorSlice
    from ztensor.io.shards.objects import Objects
    from ztensor.io.tensor import Tensor


class ObjectReader(Shown, Hinted, ReaderAliases, Mapping[str, "Array | Any"]):
    """A mapping from object names to arrays; `ztensor.Reader` adds the opening.

    Args:
        objects: the objects to read; closed together with the reader.

    Attributes:
        objects: as passed. Internal: it may change from release to release.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    # --- The file ---------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """Return the name of the container format: `zt`."""
        return self.objects.format

    @property
    def version(self) -> str:
        """Return the version text of the file, such as `1.2.0`."""
        return self.objects.version

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the file's own key-value pairs; empty where there are none."""
        return self.objects.attributes

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return the loss report: content of the file that is neither object nor attribute.

        It is empty for zTensor files. Files of other formats may hold a graph, code, or values
        without a counterpart here. A conversion loses them; the report names them by kind, place,
        count and length.

        Raises:
            FormatError: the file is damaged.
            SourceError: the file cannot be read.
        """
        return self.objects.unrepresented

    @property
    def name(self) -> str:
        """Return the path, or a description of bytes and file objects."""
        return self.objects.name

    @property
    def nbytes(self) -> int:
        """Return the length of the file, or of all files of a set."""
        return self.objects.nbytes

    def close(self) -> None:
        """Close the file. Arrays that are views of it stay valid. May be called again."""
        self.objects.close()

    def __enter__(self) -> Self:
        """Return the reader itself."""
        self.objects.require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the reader."""
        self.close()

    def __repr__(self) -> str:
        """Return file, version and number of objects."""
        objects = self.objects
        state = " (closed)" if objects.is_closed else ""
        return (
            f"<ztensor.Reader {describe(objects.name)} version {describe(objects.version)}, "
            f"{counted(len(objects.names), 'object')}{state}>"
        )

    def prefetch(self, names: str | Iterable[str] | None = None) -> int:
        """Ask the system to read objects into its page cache.

        The call returns when the system has queued the requests. A full queue blocks, possibly
        until the data is read: use a thread of your own to go on meanwhile. No map is touched and
        no memory of this process is used.

        Args:
            names: the objects; None asks for whole files, all files of a set.

        Returns:
            The number of bytes asked for. 0 for bytes, file objects and remote files, and on
            systems without `posix_fadvise` (macOS, Windows). External data files of an ONNX model
            are not included.

        Raises:
            ObjectNotFoundError: no object of one of the names.
            ClosedError: the reader is closed.
            ZTensorError: a file of a set cannot be opened.
        """
        return _advise(self.objects, names, is_needed=True)

    def evict(self, names: str | Iterable[str] | None = None) -> int:
        """Ask the system to drop objects from its page cache, for all processes.

        Pages that views of this process have touched stay until the arrays are freed, as do dirty
        pages.

        Args:
            names: the objects; None drops whole files, all files of a set.

        Returns:
            The number of bytes asked for; 0 if there is no page cache, as for `prefetch`.

        Raises:
            ObjectNotFoundError: no object of one of the names.
            ClosedError: the reader is closed.
            ZTensorError: a file of a set cannot be opened.
        """
        return _advise(self.objects, names, is_needed=False)

    # --- The mapping ------------------------------------------------------------------------

    def keys(self) -> list[str]:  # type: ignore[override]  # a list, as in the 1.2 API
        """Return all names, in the order of the file."""
        return list(self.objects.names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over names in the order of the file."""
        return iter(self.objects.names)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.objects.names)

    # By identity: a mapping would compare all values.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __contains__(self, name: object) -> bool:
        """Return whether there is an object of that name; nothing is read."""
        return isinstance(name, str) and name in self.objects.names

    def __getitem__(self, name: str) -> Array | Any:
        """Return a dense object as an array, and an object of another layout as a `Tensor`.

        Raw data is an unchecked view of the file, copied on write; see `read_numpy`.
        """
        return self.objects.part(name).value(name, copy=False)

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
            FormatError: the file is an `.npz` or `.pt`, and this member's header is damaged.
            SourceError: the header could not be read.
        """
        import ztensor.io.metadata as describing  # see `get_slice`

        part, describe_object = self.objects.part, describing.describe_object
        if isinstance(name, str):
            return describe_object(name, part(name).object(name))
        from ztensor.io.collecting import no_collection

        with no_collection():
            return [describe_object(each, part(each).object(each)) for each in name]

    @overload
    def read(self, name: str, *, copy: bool = False) -> Tensor: ...  # type: ignore[overload-overlap]
    @overload
    def read(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Tensor]: ...
    def read(self, name: str | Iterable[str], *, copy: bool = False) -> Tensor | dict[str, Tensor]:
        """Return an object of any layout with all its components.

        Args:
            name: one name, or several for a dict.
            copy: False returns unchecked views of the file for raw data; True always new memory,
                checked against its digest.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged or break a rule of the layout.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        if isinstance(name, str):
            return self.objects.part(name).tensor(name, copy=copy)
        part = self.objects.part
        return {each: part(each).tensor(each, copy=copy) for each in name}

    @overload
    def read_numpy(self, name: str, *, copy: bool = False) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def read_numpy(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Array]: ...
    def read_numpy(
        self, name: str | Iterable[str], *, copy: bool = False
    ) -> Array | dict[str, Array]:
        """Return dense objects as arrays of their shape, in native byte order.

        Raw little-endian data is an unchecked view of the file that outlives the reader; writing
        to it copies the page and never changes the file. Views of other formats may be unaligned:
        see `flags.aligned`. Compressed data is new memory. bfloat16, fp8 and fp4 are types of
        ml_dtypes; a scalar is a 0-d array.

        Args:
            name: one name, or several for a dict.
            copy: True always returns new memory, checked against its digest.

        Raises:
            UsageError: the object is not dense; the message names the right call.
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        if isinstance(name, str):
            return self.objects.part(name).array(name, copy=copy)
        part = self.objects.part
        return {each: part(each).array(each, copy=copy) for each in name}

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
            ArgumentTypeError: it has another element type, or is not an array.
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
        from ztensor.io.reading.loading import fill

        for each, target in targets.items():
            fill(self.objects.part(each), each, target)

    def get_slice(self, name: str) -> TensorSlice:
        """Return a lazy object: `reader.get_slice(name)[10:20, ::2]` reads only these elements.

        Dense objects are indexed like arrays; an index of sparse and quantized objects selects
        rows.

        Raises:
            UsageError: the layout cannot be sliced.
            ObjectNotFoundError: no object of that name.
            UnsupportedError: the element type is unknown.
            LimitError: a dense object has more dimensions than `Limits.rank`.
        """
        # Whole tensors do not need it. `from ... import` would take 0.6 us longer.
        import ztensor.io.reading.slices as slicing

        return slicing.slice_of(self.objects.part(name), name)

    @overload
    def read_slices(self, wanted: Mapping[str, Index]) -> dict[str, Any]: ...
    @overload
    def read_slices(self, wanted: Iterable[tuple[str, Index]]) -> list[Any]: ...
    def read_slices(
        self, wanted: Mapping[str, Index] | Iterable[tuple[str, Index]]
    ) -> dict[str, Any] | list[Any]:
        """Return slices of several objects, each equal to `get_slice(name)[index]`.

        In a remote file all dense slices are requested together: one to three requests for a few
        dozen neighbouring tensors. Slices of sparse and quantized objects, and of compressed ones
        without a list of frames, are read one after the other.

        Args:
            wanted: a mapping from names to indices; or pairs (name, index), which may repeat a
                name.

        Returns:
            A dict with the keys of a mapping, or a list in the order of the pairs: arrays for
            dense objects, `Tensor`s for others. Local files give views wherever `get_slice` does.
            Besides the results at most 64 MiB of memory are used per file.

        Raises:
            ArgumentTypeError: `wanted` or an index has a wrong type.
            ArgumentValueError: an index does not fit its object's shape.
            ObjectNotFoundError: no object of one of the names.
            UsageError: the layout of an object cannot be sliced.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded, or a result does not fit into memory.
            SourceError: the bytes could not be read.
            ClosedError: the reader is closed.
        """
        from ztensor.io.reading.slices import slices  # see `get_slice`

        self.objects.require_open()
        return slices(self.objects, wanted)

    def location(self, name: str, component: str = "data") -> Location:
        """Return the extent of a component's stored bytes, for other I/O engines.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        return self.objects.part(name).location(name, component)

    def decoded_chunks(self, name: str, role: str = "data") -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order, in chunks of a few MiB.

        Byte order is little-endian. Each chunk is valid until the next. The digest is compared
        after the last chunk, unless the reader was opened with `verify=False`.

        Args:
            name: the object's name.
            role: the component's role.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        yield from self.objects.part(name).decoded_chunks(name, role)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return Dask's token of the file; a file that replaces it has another token.

        Raises:
            SourceError: the bytes are not in a local file, and cannot be read to be hashed.
        """
        return ("ztensor.Reader", self.objects.identity())


def _advise(objects: Objects, names: str | Iterable[str] | None, *, is_needed: bool) -> int:
    """Prefetch or evict objects. Return the number of bytes asked for.

    Args:
        objects: the objects of the reader.
        names: the names to choose; None takes whole files.
        is_needed: see `FileObjects.advise`.
    """
    objects.require_open()
    if names is None:
        return sum(file.advise(0, file.nbytes, is_needed=is_needed) for file in objects.parts())
    places = {
        (file, component.offset, component.length)
        for name in ([names] if isinstance(names, str) else names)
        for file in [objects.part(name)]
        for component in file.object(name).components.values()
    }
    return sum(file.advise(at, length, is_needed=is_needed) for file, at, length in places)
