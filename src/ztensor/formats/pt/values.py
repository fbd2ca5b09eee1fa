"""The values of a pickle of `torch.save`: descriptions of tensors, and plain data.

A tensor becomes a `TorchTensor`: its storage, offset and strides. NumPy's arrays and scalars have
their bytes in the pickle itself, and become `NumpyArray` and plain numbers. The few other classes
in checkpoints become text, lists and dicts.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, Blocks, element_count
from ztensor.formats.pt.pickled import (
    Buildable,
    Global,
    Items,
    kind_of,
    misfit,
    require,
)
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping


_BEYOND = 1 << 63  # torch's numbers have 64 bits
_MOST_RANK = 64  # of torch and NumPy
_WORD_MOST = 40  # characters of the name of an unknown type
_PLAIN_NUMBERS = re.compile("([<>=|]?)(b1|[iu][1248]|f[248]|c8|c16)")
_TEXTS = re.compile("([<>=|]?)([US])[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of torch.

    Attributes:
        dtype: storage type; torch's name for a type that is not read.
        type: our logical type, or None.
        width: bytes of one of torch's elements.
        per_element: logical elements in one of torch's elements, along the last dimension.
    """

    dtype: str
    type: str | None
    width: int
    per_element: int = 1


def _element_types() -> dict[str, ElementType]:
    types = {long: ElementType(s.name, None, s.width) for long, s in BY_LONG_NAME.items()}
    for logical in LOGICAL_TYPES.values():
        width = STORAGE_TYPES[logical.dtype].width * logical.storage_per_element
        per_element = logical.elements_per_storage
        name = logical.long_name + (f"_x{per_element}" if per_element > 1 else "")
        types[name] = ElementType(logical.dtype, logical.name, width, per_element)
    for name, alias in (("qint8", "int8"), ("quint8", "uint8"), ("qint32", "int32")):
        types[name] = types[alias]
    narrow = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
    for width, names in (
        (1, [*narrow, "bits1x8", "bits2x4", "bits4x2", "bits8"]),
        (2, ["bits16"]),
        (4, ["complex32"]),
    ):
        types |= {name: ElementType(f"torch.{name}", None, width) for name in names}
    return types


# By torch's names.
ELEMENT_TYPES: Mapping[str, ElementType] = _element_types()
QUANTIZED = ("qint8", "quint8", "qint32")

_STORAGE_CLASSES: Mapping[str, str] = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
_STORAGE_MODULES = ("torch", "torch.storage", "torch.cuda")


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """A run of elements outside the pickle.

    Attributes:
        key: its name in the file.
        name: torch's name of its element type.
        element: the element type.
        count: the number of elements.
        start: the first element, in the stored ones.
        whole: the number of stored elements; more than `count` for a part of a storage.
    """

    key: str
    name: str
    element: ElementType
    count: int
    start: int
    whole: int


