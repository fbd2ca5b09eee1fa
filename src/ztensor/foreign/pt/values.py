"""What a pickle of `torch.save` may call, and the values it then has: descriptions, no tensors.

`CALLS` is the closed table. A tensor becomes a `TorchTensor`: which storage it looks at, from
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
from ztensor.foreign.pt.pickle_reader import (
    Buildable,
    Call,
    Global,
    Items,
    kind_of,
    misfit,
    refused,
)
from ztensor.layout.elements import stored_form
from ztensor.model.dtype import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, element_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ztensor.layout.base import Array

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
        kind = _numpy_type(dtype)
        try:
            self.dtype = kind.resolved()
        except UnsupportedError:
            self.shape = counts(shape, "the shape of a numpy.ndarray")
            self.word = str(kind)
            return
        if isinstance(data, str):  # raw bytes of Python 2 that were UTF-8 by chance
            data = data.encode()
        if not isinstance(data, bytes):
            raise misfit("the data of a numpy.ndarray", "bytes", data)
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
        return stored_form(array)


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


def _tensor(value: object, what: str) -> TorchTensor:
    if not isinstance(value, TorchTensor):
        raise misfit(what, "a dense tensor", value)
    return value


def _numpy_type(value: object) -> NumpyType:
    if not isinstance(value, NumpyType):
        raise misfit("the type of NumPy data", "a numpy.dtype", value)
    return value


def _element_type(value: object) -> tuple[str, ElementType]:
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
            raise _outside("a part of a storage lies outside of it", whole, start + count)
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


def _outside(message: str, count: int, found: int) -> FormatError:
    return FormatError(
        message,
        reason=Reason.OUT_OF_BOUNDS,
        expected=f"at most {count} elements",
        found=describe(found),
    )


# --- Tensors --------------------------------------------------------------------------------


def _rebuild(
    storage: object, offset: object, size: object, stride: object, element: ElementType | None
) -> TorchTensor:
    if not isinstance(storage, Storage):
        raise misfit("what a tensor looks at", "a storage", storage)
    shape, steps = counts(size, "the size of a tensor"), counts(stride, "the stride of a tensor")
    if len(shape) != len(steps):
        raise misfit("the stride of a tensor", f"{len(shape)} numbers", len(steps), is_type=False)
    (first,) = counts((offset,), "the offset of a tensor")
    element = storage.element if element is None else element
    if 0 not in shape:
        last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        there = storage.count * storage.element.width // element.width
        if last >= there:
            raise _outside("a tensor reaches beyond its storage", there, last + 1)
    return TorchTensor(storage, element, first, shape, steps)


def _rebuild_tensor(
    storage: object, offset: object, size: object, stride: object, *rest: object
) -> TorchTensor:
    # What follows is requires_grad, the hooks, and flags where there are any.
    tensor = _rebuild(storage, offset, size, stride, None)
    return _flagged(tensor, rest[2] if len(rest) > 2 else None)


def _rebuild_typed_tensor(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object,
    dtype: object,
    flags: object = None,
) -> TorchTensor:
    del requires_grad, hooks
    return _flagged(_rebuild(storage, offset, size, stride, _element_type(dtype)[1]), flags)


def _flagged(tensor: TorchTensor, flags: object) -> TorchTensor:
    if flags is None:
        return tensor
    if not isinstance(flags, Items):
        raise misfit("the flags of a tensor", "a dict", flags)
    names = []
    for name, is_set in flags.pairs:
        if name not in ("conj", "neg"):
            raise UnsupportedError(
                "a tensor has a flag that is unknown here",
                reason=Reason.UNKNOWN_TYPE,
                expected="'conj' or 'neg'",
                found=kind_of(name),
            )
        if is_set:
            names.append(str(name))
    return dataclasses.replace(tensor, flags=tuple(sorted(set(names))))


def _rebuild_meta(dtype: object, size: object, stride: object, *rest: object) -> TorchTensor:
    del rest
    shape, steps = counts(size, "the size of a tensor"), counts(stride, "the stride of a tensor")
    return TorchTensor(None, _element_type(dtype)[1], 0, shape, steps)


def _rebuild_parameter(data: object, *rest: object) -> object:
    state = rest[2] if len(rest) > 2 else None
    return _with_state(data, state)


def _with_state(value: object, state: object) -> object:
    if not isinstance(value, (TorchTensor, SparseTensor, QuantizedTensor)):
        raise misfit("what a parameter is made of", "a tensor", value)
    if isinstance(state, tuple) and len(state) == 2:  # what is in __dict__, and what in __slots__
        state = state[0]
    if state is None or (isinstance(state, Items) and not state.pairs):
        return value
    if not isinstance(state, Items):
        raise misfit("the attributes of a tensor", "a dict", state)
    return dataclasses.replace(value, state=state)


def _rebuild_from_type(func: object, kind: object, values: object, state: object) -> object:
    if str(kind) not in _TENSOR_CLASSES:
        raise refused(kind)
    call = CALLS.get(str(func)) if isinstance(func, Global) else None
    if call is None or not str(func).startswith("torch._utils."):
        raise refused(func)
    if not isinstance(values, tuple) or not call.least <= len(values) <= call.most:
        raise misfit(f"a call of {func}", f"{call.least} to {call.most} arguments", values)
    return _with_state(call.make(*values), state)


def _rebuild_device_tensor(data: object, dtype: object, *rest: object) -> object:
    del rest
    element = _element_type(dtype)[1]
    if isinstance(data, NumpyArray) and data.shape is not None and data.word is None:
        have: object = data.dtype.name
        same = ELEMENT_TYPES.get(data.dtype.name) == element
    else:
        tensor = _tensor(data, "what a device's tensor is made of")
        have, same = tensor.element.type or tensor.element.dtype, tensor.element == element
    if not same:
        raise misfit("the data of a device's tensor", f"{dtype}", have, is_type=False)
    return data


def _rebuild_sparse(layout: object, parts: object) -> SparseTensor:
    name = layout.name if isinstance(layout, Global) and layout.module == "torch" else ""
    indices = {"sparse_coo": 1} | dict.fromkeys(
        ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"), 2
    )
    if name not in indices:
        raise misfit("the layout of a sparse tensor", " or ".join(indices), layout)
    count = indices[name]
    if not isinstance(parts, tuple) or len(parts) not in (count + 2, *([4] if count == 1 else [])):
        raise misfit("a sparse tensor", f"a tuple of {count + 2}", parts)
    what = "a part of a sparse tensor"
    return SparseTensor(
        name,
        tuple(_tensor(part, what) for part in parts[:count]),
        _tensor(parts[count], what),
        counts(parts[count + 1], "the size of a sparse tensor"),
    )


def _rebuild_quantized(
    storage: object, offset: object, size: object, stride: object, how: object, *rest: object
) -> QuantizedTensor:
    del rest
    integers = _rebuild(storage, offset, size, stride, None)
    name = storage.name if isinstance(storage, Storage) else ""
    if name not in QUANTIZED:
        raise misfit("the storage of a quantized tensor", " or ".join(QUANTIZED), name)
    scheme = how[0] if isinstance(how, tuple) and how else None
    what = "the quantization of a tensor"
    if isinstance(how, tuple) and str(scheme) == "torch.per_tensor_affine" and len(how) == 3:
        if type(how[1]) is not float:
            raise misfit(what, "a float as scale", how[1])
        return QuantizedTensor(integers, name, how[1], integer(how[2], what), None)
    per_channel = ("torch.per_channel_affine", "torch.per_channel_affine_float_qparams")
    if isinstance(how, tuple) and str(scheme) in per_channel and len(how) == 4:
        scales, zeros = _tensor(how[1], what), _tensor(how[2], what)
        (axis,) = counts(how[3:], what)
        if axis >= len(integers.size) or not (
            scales.size == zeros.size == integers.size[axis : axis + 1]
        ):
            raise misfit(what, "one scale and zero point for each index of an axis", axis)
        return QuantizedTensor(integers, name, scales, zeros, axis)
    raise misfit(what, "per_tensor_affine or per_channel_affine", scheme)


# --- What is not tensors --------------------------------------------------------------------


def _items(value: object = None, *rest: object) -> Items:
    """Return a dict: of nothing, of a dict, or of a list of pairs."""
    del rest
    if isinstance(value, Items):
        return Items(tuple(value.pairs))
    pairs: list[tuple[object, object]] = []
    for pair in () if value is None else _members(value):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise misfit("what a dict is made of", "pairs", pair)
        pairs.append((pair[0], pair[1]))
    return Items(pairs or ())


def _members(value: object = ()) -> Iterable[object]:
    if not isinstance(value, (tuple, list)):
        raise misfit("what a collection is made of", "a list or a tuple", value)
    return value


def _encoded(text: object, encoding: object = "utf-8") -> bytes:
    # How protocol 2 says bytes.
    if isinstance(text, str) and encoding in ("latin1", "latin-1", "utf-8"):
        try:
            return text.encode(str(encoding))
        except UnicodeEncodeError:
            pass
    raise misfit("bytes written as text", "text of Latin-1", text)


def _bytes(value: object = b"", *rest: object) -> bytes:
    if isinstance(value, str):
        return _encoded(value, *rest)
    if not isinstance(value, bytes):
        raise misfit("what bytes are made of", "bytes", value)
    return value


def _size(value: object = ()) -> tuple[int, ...]:
    return counts(value, "a torch.Size")


def _device(kind: object, index: object = None) -> str:
    name = f"{kind}" if isinstance(kind, str) else kind_of(kind)
    return name if index is None else f"{name}:{integer(index, 'the number of a device')}"


def _layout(name: object) -> Global:
    if not isinstance(name, str) or not name.startswith("torch."):
        raise misfit("a layout of torch", "its name", name)
    return Global("torch", name.removeprefix("torch."))


def _text(value: object = "") -> str:
    if not isinstance(value, str):
        raise misfit("what text is made of", "text", value)
    return value


def _path(*parts: object) -> str:
    return "/".join(map(_text, parts)).replace("//", "/", 1)


def _complex(real: object = 0.0, imaginary: object = 0.0) -> Items:
    return Items([("real", real), ("imag", imaginary)])


def _numbers(*values: object) -> list[object]:
    """Return the bounds and the step of a slice or a range."""
    return list(values)


def _scalar(dtype: object, data: object = b"") -> object:
    named = _numpy_type(dtype)
    data = data.encode() if isinstance(data, str) else data
    if isinstance(data, bytes) and (text := named.text(data)) is not None:
        return text
    kind = named.resolved()
    if not isinstance(data, bytes) or len(data) != kind.itemsize:
        raise misfit("a NumPy scalar", f"{kind.itemsize} bytes", data)
    value = np.frombuffer(data, kind)[0].item()
    return _complex(value.real, value.imag) if isinstance(value, complex) else value


def _reconstructed(kind: object, *rest: object) -> NumpyArray:
    del rest
    if str(kind) != "numpy.ndarray":
        raise refused(kind)
    return NumpyArray()


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> NumpyArray:
    array = NumpyArray()
    array.take(shape, dtype, data, is_fortran=order == "F")
    return array


_TENSOR_CLASSES = (
    "torch.Tensor",
    "torch._tensor.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
)


def _table() -> Mapping[str, Call]:
    table: dict[str, Call] = {}
    rows: tuple[tuple[str, Callable[..., object], int, int], ...] = (
        ("torch._utils._rebuild_tensor", _rebuild_tensor, 4, 4),
        ("torch._utils._rebuild_tensor_v2", _rebuild_tensor, 6, 7),
        ("torch._utils._rebuild_tensor_v3", _rebuild_typed_tensor, 7, 8),
        ("torch._utils._rebuild_meta_tensor_no_storage", _rebuild_meta, 3, 4),
        ("torch._utils._rebuild_device_tensor_from_cpu_tensor", _rebuild_device_tensor, 3, 4),
        ("torch._utils._rebuild_device_tensor_from_numpy", _rebuild_device_tensor, 3, 4),
        ("torch._utils._rebuild_xla_tensor", _rebuild_device_tensor, 3, 4),
        ("torch._utils._rebuild_parameter", _rebuild_parameter, 3, 3),
        ("torch._utils._rebuild_parameter_with_state", _rebuild_parameter, 4, 4),
        ("torch._utils._rebuild_sparse_tensor", _rebuild_sparse, 2, 2),
        ("torch._utils._rebuild_qtensor", _rebuild_quantized, 7, 7),
        ("torch._tensor._rebuild_from_type_v2", _rebuild_from_type, 4, 4),
        ("torch.Size", _size, 0, 1),
        ("torch.device", _device, 1, 2),
        ("torch.serialization._get_layout", _layout, 1, 1),
        ("torch.torch_version.TorchVersion", _text, 1, 1),
        ("collections.OrderedDict", _items, 0, 1),
        ("collections.Counter", _items, 0, 1),
        ("collections.deque", lambda value=(), _=None: list(_members(value)), 0, 2),
        ("collections.defaultdict", lambda _=None, value=None: _items(value), 0, 2),
        ("argparse.Namespace", Items, 0, 0),
        ("types.SimpleNamespace", Items, 0, 0),
        ("_codecs.encode", _encoded, 1, 2),
        ("numpy.dtype", NumpyType, 1, 3),
        *(
            (f"{module}.{pure}{kind}Path", _path, 0, 64)
            for module in ("pathlib", "pathlib._local")  # the latter by Python 3.13
            for pure in ("", "Pure")
            for kind in ("Posix", "Windows")
        ),
        *(
            (f"{module}.{name}", make, least, most)
            for module in ("numpy.core.multiarray", "numpy._core.multiarray")
            for name, make, least, most in (
                ("scalar", _scalar, 1, 2),
                ("_reconstruct", _reconstructed, 3, 3),
            )
        ),
        *((f"numpy.{core}.numeric._frombuffer", _from_buffer, 4, 4) for core in ("core", "_core")),
        *(
            (f"{module}.{name}", make, 0, most)
            for module in ("builtins", "__builtin__")
            for name, make, most in (
                ("set", lambda value=(): list(_members(value)), 1),
                ("frozenset", lambda value=(): list(_members(value)), 1),
                ("complex", _complex, 2),
                ("slice", _numbers, 3),
                ("range", _numbers, 3),
                ("xrange", _numbers, 3),
                ("bytes", _bytes, 2),
                ("bytearray", _bytes, 2),
            )
        ),
    )
    for name, make, least, most in rows:
        table[name] = Call(make, least, most, _becomes_plain(name))
    return table


_PLAINER = {
    "Counter": "Counter",
    "deque": "deque",
    "defaultdict": "defaultdict",
    "Namespace": "namespace",
    "SimpleNamespace": "namespace",
    "set": "set",
    "frozenset": "set",
    "complex": "complex number",
    "slice": "slice",
    "range": "range",
    "xrange": "range",
    "bytearray": "bytearray",
    "device": "torch.device",
    "scalar": "NumPy scalar",
}


def _becomes_plain(name: str) -> str:
    """Return what a call makes in Python, where it becomes a list, dict, text or number here."""
    last = name.rpartition(".")[2]
    return "path" if last.endswith("Path") else _PLAINER.get(last, "")


CALLS: Mapping[str, Call] = _table()
