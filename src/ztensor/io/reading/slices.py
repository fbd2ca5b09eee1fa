"""`TensorSlice`: a lazy object; indexing reads only the elements of the index.

`DenseSlice` takes any NumPy index and returns arrays. `RowSlice` selects rows of other layouts.
`slice_of` makes a slice; `slices` reads from several objects and batches network requests.
"""

from __future__ import annotations

import abc
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from ztensor.accepted import Index
from ztensor.errors import (
    ArgumentTypeError,
    BufferExportError,
    LimitError,
    Reason,
    UsageError,
    describe,
)
from ztensor.interactive import Shown
from ztensor.io.protocols import DLPackExporter, as_type, require_buffer_type, to_buffer
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.selection import gives_view, select, select_rows
from ztensor.io.reading.stored_array import StoredArray
from ztensor.io.source.base import AtOnce
from ztensor.locks import cached_property
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.layout.base import Array, View, row_count
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.layout.sparse import require_entries_once
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import TensorObject
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from ztensor.io.shards.objects import Objects
    from ztensor.io.tensor import Tensor

_MOST_FILES = 8  # read concurrently


class TensorSlice(DLPackExporter, Shown, abc.ABC):
    """A lazy object of a reader: indexing reads only the elements of the index. Thread-safe.

    Dense objects return arrays, sparse and quantized ones a `Tensor` of the selected rows.

    Attributes:
        name: the object's name.
        shape: the object's shape.
        dtype: the element type of the main component: `data`, `values` or `packed_weight`.
    """

    @property
    def row_unit(self) -> int:
        """Return the number of rows of a unit: selections begin and end at its multiples."""
        return 1

    def __init__(
        self,
        file: FileObjects,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        copy: bool,
    ) -> None:
        self._file, self._copy = file, copy
        self.name, self.shape, self.dtype = name, shape, dtype

    @overload
    def __getitem__(self, key: SupportsIndex | tuple[SupportsIndex, ...]) -> Any: ...
    @overload
    def __getitem__(self, key: Index) -> Array | Any: ...
    @abc.abstractmethod
    def __getitem__(self, key: Index) -> Array | Any:
        """Return the elements that an index selects.

        A dense object returns what NumPy returns for the same index of the whole array: integers,
        slices, `...`, None, arrays of integers or bools. Mapped raw data is a view of the file
        wherever NumPy returns a view. Everything else is new memory, and only the needed byte
        ranges and zstd frames are read.

        A sparse or quantized object returns a `Tensor` of the same layout with the selected rows;
        an integer selects a matrix of one row. Rows of a `quantized_group` must be whole groups.

        Digests cover whole components: a slice is only checked if the reader was opened with
        `verify=True`.

        Raises:
            ClosedError: the reader is closed.
            ArgumentTypeError: `key` is not an index.
            ArgumentValueError: `key` does not fit the shape, or cuts a group of a quantized object.
            FormatError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded, or the result does not fit into memory.
            SourceError: the bytes could not be read.
        """

    @abc.abstractmethod
    def _exported(self) -> Array:
        """Return the whole array, for protocols of other libraries."""

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements, including zeros that are not stored."""
        return element_count(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes of an array of `shape` and `dtype`."""
        return self.size * self.dtype.itemsize

    def get_shape(self) -> list[int]:
        """Return the shape as a list."""
        return list(self.shape)

    def get_dtype(self) -> str:
        """Return the element type's long name."""
        return self.dtype.name

    def __len__(self) -> int:
        """Return the length of the first axis."""
        if not self.shape:
            raise ArgumentTypeError("a scalar has no length", object_name=self.name)
        if self.shape[0] > sys.maxsize:
            raise LimitError(
                "the first axis is longer than Python can count",
                reason=Reason.LIMIT_DECODED,
                object_name=self.name,
                found=describe(self.shape[0]),
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the first axis: `self[0]`, `self[1]`, and so on."""
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        """Return name, shape and element type."""
        kind = type(self).__name__
        return f"<{kind} {describe(self.name)} shape={self.shape} dtype={self.dtype.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle file and name, without decoded data."""
        return slice_of, (self._file, self.name)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return Dask's token of the object; it changes when the file is replaced.

        Raises:
            ClosedError: the reader is closed.
            SourceError: the bytes are not in a local file, and cannot be read to be hashed.
        """
        return ("ztensor.TensorSlice", *_token(self._file, self.name))

    def __array__(  # NumPy calls it with these, by position
        self,
        dtype: Any = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> Array:
        """Return the whole array for `np.asarray`; sparse and quantized ones are not expanded."""
        return as_type(self._exported(), dtype, copy=bool(copy))

    def __buffer__(self, flags: int) -> memoryview:
        """Return the whole array for `memoryview(...)`, from Python 3.12 on."""
        del flags  # the interpreter checks them against the view
        require_buffer_type(self.dtype)  # before anything is read
        return to_buffer(self._exported())


class DenseSlice(TensorSlice):
    """A lazy dense object: indexing takes any NumPy index and returns what NumPy would."""

    @cached_property
    def _data(self) -> StoredArray:
        found = self._file.require_dense(self.name)
        with self._file.located(self.name, "data"):
            return StoredArray(self._file, self.name, found, "data", found.shape, copy=True)

    def __getitem__(self, key: Index) -> Any:
        if not self._copy and gives_view(key, len(self.shape)):
            whole = self._file.view(self.name)
            if whole is not None:
                index: Any = key
                try:
                    return whole[index]
                except (IndexError, TypeError, ValueError, OverflowError):
                    pass  # `owned` raises a better error
        return self._data.owned(key)

    def _exported(self) -> Array:
        array: Array = self[...]
        return array


class RowSlice(TensorSlice):
    """A lazy object of several components; an index selects rows and returns them as a `Tensor`.

    Raises:
        UsageError: the layout cannot be sliced.
        UnsupportedError: the storage type is unknown.
    """

    def __init__(
        self, file: FileObjects, name: str, tensor_object: TensorObject, *, copy: bool
    ) -> None:
        layout = LAYOUTS.get(tensor_object.format)
        part = functools.partial(StoredArray, file, name, tensor_object, copy=copy)
        rows = None if layout is None else layout.rows(tensor_object, part)
        if layout is None or rows is None:
            raise UsageError(
                "objects of this layout cannot be sliced; read(name) gives their components",
                file=file.name,
                object_name=name,
                expected="a dense, sparse or quantized object",
                found=f"format {describe(tensor_object.format)}",
            )
        with file.located(name, layout.main_role):
            dtype = result_dtype(tensor_object.components[layout.main_role])
        super().__init__(file, name, tensor_object.shape, dtype, copy=copy)
        self._object, self._rows = tensor_object, rows

    @property
    def row_unit(self) -> int:
        """Return the number of rows of a unit: selections begin and end at its multiples."""
        return self._rows.unit

    def __getitem__(self, key: Index) -> Tensor:
        file, shape = self._file, self.shape
        with file.located(self.name):
            file.require_open()
            rows = select_rows(key, shape) if shape else None
            if rows is None:
                select(key, shape)  # a scalar has no rows; only checks the index
            if rows is None or (isinstance(rows, range) and rows == range(shape[0])):
                return file.tensor(self.name, copy=self._copy)
            arrays = self._rows.cut(rows)
            cut = self._object._replace(shape=(row_count(rows), *shape[1:]))
            if cut.entries_once:
                require_entries_once(cut.format, View(cut.shape, arrays, {}))
            return file.as_tensor(cut, arrays)

    def _exported(self) -> Array:
        raise BufferExportError(
            f"a {describe(self._object.format)} object is not an array; index it and use "
            + ("to_dense()" if "sparse" in self._object.format else "dequantize()"),
            file=self._file.name,
            object_name=self.name,
        )


def slice_of(file: FileObjects, name: str, *, copy: bool = False) -> TensorSlice:
    """Return the lazy slice of an object.

    Args:
        file: the file of the object.
        name: the object's name.
        copy: True returns no views of the file and touches no map.

    Raises:
        ObjectNotFoundError: no object of that name.
        UsageError: the layout cannot be sliced.
        LimitError: a dense object has more dimensions than `Limits.rank`.
        UnsupportedError: the storage type is unknown.
    """
    place = file.native_place(name)
    if place is not None:  # a native tensor: shape and dtype are known
        return DenseSlice(file, name, place.shape, place.dtype, copy=copy)
    entry = file.object(name)
    if entry.format != "dense":
        return RowSlice(file, name, entry, copy=copy)
    entry = file.require_dense(name)
    with file.located(name, "data"):
        dtype = result_dtype(entry.components["data"])
    return DenseSlice(file, name, entry.shape, dtype, copy=copy)


def _token(file: FileObjects, name: str) -> tuple[object, ...]:
    """Return a key of an object's value, unique across files.

    Strong digests (sha256) suffice. A crc32c does not, with one collision in four thousand million:
    extent and file identity are added.
    """
    entry = file.object(name)
    components = sorted(entry.components.items())
    parts: list[object] = []
    for role, part in components:
        meaning = part.dtype, part.type, part.encoding, part.byte_order, part.nonzero_is_true
        parts.append((role, *meaning, part.digest))
    if not all((part.digest or "").startswith("sha256:") for _, part in components):
        parts += [(part.offset, part.length) for _, part in components]
        parts.append(file.identity())
        for _, part in components:  # external data of ONNX is in other files
            external = getattr(file.encodings.get(part.encoding), "identity", None)
            parts += [] if external is None else [external()]
    return entry.shape, entry.format, repr(entry.attributes), *parts


def slices(objects: Objects, wanted: Any) -> dict[str, Any] | list[Any]:
    """Return slices of objects; see `Reader.read_slices`."""
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else _pairs(wanted, objects.name)
    results: list[Any] = [None] * len(pairs)
    batches: dict[FileObjects, AtOnce] = {}
    lazy: dict[str, TensorSlice] = {}
    for number, (name, key) in enumerate(pairs):
        file = objects.part(name)
        part = lazy.get(name) or lazy.setdefault(name, slice_of(file, name))
        if file.source.prefers_long_reads and isinstance(part, DenseSlice):
            at_once = batches.setdefault(file, AtOnce(file.source))
            part._data.ask(key, at_once, functools.partial(results.__setitem__, number))
        else:
            results[number] = part[key]
    run_jobs((at_once.end for at_once in batches.values()), min(_MOST_FILES, len(batches)))
    if isinstance(wanted, Mapping):
        return {name: part for (name, _), part in zip(pairs, results, strict=True)}
    return results


def _pairs(wanted: Iterable[Any], file: str) -> list[tuple[str, Any]]:
    is_text = isinstance(wanted, (str, bytes))
    pairs: list[Any] = [wanted] if is_text or not hasattr(wanted, "__iter__") else list(wanted)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentTypeError(
                "read_slices takes a mapping from names to indices, or pairs of a name and an "
                "index",
                file=file,
                found=describe(pair, 40),
            )
    return pairs
