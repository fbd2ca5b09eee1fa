"""The values a pickle of `torch.save` has: descriptions, no tensors.

A tensor becomes a `TorchTensor`: which storage it looks at, from
where, and how far its elements are apart. NumPy's arrays and scalars, whose bytes are in the pickle
itself, become `NumpyArray` and plain numbers; the few other classes that checkpoints have beside
tensors become text, lists and dicts.
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


_BEYOND = 1 << 63  # torch's own numbers have 64 bits
_MOST_RANK = 64  # torch's and NumPy's own
_WORD_MOST = 40  # characters of the name of another type
_PLAIN_NUMBERS = re.compile("([<>=|]?)(b1|[iu][1248]|f[248]|c8|c16)")
_TEXTS = re.compile("([<>=|]?)([US])[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of torch.

    Attributes:
        dtype: our storage type; torch's own word where we have none.
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


# By the name torch has for them.
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
        name: torch's name for its elements.
        element: their type.
        count: how many of them there are.
        start: which element of the stored ones is the first.
        whole: how many are stored; more than `count` where this is a part.
    """

    key: str
    name: str
    element: ElementType
    count: int
    start: int
    whole: int


@dataclasses.dataclass(frozen=True, slots=True)
class TorchTensor:
    """A dense tensor: how it looks at a storage.

    Attributes:
        storage: the storage, or None where the tensor has none (the device `meta`).
        element: the type of its elements, which may be another than the storage's.
        offset: the first element, counted in elements of the tensor.
        size: its shape.
        stride: elements between neighbours, for each dimension.
        flags: `conj` and `neg` where the stored elements are yet to be conjugated or negated.
        state: attributes that were set on the tensor.
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
        size: its shape.
    """

    layout: str
    indices: tuple[TorchTensor, ...]
    values: TorchTensor
    size: tuple[int, ...]
    state: Items | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A tensor of integers that stand for floats: `(integer - zero_point) * scale`.

    Attributes:
        integers: the integers.
        name: torch's name for them.
        scale: one scale for all, or one for each index of `axis`.
        zero_point: like the scale.
        axis: the dimension that has scales of its own, or None.
    """

    integers: TorchTensor
    name: str
    scale: float | TorchTensor
    zero_point: int | TorchTensor
    axis: int | None
    state: Items | None = None


class BytesStream(Buildable):
    """A stream in memory, which becomes its bytes: so programs keep states of their own."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = b""

    def build(self, state: object) -> None:
        """Take the bytes, and leave where in them the stream was."""
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
        """Take the byte order; the fields of records are refused when the type is used."""
        if not isinstance(state, tuple) or len(state) < 2 or not isinstance(state[1], (str, bytes)):
            raise misfit("the state of a numpy.dtype", "a tuple with the byte order", state)
        order = state[1]
        self.order = order.decode("latin-1") if isinstance(order, bytes) else order

    def resolved(self) -> np.dtype[Any]:
        """Return the type.

        Raises:
            UnsupportedError: it is none of plain numbers.
        """
        code = self.code
        match = re.fullmatch(_PLAIN_NUMBERS, code) if isinstance(code, str) else None
        if match and self.order in ("<", ">", "=", "|"):
            # Pickles say the order only where the width is more than a byte.
            is_big = ">" in (match[1], self.order)
            return np.dtype(match[2]).newbyteorder(">" if is_big else "<")
        raise UnsupportedError(
            "the pickle holds NumPy data that is no plain numbers",
            reason=Reason.UNKNOWN_DTYPE,
            expected="bool, integers, floats or complex numbers",
            found=kind_of(code),
        )

    def __str__(self) -> str:
        """Return the type's name: NumPy's for plain numbers, else the start of what is written."""
        code = self.code
        if isinstance(code, str) and re.fullmatch(_PLAIN_NUMBERS, code):
            return str(self.resolved())
        if isinstance(code, Global):
            return f"{code.module[:_WORD_MOST]}.{code.name[:_WORD_MOST]}"
        return code[:_WORD_MOST] if isinstance(code, str) else kind_of(code)

    def text(self, data: bytes) -> str | bytes | None:
        """Return what the bytes of a scalar say where the type is one of text, else None."""
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
        shape: its shape, or None where it has no state yet.
        word: the name of an element type that is no plain numbers, or None. Then no more is kept.
        dtype: the type of its elements, in the byte order of the pickle.
        data: their bytes.
        is_fortran: whether the first axis runs fastest there.
    """

    __slots__ = ("data", "dtype", "is_fortran", "shape", "word")

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self.word: str | None = None

    def build(self, state: object) -> None:
        """Take shape, type, order and bytes."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise misfit("the state of a numpy.ndarray", "a tuple of five", state)
        _, shape, dtype, is_fortran, data = state
        self.take(shape, dtype, data, is_fortran=bool(is_fortran))

    def take(self, shape: object, dtype: object, data: object, *, is_fortran: bool) -> None:
        """Take the parts of an array, checked."""
        kind = numpy_type_of(dtype)
        try:
            self.dtype = kind.resolved()
        except UnsupportedError:
            self.shape = counts(shape, "the shape of a numpy.ndarray")
            self.word = str(kind)
            return
        if isinstance(data, str):  # raw bytes of Python 2 that were UTF-8 by chance
            data = data.encode()
        data = require(data, bytes, "the data of a numpy.ndarray", "bytes")
        shape = counts(shape, "the shape of a numpy.ndarray")
        expected = element_count(shape) * self.dtype.itemsize
        if len(data) != expected:
            raise FormatError(
                "a numpy.ndarray in the pickle has another number of bytes than its shape",
                reason=Reason.SIZE_MISMATCH,
                expected=describe(expected),
                found=str(len(data)),
            )
        self.shape, self.data, self.is_fortran, self.word = shape, data, is_fortran, None

    @property
    def nbytes(self) -> int:
        """Return the bytes of its elements."""
        return len(self.data)

    def elements(self) -> Array:
        """Return the flat array of its little-endian elements in C order."""
        array = np.frombuffer(self.data, self.dtype)
        if self.is_fortran and self.shape and array.size:
            array = array.reshape(tuple(n for n in self.shape if n != 1), order="F").ravel("C")
        return Blocks.whole(array)


