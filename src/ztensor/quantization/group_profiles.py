"""`zt.quant_group/1` and `zt.mx/1`: the quantized layouts of 2.x, told in our own.

| role | elements |
| --- | --- |
| `data` | packed codes, or small floats, in the order of the shape |
| `scales` | one for each group, in the order of the shape with `axis` cut into groups |
| `zeros` | of `zt.quant_group/1` where the zero point is a tensor: like `scales`, perhaps packed |

Attributes say how codes are packed, and how many elements along `axis` share a scale. Parts and
attributes stay as the file has them; what they stand for is computed by `quantization/`, to which a
tensor is a matrix whose first or second axis is the grouped one.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import LayoutError, Problem, Reason, describe
from ztensor.ext import (
    STORAGE_TYPES,
    Component,
    Quantized,
    Rows,
    TensorObject,
    View,
    cached_property,
    element_count,
    empty_array,
    spell,
)
from ztensor.quantization.scheme import float_dtype
from ztensor.quantization.unpacking import whole_units
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

    from ztensor.quantization.unpacking import Indices

_BITS = (2, 3, 4, 5, 6, 8)
_WORDS = ("u8", "u16", "u32", "u64")
_ORDERS = {"lsb_first": "sequential", "msb_first": "reversed"}
_FLOATS = ("f64", "f32", "f16", "bf16")
_MX_TYPES = ("f4_e2m1", "f8_e4m3fn", "f8_e5m2")
_PIECE = 1 << 18  # elements worked on at once


class _WrongError(Exception):
    """An attribute or a part is not what the layout asks for.

    Args:
        field: the attribute or the role.
        expected: what it asks for.
        found: what is there.
        is_part: whether it is a part.
    """

    def __init__(self, field: str, expected: str, found: object, *, is_part: bool = False) -> None:
        super().__init__(field)
        self.field = field
        self.expected = expected
        self.found = "nothing" if found is None else describe(found, 40)
        self.is_part = is_part


@dataclasses.dataclass(frozen=True, slots=True)
class Groups:
    """Where the groups of an object lie.

    Attributes:
        shape: of the object.
        axis: along which elements share a scale.
        length: how many do.
        per_word: codes in an element of `data`; 1 where it holds them one by one.
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
        """Return the product of those behind it."""
        return element_count(self.shape[self.axis + 1 :])

    @property
    def scales(self) -> tuple[int, int, int]:
        """Return the scales' shape: before the axis, along it, behind it."""
        return self.outer, self.shape[self.axis] // self.length, self.inner