@dataclasses.dataclass(frozen=True, slots=True)
class TorchTensor:
    """A dense tensor, as a view of a storage.

    Attributes:
        storage: the storage; None for the device `meta`.
        element: the element type, which may differ from the storage's.
        offset: the first element, in elements of the tensor.
        size: the shape.
        stride: elements between neighbors along each dimension.
        flags: `conj` if the stored elements must be conjugated, `neg` if they must be negated.
        state: attributes of the tensor object.
    """

    storage: Storage | None
    element: ElementType
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    flags: tuple[str, ...] = ()
    state: Items | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse tensor: several dense ones.

    Attributes:
        layout: `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
        indices: coordinates, or compressed and plain indices.
        values: the values.
        size: the shape.
    """

    layout: str
    indices: tuple[TorchTensor, ...]
    values: TorchTensor
    size: tuple[int, ...]
    state: Items | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A tensor of integers that represent floats: `(integer - zero_point) * scale`.

    Attributes:
        integers: the integers.
        name: torch's name of their type.
        scale: one scale of the tensor, or one for each index of `axis`.
        zero_point: the zero points, like the scales.
        axis: the dimension with scales of its own, or None.
    """

    integers: TorchTensor
    name: str
    scale: float | TorchTensor
    zero_point: int | TorchTensor
    axis: int | None
    state: Items | None = None


class BytesStream(Buildable):
    """An `io.BytesIO`, which becomes its bytes: some programs keep a state in it."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = b""

    def build(self, state: object) -> None:
        """Set the bytes; the stream's position is dropped."""
        if not isinstance(state, tuple) or not state or not isinstance(state[0], bytes):
            raise misfit("the state of an io.BytesIO", "a tuple with its bytes", state)
        self.data = state[0]


class NumpyType(Buildable):
    """A `numpy.dtype` in the making: its kind and width, then its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *flags: object) -> None:
        del flags  # align and copy
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code
        self.order = "="

    def build(self, state: object) -> None:
        """Set the byte order; the fields of records are refused when the type is used."""
        if not isinstance(state, tuple) or len(state) < 2 or not isinstance(state[1], (str, bytes)):
            raise misfit("the state of a numpy.dtype", "a tuple with the byte order", state)
        order = state[1]
        self.order = order.decode("latin-1") if isinstance(order, bytes) else order

    def resolved(self) -> np.dtype[Any]:
        """Return the type.

        Raises:
            UnsupportedError: it is not a type of plain numbers.
        """
        code = self.code
        match = re.fullmatch(_PLAIN_NUMBERS, code) if isinstance(code, str) else None
        if match and self.order in ("<", ">", "=", "|"):
            # Pickles have the order only for elements of more than a byte.
            is_big = ">" in (match[1], self.order)
            return np.dtype(match[2]).newbyteorder(">" if is_big else "<")
        raise UnsupportedError(
            "NumPy data in the pickle that is not plain numbers",
            reason=Reason.UNKNOWN_DTYPE,
            expected="bool, integers, floats or complex numbers",
            found=kind_of(code),
        )

    def __str__(self) -> str:
        """Return the type's name: NumPy's for plain numbers, else the start of the code."""
        code = self.code
        if isinstance(code, str) and re.fullmatch(_PLAIN_NUMBERS, code):
            return str(self.resolved())
        if isinstance(code, Global):
            return f"{code.module[:_WORD_MOST]}.{code.name[:_WORD_MOST]}"
        return code[:_WORD_MOST] if isinstance(code, str) else kind_of(code)

    def text(self, data: bytes) -> str | bytes | None:
        """Return the text of a scalar's bytes, or None if the type is not text."""
        match = re.fullmatch(_TEXTS, self.code) if isinstance(self.code, str) else None
        if match is None:
            return None
        if match[2] == "S":
            return data.rstrip(b"\0")
        is_big = ">" in (match[1], self.order)
        try:
            return data.decode("utf-32-be" if is_big else "utf-32-le").rstrip("\0")
        except UnicodeDecodeError as error:
            raise misfit("a NumPy scalar", "text of UTF-32", data) from error


class NumpyArray(Buildable):
    """A NumPy array in the making; its elements are in the pickle.

    Attributes:
        shape: the shape; None before the state is set.
        word: the name of a type other than plain numbers, without the attributes below; else None.
        dtype: the element type, in the byte order of the pickle.
        data: the bytes of the elements.
        is_fortran: whether the first axis varies fastest.
    """

    __slots__ = ("data", "dtype", "is_fortran", "shape", "word")

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self.word: str | None = None

    def build(self, state: object) -> None:
        """Set shape, type, order and bytes."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise misfit("the state of a numpy.ndarray", "a tuple of five", state)
        _, shape, dtype, is_fortran, data = state
        self.take(shape, dtype, data, is_fortran=bool(is_fortran))

    def take(self, shape: object, dtype: object, data: object, *, is_fortran: bool) -> None:
        """Set the parts of the array, after checking them."""
        kind = numpy_type_of(dtype)
        try:
            self.dtype = kind.resolved()
        except UnsupportedError:
            self.shape = counts(shape, "the shape of a numpy.ndarray")
            self.word = str(kind)
            return
        if isinstance(data, str):  # bytes of Python 2 that happen to be UTF-8
            data = data.encode()
        data = require(data, bytes, "the data of a numpy.ndarray", "bytes")
        shape = counts(shape, "the shape of a numpy.ndarray")
        expected = element_count(shape) * self.dtype.itemsize
        if len(data) != expected:
            raise FormatError(
                "the length of a numpy.ndarray in the pickle differs from its shape",
                reason=Reason.SIZE_MISMATCH,
                expected=describe(expected),
                found=str(len(data)),
            )
        self.shape, self.data, self.is_fortran, self.word = shape, data, is_fortran, None

    @property
    def nbytes(self) -> int:
        """Return the length of its elements in bytes."""
        return len(self.data)

    def elements(self) -> Array:
        """Return its elements in C order, a flat array, little-endian."""
        array = np.frombuffer(self.data, self.dtype)
        if self.is_fortran and self.shape and array.size:
            array = array.reshape(tuple(n for n in self.shape if n != 1), order="F").ravel("C")
        return Blocks.whole(array)


# --- Checks ---------------------------------------------------------------------------------


def integer(value: object, subject: str) -> int:
    """Return a value of the pickle, which must be an integer of 64 bits.

    Raises:
        FormatError: it is not.
    """
    if type(value) is not int or not -_BEYOND <= value < _BEYOND:
        raise misfit(subject, "an integer of 64 bits", value, is_type=type(value) is not int)
    return value


def counts(value: object, subject: str) -> tuple[int, ...]:
    """Return a value of the pickle, which must be a tuple of integers from 0 on.

    Raises:
        FormatError: it is not, or longer than a shape can be.
    """
    if not isinstance(value, (tuple, list)) or len(value) > _MOST_RANK:
        raise misfit(subject, f"a tuple of at most {_MOST_RANK} integers", value)
    for member in value:
        if type(member) is not int or not 0 <= member < _BEYOND:
            integer(member, subject)
            raise misfit(subject, "integers that are not negative", member, is_type=False)
    return tuple(value)


def tensor_of(value: object, subject: str) -> TorchTensor:
    """Return a value that must be a dense tensor."""
    return require(value, TorchTensor, subject, "a dense tensor")


def numpy_type_of(value: object) -> NumpyType:
    """Return a value that must be a NumPy type."""
    return require(value, NumpyType, "the type of NumPy data", "a numpy.dtype")


def element_type_of(value: object) -> tuple[str, ElementType]:
    """Return the name and the properties of an element type of torch."""
    name = value.name if isinstance(value, Global) and value.module == "torch" else None
    element = None if name is None else ELEMENT_TYPES.get(name)
    if name is None or element is None:
        raise UnsupportedError(
            "the element type is unknown",
            reason=Reason.UNKNOWN_DTYPE,
            expected="one of torch's",
            found=kind_of(value),
        )
    return name, element


# --- Storages -------------------------------------------------------------------------------


def storage_of(saved_id: object) -> Storage:
    """Return the storage of a persistent id.

    Raises:
        FormatError: it is not the id of a storage.
        UnsupportedError: the element type is unknown.
    """
    if not isinstance(saved_id, tuple) or len(saved_id) not in (5, 6):
        raise misfit("a persistent id", "a tuple of five or six", saved_id)
    if saved_id[0] not in ("storage", b"storage"):
        raise misfit("a persistent id", "'storage' first", saved_id[0], is_type=False)
    kind, key = saved_id[1:3]
    name = None
    if isinstance(kind, Global) and kind.module in _STORAGE_MODULES:
        name = _STORAGE_CLASSES.get(kind.name)
    if name is None:
        raise UnsupportedError(
            "the storage's class is unknown",
            reason=Reason.UNKNOWN_DTYPE,
            expected=f"one of {', '.join(_STORAGE_CLASSES)}",
            found=kind_of(kind),
        )
    whole = counts(saved_id[4:5], "the size of a storage")[0]
    start, count = 0, whole
    if len(saved_id) == 6 and saved_id[5] is not None:
        if not isinstance(saved_id[5], tuple) or len(saved_id[5]) != 3:
            raise misfit("the part of a storage", "a tuple of three", saved_id[5])
        start, count = counts(saved_id[5][1:], "the part of a storage")
        if start + count > whole:
            raise outside("a part of a storage is outside of it", whole, start + count)
    return Storage(storage_key(key), name, ELEMENT_TYPES[name], count, start, whole)


def storage_key(value: object) -> str:
    """Return a storage's key as text.

    Raises:
        FormatError: it is not a key.
    """
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return value
    return str(integer(value, "the key of a storage"))


def outside(message: str, count: int, found: int) -> FormatError:
    """Return the error for a range beyond a storage of `count` elements."""
    return FormatError(
        message,
        reason=Reason.OUT_OF_BOUNDS,
        expected=f"at most {count} elements",
        found=describe(found),
    )
