"""Decoded bytes to typed arrays and back: the only file that maps element types to NumPy dtypes.

bfloat16, fp8 and fp4 are the types of ml_dtypes, which is imported on first use.
"""

from __future__ import annotations

import functools
import itertools
import sys
from array import array as numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ztensor.buffers import empty_array
from ztensor.errors import (
    FormatError,
    LayoutError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.spec.layout.base import Array, broken
from ztensor.spec.model.dtype import (
    BY_LONG_NAME,
    LOGICAL_TYPES,
    STORAGE_TYPES,
    LogicalType,
    element_count,
)
from ztensor.spec.model.manifest import Component

HOST_ORDER = sys.byteorder
# An array that needs a copy (of its order or byte order) is stored block by block, so that no
# second array of its size is needed.
BLOCK_BYTES = 8 << 20

_SECTION = "1.2 section 2"
_SPELLED: dict[np.dtype[Any], tuple[str, str | None]] = {}


@functools.cache
def numpy_dtype(long_name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a long name (`float32`, `bfloat16`), in native byte order."""
    try:
        return np.dtype(long_name)
    except (TypeError, ValueError):  # a surrogate in a name is a UnicodeEncodeError
        import ml_dtypes

        scalar_type = getattr(ml_dtypes, long_name, None)
        if scalar_type is None:
            raise UnsupportedError(
                "neither NumPy nor ml_dtypes has the element type",
                reason=Reason.UNKNOWN_TYPE,
                found=describe(long_name),
            ) from None
        dtype: np.dtype[Any] = np.dtype(scalar_type)
        return dtype


def storage_dtype(component: Component) -> np.dtype[Any]:
    """Return the NumPy dtype of a component's storage elements, in native byte order.

    Raises:
        UnsupportedError: the storage type is unknown.
    """
    storage = component.storage
    if storage is None:
        raise UnsupportedError(
            "the storage type is unknown",
            reason=Reason.UNKNOWN_DTYPE,
            expected=f"one of {', '.join(STORAGE_TYPES)}",
            found=describe(component.dtype),
            section=_SECTION,
        )
    return numpy_dtype(storage.long_name)


def require_known(component: Component) -> None:
    """Check that the component's elements have a NumPy dtype.

    Raises:
        UnsupportedError: the storage type is unknown; or, in 2.x, the logical type is.
        LayoutError: the logical type is defined on another storage type.
    """
    storage_dtype(component)
    logical = component.logical
    if logical is None and component.type is not None:
        try:
            LOGICAL_TYPES[component.type]  # a plugin that fails to load raises here
        except KeyError:
            if component.is_exact:
                raise UnsupportedError(
                    "the logical type is unknown",
                    reason=Reason.UNKNOWN_TYPE,
                    expected=f"one of {', '.join(LOGICAL_TYPES)}",
                    found=describe(component.type),
                ) from None
    if logical is not None and logical.dtype != component.dtype:
        message = f"the logical type {logical.name!r} is defined on another storage type"
        expected, found = repr(logical.dtype), describe(component.dtype)
        section = f"{_SECTION}, Logical types"
        raise broken(Reason.TYPE_MISMATCH, message, expected, found, section)


def result_dtype(component: Component) -> np.dtype[Any]:
    """Return the dtype of `typed_array`: the logical type's if it is known, else the storage's.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the logical type is defined on another storage type.
    """
    require_known(component)
    logical = component.logical
    return storage_dtype(component) if logical is None else numpy_dtype(logical.long_name)


def typed_array(component: Component, data: memoryview | Array) -> Array:
    """Return decoded bytes as a flat array of the component's elements, (count,).

    The dtype is `result_dtype`. A view; or a copy, if bytes are swapped, 4-bit values unpacked, or
    the true bytes of 0.1 normalised.

    Args:
        component: types and byte order.
        data: the decoded bytes.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the logical type is defined on another storage type, or the bytes end inside
            an element.
    """
    require_known(component)
    storage, logical = storage_dtype(component), component.logical
    width = component.width or storage.itemsize
    if data.nbytes % width:
        raise _cut_element(width, str(data.nbytes))
    array: Array = np.frombuffer(data, storage)
    if component.byte_order != HOST_ORDER and array.itemsize > 1:
        array = _swapped(array)
    if component.has_free_bools:
        stored = array.view(np.uint8)
        if stored.size and stored.max() > 1:
            array = stored != 0
    elif component.has_checked_bools:
        require_bools(array.view(np.uint8))
    if logical is None:
        return array
    if logical.elements_per_storage > 1:
        return _unpack(array, logical).view(numpy_dtype(logical.long_name))
    return array.view(numpy_dtype(logical.long_name))


def is_copy(array: Array, data: memoryview) -> bool:
    """Return whether a result of `typed_array` does not share memory with the bytes."""
    return not np.may_share_memory(array, np.asarray(data))


def require_bools(stored: Array, position: int = 0) -> None:
    """Check that every byte is 0 or 1 (1.2 section 2, Storage types).

    Args:
        stored: the bytes, uint8.
        position: offset of the first byte in the component, for the message.

    Raises:
        FormatError: a byte is neither.
    """
    if not stored.size or stored.max() <= 1:
        return
    at = int(np.flatnonzero(stored > 1)[0])
    raise FormatError(
        "a bool is neither 0x00 nor 0x01",
        reason=Reason.BOOL_VALUE,
        found=f"{stored.flat[at]:#04x} at position {position + at}",
        section="1.2 section 2, Storage types",
    )


def checked_bools(chunks: Iterable[memoryview]) -> Iterator[memoryview]:
    """Yield decoded chunks of bools unchanged, each after its check.

    Raises:
        FormatError: a byte is neither.
    """
    done = 0
    for chunk in chunks:
        require_bools(np.frombuffer(chunk, np.uint8), done)
        yield chunk
        done += chunk.nbytes


def whole_elements(component: Component, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
    """Yield the same bytes in chunks that hold whole elements and are not empty.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the bytes end inside an element.
    """
    width = component.width or storage_dtype(component).itemsize  # raises for an unknown type
    rest = b""
    for chunk in chunks:
        data = memoryview(rest + bytes(chunk)) if rest else chunk
        whole = data.nbytes // width * width
        if whole:
            yield data[:whole]
        rest = bytes(data[whole:])
    if rest:
        raise _cut_element(width, f"{len(rest)} left over")


def _cut_element(width: int, found: str) -> LayoutError:
    message, expected = "the decoded bytes end inside an element", f"a multiple of {width} bytes"
    return broken(Reason.SIZE_MISMATCH, message, expected, found, _SECTION)


def _unpack(packed: Array, logical: LogicalType) -> Array:
    """Return one byte per packed value, the first from the lowest bits."""
    bits, words = logical.bits, _words(packed, logical.storage_per_element)
    unpacked = empty_array((words.size, logical.elements_per_storage), np.dtype(np.uint8))
    for position in range(logical.elements_per_storage):
        unpacked[:, position] = words >> position * bits
    unpacked &= (1 << bits) - 1
    return unpacked.reshape(-1)[: packed.size * 8 // bits]


def _pack(values: Array, logical: LogicalType) -> Array:
    """Return values of less than a byte packed, the first in the lowest bits, padded with zeros."""
    bits, per_word, width = logical.bits, logical.elements_per_storage, logical.storage_per_element
    padded = np.zeros(-(-values.size // per_word) * per_word, np.uint8)
    padded[: values.size] = values.view(np.uint8)
    padded &= (1 << bits) - 1
    words = np.zeros(padded.size // per_word, np.uint8 if width == 1 else np.dtype("<u4"))
    for position in range(per_word):
        words |= padded[position::per_word].astype(words.dtype) << position * bits
    packed: Array = words.view(np.uint8).reshape(words.size, words.itemsize)[:, :width].reshape(-1)
    return packed[: logical.storage_count(values.size)]


def _words(packed: Array, width: int) -> Array:
    """Return groups of `width` bytes as little-endian integers; the last is padded with zeros."""
    if width == 1:
        return packed
    words = np.zeros((-(-packed.size // width), 4), np.uint8)
    for position in range(width):
        part = packed[position::width]
        words[: part.size, position] = part
    whole: Array = words.view("<u4").reshape(-1)
    return whole


def spell(dtype: np.dtype[Any]) -> tuple[str, str | None]:
    """Return the names of storage type and logical type (None if equal) for a NumPy dtype.

    Raises:
        NotRepresentableError: no zTensor type holds it; the message names a conversion.
    """
    spelled = _SPELLED.get(dtype)
    if spelled is None:
        spelled = _SPELLED[dtype] = _spell(dtype)  # `dtype.name` takes 3 us
    return spelled


def _spell(dtype: np.dtype[Any]) -> tuple[str, str | None]:
    name = dtype.name
    storage = BY_LONG_NAME.get(name)
    if storage is not None:
        return storage.name, None
    for logical in LOGICAL_TYPES.values():  # an open registry: no reverse table is kept
        if logical.long_name == name:
            return logical.dtype, logical.name
    known = [*BY_LONG_NAME, *(logical.long_name for logical in LOGICAL_TYPES.values())]
    raise NotRepresentableError(
        "no zTensor type holds elements of this NumPy dtype; " + _advice(dtype),
        expected=f"one of {', '.join(known)}",
        found=describe(str(dtype)),
        section=_SECTION,
    )


_ADVICE = {  # by `dtype.kind`
    "mM": "store array.view('int64') and the unit as an attribute",
    "SUT": "store the text as an attribute, or its bytes as uint8",
    "O": "objects are never stored; give the array a numeric type with astype",
    "fc": "store array.astype('float64') or 'complex128'",
}


def _advice(dtype: np.dtype[Any]) -> str:
    if dtype.names is not None:
        return "store each field as a tensor of its own"
    for kinds, advice in _ADVICE.items():
        if dtype.kind in kinds:
            return advice
    return "convert it with astype, or store its bytes with view('uint8')"


@functools.cache  # there are few dtypes, and every tensor asks
def is_stored_as_is(dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes in memory are the stored bytes: unpacked and little-endian.

    Raises:
        NotRepresentableError: no zTensor type holds the elements.
    """
    logical = spell(dtype)[1]
    packed = logical is not None and LOGICAL_TYPES[logical].elements_per_storage > 1
    order = HOST_ORDER if dtype.byteorder == "=" else {">": "big"}.get(dtype.byteorder, "little")
    return not packed and (order == "little" or dtype.itemsize == 1)


def stored_form(array: Array) -> Array:
    """Return the little-endian storage elements of an array, flat; a view if possible.

    Raises:
        NotRepresentableError: no zTensor type holds the elements.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if is_stored_as_is(flat.dtype):
        return flat
    logical = spell(flat.dtype)[1]
    if logical is not None and LOGICAL_TYPES[logical].elements_per_storage > 1:
        return _pack(flat, LOGICAL_TYPES[logical])
    return _swapped(flat)


def _swapped(flat: Array) -> Array:
    """Return a flat array with the bytes of every number (real or imaginary part) reversed.

    Swapped as integers: old releases of ml_dtypes do not swap bfloat16.
    """
    width = flat.itemsize // 2 if flat.dtype.kind == "c" else flat.itemsize
    swapped: Array = flat.view(f"u{width}").byteswap().view(flat.dtype)
    return swapped


class Blocks:
    """A partition of an array into blocks that are contiguous in C order.

    A block is a range of one axis, full along later axes and of length 1 along earlier ones. That
    axis is the first one, or the first whose rows fit into a block.

    Args:
        shape: the array's shape.
        width: bytes of an element.
        most: bytes of a block.
        steps: granularity of the cuts along each axis, which overrules `most`; () for 1.
    """

    def __init__(
        self, shape: tuple[int, ...], width: int, most: int, steps: Sequence[int] = ()
    ) -> None:
        self.shape = shape
        self.nbytes = element_count(shape) * width
        axis, row = 0, element_count(shape[1:]) * width
        while axis + 1 < len(shape) and row > most and (not steps or steps[axis] == 1):
            axis += 1
            row //= shape[axis]
        step = steps[axis] if steps else 1
        self._axis = axis
        self._row = row
        self._block = max(step, most // max(row, 1) // step * step) * row

    def ends(self) -> numbers[int]:
        """Return the offsets of the blocks in bytes: 0, then the end of each block."""
        ends, slab, block = numbers("Q", [0]), self._slab, self._block
        for start in range(0, self.nbytes, slab or 1):
            ends.extend(start + min(end, slab) for end in range(block, slab + block, block))
        return ends

    @property
    def _slab(self) -> int:
        return self._row * self.shape[self._axis] if self.shape else self.nbytes

    def place(self, start: int, stop: int) -> tuple[slice, ...]:
        """Return the index of the block that consists of these bytes."""
        if not self.shape:
            return ()
        lead, within = divmod(start, self._slab)
        leading = []
        for dimension in reversed(self.shape[: self._axis]):
            lead, at = divmod(lead, dimension)
            leading.append(slice(at, at + 1))
        first = within // self._row
        return (*reversed(leading), slice(first, first + (stop - start) // self._row))

    @staticmethod
    def whole(array: Array) -> Array:
        """Return the little-endian storage elements of an array, flat; a view if possible."""
        return stored_form(array)

    @classmethod
    def of(cls, array: Array, most: int = BLOCK_BYTES) -> Iterator[memoryview]:
        """Yield an array's stored bytes in order, without a second array of its size.

        Args:
            array: any array.
            most: bytes of a block that has to be copied.
        """
        if not array.size:
            return
        if array.flags.c_contiguous and is_stored_as_is(array.dtype):
            yield array.reshape(-1).view(np.uint8).data
            return
        array = array.squeeze()  # an axis of length 1 cannot be cut
        logical = spell(array.dtype)[1]
        per_byte = 1 if logical is None else LOGICAL_TYPES[logical].elements_per_storage
        # Elements that share a byte stay in one block.
        rows = [element_count(array.shape[axis + 1 :]) for axis in range(array.ndim)]
        steps = [1 if row % per_byte == 0 else per_byte for row in rows]
        blocks = cls(array.shape, array.itemsize, most, steps)
        for start, stop in itertools.pairwise(blocks.ends()):
            yield stored_form(array[blocks.place(start, stop)]).view(np.uint8).data
