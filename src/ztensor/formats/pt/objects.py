"""The manifest of a pickle's value: names, attributes, and the places of elements."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.errors import (
    FormatError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    LAYOUTS,
    Component,
    Encoding,
    Manifest,
    Projection,
    Tally,
    TensorObject,
    element_count,
    spell,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.deflate import Stream
from ztensor.formats.gathered import Gathered, Geometry
from ztensor.formats.pt.encodings import (
    ByteOrder,
    Held,
    flagged_dtype,
    has_gaps,
    require_coordinates,
)
from ztensor.formats.pt.pickled import Global, Items, misfit
from ztensor.formats.pt.values import (
    BytesStream,
    NumpyArray,
    NumpyType,
    QuantizedTensor,
    SparseTensor,
    Storage,
    TorchTensor,
)
from ztensor.limits import Budget
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


LONE_TENSOR, LONE_VALUE = "tensor", "value"  # names for a pickle of only a tensor or a value

# In bytes of memory: an empty list or dict with its path, a member of a list, a member of a dict; a
# tensor's object with its place in the file, and its geometry.
_NEST_COST, _MEMBER_COST, _ITEM_COST, _OBJECT_COST, _GATHER_COST = 192, 16, 112, 600, 800
_TEXT_COST, _WORD_LENGTH = 64, 24  # of any text; characters of a number
_NUMBER_COST = 40  # of a dimension or stride
_NEST_STEPS, _MEMBER_STEPS = 16, 4  # a list may take five bytes of a pickle, a member one
# Deflated storages may be inflated so often on average; beyond that, so many bytes cost a step.
_FREE_PASSES, _STEP_BYTES = 4, 256
_WHERE_MOST = 64  # characters of a key in the loss report
_DEPTH_ABOVE = 4  # levels of a manifest around an attribute


class Place(NamedTuple):
    """The place of a storage in the file.

    Attributes:
        offset: its first byte.
        length: stored bytes.
        nbytes: decoded bytes.
        stream: inflates the stored bytes; None if they are not deflated.
        digest: the digest of all decoded bytes, or None.
    """

    offset: int
    length: int
    nbytes: int
    stream: Stream | None = None
    digest: str | None = None


class _Nested:
    """The mark of a list or dict with tensors, which became objects."""


_NESTED = _Nested()
_OBJECTS = (TorchTensor, SparseTensor, QuantizedTensor, NumpyArray, Storage)
_NOT_PLAIN = (Items, list, tuple, *_OBJECTS)


class Objects:
    """Collects objects and attributes from the value of a pickle.

    Args:
        place_of: returns the place of a storage; raises if the file has no such storage.
        order: byte order of the storages.
        budget: the budget for listing the file, and the caps.
        left: the loss report, to which converted values are added.
        has_sum: whether a checksum covers the pickle.
    """

    def __init__(
        self,
        place_of: Callable[[Storage], Place],
        order: ByteOrder,
        budget: Budget,
        left: Tally,
        *,
        has_sum: bool,
    ) -> None:
        self._has_sum = has_sum
        self._left = left
        self._place_of = place_of
        self._order = order
        self._budget = budget
        self._streams: set[Stream] = set()
        self._free_bytes = 0  # bytes that may still be inflated without a charge
        self._in_state = False
        self._objects: dict[str, TensorObject] = {}
        self._attributes: dict[str, object] = {}
        self._encodings: dict[str, Encoding] = dict(RAW)
        self._words: dict[Geometry, str] = {}

    def projection(self, value: object, version: str) -> Projection:
        """Return the objects and attributes of a pickle.

        Args:
            value: the value of the pickle.
            version: the format's version.

        Raises:
            FormatError: a storage is shorter than a tensor needs, or the shapes of the parts of a
                sparse or quantized tensor do not match.
            UnsupportedError: two values have the same name, or a type is not read.
            LimitError: the value is nested too deeply.
        """
        plain = self._walk(value, ())
        if isinstance(plain, dict):
            self._attributes = plain
        elif plain is not _NESTED:
            self._attributes = {LONE_VALUE: plain}
        manifest = Manifest(version, self._objects, self._attributes or None)
        return Projection(manifest, self._encodings, self._left)

    # --- Names and plain values -------------------------------------------------------------

    # A short pickle can describe an endless tree, as values may be shared. So all results are
    # charged to the budget.

    def _walk(self, value: object, path: tuple[str, ...]) -> object:
        """Return a value as an attribute, or `_NESTED` if it has tensors, which become objects."""
        if isinstance(value, _OBJECTS):
            self._add(self._name(path or (LONE_TENSOR,)), value)
            return _NESTED
        if not isinstance(value, (Items, list, tuple)):
            return self._plain(value)
        if len(path) > self._budget.limits.depth - _DEPTH_ABOVE:
            raise LimitError(
                "the pickle nests dicts and lists deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._budget.limits.depth - _DEPTH_ABOVE} levels",
            )
        if isinstance(value, tuple):
            self._left.add("tuple", _where(path))
        self._budget.charge_bytes(_NEST_COST)
        self._budget.charge_steps(_NEST_STEPS + _MEMBER_STEPS * len(value))
        members = self._dict(value, path) if isinstance(value, Items) else self._list(value, path)
        plains = members.values() if isinstance(members, dict) else members
        if not any(plain is _NESTED for plain in plains):
            return members
        pairs = members.items() if isinstance(members, dict) else enumerate(members)
        for key, plain in pairs:
            if plain is not _NESTED:
                self._budget.charge_bytes(_ITEM_COST)
                name = self._name((*path, str(key)))
                if name in self._attributes:
                    raise self._taken("the file's attributes", name)
                self._attributes[name] = plain
        return _NESTED

    def _dict(self, value: Items, path: tuple[str, ...]) -> dict[str, object]:
        members: dict[str, object] = {}
        for member, child in value.pairs:
            self._budget.charge_bytes(_ITEM_COST)
            key = self._key(member)
            if key is not member:
                self._left.add("dict key that is no text", _where(path))
            if key in members:
                raise self._taken("a dict", key)
            members[key] = self._walk(child, (*path, key))
        return members

    def _list(self, value: Sequence[object], path: tuple[str, ...]) -> list[object]:
        self._budget.charge_bytes(_MEMBER_COST * len(value))
        return [
            self._walk(child, (*path, str(place)))
            if isinstance(child, _NOT_PLAIN)
            else self._plain(child)
            for place, child in enumerate(value)
        ]

    def _name(self, path: tuple[str, ...]) -> str:
        length = sum(map(len, path)) + len(path)
        self._charge_text(length)
        name = ".".join(path)
        self._budget.release_bytes(4 * length + 32 - sys.getsizeof(name))
        return name

    def _charge_text(self, length: int) -> None:
        self._budget.charge_bytes(_TEXT_COST + 4 * length)  # a character takes four bytes at most

    def _taken(self, where: str, name: str) -> UnsupportedError:
        return UnsupportedError(
            f"two values of {where} have the same name after nested names are joined by dots",
            reason=Reason.DUPLICATE_NAME,
            found=describe(name),
        )

    def _plain(self, value: object) -> object:
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if -(1 << 63) <= value < 1 << 64:
                return value
            self._left.add("integer of more than 64 bits")
            value = hex(value)  # decimal digits take quadratic time
        if isinstance(value, BytesStream):
            value = value.data
        if isinstance(value, (str, bytes)):
            self._budget.charge_bytes(len(value))  # writing a shared value copies it
            return value
        if isinstance(value, Global):
            self._charge_text(len(value.module) + len(value.name))
            self._left.add("class or constant", _cut(str(value)))
            return str(value)
        if isinstance(value, NumpyType):
            word = str(value)
            self._charge_text(len(word))
            self._left.add("numpy.dtype")
            return word
        raise misfit("a value", "a tensor or plain data", value)

    def _key(self, value: object) -> str:
        """Return a key of a dict as text: numbers as in Python, tuples joined by commas."""
        if isinstance(value, str):
            return value
        parts = []
        for member in value if isinstance(value, tuple) else (value,):
            part = self._plain(member)
            self._charge_text(2 * (len(part) if isinstance(part, (str, bytes)) else _WORD_LENGTH))
            parts.append(part.decode("latin-1") if isinstance(part, bytes) else str(part))
        return ",".join(parts)

    # --- Objects ----------------------------------------------------------------------------

    def _add(
        self, name: str, value: TorchTensor | SparseTensor | QuantizedTensor | NumpyArray | Storage
    ) -> None:
        if name in self._objects:
            raise self._taken("the file", name)
        self._budget.charge_bytes(_OBJECT_COST)
        if self._in_state:
            raise UnsupportedError(
                "an attribute of a tensor is a tensor",
                reason=Reason.UNKNOWN_LAYOUT,
                object_name=name,
            )
        try:
            self._objects[name] = self._with_state(self._made(value), value)
        except ZTensorError as error:
            error.locate(object_name=name)
            raise

    def _made(
        self, value: TorchTensor | SparseTensor | QuantizedTensor | NumpyArray | Storage
    ) -> TensorObject:
        match value:
            case SparseTensor():
                return self._sparse(value)
            case QuantizedTensor():
                return self._quantized(value)
            case NumpyArray():
                return self._array(value)
            case Storage():
                whole = TorchTensor(value, value.element, 0, (value.count,), (1,))
                return self._dense(whole)
            case TorchTensor():
                return self._dense(value)

    def _with_state(self, made: TensorObject, value: object) -> TensorObject:
        state = getattr(value, "state", None)
        if state is None:
            return made
        self._in_state = True
        plain = self._walk(state, ())
        self._in_state = False
        if not isinstance(plain, dict):
            raise misfit("the attributes of a tensor", "a dict", state)
        return made._replace(attributes={**plain, **(made.attributes or {})})

    def _dense(self, tensor: TorchTensor) -> TensorObject:
        shape, per_element = tensor.size, tensor.element.per_element
        if per_element > 1 and shape:
            shape = (*shape[:-1], shape[-1] * per_element)
        return TensorObject(shape, "dense", {"data": self._component(tensor)})

    def _array(self, array: NumpyArray) -> TensorObject:
        if array.shape is None:
            raise misfit("a numpy.ndarray", "its elements", None)
        if array.word is not None:
            self._encodings["numpy"] = Absent(
                "numpy",
                "the NumPy array is not of plain numbers; load the file with torch",
                has_sum=self._has_sum,
            )
            unread = Component(f"numpy.{array.word}", 0, 0, encoding="numpy", decoded_length=0)
            return TensorObject(array.shape, "dense", {"data": unread})
        dtype, type_ = spell(array.dtype.newbyteorder("="))
        return TensorObject(array.shape, "dense", {"data": self._held(dtype, array, type=type_)})

    def _held(
        self, dtype: str, array: NumpyArray | Array, times: int = 1, type: str | None = None
    ) -> Component:
        word = f"pickled-{len(self._encodings) - len(self._words)}"
        held = self._encodings[word] = Held(word, array, times, has_sum=self._has_sum)
        return Component(dtype, 0, 0, type, encoding=word, decoded_length=held.nbytes)

    def _component(self, tensor: TorchTensor) -> Component:
        """Return the component of a tensor: its range of the file, and its encoding."""
        element, storage = tensor.element, tensor.storage
        width, count = element.width, element_count(tensor.size)
        order: ByteOrder = "little"
        is_single = width == 1 or element.dtype in ("u8", "i8", "bool")
        if self._order == "big" and not is_single:
            order = "big"
        if storage is None:
            self._encodings["meta"] = Absent(
                "meta",
                "the tensor was saved on torch's device 'meta': it has a shape and no elements",
                has_sum=self._has_sum,
            )
            return Component(
                element.dtype, 0, 0, element.type, encoding="meta", decoded_length=count * width
            )
        place = self._checked_place(storage)
        start = storage.start * storage.element.width + tensor.offset * width
        if not count:
            return Component(element.dtype, place.offset, 0, element.type, byte_order=order)
        steps = [(n, step) for n, step in zip(tensor.size, tensor.stride, strict=True) if n != 1]
        span = (1 + sum((n - 1) * step for n, step in steps)) * width
        is_in_order = not (tensor.flags or has_gaps(steps))
        if is_in_order and not place.stream:
            offset = place.offset + start
            digest = place.digest if span == place.nbytes else None
            return Component(
                element.dtype, offset, span, element.type, digest=digest, byte_order=order
            )
        self._budget.charge_bytes(_GATHER_COST + 2 * len(steps) * _NUMBER_COST)
        geometry = Geometry(
            size=tuple(n for n, _ in steps),
            stride=tuple(step * width for _, step in steps),
            width=width,
            span=span,
            flags=tensor.flags,
            dtype=flagged_dtype(tensor) if tensor.flags else "",
            order=order,
            skip=start if place.stream else 0,
            stream=place.stream,
            is_in_order=is_in_order,
        )
        word = self._words.get(geometry)
        if word is None:
            word = self._words[geometry] = f"strided-{len(self._words)}"
            self._encodings[word] = Gathered(word, geometry)
        offset, length = place.offset + start, span
        if place.stream:
            offset, length = place.offset, place.length
            self._charge_inflating(place.stream, start, span)
        return Component(
            element.dtype,
            offset,
            length,
            element.type,
            encoding=word,
            decoded_length=count * width,
            byte_order=order,
        )

    def _checked_place(self, storage: Storage) -> Place:
        """Return the place of a storage.

        Raises:
            FormatError: it is shorter than the pickle's number of elements.
        """
        place, expected = self._place_of(storage), storage.whole * storage.element.width
        if expected > place.nbytes:
            raise FormatError(
                "a storage is shorter than the pickle says",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"{describe(expected)} bytes",
                found=str(place.nbytes),
            )
        return place

    def _charge_inflating(self, stream: Stream, start: int, span: int) -> None:
        """Charge steps for tensors that inflate the same bytes again and again."""
        if stream not in self._streams:
            self._streams.add(stream)
            self._free_bytes += _FREE_PASSES * stream.size
        self._free_bytes -= start + span
        if self._free_bytes < 0:
            self._budget.charge_steps(-self._free_bytes // _STEP_BYTES)
            self._free_bytes = 0

    def _sparse(self, tensor: SparseTensor) -> TensorObject:
        """Return a sparse object, of one of our layouts or else of torch's layout name."""
        roles = ("coords",) if tensor.layout == "sparse_coo" else ("indptr", "indices")
        components = {
            role: self._component(part) for role, part in zip(roles, tensor.indices, strict=True)
        }
        components["values"] = self._component(tensor.values)
        is_ours = len(tensor.values.size) == 1 and (
            tensor.layout == "sparse_coo"
            or (tensor.layout == "sparse_csr" and len(tensor.size) == 2)
        )
        if tensor.layout == "sparse_coo":
            require_coordinates(tensor)
        if is_ours:
            made = TensorObject(tensor.size, tensor.layout, components)
            problems = LAYOUTS[tensor.layout].check_object(made)
            if problems:
                raise LayoutError(problems[0].message, reason=problems[0].reason)
            return made
        shapes: dict[str, object] = {
            f"{role}_shape": list(part.size)
            for role, part in zip((*roles, "values"), (*tensor.indices, tensor.values), strict=True)
        }
        return TensorObject(tensor.size, f"torch.{tensor.layout}", components, shapes)

    def _quantized(self, tensor: QuantizedTensor) -> TensorObject:
        """Return a `quantized_group` for 8-bit integers with scales of rows or of the tensor.

        Other quantized tensors have the layout `torch.quantized`.
        """
        integers, axis = tensor.integers, tensor.axis
        data = self._component(integers)
        rows = integers.size[0] if integers.size else 0
        if (
            data.dtype in ("i8", "u8")
            and integers.storage is not None
            and 0 < rows <= integers.storage.count
            and element_count(integers.size)
            and axis in (None, 0)
        ):
            attributes: dict[str, object] = {
                "bits": 8,
                "group_size": -1,
                "packing": f"1_per_{data.dtype}",
                "group_axis": 1,
                "zeros_packed": False,
            }
            if data.dtype == "i8":
                attributes["signed"] = True
            if isinstance(tensor.scale, TorchTensor) and isinstance(tensor.zero_point, TorchTensor):
                scales, zeros = self._component(tensor.scale), self._component(tensor.zero_point)
            else:
                scales = self._held("f64", np.array(tensor.scale, "<f8"), rows)
                zeros = self._held("i64", np.array(tensor.zero_point, "<i8"))
                attributes["shared_zero"] = True
            components = {"packed_weight": data, "scales": scales, "zeros": zeros}
            made = TensorObject(integers.size, "quantized_group", components, attributes)
            problems = LAYOUTS["quantized_group"].check_object(made)
            if not problems:
                return made
        components, attributes = {"data": data}, {"dtype": f"torch.{tensor.name}"}
        for role, value in (("scale", tensor.scale), ("zero_point", tensor.zero_point)):
            if isinstance(value, TorchTensor):
                components[role] = self._component(value)
            else:
                attributes[role] = value
        if axis is not None:
            attributes["axis"] = axis
        return TensorObject(integers.size, "torch.quantized", components, attributes)


def _cut(word: str) -> str:
    return word[:_WHERE_MOST]


def _where(path: tuple[str, ...]) -> str:
    """Return a path for the loss report, with short keys: a key may have very many values."""
    return ".".join(map(_cut, path))
