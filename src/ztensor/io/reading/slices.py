"""`TensorSlice`: an object that is read only where it is indexed.

`DenseSlice` gives arrays for any index NumPy knows; `RowSlice` gives rows of other layouts, which
say where those are. `slice_of` makes one; `slices` reads parts of several objects, and asks for
their bytes together where these come over a network.
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

_MOST_FILES = 8  # that are read from side by side


class TensorSlice(DLPackExporter, Shown, abc.ABC):
    """An object of a reader that is read only where it is indexed; safe to share among threads.

    Dense objects give arrays, sparse and quantized ones a `Tensor` of the rows selected.

    Attributes:
        name: the object's name.
        shape: the object's shape.
        dtype: the element type of the main component: `data`, `values` or `packed_weight`.
    """

    @property
    def row_unit(self) -> int:
        """Return how many rows make a whole: selections of rows begin and end at multiples."""
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
        """Return the part that an index selects.

        Of a dense object, what NumPy returns for the same index of the whole array: integers,
        slices, `...`, None, arrays of integers or bools. Raw data that is mapped gives views of
        the file where NumPy gives views; everything else is new memory, for which only the byte
        ranges and zstd frames that are needed are read.

        Of a sparse or quantized object, a `Tensor` of the same layout with the rows that the
        index selects; an integer selects a matrix of one row. Rows of a
        `quantized_group` must be whole groups.

        A part is not checked against a digest, which covers the whole component, unless the
        reader was opened with `verify=True`.

        Raises:
            ClosedError: the reader is closed.
            ArgumentTypeError: it is no index.
            ArgumentValueError: it does not fit the shape, or cuts a group of a quantized object.
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
        """Return the number of elements, zeros that are not stored among them."""
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
        """Pickle by the file and the name: what was decoded stays here."""
        return slice_of, (self._file, self.name)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what Dask names a graph by: it changes when the file is replaced.

        Raises:
            ClosedError: the reader is closed.
            SourceError: the file's bytes are in memory or behind a file object, and cannot be read.
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
    """A dense object: any index NumPy knows gives what NumPy would."""

    @cached_property
    def _data(self) -> StoredArray:
        found = self._file.require_dense(self.name)
        with self._file.located(self.name, "data"):
            return StoredArray(self._file, self.name, found, "data", found.shape)

    def __getitem__(self, key: Index) -> Any:
        if not self._copy and gives_view(key, len(self.shape)):
            whole = self._file.view(self.name)
            if whole is not None:
                index: Any = key
                try:
                    return whole[index]
                except (IndexError, TypeError, ValueError, OverflowError):
                    pass  # the way below says what is wrong with the key
        return self._data.owned(key)

    def _exported(self) -> Array:
        array: Array = self[...]
        return array


class RowSlice(TensorSlice):
    """An object of several components; an index selects rows and gives a `Tensor` of them.

    Raises:
        UsageError: no rows are known of the object's layout.
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
        """Return how many rows make a whole: selections begin and end at multiples of it."""
        return self._rows.unit

    def __getitem__(self, key: Index) -> Tensor:
        file, shape = self._file, self.shape
        with file.located(self.name):
            file.require_open()
            rows = select_rows(key, shape) if shape else None
            if rows is None:
                select(key, shape)  # a scalar has no rows; the index must fit nevertheless
            if rows is None or (isinstance(rows, range) and rows == range(shape[0])):
                return file.tensor(self.name, copy=self._copy)
            arrays = self._rows.cut(rows)
            cut = self._object._replace(shape=(row_count(rows), *shape[1:]))
            if cut.entries_once:
                require_entries_once(cut.format, View(cut.shape, arrays, {}))
            return file.as_tensor(cut, arrays)

    def _exported(self) -> Array:
        raise BufferExportError(
            f"a {describe(self._object.format)} object is no plain array; index it and use "
            + ("to_dense()" if "sparse" in self._object.format else "dequantize()"),
            file=self._file.name,
            object_name=self.name,
        )


def slice_of(file: FileObjects, name: str, *, copy: bool = False) -> TensorSlice:
    """Return a lazy slice of an object.

    Args:
        file: where it is.
        name: its name.
        copy: True gives no views of the file, and touches no map.

    Raises:
        ObjectNotFoundError: no object of that name.
        UsageError: no rows are known of the object's layout.
        LimitError: a dense object has more dimensions than `Limits.rank`.
        UnsupportedError: the storage type is unknown.
    """
    place = file.plain(name)
    if place is not None:  # dense, and nothing of it has to be looked at
        return DenseSlice(file, name, place.shape, place.dtype, copy=copy)
    found = file.object(name)
    if found.format != "dense":
        return RowSlice(file, name, found, copy=copy)
    found = file.require_dense(name)
    with file.located(name, "data"):
        dtype = result_dtype(found.components["data"])
    return DenseSlice(file, name, found.shape, dtype, copy=copy)


def _token(file: FileObjects, name: str) -> tuple[object, ...]:
    """Return what tells an object from others, in any file.

    Digests do where they are strong. A crc32c is not: one replacement in four thousand million
    has the same.
    """
    found = file.object(name)
    components = sorted(found.components.items())
    parts: list[object] = []
    for role, one in components:
        how = one.dtype, one.type, one.encoding, one.byte_order, one.nonzero_is_true
        parts.append((role, *how, one.digest))
    if not all((one.digest or "").startswith("sha256:") for _, one in components):
        parts += [(one.offset, one.length) for _, one in components]
        parts.append(file.identity())
        for _, one in components:  # those of ONNX may be in files of their own
            beside = getattr(file.encodings.get(one.encoding), "identity", None)
            parts += [] if beside is None else [beside()]
    return found.shape, found.format, repr(found.attributes), *parts


def slices(objects: Objects, wanted: Any) -> dict[str, Any] | list[Any]:
    """Return parts of objects; see `Reader.read_slices`."""
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else _pairs(wanted, objects.name)
    found: list[Any] = [None] * len(pairs)
    waiting: dict[FileObjects, AtOnce] = {}
    parts: dict[str, TensorSlice] = {}
    for number, (name, key) in enumerate(pairs):
        file = objects.part(name)
        part = parts.get(name) or parts.setdefault(name, slice_of(file, name))
        if file.source.prefers_long_reads and isinstance(part, DenseSlice):
            at_once = waiting.setdefault(file, AtOnce(file.source))
            part._data.ask(key, at_once, functools.partial(found.__setitem__, number))
        else:
            found[number] = part[key]
    run_jobs((at_once.end for at_once in waiting.values()), min(_MOST_FILES, len(waiting)))
    if isinstance(wanted, Mapping):
        return {name: part for (name, _), part in zip(pairs, found, strict=True)}
    return found


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
