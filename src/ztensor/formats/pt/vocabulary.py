"""The closed table of calls in pickles of `torch.save`, `CALLS`, and their functions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import Reason, UnsupportedError
from ztensor.formats.pt.pickled import Call, Global, Items, kind_of, misfit, refused, require
from ztensor.formats.pt.values import (
    ELEMENT_TYPES,
    QUANTIZED,
    BytesStream,
    ElementType,
    NumpyArray,
    NumpyType,
    QuantizedTensor,
    SparseTensor,
    Storage,
    TorchTensor,
    counts,
    element_type_of,
    integer,
    numpy_type_of,
    outside,
    tensor_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- Tensors --------------------------------------------------------------------------------


def _rebuild(
    storage: object, offset: object, size: object, stride: object, element: ElementType | None
) -> TorchTensor:
    storage = require(storage, Storage, "the storage of a tensor", "a storage")
    shape, steps = counts(size, "the size of a tensor"), counts(stride, "the stride of a tensor")
    if len(shape) != len(steps):
        raise misfit("the stride of a tensor", f"{len(shape)} numbers", len(steps), is_type=False)
    (first,) = counts((offset,), "the offset of a tensor")
    element = storage.element if element is None else element
    if 0 not in shape:
        last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        available = storage.count * storage.element.width // element.width
        if last >= available:
            raise outside("a tensor reaches beyond its storage", available, last + 1)
    return TorchTensor(storage, element, first, shape, steps)


def _rebuild_tensor(
    storage: object, offset: object, size: object, stride: object, *rest: object
) -> TorchTensor:
    # The rest is requires_grad, the hooks, and possibly flags.
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
    return _flagged(_rebuild(storage, offset, size, stride, element_type_of(dtype)[1]), flags)


def _flagged(tensor: TorchTensor, flags: object) -> TorchTensor:
    if flags is None:
        return tensor
    names = []
    for name, is_set in require(flags, Items, "the flags of a tensor", "a dict").pairs:
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
    return TorchTensor(None, element_type_of(dtype)[1], 0, shape, steps)


def _rebuild_parameter(data: object, *rest: object) -> object:
    state = rest[2] if len(rest) > 2 else None
    return _with_state(data, state)


def _with_state(value: object, state: object) -> object:
    if not isinstance(value, (TorchTensor, SparseTensor, QuantizedTensor)):
        raise misfit("the data of a parameter", "a tensor", value)
    if isinstance(state, tuple) and len(state) == 2:  # the contents of __dict__ and __slots__
        state = state[0]
    if state is None or (isinstance(state, Items) and not len(state)):
        return value
    state = require(state, Items, "the attributes of a tensor", "a dict")
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
    element = element_type_of(dtype)[1]
    if isinstance(data, NumpyArray) and data.shape is not None and data.word is None:
        have: object = data.dtype.name
        same = ELEMENT_TYPES.get(data.dtype.name) == element
    else:
        tensor = tensor_of(data, "the data of a device's tensor")
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
    subject = "a part of a sparse tensor"
    return SparseTensor(
        name,
        tuple(tensor_of(part, subject) for part in parts[:count]),
        tensor_of(parts[count], subject),
        counts(parts[count + 1], "the size of a sparse tensor"),
    )


def _rebuild_quantized(
    storage: object, offset: object, size: object, stride: object, quantizer: object, *rest: object
) -> QuantizedTensor:
    del rest
    integers = _rebuild(storage, offset, size, stride, None)
    name = storage.name if isinstance(storage, Storage) else ""
    if name not in QUANTIZED:
        raise misfit("the storage of a quantized tensor", " or ".join(QUANTIZED), name)
    scheme = quantizer[0] if isinstance(quantizer, tuple) and quantizer else None
    subject = "the quantization of a tensor"
    if (
        isinstance(quantizer, tuple)
        and str(scheme) == "torch.per_tensor_affine"
        and len(quantizer) == 3
    ):
        if type(quantizer[1]) is not float:
            raise misfit(subject, "a float as scale", quantizer[1])
        return QuantizedTensor(integers, name, quantizer[1], integer(quantizer[2], subject), None)
    per_channel = ("torch.per_channel_affine", "torch.per_channel_affine_float_qparams")
    if isinstance(quantizer, tuple) and str(scheme) in per_channel and len(quantizer) == 4:
        scales, zeros = tensor_of(quantizer[1], subject), tensor_of(quantizer[2], subject)
        (axis,) = counts(quantizer[3:], subject)
        if axis >= len(integers.size) or not (
            scales.size == zeros.size == integers.size[axis : axis + 1]
        ):
            raise misfit(subject, "one scale and zero point for each index of an axis", axis)
        return QuantizedTensor(integers, name, scales, zeros, axis)
    raise misfit(subject, "per_tensor_affine or per_channel_affine", scheme)


# --- Other values ---------------------------------------------------------------------------


def _items(value: object = None, *rest: object) -> Items:
    """Return an empty dict, a copy of a dict, or a dict of a list of pairs."""
    del rest
    if isinstance(value, Items):
        return value.copied()
    flat: list[object] = []
    for pair in () if value is None else _list(value):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise misfit("the argument of a dict", "pairs", pair)
        flat += pair
    return Items(flat or ())


def _list(value: object = ()) -> list[object]:
    """Return the members of a collection."""
    if not isinstance(value, (tuple, list)):
        raise misfit("the argument of a collection", "a list or a tuple", value)
    return list(value)


def _encoded(text: object, encoding: object = "utf-8") -> bytes:
    # The form of bytes in protocol 2.
    if isinstance(text, str) and encoding in ("latin1", "latin-1", "utf-8"):
        try:
            return text.encode(str(encoding))
        except UnicodeEncodeError:
            pass
    raise misfit("bytes written as text", "text of Latin-1", text)


def _bytes(value: object = b"", *rest: object) -> bytes:
    if isinstance(value, str):
        return _encoded(value, *rest)
    return require(value, bytes, "the argument of bytes", "bytes")


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
    return require(value, str, "the argument of text", "text")


def _path(*parts: object) -> str:
    return "/".join(map(_text, parts)).replace("//", "/", 1)


def _complex(real: object = 0.0, imaginary: object = 0.0) -> Items:
    return Items(["real", real, "imag", imaginary])


def _numbers(*values: object) -> list[object]:
    """Return the bounds and the step of a slice or a range."""
    return list(values)


def _scalar(dtype: object, data: object = b"") -> object:
    named = numpy_type_of(dtype)
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


_REBUILD = "torch._utils._rebuild"
# By dotted name; the last word is the kind of a value that is converted to a plainer one.
CALLS: Mapping[str, Call] = {
    f"{_REBUILD}_tensor": Call(_rebuild_tensor, 4, 4),
    f"{_REBUILD}_tensor_v2": Call(_rebuild_tensor, 6, 7),
    f"{_REBUILD}_tensor_v3": Call(_rebuild_typed_tensor, 7, 8),
    f"{_REBUILD}_meta_tensor_no_storage": Call(_rebuild_meta, 3, 4),
    f"{_REBUILD}_device_tensor_from_cpu_tensor": Call(_rebuild_device_tensor, 3, 4),
    f"{_REBUILD}_device_tensor_from_numpy": Call(_rebuild_device_tensor, 3, 4),
    f"{_REBUILD}_xla_tensor": Call(_rebuild_device_tensor, 3, 4),
    f"{_REBUILD}_parameter": Call(_rebuild_parameter, 3, 3),
    f"{_REBUILD}_parameter_with_state": Call(_rebuild_parameter, 4, 4),
    f"{_REBUILD}_sparse_tensor": Call(_rebuild_sparse, 2, 2),
    f"{_REBUILD}_qtensor": Call(_rebuild_quantized, 7, 7),
    "torch._tensor._rebuild_from_type_v2": Call(_rebuild_from_type, 4, 4),
    "torch.Size": Call(_size, 0, 1),
    "torch.device": Call(_device, 1, 2, "torch.device"),
    "torch.serialization._get_layout": Call(_layout, 1, 1),
    "torch.torch_version.TorchVersion": Call(_text, 1, 1),
    "collections.OrderedDict": Call(_items, 0, 1),
    "collections.Counter": Call(_items, 0, 1, "Counter"),
    "collections.deque": Call(lambda value=(), _=None: _list(value), 0, 2, "deque"),
    "collections.defaultdict": Call(lambda _=None, value=None: _items(value), 0, 2, "defaultdict"),
    "argparse.Namespace": Call(Items, 0, 0, "namespace"),
    "types.SimpleNamespace": Call(Items, 0, 0, "namespace"),
    "_codecs.encode": Call(_encoded, 1, 2),
    "_io.BytesIO": Call(BytesStream, 0, 0, "stream in memory"),
    "numpy.dtype": Call(NumpyType, 1, 3),
    **{
        f"{module}.{pure}{kind}Path": Call(_path, 0, 64, "path")
        for module in ("pathlib", "pathlib._local")  # the latter by Python 3.13
        for pure in ("", "Pure")
        for kind in ("Posix", "Windows")
    },
    **{
        f"numpy.{core}.{name}": call
        for core in ("core", "_core")
        for name, call in {
            "multiarray.scalar": Call(_scalar, 1, 2, "NumPy scalar"),
            "multiarray._reconstruct": Call(_reconstructed, 3, 3),
            "numeric._frombuffer": Call(_from_buffer, 4, 4),
        }.items()
    },
    **{
        f"{module}.{name}": call
        for module in ("builtins", "__builtin__")
        for name, call in {
            "set": Call(_list, 0, 1, "set"),
            "frozenset": Call(_list, 0, 1, "set"),
            "complex": Call(_complex, 0, 2, "complex number"),
            "slice": Call(_numbers, 0, 3, "slice"),
            "range": Call(_numbers, 0, 3, "range"),
            "xrange": Call(_numbers, 0, 3, "range"),
            "bytes": Call(_bytes, 0, 2),
            "bytearray": Call(_bytes, 0, 2, "bytearray"),
        }.items()
    },
}
