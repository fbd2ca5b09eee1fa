"""Packed integers to floats, in any array library.

An object is a matrix of K rows and N columns: K is the first dimension of its shape, N the product
of the others. One element is `(q - zero) * scale`, with the `scale` and `zero` of the element's
group: `group_size` neighbours along one axis (`docs/guides/quantized.md`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import LayoutError, Reason
from ztensor.ext import LAYOUTS, LOGICAL_TYPES, View, numpy_dtype
from ztensor.quantization.namespace import Namespace, NumpyNamespace
from ztensor.quantization.scheme import (
    CODEBOOK,
    INTEGER,
    SECTION,
    GroupScheme,
    float_dtype,
    matrix_shape,
    require_component,
    require_sizes,
)
from ztensor.quantization.unpacking import unpack, words_of
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import DTypeLike


REQUIRED = ("packed_weight", "scales", "zeros")
OPTIONAL = ("g_idx", "codebook", "global_scale")
NUMPY = NumpyNamespace()

# Lines of a tile are contiguous, so they are cut only when very long.
_LINE = 1 << 15
# Up to this count, scales and zero points are converted once (8 MiB together), else for each tile.
_WHOLE = 1 << 20


def scheme_of(view: View) -> GroupScheme:
    """Return the scheme that an object's attributes describe.

    Raises:
        LayoutError: a required component is missing, or the attributes do not make a scheme.
        UnsupportedError: the attributes name a scheme this release does not know.
    """
    LAYOUTS["quantized_group"].require_valid(view)
    packed = view.arrays["packed_weight"]
    return GroupScheme.from_attributes(view.attributes, packed.dtype, view.shape)


def dequantize_view(view: View, *, dtype: DTypeLike = np.float32, xp: Namespace = NUMPY) -> Any:
    """Dequantize an object of the layout `quantized_group`.

    Args:
        view: the object's shape, components and attributes.
        dtype: `float16`, `bfloat16`, `float32` or `float64`.
        xp: the array library that computes and holds the result.

    Raises:
        LayoutError: attributes or sizes do not make a group quantization.
        UnsupportedError: the attributes name a scheme this release does not know.
        LimitError: the result does not fit into memory.
        ArgumentValueError: another `dtype`.
    """
    scheme = scheme_of(view)
    required = [view.arrays[role] for role in REQUIRED]
    optional = [view.arrays.get(role) for role in OPTIONAL]
    return dequantize(scheme, view.shape, *required, *optional, dtype=dtype, xp=xp)


def dequantize_array(
    view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
) -> Array:
    """Dequantize an object to a NumPy array of its shape; see `dequantize_view`."""
    dense: Array = dequantize_view(view, dtype=dtype, xp=NumpyNamespace(threads))
    return dense.reshape(view.shape)


def integers_of_view(view: View) -> Array:
    """Return the packed integers of a `quantized_group` object; see `integers`.

    Raises:
        LayoutError: attributes or sizes do not make a group quantization.
        UnsupportedError: the attributes name a scheme this release does not know.
        LimitError: the result does not fit into memory.
    """
    codes: Array = integers(scheme_of(view), view.shape, view.arrays["packed_weight"])
    return codes.reshape(view.shape)


def dequantize(
    scheme: GroupScheme,
    shape: Sequence[int],
    packed: Array,
    scales: Array,
    zeros: Array,
    g_idx: Array | None = None,
    codebook: Array | None = None,
    global_scale: Array | None = None,
    *,
    dtype: DTypeLike = np.float32,
    xp: Namespace = NUMPY,
) -> Any:
    """Return the floats of packed integers, scales and zero points.

    Each element is `(q - zero) * scale`, computed in float32 (in float64 when that is asked for),
    with infinities and NaN as IEEE 754 has them. The components may have any shape of the right
    size; they are read in row-major order.

    Args:
        scheme: the object's scheme.
        shape: the object's shape, `(K, ...)`.
        packed: words of the scheme's container.
        scales: one float per group and line.
        zeros: one float or integer per group and line, or a single one, or words of packed
            integers.
        g_idx: for each row (column, where `group_axis` is 1) the number of its group.
        codebook: (2^bits,) the value of each integer, if the scheme's element is `codebook`.
        global_scale: one float that every scale is multiplied by.
        dtype: `float16`, `bfloat16`, `float32` or `float64`.
        xp: the array library that computes and holds the result.

    Returns:
        A new row-major array of `shape`. Other memory: some 10 MiB, whatever the size.

    Raises:
        LayoutError: a component is of a wrong type or size, or `g_idx` names no group.
        LimitError: the result does not fit into memory.
        ArgumentValueError: another `dtype`.
    """
    target = float_dtype(dtype)
    arrays = (packed, scales, zeros, g_idx, codebook, global_scale)
    components = {
        role: array
        for role, array in zip((*REQUIRED, *OPTIONAL), arrays, strict=True)
        if array is not None
    }
    require_fit(scheme, shape, components)
    result = xp.empty(tuple(shape), target.name)
    if 0 not in shape:
        matrix = result.reshape(matrix_shape(shape))
        with np.errstate(all="ignore"):  # overflow and NaN are the file's values, not our mistakes
            work = _Work(scheme, shape, components, matrix, target.name, xp)
        try:
            xp.each(work.fill, work.tiles)
        finally:
            # It is in a reference cycle with its closures, and refers to the result: without this
            # a loop over many tensors would hold them all until the garbage collector runs.
            vars(work).clear()
    return result


def integers(
    scheme: GroupScheme, shape: Sequence[int], packed: Array, *, xp: Namespace = NUMPY
) -> Any:
    """Return the packed integers, one byte each: uint8, or int8 where the scheme is signed.

    Args:
        scheme: the object's scheme.
        shape: the object's shape, `(K, ...)`.
        packed: words of the scheme's container.
        xp: the array library that computes and holds the result.

    Returns:
        A new row-major array of `shape`. Other memory: a few MiB, whatever the size.

    Raises:
        LayoutError: the words are of a wrong type, or not as many as the shape needs.
        LimitError: the result does not fit into memory.
    """
    packed_shape = scheme.shapes(shape)["packed_weight"]
    require_component(scheme, "packed_weight", packed_shape, packed.size, packed.dtype)
    result = xp.empty(tuple(shape), "int8" if scheme.signed else "uint8")
    if 0 not in shape:
        matrix = result.reshape(matrix_shape(shape))
        words = xp.asarray(words_of(packed.reshape(packed_shape)))

        def fill(rows: slice, columns: slice) -> None:
            place = matrix[rows, columns]
            _integers(xp, scheme, words, scheme.pack_axis, rows, columns, place)

        size = 4 * xp.tile  # of bytes, more fit the cache
        height, width = _tile_shape(matrix.shape, 1, size, is_transposed=False)
        xp.each(fill, list(_tiles(matrix.shape, height, height, width)))
    return result


def require_fit(scheme: GroupScheme, shape: Sequence[int], components: Mapping[str, Array]) -> None:
    """Raise unless components have the types and sizes of a scheme and a shape.

    Raises:
        LayoutError: a component is wrong or missing, or an index of `g_idx` is out of range.
    """
    require_sizes(
        scheme,
        shape,
        {role: component.size for role, component in components.items()},
        {role: component.dtype for role, component in components.items()},
    )
    if "g_idx" in components:
        groups = scheme.shapes(shape)["scales"][scheme.group_axis]
        g_idx = components["g_idx"].reshape(-1)
        if g_idx.size and not 0 <= int(g_idx.min()) <= int(g_idx.max()) < groups:
            raise LayoutError(
                "an index points outside the groups",
                reason=Reason.INDEX_RANGE,
                component="g_idx",
                expected=f"0 <= index < {groups}",
                found=f"{g_idx.min()} to {g_idx.max()}",
                section=SECTION,
            )


class _Work:
    """Components as the arithmetic needs them, and the arithmetic for one tile of the result.

    Tiles, scales and zero points have the grouped axis first. If it is the second, they are
    transposed views.
    """

    def __init__(
        self,
        scheme: GroupScheme,
        shape: Sequence[int],
        components: Mapping[str, Array],
        out: Any,
        target: str,
        xp: Namespace,
    ) -> None:
        self.xp, self.scheme, self.out, self.target = xp, scheme, out, target
        self.compute = "float64" if target == "float64" else "float32"
        self.is_transposed = scheme.group_axis == 1
        self.group = scheme.group_length(shape)
        shapes = scheme.shapes(shape, components["zeros"].dtype)
        matrix, by_group = matrix_shape(shape), shapes["scales"]

        packed = components["packed_weight"].reshape(shapes["packed_weight"])
        self.words = xp.asarray(words_of(packed))
        table = self._table(components.get("codebook"))
        self.table = None if table is None else xp.asarray(table)
        self.byte_table = None if table is None else self._byte_table(table)
        self.scales = self._floats(components["scales"].reshape(by_group))
        self.factor = self._number(components.get("global_scale"), 1.0)
        self.zeros = self._zeros(components["zeros"].reshape(shapes["zeros"]))
        self.groups_of = None
        if "g_idx" in components:
            self.groups_of = xp.asarray(components["g_idx"].reshape(-1).astype(np.int64))

        along, across = matrix[:: -1 if self.is_transposed else 1]
        height, width = _tile_shape(
            (along, across), self.group, xp.tile, is_transposed=self.is_transposed
        )
        span = self.group if height < self.group else height
        self.tiles = list(_tiles((along, across), span, height, width))
        self.whole: tuple[Any, Any] | None = None
        often = self.groups_of is not None or height < self.group
        if often and components["scales"].size <= _WHOLE:
            groups = by_group[scheme.group_axis]
            self.whole = self._constants(slice(0, groups), slice(0, across))

    # --- Components ---------------------------------------------------------------------------

    def _table(self, codebook: Array | None) -> Array | None:
        """Return the value of each integer, (2^bits,); None if elements are the integers."""
        element = self.scheme.element
        if element == INTEGER:
            return None
        if codebook is None or element != CODEBOOK:
            codes = np.arange(1 << self.scheme.bits, dtype=np.uint8)
            codebook = codes.view(numpy_dtype(LOGICAL_TYPES[element].long_name))
        table: Array = codebook.reshape(-1).astype(self.compute)
        return table

    def _byte_table(self, table: Array) -> Any:
        """Return the values in each byte, (256, count); None if a block is not one byte."""
        scheme = self.scheme
        count, is_byte = scheme.packing.count, scheme.packing.width * scheme.packing.words == 8
        if not is_byte or scheme.pack_axis != 1 or not 1 < count < 8:
            return None
        all_bytes = np.arange(256, dtype=np.uint8).reshape(1, 256)
        codes = _integers(NUMPY, scheme, all_bytes, 1, slice(0, 1), slice(0, 256 * count))
        return self.xp.asarray(table[codes].reshape(256, count))

    def _floats(self, array: Array) -> Callable[[Any, slice], Any]:
        """Return a function from groups (a slice or indices) and lines to their floats."""
        table = None
        if array.itemsize == 1 and array.dtype.kind not in "iu":  # fp8: not all libraries have it
            codes = np.arange(256, dtype=np.uint8).view(array.dtype)
            table = self.xp.asarray(codes.astype(self.compute))
            array = array.view(np.uint8)
        elif array.dtype.kind == "u":
            array = array.astype(self.compute)
        else:
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
        stored = self.xp.asarray(array)
        if self.is_transposed:
            return lambda groups, lines: self._converted(stored[lines, groups], table)
        return lambda groups, lines: self._converted(stored[groups, lines], table)

    def _converted(self, stored: Any, table: Any = None) -> Any:
        """Return numbers as floats in the same memory order, with the grouped axis first."""
        floats = self.xp.empty(tuple(stored.shape), self.compute)
        if table is None:
            floats[...] = stored
        else:
            self.xp.lookup(table, stored, floats)
        return floats.T if self.is_transposed else floats

    def _number(self, array: Array | None, missing: float) -> float:
        return missing if array is None else float(array.reshape(-1).astype(self.compute)[0])

    def _zeros(self, zeros: Array) -> float | Callable[[Any, slice], Any]:
        """Return the shared zero point, or a function from groups and lines to zero points."""
        scheme, is_integer = self.scheme, zeros.dtype.kind in "iu"
        offset = scheme.zero_offset if is_integer else 0
        if scheme.has_packed_zeros(zeros.dtype):
            words = self.xp.asarray(words_of(zeros))

            def unpacked(groups: Any, lines: slice) -> Any:
                place = (lines, groups) if self.is_transposed else (groups, lines)
                axis = 1 - scheme.group_axis
                codes = _integers(self.xp, scheme, words, axis, *place, offset=offset)
                return self._converted(codes)

            return unpacked
        if scheme.shared_zero and is_integer:
            return float(int(zeros.reshape(-1)[0]) + offset)
        if scheme.shared_zero:
            return self._number(zeros, 0)
        read = self._floats(zeros)
        return (lambda groups, lines: read(groups, lines) + offset) if offset else read

    def _constants(self, groups: Any, lines: slice) -> tuple[Any, Any]:
        """Return zero points (None if a shared one was subtracted already) and scales."""
        if self.whole is not None:
            zero, scale = self.whole
            return None if zero is None else zero[groups, lines], scale[groups, lines]
        scale = self.scales(groups, lines)
        if self.factor != 1:
            scale *= self.factor
        return self.zeros(groups, lines) if callable(self.zeros) else None, scale

    # --- Tiles --------------------------------------------------------------------------------

    def fill(self, along: slice, across: slice) -> None:
        """Write one tile of the result: slices of the grouped axis and of the other."""
        xp = self.xp
        rows, columns = (across, along) if self.is_transposed else (along, across)
        place = self.out[rows, columns]
        is_result = self.target == self.compute
        tile = place if is_result else xp.scratch(tuple(place.shape), self.compute)
        self._fill_elements(tile, rows, columns)
        self._apply_constants(tile.T if self.is_transposed else tile, along, across)
        if not is_result:
            place[...] = tile

    def _fill_elements(self, tile: Any, rows: slice, columns: slice) -> None:
        scheme, count = self.scheme, self.scheme.packing.count
        if self.byte_table is not None and columns.start % count == columns.stop % count == 0:
            words = self.words[rows, columns.start // count : columns.stop // count]
            self.xp.lookup(self.byte_table, words, tile.reshape(*words.shape, count))
            return
        codes = _integers(self.xp, scheme, self.words, scheme.pack_axis, rows, columns)
        if self.table is None:
            tile[...] = codes
        else:
            self.xp.lookup(self.table, codes, tile)

    def _apply_constants(self, tile: Any, along: slice, across: slice) -> None:
        if not callable(self.zeros) and self.zeros != 0:
            tile -= self.zeros
        if self.groups_of is not None:
            zero, scale = self._constants(self.groups_of[along], across)
            if zero is not None:
                tile -= zero
            tile *= scale
            return
        groups = slice(along.start // self.group, -(-along.stop // self.group))
        zero, scale = self._constants(groups, across)
        for view, numbers in group_cubes(tile, self.group):
            cube = view  # changed in place
            if zero is not None:
                cube -= zero[numbers, None]
            cube *= scale[numbers, None]


def _integers(
    xp: Namespace,
    scheme: GroupScheme,
    words: Any,
    axis: int,
    rows: Any,
    columns: Any,
    out: Any = None,
    *,
    offset: int = 0,
) -> Any:
    """Return the integers of a block of the matrix, in scratch memory unless `out` is given.

    Args:
        xp: the array library.
        scheme: bits, packing, order and sign.
        words: the words of the whole matrix, packed along `axis`.
        axis: 0 or 1.
        rows: a slice; numbers too, where `axis` is 1.
        columns: a slice; numbers too, where `axis` is 0.
        out: the array to fill.
        offset: added to each integer, modulo 2^bits.
    """
    count, step = scheme.packing.count, scheme.packing.words
    span = columns if axis else rows
    first, last = span.start // count, -(-span.stop // count)
    blocks = slice(first * step, last * step)
    part = words[rows, blocks] if axis else words[blocks, columns]
    shape = list(part.shape)
    shape[axis] = (last - first) * count
    # `out` fits if no block of words is cut. Along rows, pairs of bytes are written as one element,
    # so rows must be whole.
    fits = shape[axis] == span.stop - span.start
    fits = fits and (axis == 0 or part.shape[1] == words.shape[1])
    whole = out if out is not None and fits else xp.scratch(tuple(shape), "uint8")
    unpack(xp, scheme, part, axis, xp.view(whole, "uint8"), offset=offset)
    if whole is out:
        return out
    within = slice(span.start - first * count, span.stop - first * count)
    codes = xp.view(whole, "int8") if scheme.signed else whole
    codes = codes[:, within] if axis else codes[within]
    if out is None:
        return codes
    out[...] = codes
    return out


def _tile_shape(
    shape: tuple[int, int], group: int, size: int, *, is_transposed: bool
) -> tuple[int, int]:
    """Return the shape of a tile: along the grouped axis, and across it.

    A tile is whole groups, or part of one group. Its lines in memory are as long as possible.

    Args:
        shape: the matrix along and across the grouped axis.
        group: elements of the grouped axis in a group.
        size: target count of elements.
        is_transposed: the grouped axis is the contiguous one.
    """
    along, across = shape
    line = min(along if is_transposed else across, _LINE)
    height = line if is_transposed else max(1, size // line)
    height = height // group * group if group <= height else _rounded(height)
    return height, _rounded(max(1, size // height)) if is_transposed else line


def _rounded(count: int) -> int:
    """Return `count` rounded down so that it seldom cuts blocks of words, which hold up to 64."""
    unit = 64 if count >= 64 else 8 if count >= 8 else 1
    return count // unit * unit


def _tiles(
    shape: tuple[int, int], span: int, height: int, width: int
) -> Iterator[tuple[slice, slice]]:
    """Yield tiles that cover a matrix and end at multiples of `span` along the grouped axis."""
    along, across = shape
    for first in range(0, along, span):
        last = min(first + span, along)
        for top in range(first, last, height):
            for left in range(0, across, width):
                yield (
                    slice(top, min(top + height, last)),
                    slice(left, min(left + width, across)),
                )


def group_cubes(matrix: Any, group: int) -> Iterator[tuple[Any, slice]]:
    """Yield views of shape (groups, rows in a group, columns), and the slice of their groups.

    Whole groups come first, then the short last one.
    """
    rows, columns = matrix.shape
    whole = rows // group
    if whole:  # splitting an axis never copies
        yield matrix[: whole * group].reshape(whole, group, columns), slice(0, whole)
    if rows > whole * group:
        yield matrix[None, whole * group :], slice(whole, whole + 1)
