"""`TensorSlice`: a dense object that is read only where it is indexed."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentTypeError, ArgumentValueError, ZTensorError, describe
from ztensor.layout.base import empty_array
from ztensor.layout.elements import HOST_ORDER, result_dtype, typed_array
from ztensor.model.dtype import element_count

if TYPE_CHECKING:
    from ztensor.layout.base import Array
    from ztensor.model.manifest import TensorObject
    from ztensor.reader import ManifestReader


class TensorSlice:
    """A dense object of a reader; indexing it gives arrays.

    Over raw data that can be mapped, indexing gives views and touches only the pages it needs.
    Raw data that cannot be mapped is read row by row of the first axis, just those that are asked
    for. Compressed data is decoded whole, once.

    Attributes:
        shape: the object's shape.
        dtype: the element type of the arrays it gives.
    """

    def __init__(self, reader: ManifestReader, name: str, tensor_object: TensorObject) -> None:
        self._reader = reader
        self._name = name
        self._object = tensor_object
        self._decoded: Array | None = None
        with reader._located(name, "data"):  # a part of the reader
            self.dtype: np.dtype[Any] = result_dtype(tensor_object.components["data"])
        self.shape: tuple[int, ...] = tensor_object.shape

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return element_count(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole array."""
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
            raise ArgumentTypeError("a scalar has no length", object_name=self._name)
        return self.shape[0]

    def __repr__(self) -> str:
        """Return name, shape and element type."""
        return f"<TensorSlice {describe(self._name)} shape={self.shape} dtype={self.dtype.name}>"

    def __array__(  # NumPy calls it with these, by position
        self,
        dtype: Any = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> Array:
        """Return the whole array for `np.asarray`."""
        array: Array = self[...]
        if copy or (dtype is not None and np.dtype(dtype) != array.dtype):
            return array.astype(dtype or array.dtype)
        return array

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy would return for this basic index: integers, slices, `...`, None.

        A view of the file where the data is mapped, new memory otherwise.

        Raises:
            ArgumentTypeError: the index is of another kind.
            ArgumentValueError: it does not fit the shape.
            FormatError: the stored bytes are damaged.
        """
        keys = tuple(map(self._plain, key if isinstance(key, tuple) else (key,)))
        try:
            array, first = self._rows(keys)
            part = array[first]
        except ZTensorError:
            raise
        except TypeError as error:  # a slice between things that are no integers
            raise ArgumentTypeError(
                f"a slice takes integers: {error}", object_name=self._name, found=describe(key, 60)
            ) from error
        except (IndexError, ValueError) as error:
            raise ArgumentValueError(
                f"the index does not fit: {error}",
                object_name=self._name,
                expected=f"an index into shape {describe(self.shape)}",
                found=describe(key, 60),
            ) from error
        # What is kept for the next index must not change with what the caller writes.
        return part.copy() if array is self._decoded else part

    def _plain(self, key: Any) -> Any:
        if key is None or key is Ellipsis or isinstance(key, slice):
            return key
        try:
            if not isinstance(key, (bool, np.bool_)):
                return operator.index(key)
        except TypeError:  # also of an array that holds more than one integer
            pass
        raise ArgumentTypeError(
            "a slice takes integers, slices, ... and None",
            object_name=self._name,
            found=describe(key, 40),
        )

    def _rows(self, keys: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
        """Return an array that holds at least what `keys` asks for, and the keys into it."""
        reader, component = self._reader, self._object.components["data"]
        reader._require_open()
        can_seek = (
            component.encoding == "raw"
            and component.byte_order == HOST_ORDER
            and component.length == self.nbytes
            and reader._source.view() is None
            and reader._verify is not True
        )
        if not can_seek or not self.shape or not keys or keys[0] is None or keys[0] is Ellipsis:
            if component.encoding == "raw":
                return reader._dense(self._name, self._object, copy=False), keys
            if self._decoded is None:
                self._decoded = reader._dense(self._name, self._object, copy=False)
            return self._decoded, keys
        length = self.shape[0]
        head = keys[0]
        if isinstance(head, slice):
            chosen = range(length)[head]
            start = min(chosen[0], chosen[-1]) if chosen else 0
            stop = max(chosen[0], chosen[-1]) + 1 if chosen else 0
            step = chosen.step
            within: Any = slice(None, None, step) if chosen else slice(0, 0)
        else:
            index = range(length)[head]  # IndexError as NumPy has it
            start, stop, within = index, index + 1, 0
        row = element_count(self.shape[1:]) * self.dtype.itemsize
        buffer = empty_array(((stop - start) * row,), np.dtype(np.uint8))
        with reader._located(self._name, "data"):
            reader._source.read_into(component.offset + start * row, buffer.data)
        array = typed_array(component, buffer)
        return array.reshape(stop - start, *self.shape[1:]), (within, *keys[1:])
