"""`GroupScheme`: conventions of packing and grouping, and the shapes of components.

Spec: 1.2 section 3, `quantized_group`. It names three components (`packed_weight`, `scales`,
`zeros`) and three attributes (`bits`, `group_size`, `packing`), and leaves the rest open. Here
every open convention is an attribute of its own with a default, as
`docs/guides/quantized.md` describes.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.ext import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, element_count, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import DTypeLike

SECTION = "1.2 section 3, quantized_group"
INTEGER, CODEBOOK = "integer", "codebook"


@dataclasses.dataclass(frozen=True, slots=True)
class Packing:
    """Small integers packed in words: a block of `words` words holds `count` integers.

    Integer number i of a block has its lowest bit at bit `i * bits` of the block, with words from
    low to high. The last block of a line is padded with zeros.

    Attributes:
        count: integers in a block.
        container: the words' storage type, such as `i32`; the sign has no meaning.
        words: words in a block; more than one when integers cross from word to word.
    """

    count: int
    container: str
    words: int = 1

    @classmethod
    def parse(cls, text: object) -> Self:
        """Return the packing of a name such as `8_per_i32` or `32_per_3_i32`.

        Raises:
            LayoutError: the value is not text.
            UnsupportedError: the name has another form.
        """
        if not isinstance(text, str):
            raise _attribute_error("packing", "a name such as '8_per_i32'", text)
        # Two digits are enough for the widest container: 64 one-bit integers in a u64.
        match = re.fullmatch(r"([1-9][0-9]?)_per_(?:([2-9])_)?([iu](?:8|16|32|64))", text)
        if match is None:
            raise UnsupportedError(
                "the packing is not known here",
                reason=Reason.UNKNOWN_LAYOUT,
                expected="a name such as '8_per_i32' or '32_per_3_i32'",
                found=describe(text),
                section=SECTION,
            )
        count, words, container = match.groups(default="1")
        return cls(int(count), container, int(words))

    @classmethod
    def dense(cls, bits: int, container: str) -> Self:
        """Return the packing without unused bits, with the shortest blocks."""
        width = STORAGE_TYPES[container].width * 8
        common = math.gcd(bits, width)
        return cls(width // common, container, bits // common)

    @property
    def width(self) -> int:
        """Return the bits of a word."""
        return STORAGE_TYPES[self.container].width * 8

    def word_count(self, length: int) -> int:
        """Return the words of a line of `length` integers."""
        return -(-length // self.count) * self.words

    def __str__(self) -> str:
        """Return the name `parse` understands."""
        words = "" if self.words == 1 else f"{self.words}_"
        return f"{self.count}_per_{words}{self.container}"


# Elements of a word from its lowest bits up, by the count of elements.
ORDERS: Mapping[str, Callable[[int], Sequence[int]]] = {
    "sequential": range,
    "reversed": lambda count: range(count)[::-1],
    "awq": lambda count: (*range(0, count, 2), *range(1, count, 2)),  # 8: 0 2 4 6 1 3 5 7
}


def _is_int(low: int, high: int) -> Callable[[object], bool]:
    # `type(...) is int`, since a CBOR true is a Python int too.
    return lambda value: type(value) is int and low <= value <= high


def _is_flag(value: object) -> bool:
    return type(value) is bool


_RULES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "bits": ("an integer from 1 to 8", _is_int(1, 8)),
    "group_size": (
        "-1 or a positive integer",
        lambda value: type(value) is int and (value == -1 or value > 0),
    ),
    "pack_axis": ("0 or 1", _is_int(0, 1)),
    "group_axis": ("0 or 1", _is_int(0, 1)),
    "signed": ("true or false", _is_flag),
    "zero_offset": ("an integer from -256 to 256", _is_int(-256, 256)),
    "zeros_packed": ("true or false", _is_flag),
    "shared_zero": ("true or false", _is_flag),
    "desc_act": ("true or false", _is_flag),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupScheme:
    """Every convention that turns packed integers into floats; validated on construction.

    Attributes:
        bits: bits of one integer, 1 to 8.
        packing: position of integers in words.
        group_size: neighbours along `group_axis` that share a scale and a zero point; -1 is the
            whole axis. The last group may be short.
        pack_axis: axis along which integers share words: 0 (rows) or 1 (columns).
        group_axis: axis along which elements share a scale: 0 or 1.
        order: order of elements in a word: `sequential`, `reversed` or `awq`.
        signed: integers are in two's complement; so are packed zero points.
        zero_offset: added to zero points stored as integers (1 for GPTQ's first checkpoint
            format), modulo 2^bits if they are packed; not to floats.
        zeros_packed: zero points stored as integers are packed like the weights, along the axis
            that is not grouped; otherwise each is an integer of its own.
        shared_zero: `zeros` is one number for all groups, not packed.
        desc_act: groups are not neighbours: the component `g_idx` has each row's group.
        element: meaning of an integer: the number (`integer`), an entry of the component
            `codebook`, or the bits of a logical type of that width, such as `f4_e2m1`.

    Raises:
        LayoutError: a value of wrong type or range, or `packing` does not hold `bits`.
        UnsupportedError: an unknown order or element.
    """

    bits: int
    packing: Packing
    group_size: int = -1
    pack_axis: int = 0
    group_axis: int = 0
    order: str = "sequential"
    signed: bool = False
    zero_offset: int = 0
    zeros_packed: bool = True
    shared_zero: bool = False
    desc_act: bool = False
    element: str = INTEGER

    def __post_init__(self) -> None:
        for name in _RULES:
            require_rule(name, getattr(self, name))
        _require_name("order", self.order, ORDERS)
        _require_name("element", self.element, (INTEGER, CODEBOOK, *_float_types(self.bits)))
        if self.signed and self.element != INTEGER:
            raise _attribute_error("signed", f"false for elements of {self.element!r}", self.signed)
        padded = Packing(self.packing.width // self.bits, self.packing.container)
        dense = Packing.dense(self.bits, self.packing.container)
        if self.packing not in (padded, dense):
            names = " or ".join(sorted({repr(str(padded)), repr(str(dense))}))
            raise _attribute_error("packing", f"{names} for {self.bits} bits", str(self.packing))
        if self.packing.words > 1 and self.order != "sequential":
            raise _attribute_error("order", "'sequential' for blocks of several words", self.order)

    @classmethod
    def from_attributes(
        cls,
        attributes: Mapping[str, object] | None,
        packed_dtype: np.dtype[Any],
        shape: Sequence[int],
    ) -> Self:
        """Return the scheme that an object's attributes describe.

        Every attribute is named like the field it sets. `bits` is required. `packing`, when
        missing, is as many integers as one word of `packed_dtype` holds, if they fill it. The
        others have the fields' defaults. An attribute that is null counts as missing; other
        attributes are ignored.

        Args:
            attributes: the object's attributes, as a file has them: any names, any values.
            packed_dtype: element type of `packed_weight`.
            shape: the object's shape.

        Raises:
            LayoutError: an attribute is missing, of wrong type or out of range, or the shape has
                no axis.
            UnsupportedError: the packing, the order or the element is unknown here.
        """
        matrix_shape(shape)
        if attributes is None:
            attributes = {}
        if not isinstance(attributes, Mapping):
            raise _attribute_error("attributes", "a map", attributes)
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = attributes.get(field.name)
            if value is not None:
                values[field.name] = value
        require_rule("bits", values.get("bits"))
        if "packing" in values:
            values["packing"] = Packing.parse(values["packing"])
        else:
            values["packing"] = _default_packing(values["bits"], packed_dtype)
        return cls(**values)

    @classmethod
    def other_attributes(cls, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return the attributes that are not fields of a scheme."""
        own = {field.name for field in dataclasses.fields(cls)}
        return {name: value for name, value in attributes.items() if name not in own}

    def to_attributes(self) -> dict[str, object]:
        """Return the attributes of an object: the specification's three, and non-default ones."""
        attributes: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("bits", "group_size") or value != field.default:
                attributes[field.name] = str(value) if isinstance(value, Packing) else value
        return attributes

    def group_length(self, shape: Sequence[int]) -> int:
        """Return the elements of a group, except of a short last one; at least 1."""
        length = max(1, matrix_shape(shape)[self.group_axis])
        return length if self.group_size == -1 else min(self.group_size, length)

    def shapes(
        self, shape: Sequence[int], zeros: np.dtype[Any] | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Return the shape of every component that the scheme knows, by role.

        Args:
            shape: the object's shape; K rows and N columns as `matrix_shape` counts them.
            zeros: dtype of the zero points. None, or a float, where they are not packed.
        """
        rows, columns = matrix_shape(shape)
        group, words = self.group_length(shape), self.packing.word_count
        packed = (rows, words(columns)) if self.pack_axis else (words(rows), columns)
        groups = (rows, -(-columns // group)) if self.group_axis else (-(-rows // group), columns)
        shapes: dict[str, tuple[int, ...]] = {
            "packed_weight": packed,
            "scales": groups,
            "zeros": (1,) if self.shared_zero else groups,
            "g_idx": ((rows, columns)[self.group_axis],),
            "global_scale": (1,),
        }
        if zeros is not None and self.has_packed_zeros(zeros):
            lines, across = groups
            shapes["zeros"] = (words(lines), across) if self.group_axis else (lines, words(across))
        if self.element == CODEBOOK:
            shapes["codebook"] = (1 << self.bits,)
        return shapes

    def has_packed_zeros(self, dtype: np.dtype[Any]) -> bool:
        """Return whether zero points of this dtype are packed in words."""
        return dtype.kind in "iu" and self.zeros_packed and not self.shared_zero


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return an object's shape as K rows and N columns.

    Raises:
        LayoutError: the shape has no dimension.
    """
    if not shape:
        raise LayoutError(
            "a scalar cannot be quantized in groups",
            reason=Reason.LAYOUT_RANK,
            expected="at least one dimension",
            found="the shape []",
            section=SECTION,
        )
    return shape[0], element_count(shape[1:])


def _default_packing(bits: int, packed_dtype: np.dtype[Any]) -> Packing:
    if packed_dtype.kind not in "iu":
        raise _component_error("packed_weight", "words of an integer type", packed_dtype.name)
    width = packed_dtype.itemsize * 8
    if width % bits:
        raise _attribute_error("packing", f"a name, as {bits} bits do not fill a word", None)
    return Packing(width // bits, BY_LONG_NAME[packed_dtype.name].name)


def _float_types(bits: int) -> list[str]:
    """Return the logical types of floats of this width."""
    return [
        logical.name
        for logical in LOGICAL_TYPES.values()  # open: more may be registered at any time
        if logical.dtype == "u8"
        and logical.storage_per_element == 1
        and logical.elements_per_storage * bits == 8
        and logical.long_name.startswith("float")
    ]


def require_rule(name: str, value: object) -> None:
    """Raise unless an attribute may have a value.

    Raises:
        LayoutError: it may not.
    """
    expected, holds = _RULES[name]
    if not holds(value):
        raise _attribute_error(name, expected, value)


def _require_name(name: str, value: object, known: Iterable[str]) -> None:
    expected = f"one of {', '.join(known)}"
    if not isinstance(value, str):
        raise _attribute_error(name, expected, value)
    if value not in known:
        raise UnsupportedError(
            f"the attribute {name!r} of a quantized object has a value not known here",
            reason=Reason.UNKNOWN_LAYOUT,
            expected=expected,
            found=describe(value),
            section=SECTION,
        )


def _attribute_error(name: str, expected: str, found: object) -> LayoutError:
    return LayoutError(
        f"the attribute {name!r} of a quantized object cannot be used",
        reason=Reason.QUANTIZATION,
        expected=expected,
        found="nothing" if found is None else describe(found),
        section=SECTION,
    )


def _component_error(
    role: str, expected: str, found: str, reason: Reason = Reason.QUANTIZATION
) -> LayoutError:
    return LayoutError(
        "the component does not fit the quantized object",
        reason=reason,
        component=role,
        expected=expected,
        found=found,
        section=SECTION,
    )


# --- Sizes ----------------------------------------------------------------------------------


def require_sizes(
    scheme: GroupScheme,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    dtypes: Mapping[str, np.dtype[Any]],
) -> None:
    """Compare every component with the scheme and the shape, before anything is allocated.

    Args:
        scheme: the object's scheme.
        shape: the object's shape.
        sizes: elements of each component, by role. Roles not known here are ignored.
        dtypes: element type of each component, by role.

    Raises:
        LayoutError: a component is missing, of a wrong type or of a wrong size.
    """
    for role in ("packed_weight", "scales", "zeros"):
        if role not in sizes:
            raise _missing(role, "packed_weight, scales and zeros")
    shapes = scheme.shapes(shape, dtypes["zeros"])
    if "codebook" in shapes and "codebook" not in sizes:
        raise _missing("codebook", f"{1 << scheme.bits} floats, as the attribute 'element' says")
    if scheme.desc_act and shapes["scales"][scheme.group_axis] > 1 and "g_idx" not in sizes:
        raise _missing("g_idx", "the group of each row, as the attribute 'desc_act' is true")
    for role, component_shape in shapes.items():
        if role in sizes:
            require_component(scheme, role, component_shape, sizes[role], dtypes[role])


def require_component(
    scheme: GroupScheme, role: str, shape: tuple[int, ...], size: int, dtype: np.dtype[Any]
) -> None:
    """Compare the dtype and the element count of one component with the scheme.

    Raises:
        LayoutError: one of them is wrong.
    """
    is_integer = dtype.kind in "iu"
    is_word = is_integer and dtype.itemsize * 8 == scheme.packing.width
    words = f"words like {scheme.packing.container}"
    if role == "packed_weight":
        expected = "" if is_word else words
    elif role == "zeros" and scheme.has_packed_zeros(dtype):
        expected = "" if is_word else f"{words}, or the attribute 'zeros_packed' to be false"
    elif role == "zeros":
        expected = "" if is_integer or is_float(dtype) else "floats or integers"
    elif role == "g_idx":
        expected = "" if is_integer else "integers, which number the groups"
    else:
        expected = "" if is_float(dtype) else "floats"
    if expected:
        reason = Reason.INDEX_DTYPE if role == "g_idx" else Reason.QUANTIZATION
        raise _component_error(role, expected, dtype.name, reason)
    if size != element_count(shape):
        expected = " x ".join(map(describe, shape))
        raise _component_error(role, f"{expected} elements", describe(size))


def _missing(role: str, expected: str) -> LayoutError:
    return LayoutError(
        "a quantized object lacks a component",
        reason=Reason.COMPONENT_MISSING,
        component=role,
        expected=expected,
        section=SECTION,
    )


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are real floats, also of ml_dtypes."""
    return dtype.kind == "f" or dtype.name.startswith(("float", "bfloat"))


def float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a type for scales or results, in native byte order.

    Raises:
        ArgumentValueError: it is not float16, bfloat16, float32 or float64.
    """
    try:
        target = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except (TypeError, ValueError, UnsupportedError):
        target = None
    if target is None or target.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ArgumentValueError(
            "quantized values are floats",
            expected="float16, bfloat16, float32 or float64",
            found=describe(dtype if target is None else target.name),
        )
    return target.newbyteorder("=")
