"""The face of opened files: what users call, over `Objects` of one file or several."""

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
        objects: what is read from; closed with the reader.

    Attributes:
        objects: as given. It is what the rest of the library reads through, and may change from
            release to release.
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
        """Return what the file says that neither its objects nor its attributes do.

        A zTensor file says nothing else. One of another format may hold a graph, code, or values
        for which there is no word here; it is named by kind, place, count and length, and whoever
        copies the file loses it.

        Raises:
            FormatError: the file is damaged.
            SourceError: it cannot be read.
        """
        return self.objects.unrepresented

    @property
    def name(self) -> str:
        """Return the path, or a description where there is none."""
        return self.objects.name

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole file."""
        return self.objects.nbytes

    def close(self) -> None:
        """Give back the file; arrays that are views of it stay valid. May be called again."""
        self.objects.close()

    def __enter__(self) -> Self:
        """Return the reader itself."""
        self.objects.require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the reader."""
        self.close()

    def __repr__(self) -> str:
        """Return file, version and how many objects there are."""
        objects = self.objects
        state = " (closed)" if objects.is_closed else ""
        return (
            f"<ztensor.Reader {describe(objects.name)} version {describe(objects.version)}, "
            f"{counted(len(objects.names), 'object')}{state}>"
        )

    def prefetch(self, names: str | Iterable[str] | None = None) -> int:
        """Ask the system to read objects into its page cache, ahead of whoever reads them.

        It returns when the system has taken the requests, which for more than its queue holds may
        be about when they are done: call it from a thread of your own to go on meanwhile. No map
        is touched, and no memory of this process is used.

        Args:
            names: of which objects; None for whole files, all files of a set.

        Returns:
            Bytes that were asked for. 0 where there is no page cache to ask: for bytes, file
            objects, remote files, and on systems without `posix_fadvise` (macOS, Windows). What
            an ONNX model keeps in files beside it is left out.

        Raises:
            ObjectNotFoundError: no object of one of the names.
            ClosedError: the reader is closed.
            ZTensorError: what opening a file of a set raises.
        """
        return _advise(self.objects, names, is_needed=True)

    def evict(self, names: str | Iterable[str] | None = None) -> int:
        """Tell the system that objects need not stay in its page cache.

        Other processes that read the file lose them there, too. Pages that views of this process
        have touched stay until the arrays are gone, as do pages not yet written to disk.

        Args:
            names: of which objects; None for whole files, all files of a set.

        Returns:
            Bytes that were given up; 0 where there is no page cache, as for `prefetch`.

        Raises:
            ObjectNotFoundError: no object of one of the names.
            ClosedError: the reader is closed.
            ZTensorError: what opening a file of a set raises.
        """
        return _advise(self.objects, names, is_needed=False)

    # --- The mapping ------------------------------------------------------------------------

    def keys(self) -> list[str]:  # type: ignore[override]  # a list is what the 1.2 API gives
        """Return all names, in the order of the file."""
        return list(self.objects.names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over names in the order of the file."""
        return iter(self.objects.names)

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self.objects.names)

    # A mapping would compare all values: two readers are the same when they are one.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __contains__(self, name: object) -> bool:
        """Return whether there is an object of that name; nothing is read."""
        return isinstance(name, str) and name in self.objects.names

    def __getitem__(self, name: str) -> Array | Any:
        """Return a dense object as an array, and one of another layout as a `Tensor`.

        Raw data is a view of the file, unchecked, and copied only where it is written to; see
        `read_numpy`.
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
            FormatError: the file is an `.npz` or `.pt`, whose members are looked at one by one,
                and this one is damaged.
            SourceError: it could not be read.
        """
        import ztensor.io.metadata as describing  # as `get_slice`

        part, describe_object = self.objects.part, describing.describe_object
        if isinstance(name, str):
            return describe_object(name, part(name).object(name))
        from ztensor.io.collecting import no_collection

        with no_collection():
            return [describe_object(one, part(one).object(one)) for one in name]

    @overload
    def read(self, name: str, *, copy: bool = False) -> Tensor: ...  # type: ignore[overload-overlap]
    @overload
    def read(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Tensor]: ...
    def read(self, name: str | Iterable[str], *, copy: bool = False) -> Tensor | dict[str, Tensor]:
        """Return an object of any layout with all its components.

        Args:
            name: one name, or several for a dict.
            copy: False gives views of the file where the data is raw, unchecked; True always new
                memory, checked against its digest.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the stored bytes are damaged or do not make the layout.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        if isinstance(name, str):
            return self.objects.part(name).tensor(name, copy=copy)
        part = self.objects.part
        return {one: part(one).tensor(one, copy=copy) for one in name}

    @overload
    def read_numpy(self, name: str, *, copy: bool = False) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def read_numpy(self, name: Iterable[str], *, copy: bool = False) -> dict[str, Array]: ...
    def read_numpy(
        self, name: str | Iterable[str], *, copy: bool = False
    ) -> Array | dict[str, Array]:
        """Return dense objects as arrays of their shape, in native byte order.

        Raw little-endian data is a view of the file, unchecked, that outlives the reader; writing
        to it copies the page and never reaches the file. A file of another format may have it at
        any address, which `flags.aligned` of the array tells. Compressed data is new memory.
        bfloat16, fp8 and fp4 come as the types of ml_dtypes; a scalar is a 0-d array.

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
        if isinstance(name, str):
            return self.objects.part(name).array(name, copy=copy)
        part = self.objects.part
        return {one: part(one).array(one, copy=copy) for one in name}

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
        from ztensor.io.reading.loading import fill

        for one, target in targets.items():
            fill(self.objects.part(one), one, target)

    def get_slice(self, name: str) -> TensorSlice:
        """Return a lazy object: `reader.get_slice(name)[10:20, ::2]` reads what it needs.

        Dense objects are indexed like arrays; of sparse and quantized ones rows are selected.

        Raises:
            UsageError: the object is of a layout whose rows are not known here.
            ObjectNotFoundError: no object of that name.
            UnsupportedError: the element type is unknown.
            LimitError: a dense object has more dimensions than `Limits.rank`.
        """
        # Not for whole tensors. Where it is there already, `from` would take 0.6 us longer.
        import ztensor.io.reading.slices as slicing

        return slicing.slice_of(self.objects.part(name), name)

    @overload
    def read_slices(self, wanted: Mapping[str, Index]) -> dict[str, Any]: ...
    @overload
    def read_slices(self, wanted: Iterable[tuple[str, Index]]) -> list[Any]: ...
    def read_slices(
        self, wanted: Mapping[str, Index] | Iterable[tuple[str, Index]]
    ) -> dict[str, Any] | list[Any]:
        """Return parts of several objects, each as `get_slice(name)[index]` gives it.

        Of a remote file all dense parts are asked for together: of a few dozen neighbouring
        tensors by one to three requests. Parts of sparse and quantized objects, and of compressed
        ones whose frames the file does not list, are read one after the other.

        Args:
            wanted: a mapping from names to indices; or pairs of a name and an index, which may
                name an object more than once.

        Returns:
            Of a mapping a dict with its keys, of pairs a list in their order: arrays of dense
            objects, and `Tensor`s of others. On a local file they are views where `get_slice`
            gives views. Beside the results at most 64 MiB of memory are used for one file.

        Raises:
            ArgumentTypeError: it is neither, or an index is none.
            ArgumentValueError: an index does not fit its object's shape.
            ObjectNotFoundError: no object of one of the names.
            UsageError: an object is of a layout whose rows are not known here.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded, or a result does not fit into memory.
            SourceError: the bytes could not be read.
            ClosedError: the reader is closed.
        """
        from ztensor.io.reading.slices import slices  # as `get_slice`

        self.objects.require_open()
        return slices(self.objects, wanted)

    def location(self, name: str, component: str = "data") -> Location:
        """Return where a component's stored bytes lie, for other I/O engines.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        return self.objects.part(name).location(name, component)

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
        yield from self.objects.part(name).decoded_chunks(name, role)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what Dask calls the file: another one that takes its place is called otherwise.

        Raises:
            SourceError: the bytes are in no file of the system, and cannot be read.
        """
        return ("ztensor.Reader", self.objects.identity())


def _advise(objects: Objects, names: str | Iterable[str] | None, *, is_needed: bool) -> int:
    """Tell the system that it will be asked for objects, or that they need not stay in its cache.

    Args:
        objects: what they are among.
        names: of which objects; None for all bytes of the files.
        is_needed: as `FileObjects.advise` takes it, which says what is returned.
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