# --- Checks ---------------------------------------------------------------------------------


def integer(value: object, what: str) -> int:
    """Return a number of the pickle that torch keeps in 64 bits.

    Raises:
        FormatError: it is none.
    """
    if type(value) is not int or not -_BEYOND <= value < _BEYOND:
        raise misfit(what, "an integer of 64 bits", value, is_type=type(value) is not int)
    return value


def counts(value: object, what: str) -> tuple[int, ...]:
    """Return a tuple of the pickle whose members are not negative.

    Raises:
        FormatError: it is none, or longer than a shape can be.
    """
    if not isinstance(value, (tuple, list)) or len(value) > _MOST_RANK:
        raise misfit(what, f"a tuple of at most {_MOST_RANK} integers", value)
    for member in value:
        if type(member) is not int or not 0 <= member < _BEYOND:
            integer(member, what)
            raise misfit(what, "integers that are not negative", member, is_type=False)
    return tuple(value)


def tensor_of(value: object, what: str) -> TorchTensor:
    """Return a value that has to be a dense tensor."""
    return require(value, TorchTensor, what, "a dense tensor")


def numpy_type_of(value: object) -> NumpyType:
    """Return a value that has to be a type of NumPy."""
    return require(value, NumpyType, "the type of NumPy data", "a numpy.dtype")


def element_type_of(value: object) -> tuple[str, ElementType]:
    """Return the name of an element type of torch, and what is known of it."""
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
    """Return the storage that a persistent id names.

    Raises:
        FormatError: it is no id of a storage.
        UnsupportedError: its elements are of an unknown type.
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
            raise outside("a part of a storage lies outside of it", whole, start + count)
    return Storage(storage_key(key), name, ELEMENT_TYPES[name], count, start, whole)


def storage_key(value: object) -> str:
    """Return a storage's key as text.

    Raises:
        FormatError: it is no key.
    """
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return value
    return str(integer(value, "the key of a storage"))


def outside(message: str, count: int, found: int) -> FormatError:
    """Return the error for what reaches beyond a storage of `count` elements."""
    return FormatError(
        message,
        reason=Reason.OUT_OF_BOUNDS,
        expected=f"at most {count} elements",
        found=describe(found),
    )