@dataclasses.dataclass(frozen=True, slots=True)
class GroupForm:
    """What the attributes of `zt.quant_group/1` say.

    Attributes:
        bits: of a code.
        groups: where the groups lie.
        word: what codes are packed in.
        order: which code of a word is in its lowest bits: `sequential` or `reversed`.
        is_scale_exponent: scales are powers of two.
        zero: the zero point of all groups; None where `zeros` has them.
        has_packed_zeros: whether `zeros` is packed like the codes.
    """

    bits: int
    groups: Groups
    word: str
    order: str
    is_scale_exponent: bool
    zero: int | None
    has_packed_zeros: bool

    @classmethod
    def of(cls, shape: Sequence[int], attributes: Mapping[str, object]) -> GroupForm:
        """Return the form.

        Raises:
            _WrongError: an attribute is missing or wrong.
        """
        bits = _one_of(attributes, "bits", _BITS)
        packing = attributes.get("packing")
        if type(packing) is not dict:
            raise _WrongError("packing", "a map", packing)
        word = _one_of(packing, "word", _WORDS)
        width = STORAGE_TYPES[word].width * 8
        if width % bits:
            raise _WrongError("bits", f"a divisor of {width}, the bits of {word}", bits)
        if packing.get("per_word") != width // bits or type(packing.get("per_word")) is not int:
            raise _WrongError("packing", f"per_word of {width // bits}", packing.get("per_word"))
        order = _ORDERS[_one_of(packing, "order", tuple(_ORDERS))]
        axis = _axis(shape, attributes.get("axis"))
        size = attributes.get("group_size")
        if type(size) is not int or size < 0 or (size and shape[axis] % size):
            raise _WrongError("group_size", f"0 or a divisor of {shape[axis]}", size)
        forms = ("f32_factors", "f16_factors", "e8m0_exponent")
        form = _one_of(attributes, "scale_form", forms)
        point = attributes.get("zero_point")
        if type(point) is not dict:
            raise _WrongError("zero_point", "a map", point)
        kind = _one_of(point, "form", ("none", "implied", "tensor"))
        zero: int | None = None if kind == "tensor" else 0
        if kind == "implied":
            zero = point.get("value")
            if type(zero) is not int or not -(1 << 31) <= zero < 1 << 31:
                raise _WrongError("zero_point", "an integer as value", zero)
        is_packed = False
        if kind == "tensor":
            packings = ("same_as_data", "plain")
            is_packed = _one_of(point, "packing", packings) == "same_as_data"
        groups = Groups(tuple(shape), axis, size or 1, width // bits)
        return cls(bits, groups, word, order, form == "e8m0_exponent", zero, is_packed)


def _one_of(fields: Mapping[str, object], field: str, known: Sequence[Any]) -> Any:
    value = fields.get(field)
    if not any(type(value) is type(one) and value == one for one in known):
        raise _WrongError(field, f"one of {', '.join(map(str, known))}", value)
    return value


def _axis(shape: Sequence[int], axis: object) -> int:
    if type(axis) is not int or not 0 <= axis < len(shape):
        raise _WrongError("axis", f"an axis of {len(shape)} dimensions", axis)
    return axis


def _words(groups: Groups, count: int, role: str) -> int:
    if count % groups.per_word:
        raise _WrongError(role, f"whole words of {groups.per_word} codes", count, is_part=True)
    return count // groups.per_word


class _Profile(Quantized):
    """What both layouts share: rules that are told as problems, or raised."""

    name = ""
    main_role = "data"
    read_order: tuple[str, ...] = ("data", "scales")

    @abc.abstractmethod
    def _check(
        self, shape: tuple[int, ...], attributes: Mapping[str, object], parts: Mapping[str, Any]
    ) -> None:
        """Raise `_WrongError` where parts or attributes are not those of the shape."""

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with the parts, the attributes and the sizes."""
        if problems := super().check_object(tensor_object):
            return problems
        parts = {role: _told(part) for role, part in tensor_object.components.items()}
        try:
            self._check(tensor_object.shape, tensor_object.attributes or {}, parts)
        except _WrongError as error:
            step = "components" if error.is_part else "attributes"
            message = f"expected {error.expected}, found {error.found}"
            role = error.field if error.is_part else None
            path = (step, error.field)
            return [Problem(Reason.QUANTIZATION, message, path, self.section, component=role)]
        return []

    def rows(self, tensor_object: TensorObject, part: Any) -> Rows:
        """Return what cuts rows out of an object."""
        return ProfileRows(tensor_object, part)

    def require_valid(self, view: View) -> None:
        """Raise unless the parts are those of the shape and the attributes.

        Raises:
            LayoutError: they are not.
        """
        super().require_valid(view)
        parts = {role: _measured(array) for role, array in view.arrays.items()}
        try:
            self._check(view.shape, view.attributes, parts)
        except _WrongError as error:
            raise LayoutError(
                "the object is not what its layout asks for",
                reason=Reason.QUANTIZATION,
                component=error.field if error.is_part else None,
                expected=f"{error.field}: {error.expected}",
                found=error.found,
                section=self.section,
            ) from error

    @abc.abstractmethod
    def groups(self, shape: tuple[int, ...], attributes: Mapping[str, object]) -> Groups:
        """Return where the groups of an object lie that no fault was found with."""


class ProfileRows(Rows):
    """Rows of both layouts: they are cut where words and groups end."""

    @cached_property
    def _groups(self) -> Groups:
        layout = PROFILES[self.object.format]
        return layout.groups(self.shape, self.object.attributes or {})

    @property
    def unit(self) -> int:
        """Return how many rows make a whole: selections begin and end at multiples of it."""
        row = element_count(self.shape[1:])
        counts = [self._groups.per_word]
        if "zeros" in self.object.components:  # perhaps packed: then whole words of them as well
            counts.append(self._groups.per_word * self._groups.length)
        units = [count // math.gcd(count, row) for count in counts if row]
        return math.lcm(*units, self._groups.length if self._groups.axis == 0 else 1)

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return the components of consecutive rows, which cut nothing in two."""
        start, stop = whole_units(rows, self.unit, self.shape[0])
        arrays: dict[str, Array] = {}
        for role in self.object.components:
            known = self.object.components[role].known_count()
            if role == "data":
                known = element_count(self.shape) // self._groups.per_word
            part = self.part(role, None if known is None else (known,))
            (count,) = part.shape
            # Parts lie in the order of rows: each row has its share of all of them.
            arrays[role] = part[start * count // self.shape[0] : stop * count // self.shape[0]]
        return arrays


def _told(part: Component) -> tuple[str, int | None]:
    """Return the type of a part, and its bytes as far as the manifest tells."""
    return part.type or part.dtype, part.known_decoded_length


def _measured(array: Array) -> tuple[str, int | None]:
    dtype, logical = spell(array.dtype)
    nbytes = -(-array.size // 2) if logical == "f4_e2m1" else array.nbytes
    return logical or dtype, nbytes


def _require_size(role: str, part: tuple[str, int | None], expected: int) -> None:
    if part[1] is not None and part[1] != expected:
        raise _WrongError(role, f"{expected} bytes", part[1], is_part=True)


def _require_type(role: str, part: tuple[str, int | None], known: Sequence[str]) -> None:
    if part[0] not in known:
        raise _WrongError(role, f"one of {', '.join(known)}", part[0], is_part=True)


class QuantGroup(_Profile):
    """The layout `zt.quant_group/1`."""

    name = "zt.quant_group/1"
    section = "the layout zt.quant_group/1"

    def _check(
        self, shape: tuple[int, ...], attributes: Mapping[str, object], parts: Mapping[str, Any]
    ) -> None:
        form = GroupForm.of(shape, attributes)
        groups = form.groups
        roles = {"data", "scales"} | ({"zeros"} if form.zero is None else set())
        if parts.keys() != roles:
            found = ", ".join(map(str, list(parts)[:8]))
            raise _WrongError("zeros", f"the parts {', '.join(sorted(roles))}", found, is_part=True)
        word = STORAGE_TYPES[form.word]
        _require_type("data", parts["data"], (form.word, "i" + form.word[1:]))
        count = _words(groups, element_count(shape), "data")
        _require_size("data", parts["data"], count * word.width)
        scales = _count_of(groups, "scales", parts["scales"])
        _require_type(
            "scales", parts["scales"], ("f8_e8m0",) if form.is_scale_exponent else _FLOATS
        )
        if form.zero is not None:
            return
        if form.has_packed_zeros:
            _require_type("zeros", parts["zeros"], (form.word, "i" + form.word[1:]))
            _require_size("zeros", parts["zeros"], _words(groups, scales, "zeros") * word.width)
            return
        known = [name for name in STORAGE_TYPES if name != "bool"]
        _require_type("zeros", parts["zeros"], known)
        _require_size("zeros", parts["zeros"], scales * STORAGE_TYPES[parts["zeros"][0]].width)

    def groups(self, shape: tuple[int, ...], attributes: Mapping[str, object]) -> Groups:
        """Return where the groups lie."""
        return GroupForm.of(shape, attributes).groups

    def as_groups(self, view: View) -> View:
        """Return the object as one of our layout `quantized_group`: a matrix.

        Raises:
            LayoutError: it breaks a rule of the layout.
        """
        self.require_valid(view)
        form = GroupForm.of(view.shape, view.attributes)
        groups, count = form.groups, element_count(view.shape)
        along = groups.shape[groups.axis]
        scales = view.arrays["scales"].reshape(-1)
        data, bits = view.arrays["data"], form.bits
        packing = f"{groups.per_word}_per_{form.word}"
        if groups.inner == 1 and along % groups.per_word == 0:
            shape, group_axis, pack_axis = (groups.outer, along), 1, 1
        elif groups.inner == 1:
            shape, group_axis, pack_axis = (count, 1), 0, 0
        else:
            shape, group_axis, pack_axis = (groups.outer * along, groups.inner), 0, 1
            if groups.inner % groups.per_word:  # words run from one line into the next
                data, bits, packing = _unpacked(data.reshape(-1), form), 8, "1_per_u8"
        arrays = {"packed_weight": data, "scales": scales}
        if form.zero is not None:
            arrays["zeros"] = np.array([form.zero], np.int64)
        elif form.has_packed_zeros:
            arrays["zeros"] = _unpacked(view.arrays["zeros"].reshape(-1), form)[: scales.size]
        else:
            arrays["zeros"] = view.arrays["zeros"].reshape(-1)
        attributes: dict[str, object] = {
            "bits": bits,
            "packing": packing,
            "group_size": groups.length,
            "group_axis": group_axis,
            "pack_axis": pack_axis,
            "order": form.order,
            "zeros_packed": False,
            "shared_zero": form.zero is not None,
        }
        return View(shape, arrays, attributes)

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats it stands for; a new array. See `Quantized`."""
        from ztensor.quantization.dequantizing import (
            dequantize_array,  # only here: most files need none
        )

        groups = self.as_groups(view)
        return dequantize_array(groups, dtype=dtype, threads=threads).reshape(view.shape)

    def integers(self, view: View) -> Array:
        """Return the codes; a new array. See `Quantized`."""
        from ztensor.quantization.dequantizing import integers_of_view

        return integers_of_view(self.as_groups(view)).reshape(view.shape)


def _count_of(groups: Groups, role: str, part: tuple[str, int | None]) -> int:
    """Return how many scales there are, the size of the part being that."""
    count = element_count(groups.scales)
    width = 1 if part[0] == "f8_e8m0" else STORAGE_TYPES[part[0]].width if part[0] in _FLOATS else 0
    if width:
        _require_size(role, part, count * width)
    return count


def _unpacked(words: Array, form: GroupForm) -> Array:
    """Return packed codes one by one, each in a byte."""
    unsigned = words.view(f"u{words.itemsize}")
    count = form.groups.per_word
    codes = np.empty((words.size, count), np.uint8)
    places = range(count) if form.order == "sequential" else range(count)[::-1]
    for position, place in enumerate(places):
        shift = unsigned.dtype.type(position * form.bits)
        codes[:, place] = (unsigned >> shift) & unsigned.dtype.type((1 << form.bits) - 1)
    return codes.reshape(-1)


class Mx(_Profile):
    """The layout `zt.mx/1`: small floats or bytes, and a power of two for each block of them."""

    name = "zt.mx/1"
    section = "the layout zt.mx/1"

    def groups(self, shape: tuple[int, ...], attributes: Mapping[str, object]) -> Groups:
        """Return where the blocks lie.

        Raises:
            _WrongError: an attribute is missing or wrong.
        """
        axis = _axis(shape, attributes.get("axis", len(shape) - 1))
        size = attributes.get("block_size")
        if type(size) is not int or size < 2 or shape[axis] % size:
            raise _WrongError("block_size", f"2 or more, a divisor of {shape[axis]}", size)
        return Groups(shape, axis, size)

    def _check(
        self, shape: tuple[int, ...], attributes: Mapping[str, object], parts: Mapping[str, Any]
    ) -> None:
        _one_of(attributes, "scale_form", ("e8m0_exponent",))
        groups = self.groups(shape, attributes)
        if len(parts) != 2:
            raise _WrongError("data", "the parts data and scales", len(parts), is_part=True)
        _require_type("data", parts["data"], (*_MX_TYPES, "i8"))
        _require_type("scales", parts["scales"], ("f8_e8m0",))
        count = element_count(shape)
        nbytes = -(-count // 2) if parts["data"][0] == "f4_e2m1" else count
        _require_size("data", parts["data"], nbytes)
        _require_size("scales", parts["scales"], element_count(groups.scales))

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats it stands for, computed in float32; a new array. See `Quantized`."""
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
        step = max(_PIECE // (groups.length * inner), 1)
        with np.errstate(all="ignore"):  # overflow and NaN are the file's values
            for start in range(0, lines, step):
                part = slice(start, start + step)
                floats = data[part].astype(np.float32)
                floats *= scales[part].astype(np.float32)
                out[part] = floats
        return result


QUANT_GROUP, MX = QuantGroup(), Mx()
PROFILES: dict[str, QuantGroup | Mx] = {layout.name: layout for layout in (QUANT_GROUP, MX)}
