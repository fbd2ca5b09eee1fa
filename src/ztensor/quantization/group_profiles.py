"""`zt.quant_group/1` and `zt.mx/1`: the quantized layouts of 2.x, mapped to `quantized_group`.

| role | elements |
| --- | --- |
| `data` | packed codes, or small floats, in the order of the shape |
| `scales` | one for each group, in the order of the shape with `axis` cut into groups |
| `zeros` | of `zt.quant_group/1` where the zero point is a tensor: like `scales`, perhaps packed |

Attributes say how codes are packed, and how many elements along `axis` share a scale. Components
and attributes stay as the file has them. For the arithmetic, `zt.quant_group/1` becomes a
`GroupScheme` and a matrix with the grouped axis first or second.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import LayoutError, Problem, Reason, describe
from ztensor.ext import (
    STORAGE_TYPES,
    Quantized,
    Rows,
    TensorObject,
    View,
    cached_property,
    element_count,
    empty_array,
    spell,
)
from ztensor.quantization.dequantizing import dequantize_array, integers, integers_of_view
from ztensor.quantization.scheme import GroupScheme, Packing, float_dtype
from ztensor.quantization.unpacking import Indices, whole_units
from ztensor.typing import Array

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_BITS = (2, 3, 4, 5, 6, 8)
_WORDS = ("u8", "u16", "u32", "u64")
_ORDERS = {"lsb_first": "sequential", "msb_first": "reversed"}
_FLOATS = ("f64", "f32", "f16", "bf16")
_MX_TYPES = ("f4_e2m1", "f8_e4m3fn", "f8_e5m2", "i8")
_BLOCK = 1 << 18  # elements converted at once

Attributes = Mapping[str, object]
Parts = Mapping[str, tuple[str, int | None]]
"""By role: the type, and the decoded bytes as far as they are known."""


class Groups(NamedTuple):
    """Position of the groups in an object.

    Attributes:
        shape: the object's shape.
        axis: the axis along which elements share a scale.
        length: elements in a group.
        per_word: codes in an element of `data`; 1 where codes are not packed.
    """

    shape: tuple[int, ...]
    axis: int
    length: int
    per_word: int = 1

    @property
    def outer(self) -> int:
        """Return the product of the dimensions before the axis."""
        return element_count(self.shape[: self.axis])

    @property
    def inner(self) -> int:
        """Return the product of the dimensions behind the axis."""
        return element_count(self.shape[self.axis + 1 :])

    @property
    def group_count(self) -> int:
        """Return how many groups there are."""
        return self.outer * (self.shape[self.axis] // self.length) * self.inner


class GroupForm(NamedTuple):
    """Meaning of the attributes of `zt.quant_group/1`.

    Attributes:
        groups: position of the groups.
        scheme: bits, packing and order. `shared_zero` is false where `zeros` is a component.
        zero: the shared zero point.
        is_scale_exponent: scales are powers of two.
    """

    groups: Groups
    scheme: GroupScheme
    zero: int
    is_scale_exponent: bool

    @classmethod
    def of(cls, shape: Sequence[int], attributes: Attributes) -> GroupForm:
        """Return the form.

        Raises:
            LayoutError: an attribute is missing or wrong.
        """
        bits = _one_of(attributes, "bits", _BITS)
        packing = _map_in(attributes, "packing")
        word = _one_of(packing, "word", _WORDS)
        width = STORAGE_TYPES[word].width * 8
        if width % bits:
            raise _wrong("bits", f"a divisor of {width}, the bits of {word}", bits)
        per_word = _one_of(packing, "per_word", (width // bits,))
        order = _ORDERS[_one_of(packing, "order", tuple(_ORDERS))]
        axis, size = _axis(shape, attributes.get("axis")), attributes.get("group_size")
        if type(size) is not int or size < 0 or (size and shape[axis] % size):
            raise _wrong("group_size", f"0 or a divisor of {shape[axis]}", size)
        scales = ("f32_factors", "f16_factors", "e8m0_exponent")
        scale_form = _one_of(attributes, "scale_form", scales)
        point = _map_in(attributes, "zero_point")
        kind = _one_of(point, "form", ("none", "implied", "tensor"))
        zero = point.get("value") if kind == "implied" else 0
        if type(zero) is not int or not -(1 << 31) <= zero < 1 << 31:
            raise _wrong("zero_point", "an integer of 32 bits as value", zero)
        packings = ("same_as_data", "plain")
        are_packed = kind == "tensor" and _one_of(point, "packing", packings) == packings[0]
        scheme = GroupScheme(
            bits=bits,
            packing=Packing(per_word, word),
            group_size=size or 1,
            order=order,
            zeros_packed=are_packed,
            shared_zero=kind != "tensor",
        )
        groups = Groups(tuple(shape), axis, size or 1, per_word)
        return cls(groups, scheme, zero, scale_form == "e8m0_exponent")

    def codes(self, words: Array, count: int) -> Array:
        """Return the first codes of packed words, each in a byte; flat."""
        flat = dataclasses.replace(self.scheme, pack_axis=1, group_size=-1)
        codes: Array = integers(flat, (1, count), words)
        return codes.reshape(-1)


def _wrong(name: str, expected: str, found: object, *, is_part: bool = False) -> LayoutError:
    """Return the error for an attribute, or a component, of this name."""
    return LayoutError(
        f"the {'component' if is_part else 'attribute'} {name!r} does not fit the layout",
        reason=Reason.QUANTIZATION,
        component=name if is_part else None,
        expected=expected,
        found="nothing" if found is None else describe(found, 40),
    )


def _one_of(fields: Attributes, field: str, known: Sequence[Any]) -> Any:
    value = fields.get(field)
    if not any(type(value) is type(allowed) and value == allowed for allowed in known):
        raise _wrong(field, f"one of {', '.join(map(str, known))}", value)
    return value


def _map_in(attributes: Attributes, field: str) -> Attributes:
    value = attributes.get(field)
    if type(value) is not dict:
        raise _wrong(field, "a map", value)
    return value


def _axis(shape: Sequence[int], axis: object) -> int:
    if type(axis) is not int or not 0 <= axis < len(shape):
        raise _wrong("axis", f"an axis of {len(shape)} dimensions", axis)
    return axis


def _require_roles(parts: Parts, roles: set[str]) -> None:
    if parts.keys() != roles:
        found = ", ".join(map(str, list(parts)[:8]))
        role = max(roles ^ parts.keys())
        raise _wrong(role, f"the components {', '.join(sorted(roles))}", found, is_part=True)


def _require_part(
    parts: Parts, role: str, known: Sequence[str], count: int, per_element: int = 1
) -> None:
    """Raise unless a component has one of these types, and the bytes of so many elements."""
    dtype, nbytes = parts[role]
    if dtype not in known:
        raise _wrong(role, f"one of {', '.join(known)}", dtype, is_part=True)
    if count % per_element:
        raise _wrong(role, f"whole words of {per_element} codes", count, is_part=True)
    width = STORAGE_TYPES[dtype].width if dtype in STORAGE_TYPES else 1
    expected = -(-count // 2) if dtype == "f4_e2m1" else count // per_element * width
    if nbytes not in (None, expected):
        raise _wrong(role, f"{expected} bytes", nbytes, is_part=True)


class _Profile(Quantized):
    """Rules of both layouts, checked in the manifest and in memory."""

    main_role = "data"
    has_streamed_rules = True
    read_order: tuple[str, ...] = ("data", "scales")

    @abc.abstractmethod
    def groups(self, shape: tuple[int, ...], attributes: Attributes) -> Groups:
        """Return the position of an object's groups.

        Raises:
            LayoutError: an attribute is missing or wrong.
        """

    @abc.abstractmethod
    def _check(self, shape: tuple[int, ...], attributes: Attributes, parts: Parts) -> None:
        """Raise `LayoutError` unless components and attributes fit the shape."""

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with the components, the attributes and the sizes."""
        if problems := super().check_object(tensor_object):
            return problems
        parts = {
            role: (part.type or part.dtype, part.known_decoded_length)
            for role, part in tensor_object.components.items()
        }
        try:
            self._check(tensor_object.shape, tensor_object.attributes or {}, parts)
        except LayoutError as error:
            role = error.component
            path = ("components", role) if role else ("attributes",)
            message = f"{error.message}: expected {error.expected}, found {error.found}"
            return [Problem(Reason.QUANTIZATION, message, path, self.section, component=role)]
        return []

    def require_valid(self, view: View) -> None:
        """Raise unless components and attributes fit the shape.

        Raises:
            LayoutError: they do not.
        """
        super().require_valid(view)
        parts: dict[str, tuple[str, int | None]] = {}
        for role, array in view.arrays.items():
            dtype, logical = spell(array.dtype)
            nbytes = -(-array.size // 2) if logical == "f4_e2m1" else array.nbytes
            parts[role] = logical or dtype, nbytes
        try:
            self._check(view.shape, view.attributes, parts)
        except LayoutError as error:
            error.section = self.section
            raise

    def float_attributes(self, attributes: Attributes) -> dict[str, object]:
        """Return no attribute: any may be of the quantization. See `Quantized`."""
        del attributes
        return {}

    def rows(self, tensor_object: TensorObject, part: Any) -> Rows:
        """Return the rows of an object, which can be selected in whole units."""
        return ProfileRows(tensor_object, part)


class ProfileRows(Rows):
    """Rows of both layouts; selections end at the ends of words and groups."""

    @cached_property
    def _groups(self) -> Groups:
        layout = PROFILES[self.object.format]
        return layout.groups(self.shape, self.object.attributes or {})

    @property
    def unit(self) -> int:
        """Return the row unit: selections begin and end at its multiples."""
        row = element_count(self.shape[1:])
        counts = [self._groups.per_word]
        if "zeros" in self.object.components:  # perhaps packed: then whole words of them as well
            counts.append(self._groups.per_word * self._groups.length)
        units = [count // math.gcd(count, row) for count in counts if row]
        return math.lcm(*units, self._groups.length if self._groups.axis == 0 else 1)

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return the components of consecutive rows, which cut no word or group."""
        start, stop = whole_units(rows, self.unit, self.shape[0])
        arrays: dict[str, Array] = {}
        for role in self.object.components:
            known = self.object.components[role].known_count()
            if role == "data":
                known = element_count(self.shape) // self._groups.per_word
            part = self.part(role, None if known is None else (known,))
            (count,) = part.shape
            # Components are in the order of rows: each row has an equal share of each.
            arrays[role] = part[start * count // self.shape[0] : stop * count // self.shape[0]]
        return arrays


class QuantGroup(_Profile):
    """The layout `zt.quant_group/1`."""

    name = "zt.quant_group/1"
    section = "the layout zt.quant_group/1"

    def groups(self, shape: tuple[int, ...], attributes: Attributes) -> Groups:
        """Return the position of the groups."""
        return GroupForm.of(shape, attributes).groups

    def _check(self, shape: tuple[int, ...], attributes: Attributes, parts: Parts) -> None:
        form = GroupForm.of(shape, attributes)
        scheme, groups = form.scheme, form.groups
        _require_roles(parts, {"data", "scales"} | (set() if scheme.shared_zero else {"zeros"}))
        word, count = scheme.packing.container, groups.group_count
        words = word, "i" + word[1:]
        _require_part(parts, "data", words, element_count(shape), groups.per_word)
        floats = ("f8_e8m0",) if form.is_scale_exponent else _FLOATS
        _require_part(parts, "scales", floats, count)
        if scheme.zeros_packed:
            _require_part(parts, "zeros", words, count, groups.per_word)
        elif not scheme.shared_zero:
            numbers = [name for name in STORAGE_TYPES if name != "bool"]
            _require_part(parts, "zeros", numbers, count)

    def as_groups(self, view: View) -> View:
        """Return the object as one of our layout `quantized_group`: a matrix.

        Raises:
            LayoutError: it breaks a rule of the layout.
        """
        self.require_valid(view)
        form = GroupForm.of(view.shape, view.attributes)
        groups, scheme, count = form.groups, form.scheme, element_count(view.shape)
        along, data, scales = view.shape[groups.axis], view.arrays["data"], view.arrays["scales"]
        if groups.inner == 1 and along % groups.per_word == 0:
            shape, group_axis, pack_axis = (groups.outer, along), 1, 1
        elif groups.inner == 1:
            shape, group_axis, pack_axis = (count, 1), 0, 0
        else:
            shape, group_axis, pack_axis = (groups.outer * along, groups.inner), 0, 1
            if groups.inner % groups.per_word:  # words run from one line into the next
                data = form.codes(data, count)
                scheme = dataclasses.replace(
                    scheme, bits=8, packing=Packing(1, "u8"), order="sequential"
                )
        arrays = {"packed_weight": data, "scales": scales.reshape(-1)}
        if scheme.shared_zero:
            arrays["zeros"] = np.array([form.zero], np.int64)
        elif scheme.zeros_packed:
            arrays["zeros"] = form.codes(view.arrays["zeros"], scales.size)
        else:
            arrays["zeros"] = view.arrays["zeros"].reshape(-1)
        own = dataclasses.replace(
            scheme, group_axis=group_axis, pack_axis=pack_axis, zeros_packed=False
        )
        return View(shape, arrays, own.to_attributes())

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the dequantized floats; a new array. See `Quantized`."""
        groups = self.as_groups(view)
        return dequantize_array(groups, dtype=dtype, threads=threads).reshape(view.shape)

    def integers(self, view: View) -> Array:
        """Return the codes; a new array. See `Quantized`."""
        return integers_of_view(self.as_groups(view)).reshape(view.shape)


class Mx(_Profile):
    """The layout `zt.mx/1`: small floats or bytes, and a power of two for each block of them."""

    name = "zt.mx/1"
    section = "the layout zt.mx/1"

    def groups(self, shape: tuple[int, ...], attributes: Attributes) -> Groups:
        """Return the position of the blocks."""
        axis = _axis(shape, attributes.get("axis", len(shape) - 1))
        size = attributes.get("block_size")
        if type(size) is not int or size < 2 or shape[axis] % size:
            raise _wrong("block_size", f"2 or more, a divisor of {shape[axis]}", size)
        return Groups(shape, axis, size)

    def _check(self, shape: tuple[int, ...], attributes: Attributes, parts: Parts) -> None:
        _one_of(attributes, "scale_form", ("e8m0_exponent",))
        groups = self.groups(shape, attributes)
        _require_roles(parts, {"data", "scales"})
        _require_part(parts, "data", _MX_TYPES, element_count(shape))
        _require_part(parts, "scales", ("f8_e8m0",), groups.group_count)

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the dequantized floats, computed in float32; a new array. See `Quantized`."""
        del threads
        target = float_dtype(dtype)
        self.require_valid(view)
        groups = self.groups(view.shape, view.attributes)
        result = empty_array(view.shape, target)
        count = element_count(view.shape)
        if not count:
            return result
        lines, inner = count // groups.inner // groups.length, groups.inner
        data = view.arrays["data"].reshape(-1)[:count].reshape(lines, groups.length, inner)
        scales = view.arrays["scales"].reshape(lines, 1, inner)
        out = result.reshape(lines, groups.length, inner)
        step = max(_BLOCK // (groups.length * inner), 1)
        with np.errstate(all="ignore"):  # overflow and NaN are the file's values
            for start in range(0, lines, step):
                part = slice(start, start + step)
                floats = data[part].astype(np.float32)
                floats *= scales[part].astype(np.float32)
                out[part] = floats
        return result


QUANT_GROUP, MX = QuantGroup(), Mx()
PROFILES: dict[str, QuantGroup | Mx] = {layout.name: layout for layout in (QUANT_GROUP, MX)}
