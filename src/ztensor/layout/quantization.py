"""The arithmetic of group quantization: small integers packed in words, and back to floats.

Spec: 1.2 section 3, `quantized_group`. It names three components (`packed_weight`, `scales`,
`zeros`) and three attributes (`bits`, `group_size`, `packing`), and leaves the rest open. Here
every open convention is an attribute of its own with a default, gathered in `GroupScheme`;
`docs/quantized.md` is the page about them.

An object is seen as a matrix of K rows and N columns: K is the first dimension of its shape, N
the product of the others. One element is `(q - zero) * scale`, where `scale` and `zero` are those
of the element's group: `group_size` neighbours along one axis.
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
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.layout.base import empty_array
from ztensor.layout.elements import numpy_dtype
from ztensor.layout.sparse import require_in_range
from ztensor.model.dtype import BY_LONG_NAME, STORAGE_TYPES, element_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ztensor.layout.base import Array

SECTION = "1.2 section 3, quantized_group"

# Work goes tile by tile: 2^18 float32 are 1 MiB, so a tile and its temporaries stay in a second
# level cache (4096 x 4096, 4 bit: 1.9 GB/s of output with 2^15, 2.7 with 2^18, 2.1 with 2^22; two
# threads gain nothing). Lines of a tile are contiguous, so they are cut only when very long.
_TILE = 1 << 18
_LINE = 1 << 15
# So many scales and zero points are made floats once (8 MiB together), more for each tile anew.
_WHOLE = 1 << 20


# --- The scheme -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Packing:
    """How small integers lie in words: blocks of `words` words hold `count` integers each.

    Integer number i of a block has its lowest bit at bit `i * bits` of the block, whose words
    follow one another from low to high. The last block of a line is filled up with zeros.

    Attributes:
        count: integers in a block.
        container: the words' storage type, such as `i32`; its sign means nothing.
        words: words in a block; more than one when integers cross from word to word.
    """

    count: int
    container: str
    words: int = 1

    @classmethod
    def parse(cls, text: object) -> Self:
        """Return the packing that `8_per_i32` or `32_per_3_i32` names.

        Raises:
            LayoutError: not text.
            UnsupportedError: a name of another form.
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
        """Return the packing that wastes no bit; blocks are as short as that allows."""
        width = STORAGE_TYPES[container].width * 8
        common = math.gcd(bits, width)
        return cls(width // common, container, bits // common)

    @property
    def width(self) -> int:
        """Return the bits of a word."""
        return STORAGE_TYPES[self.container].width * 8

    def word_count(self, length: int) -> int:
        """Return how many words a line of `length` integers takes."""
        return -(-length // self.count) * self.words

    def __str__(self) -> str:
        """Return the name `parse` understands."""
        words = "" if self.words == 1 else f"{self.words}_"
        return f"{self.count}_per_{words}{self.container}"


# Which element of a word is in its lowest bits, which next, and so on; by the word's count.
_ORDERS: Mapping[str, Callable[[int], Sequence[int]]] = {
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
    "desc_act": ("true or false", _is_flag),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupScheme:
    """Every convention needed to make floats of packed integers; checked when made.

    Attributes:
        bits: bits of one integer, 1 to 8.
        packing: how integers lie in words.
        group_size: how many neighbours along `group_axis` share a scale and a zero point; -1 is
            the whole axis. The last group may be short.
        pack_axis: axis along which integers share words: 0 (rows) or 1 (columns).
        group_axis: axis along which elements share a scale: 0 or 1.
        order: which element of a word is in its lowest bits: `sequential`, `reversed` or `awq`.
        signed: integers are in two's complement; so are packed zero points.
        zero_offset: added to zero points stored as integers (1 for GPTQ's first checkpoint
            format), modulo 2^bits where they are packed; floats are taken as they are.
        zeros_packed: zero points stored as integers are packed like the weights, along the axis
            that is not grouped; otherwise each is an integer of its own.
        desc_act: groups are not neighbours: the component `g_idx` tells each row's group.

    Raises:
        LayoutError: a value of wrong type or range, or `packing` does not hold `bits`.
        UnsupportedError: an unknown order.
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
    desc_act: bool = False

    def __post_init__(self) -> None:
        for name in _RULES:
            _require_rule(name, getattr(self, name))
        if not isinstance(self.order, str):
            raise _attribute_error("order", f"one of {', '.join(_ORDERS)}", self.order)
        if self.order not in _ORDERS:
            raise UnsupportedError(
                "the order of the elements in a word is not known here",
                reason=Reason.UNKNOWN_LAYOUT,
                expected=f"one of {', '.join(_ORDERS)}",
                found=describe(self.order),
                section=SECTION,
            )
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
            UnsupportedError: a packing or an order that is not known here.
        """
        _matrix(shape)
        if attributes is None:
            attributes = {}
        if not isinstance(attributes, Mapping):
            raise _attribute_error("attributes", "a map", attributes)
        given: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = attributes.get(field.name)
            if value is not None:
                given[field.name] = value
        _require_rule("bits", given.get("bits"))
        if "packing" in given:
            given["packing"] = Packing.parse(given["packing"])
        else:
            given["packing"] = _default_packing(given["bits"], packed_dtype)
        return cls(**given)

    def to_attributes(self) -> dict[str, object]:
        """Return the attributes of an object: the specification's three, then what differs."""
        attributes: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("bits", "group_size") or value != field.default:
                attributes[field.name] = str(value) if isinstance(value, Packing) else value
        return attributes

    def group_length(self, shape: Sequence[int]) -> int:
        """Return how many elements share a scale, except in a short last group; at least 1."""
        length = max(1, _matrix(shape)[self.group_axis])
        return length if self.group_size == -1 else min(self.group_size, length)

    def packed_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the shape of the words of `packed_weight`: K x N, one axis packed."""
        rows, columns = _matrix(shape)
        if self.pack_axis == 0:
            return self.packing.word_count(rows), columns
        return rows, self.packing.word_count(columns)

    def scales_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the shape of `scales` and of zero points that are not packed."""
        rows, columns = _matrix(shape)
        group = self.group_length(shape)
        if self.group_axis == 0:
            return -(-rows // group), columns
        return rows, -(-columns // group)

    def packed_zeros_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the shape of `zeros` in words: like `scales`, the axis not grouped packed."""
        rows, columns = self.scales_shape(shape)
        if self.group_axis == 0:
            return rows, self.packing.word_count(columns)
        return self.packing.word_count(rows), columns


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
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


def _require_rule(name: str, value: object) -> None:
    expected, holds = _RULES[name]
    if not holds(value):
        raise _attribute_error(name, expected, value)


def _attribute_error(name: str, expected: str, found: object) -> LayoutError:
    return LayoutError(
        f"the attribute {name!r} of a quantized object cannot be used",
        reason=Reason.QUANTIZATION,
        expected=expected,
        found="nothing" if found is None else describe(found),
        section=SECTION,
    )


def _component_error(role: str, expected: str, found: str) -> LayoutError:
    return LayoutError(
        "the component does not fit the quantized object",
        reason=Reason.QUANTIZATION,
        component=role,
        expected=expected,
        found=found,
        section=SECTION,
    )


# --- Sizes ----------------------------------------------------------------------------------


def check_sizes(
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
            raise LayoutError(
                "a quantized object lacks a component",
                reason=Reason.COMPONENT_MISSING,
                component=role,
                expected="packed_weight, scales and zeros",
                section=SECTION,
            )
    by_group = scheme.scales_shape(shape)
    container, word_bytes = scheme.packing.container, scheme.packing.width // 8

    words = dtypes["packed_weight"]
    if words.kind not in "iu" or words.itemsize != word_bytes:
        raise _component_error("packed_weight", f"words like {container}", words.name)
    _require_size("packed_weight", scheme.packed_shape(shape), sizes)

    if not _is_float(dtypes["scales"]):
        raise _component_error("scales", "floats", dtypes["scales"].name)
    _require_size("scales", by_group, sizes)

    zeros = dtypes["zeros"]
    if zeros.kind not in "iu" and not _is_float(zeros):
        raise _component_error("zeros", "floats or integers", zeros.name)
    if zeros.kind in "iu" and scheme.zeros_packed:
        if zeros.itemsize != word_bytes:
            expected = f"words like {container}, or the attribute 'zeros_packed' to be false"
            raise _component_error("zeros", expected, zeros.name)
        _require_size("zeros", scheme.packed_zeros_shape(shape), sizes)
    else:
        _require_size("zeros", by_group, sizes)

    if "g_idx" in sizes:
        if dtypes["g_idx"].kind not in "iu":
            raise LayoutError(
                "group numbers are integers",
                reason=Reason.INDEX_DTYPE,
                component="g_idx",
                expected="an integer type",
                found=dtypes["g_idx"].name,
                section=SECTION,
            )
        _require_size("g_idx", (_matrix(shape)[scheme.group_axis],), sizes)
    elif scheme.desc_act and by_group[scheme.group_axis] > 1:
        raise LayoutError(
            "the attribute 'desc_act' is true, and nothing tells the groups",
            reason=Reason.COMPONENT_MISSING,
            component="g_idx",
            expected="the component g_idx",
            section=SECTION,
        )


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("float", "bfloat"))  # those of ml_dtypes


def _require_size(role: str, component_shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    if sizes[role] != element_count(component_shape):
        expected = " x ".join(map(describe, component_shape))
        raise _component_error(role, f"{expected} elements", describe(sizes[role]))


# --- Packed integers to floats --------------------------------------------------------------


def dequantize(
    scheme: GroupScheme,
    shape: Sequence[int],
    packed: Array,
    scales: Array,
    zeros: Array,
    g_idx: Array | None = None,
    *,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Return the floats that packed integers, scales and zero points stand for.

    Each element is `(q - zero) * scale`, computed in float32 (in float64 when that is asked for),
    with infinities and NaN as IEEE 754 has them. The components may have any shape of the right
    size; they are read in row-major order.

    Args:
        scheme: the object's scheme.
        shape: the object's shape, `(K, ...)`.
        packed: words of the scheme's container.
        scales: one float per group and line.
        zeros: one float or integer per group and line, or words of packed integers.
        g_idx: for each row (column, where `group_axis` is 1) the number of its group.
        dtype: `float16`, `bfloat16`, `float32` or `float64`.

    Returns:
        A new row-major array of `shape`. Other memory: some 10 MiB, whatever the size.

    Raises:
        LayoutError: a component is of a wrong type or size, or `g_idx` names no group.
        LimitError: the result does not fit into memory.
        ArgumentValueError: another `dtype`.
    """
    target = _float_dtype(dtype)
    components = {"packed_weight": packed, "scales": scales, "zeros": zeros}
    if g_idx is not None:
        components["g_idx"] = g_idx
    check_sizes(
        scheme,
        shape,
        {role: component.size for role, component in components.items()},
        {role: component.dtype for role, component in components.items()},
    )
    matrix, by_group = _matrix(shape), scheme.scales_shape(shape)
    row_groups = None
    if g_idx is not None:
        require_in_range(g_idx.reshape(-1), by_group[scheme.group_axis], "g_idx", SECTION)
        row_groups = g_idx.reshape(-1).astype(np.intp)
    result = empty_array(tuple(shape), target)
    if result.size == 0:
        return result

    # From here on the grouped axis is the first one: a view, turned where it is the second.
    def grouped_first(component: Array, component_shape: tuple[int, int]) -> Array:
        component = component.reshape(component_shape)
        return component.T if scheme.group_axis else component

    out = grouped_first(result, matrix)
    words = grouped_first(_words(packed), scheme.packed_shape(shape))
    scales = grouped_first(scales, by_group)
    packed_zeros = scheme.zeros_packed and zeros.dtype.kind in "iu"
    if packed_zeros:
        zeros = grouped_first(_words(zeros), scheme.packed_zeros_shape(shape))
    else:
        zeros = grouped_first(zeros, by_group)
    compute = np.dtype(np.float64 if target == np.float64 else np.float32)

    def constants(groups: slice | Array, columns: slice) -> tuple[Array, Array]:
        scale = scales[groups, columns].astype(compute)
        if packed_zeros:
            zero = np.empty_like(scale)
            _unpack_zeros(scheme, zeros, groups, columns, zero)
        else:
            zero = zeros[groups, columns].astype(compute)
            if zeros.dtype.kind in "iu":
                zero += scheme.zero_offset
        return zero, scale

    group = scheme.group_length(shape)
    with np.errstate(all="ignore"):  # overflow and NaN are the file's values, not our mistakes
        whole = None
        if scales.size <= _WHOLE:
            whole = constants(slice(None), slice(0, scales.shape[1]))
        for rows, columns in _tiles(out.shape, group, turned=scheme.group_axis == 1):
            place = out[rows, columns]
            tile = place if target == compute else np.empty_like(place, compute)
            if scheme.pack_axis == scheme.group_axis:
                _unpack(scheme, words[:, columns], rows, tile)
            else:
                _unpack(scheme, words[rows].T, columns, tile.T)
            groups = slice(rows.start // group, -(-rows.stop // group))
            which = groups if row_groups is None else row_groups[rows]
            if whole is None:
                zero, scale = constants(which, columns)
            else:
                zero, scale = whole[0][which, columns], whole[1][which, columns]
            if row_groups is not None:
                tile -= zero
                tile *= scale
            else:
                for cube, of in _group_cubes(tile, group):
                    np.subtract(cube, zero[of, None], out=cube)
                    np.multiply(cube, scale[of, None], out=cube)
            if tile is not place:
                place[...] = tile
    return result


def _tiles(shape: tuple[int, ...], group: int, *, turned: bool) -> Iterator[tuple[slice, slice]]:
    """Yield tiles of about `_TILE` elements that cover a matrix whose first axis is grouped.

    A tile is whole groups, except the last of all, or part of one group.

    Args:
        shape: the matrix's shape.
        group: rows in a group.
        turned: the first axis is the contiguous one.
    """
    rows, columns = shape
    line = min(rows if turned else columns, _LINE)
    height, width = (line, _TILE // line) if turned else (_TILE // line, line)
    span = group
    if group <= height:
        height = span = height // group * group
    for first in range(0, rows, span):
        last = min(first + span, rows)
        for top in range(first, last, height):
            for left in range(0, columns, width):
                bottom, right = min(top + height, last), min(left + width, columns)
                yield slice(top, bottom), slice(left, right)


def _unpack(scheme: GroupScheme, words: Array, span: slice, out: Array, *, offset: int = 0) -> None:
    """Write the integers number `span` along the first axis as floats into `out`.

    Args:
        scheme: bits, packing, order and sign.
        words: unsigned words, packed along the first axis, from integer number 0.
        span: which integers.
        out: shape (length of span, ...), a float type.
        offset: added to each integer, modulo 2^bits.
    """
    bits, width = scheme.bits, scheme.packing.width
    count, step = scheme.packing.count, scheme.packing.words
    mask, half = (1 << bits) - 1, 1 << (bits - 1)
    for place, element in enumerate(_ORDERS[scheme.order](count)):
        # The blocks whose integer number `element` lies in the span.
        first, last = -((element - span.start) // count), -((element - span.stop) // count)
        if first >= last:
            continue
        word, shift = divmod(place * bits, width)
        value = words[first * step + word : last * step : step] >> shift
        if shift + bits > width:
            value |= words[first * step + word + 1 : last * step : step] << (width - shift)
        if offset:
            value += offset & mask
        if bits < width:
            value &= mask
            value = value.view(f"i{value.itemsize}")  # becomes floats 1.5 times as fast
        if scheme.signed:
            value ^= half
        out[first * count + element - span.start :: count] = value
    if scheme.signed:
        out -= half  # with the sign bit turned over this is two's complement


def _unpack_zeros(
    scheme: GroupScheme, words: Array, groups: slice | Array, columns: slice, out: Array
) -> None:
    """Write the zero points of `groups` (rows) and `columns` as floats into `out`."""
    count = scheme.packing.count
    first = columns.start // count
    blocks = words[:, first * scheme.packing.words : scheme.packing.word_count(columns.stop)]
    span = slice(columns.start - first * count, columns.stop - first * count)
    _unpack(scheme, blocks[groups].T, span, out.T, offset=scheme.zero_offset)


def _group_cubes(matrix: Array, group: int) -> Iterator[tuple[Array, slice]]:
    """Yield views of shape (groups, rows in a group, columns), and which groups these are.

    Whole groups come first, then the short last one.
    """
    whole = len(matrix) // group
    if whole:
        cube = matrix[: whole * group].reshape(whole, group, -1)  # splitting an axis never copies
        yield cube, slice(0, whole)
    if len(matrix) > whole * group:
        yield matrix[None, whole * group :], slice(whole, whole + 1)


def _words(component: Array) -> Array:
    native = component.astype(component.dtype.newbyteorder("="), copy=False)
    return native.view(f"u{native.itemsize}")


def _float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except (TypeError, UnsupportedError):
        found = None
    if found is None or found.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ArgumentValueError(
            "quantized values are floats",
            expected="float16, bfloat16, float32 or float64",
            found=describe(dtype if found is None else found.name),
        )
    return found.newbyteorder("=")


# --- Floats to packed integers --------------------------------------------------------------


def quantize(
    array: ArrayLike,
    *,
    bits: int = 4,
    group_size: int = 128,
    packing: str | None = None,
    pack_axis: int = 0,
    group_axis: int = 0,
    order: str = "sequential",
    signed: bool = False,
    symmetric: bool = False,
    zeros: str = "float",
    zero_offset: int = 0,
    scale_dtype: DTypeLike = "float16",
) -> tuple[dict[str, Array], dict[str, object]]:
    """Return the components and attributes of `array`, each element rounded to the nearest step.

    A group's steps reach from its smallest to its largest element, zero always among them, so
    zeros stay zeros. The scale is rounded up, never down, to `scale_dtype`; every element comes
    back within half a (stored) scale.

    Args:
        array: finite numbers, of at least one dimension. The first dimension is the rows, the
            others together are the columns.
        bits: bits of one integer, 1 to 8.
        group_size: elements that share a scale; -1 for the whole axis.
        packing: a name such as `8_per_i32`; by default 32-bit words without unused bits.
        pack_axis: 0 to pack along the rows, as GPTQ does; 1 along the columns, as AWQ does.
        group_axis: 0 to group along the rows, 1 along the columns.
        order: order in a word: `sequential`, `reversed` or `awq`.
        signed: store integers in two's complement.
        symmetric: steps reach as far below zero as above; all zero points are then the same.
        zeros: zero points as `float` (of `scale_dtype`), `packed` like the weights, or `integer`
            (one `int16` each).
        zero_offset: what a reader adds to zero points stored as integers.
        scale_dtype: `float16`, `bfloat16`, `float32` or `float64`.

    Returns:
        The components `packed_weight`, `scales` and `zeros`, each flat, and the attributes.

    Raises:
        NotRepresentableError: NaN or infinities, values too large for `scale_dtype`, complex
            numbers or other types, a scalar.
        ArgumentValueError: an argument that cannot work.
    """
    if zeros not in ("float", "packed", "integer"):
        raise ArgumentValueError(
            "zero points are stored in one of three ways",
            expected="zeros='float', 'packed' or 'integer'",
            found=describe(zeros),
        )
    if zeros == "float" and zero_offset:
        raise ArgumentValueError(
            "zero_offset is for zero points stored as integers",
            expected="zeros='packed' or 'integer', or zero_offset=0",
        )
    source = _quantizable(array)
    shape = source.shape
    scale_type = _float_dtype(scale_dtype)
    try:
        _require_rule("bits", bits)
        scheme = GroupScheme(
            bits=bits,
            packing=Packing.dense(bits, "i32") if packing is None else Packing.parse(packing),
            group_size=group_size,
            pack_axis=pack_axis,
            group_axis=group_axis,
            order=order,
            signed=signed,
            zero_offset=zero_offset,
            zeros_packed=zeros != "integer",
        )
    except (LayoutError, UnsupportedError) as error:
        raise ArgumentValueError(
            error.message, expected=error.expected, found=error.found
        ) from error

    # Packed words are filled through views whose first axis is the grouped one, as in dequantize.
    def grouped_first(component: Array) -> Array:
        return component.T if group_axis else component

    words = np.zeros(scheme.packed_shape(shape), f"u{scheme.packing.width // 8}")
    by_group = scheme.scales_shape(shape)
    stored_scales, points = np.zeros(by_group, scale_type), np.zeros(by_group, np.int16)
    if source.size:
        matrix = grouped_first(source.reshape(_matrix(shape)))
        group = scheme.group_length(shape)
        wide = source.dtype.itemsize * 8 >= 64 or source.dtype.name in ("int32", "uint32")
        compute = np.float64 if wide or scale_type == np.float64 else np.float32
        with np.errstate(all="ignore"):  # what overflows is looked at and refused
            scale, point = _steps(scheme, matrix, group, scale_type, symmetric=symmetric)
            grouped_first(stored_scales)[...] = scale
            grouped_first(points)[...] = point
            _round(scheme, matrix, group, scale.astype(compute), point, grouped_first(words))

    container = STORAGE_TYPES[scheme.packing.container].long_name
    stored_zeros: Array = points.astype(scale_type)
    if zeros == "integer":
        stored_zeros = points - np.int16(zero_offset)
    elif zeros == "packed":
        stored_zeros = np.zeros(scheme.packed_zeros_shape(shape), words.dtype)
        _pack(scheme, (grouped_first(points) - zero_offset).T, grouped_first(stored_zeros).T)
        stored_zeros = stored_zeros.view(container)
    components = {
        "packed_weight": words.view(container).reshape(-1),
        "scales": stored_scales.reshape(-1),
        "zeros": stored_zeros.reshape(-1),
    }
    return components, scheme.to_attributes()


def _quantizable(array: ArrayLike) -> Array:
    source = np.asarray(array)
    if source.ndim == 0 or not (source.dtype.kind in "iu" or _is_float(source.dtype)):
        raise NotRepresentableError(
            "only real numbers of at least one dimension can be quantized in groups",
            expected="floats or integers",
            found=f"{source.dtype.name} of shape {list(source.shape)}",
        )
    return source.astype(np.float32) if source.dtype.name.startswith("float8") else source


def _steps(
    scheme: GroupScheme, matrix: Array, group: int, scale_type: np.dtype[Any], *, symmetric: bool
) -> tuple[Array, NDArray[np.int16]]:
    """Return each group's scale, of `scale_type`, and zero point; the first axis is grouped."""
    low = np.empty((-(-len(matrix) // group), matrix.shape[1]))
    high = np.empty_like(low)
    for cube, of in _group_cubes(matrix, group):
        low[of], high[of] = cube.min(axis=1), cube.max(axis=1)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        raise NotRepresentableError(
            "NaN and infinities cannot be quantized",
            expected="finite numbers",
            found=f"others in {np.count_nonzero(bad)} of {bad.size} groups",
        )
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    levels = (1 << scheme.bits) - 1
    exact = high / levels - low / levels  # divided first, since the difference may overflow
    scale = exact.astype(scale_type)
    short = scale.astype(np.float64) < exact
    scale[short] = np.nextafter(scale[short], scale_type.type(np.inf))
    scale[exact == 0] = 1
    if not np.isfinite(scale).all():
        raise NotRepresentableError(
            f"the values are too large for scales of {scale_type.name}",
            expected="smaller values or a wider scale_dtype",
            found=f"a scale of {exact.max():g}",
        )
    lowest = -(1 << (scheme.bits - 1)) if scheme.signed else 0
    if symmetric:
        return scale, np.full(scale.shape, lowest + (1 << (scheme.bits - 1)), np.int16)
    return scale, (lowest + np.rint(-low / scale.astype(np.float64))).astype(np.int16)


def _round(
    scheme: GroupScheme,
    matrix: Array,
    group: int,
    scale: Array,
    point: NDArray[np.int16],
    words: Array,
) -> None:
    """Write the nearest steps of `matrix` into `words`; the first axis is the grouped one."""
    lowest = -(1 << (scheme.bits - 1)) if scheme.signed else 0
    highest = lowest + (1 << scheme.bits) - 1
    packed_first = scheme.pack_axis == scheme.group_axis
    count, step = scheme.packing.count, scheme.packing.words
    rows, columns = matrix.shape
    # Tiles begin at the start of a block; no count is above 64.
    width = min(columns, _LINE) if scheme.group_axis == 0 else max(64, _TILE // min(rows, _LINE))
    height = max(64, _TILE // width) // count * count
    width = max(count, width // count * count)
    for top in range(0, rows, height):
        groups = np.arange(top, min(top + height, rows)) // group
        for left in range(0, columns, width):
            tile = matrix[top : top + height, left : left + width].astype(scale.dtype, order="C")
            tile /= scale[groups, left : left + width]
            tile += point[groups, left : left + width]
            np.rint(tile, out=tile)
            np.clip(tile, lowest, highest, out=tile)
            steps = tile.astype(np.int16)
            if packed_first:
                _pack(scheme, steps, words[top // count * step :, left : left + width])
            else:
                _pack(scheme, steps.T, words[top : top + height, left // count * step :].T)


def _pack(scheme: GroupScheme, values: NDArray[np.int16], words: Array) -> None:
    """Add the lowest bits of `values` to `words`, which are zero; both along the first axis."""
    bits, width = scheme.bits, scheme.packing.width
    count, step = scheme.packing.count, scheme.packing.words
    for place, element in enumerate(_ORDERS[scheme.order](count)):
        part = values[element::count].astype(words.dtype) & words.dtype.type((1 << bits) - 1)
        word, shift = divmod(place * bits, width)
        words[word::step][: len(part)] |= part << shift
        if shift + bits > width:
            words[word + 1 :: step][: len(part)] |= part >> (width - shift)
