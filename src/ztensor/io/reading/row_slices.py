"""The rows of objects that are not dense: one class for each layout, and the table of them.

An index gives a `Tensor` of the rows it selects, made of the parts of the components that hold
them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    Reason,
    UsageError,
    describe,
)
from ztensor.io.reading.stored_array import StoredArray
from ztensor.locks import cached_property
from ztensor.quantization.gguf_blocks import GGUF_LAYOUTS
from ztensor.quantization.group_profiles import PROFILES
from ztensor.quantization.scheme import GroupScheme, require_sizes
from ztensor.spec.layout import sparse_coo, sparse_csr
from ztensor.spec.layout.base import known_count
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.layout.sparse import require_in_range
from ztensor.spec.model.dtype import element_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.selection import Indices
    from ztensor.quantization.group_profiles import Groups
    from ztensor.spec.layout.base import Array

from ztensor.io.reading.slices import DenseSlice, RowSlice, TensorSlice, row_count


class CsrSlice(RowSlice):
    """A `sparse_csr` object: of the row pointers, columns and values those of the rows are read."""

    _main_role = "values"

    @cached_property
    def _pointers(self) -> StoredArray:
        return self._part("indptr", (self.shape[0] + 1,))

    @cached_property
    def _entries(self) -> int:
        count = known_count(self._object, "indices")
        if count is None:
            count = known_count(self._object, "values")
        if count is None:  # compressed, and nothing but the last pointer tells
            count = int(self._pointers.owned(self.shape[0]))
            if count < 0:
                raise _broken("0 or more as the last", count)
        return count

    @cached_property
    def _parts(self) -> dict[str, StoredArray]:
        count = self._entries
        return {role: self._part(role, (count,), count) for role in ("indices", "values")}

    def _cut(self, rows: Indices) -> dict[str, Array]:
        place: slice | Array
        if isinstance(rows, range) and (rows.step == 1 or len(rows) < 2):
            stop = rows.start + len(rows)
            pointers = self._pointers.owned(slice(rows.start, stop + 1))
            self._require_pointers(pointers, rows.start, stop)
            first = int(pointers[0])
            place = slice(first, int(pointers[-1]))
            indptr = pointers - pointers[0]
        else:
            unique, order = np.unique(np.asarray(rows, np.intp), return_inverse=True)
            pairs = self._pointers[np.stack((unique, unique + 1), axis=1)]
            self._require_pointers(pairs.reshape(-1), int(unique[0]), int(unique[-1]) + 1)
            begins, ends = pairs.astype(np.int64).T
            lengths = (ends - begins)[order]
            indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
            place = np.arange(indptr[-1]) + np.repeat(begins[order] - indptr[:-1], lengths)
            indptr, first = indptr.astype(np.uint64), 0
        indices = self._parts["indices"][place]
        require_in_range(indices, self.shape[1], "indices", sparse_csr.SECTION, first)
        return {"indices": indices, "indptr": indptr, "values": self._parts["values"][place]}

    def _require_pointers(self, pointers: Array, start: int, stop: int) -> None:
        """Raise unless the pointers of some of the rows from `start` to `stop` can be true."""
        falls = np.flatnonzero(pointers[1:] < pointers[:-1])
        if falls.size:
            before, found = pointers[falls[0] : falls[0] + 2].tolist()
            raise _broken(f"at least {before}", found)
        first, last, count = int(pointers[0]), int(pointers[-1]), self._entries
        if first < 0 or (first > 0 and start == 0):
            raise _broken("0 as the first", first)
        if last > count or (last < count and stop == self.shape[0]):
            raise _broken(f"{count}, the number of values, as the last", last)


def _broken(expected: str, found: int) -> LayoutError:
    return LayoutError(
        "the row pointers are broken",
        reason=Reason.INDEX_POINTERS,
        component="indptr",
        expected=expected,
        found=str(found),
        section=sparse_csr.SECTION,
    )


class CooSlice(RowSlice):
    """A `sparse_coo` object: all coordinates of the first axis are read, of the rest what is in it.

    Entries keep their order.
    """

    _main_role = "values"

    @cached_property
    def _parts(self) -> tuple[StoredArray, StoredArray]:
        rank = len(self.shape)
        count = known_count(self._object, "coords", rank)
        if count is None:
            count = known_count(self._object, "values")
        if count is None:  # compressed, and nothing but decoding tells
            whole = self._file.component(self.name, self._object, "values", copy=True)
            count = whole.size
        return self._part("coords", (rank, count), count), self._part("values", (count,), count)

    def _cut(self, rows: Indices) -> dict[str, Array]:
        coords, values = self._parts
        along = coords.owned(0)
        require_in_range(along, self.shape[0], "coords", sparse_coo.SECTION)
        place, new = _found(along, rows)
        where: slice | Array = place
        if place.size and (np.diff(place) == 1).all():
            where = slice(int(place[0]), int(place[-1]) + 1)
        others = coords.owned((slice(1, None), where))
        for axis, (part, length) in enumerate(zip(others, self.shape[1:], strict=True), 1):
            position = axis * coords.shape[1] + (int(place[0]) if place.size else 0)
            require_in_range(part, length, "coords", sparse_coo.SECTION, position)
        all_axes = np.concatenate((new, others.astype(np.uint64).reshape(-1)))
        return {"coords": all_axes, "values": values[where]}


def _found(along: Array, rows: Indices) -> tuple[Array, Array]:
    """Return which entries lie in some rows, and in which of these each lies."""
    if isinstance(rows, range):
        low, high = sorted((rows[0], rows[-1])) if rows else (1, 0)
        place = np.flatnonzero((along >= low) & (along <= high))
        new = along[place].astype(np.uint64) - np.uint64(low)  # an axis may be longer than int64
        if high > low and abs(rows.step) > 1:
            hits = new % np.uint64(abs(rows.step)) == 0
            place, new = place[hits], new[hits] // np.uint64(abs(rows.step))
        return place, np.uint64(row_count(rows) - 1) - new if high > low and rows.step < 0 else new
    along = along.astype(np.intp)
    order = np.argsort(rows, kind="stable")
    first, last = (np.searchsorted(rows[order], along, side) for side in ("left", "right"))
    counts = last - first  # a row may be asked for more than once
    place = np.repeat(np.arange(along.size), counts)
    within = np.arange(place.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return place, order[np.repeat(first, counts) + within].astype(np.uint64)


class QuantizedSlice(RowSlice):
    """A `quantized_group` object: rows are cut where words and groups of all components end."""

    _main_role = "packed_weight"

    @cached_property
    def _scheme(self) -> GroupScheme:
        return GroupScheme.from_attributes(self._object.attributes, self.dtype, self.shape)

    @cached_property
    def _parts(self) -> dict[str, StoredArray]:
        scheme, shape, components = self._scheme, self.shape, self._object.components
        shapes: Mapping[str, tuple[int, ...]] = {
            "packed_weight": scheme.packed_shape(shape),
            "scales": scheme.scales_shape(shape),
            "zeros": scheme.zeros_shape(shape, result_dtype(components["zeros"])),
            "g_idx": ((shape[0], element_count(shape[1:]))[scheme.group_axis],),
            "codebook": (1 << scheme.bits,),
            "global_scale": (1,),
        }
        parts = {role: self._part(role, shapes[role]) for role in shapes if role in components}
        sizes = {}
        for role in parts:
            known = known_count(self._object, role)
            sizes[role] = element_count(shapes[role]) if known is None else known
        require_sizes(scheme, shape, sizes, {role: part.dtype for role, part in parts.items()})
        return parts

    @property
    def _has_packed_zeros(self) -> bool:
        zeros = result_dtype(self._object.components["zeros"])
        return self._scheme.has_packed_zeros(zeros)

    @property
    def row_unit(self) -> int:
        """Return how many rows make a whole: selections begin and end at multiples of it."""
        scheme = self._scheme
        group = scheme.group_length(self.shape) if scheme.group_axis == 0 else 1
        are_zeros_in_words = self._has_packed_zeros and scheme.group_axis == 1
        is_in_words = scheme.pack_axis == 0 or are_zeros_in_words
        return math.lcm(group, scheme.packing.count if is_in_words else 1)

    def _cut(self, rows: Indices) -> dict[str, Array]:
        parts, scheme, shape = self._parts, self._scheme, self.shape
        group = scheme.group_length(shape) if scheme.group_axis == 0 else 1
        are_zeros_in_words = self._has_packed_zeros and scheme.group_axis == 1
        start, stop = self._bounds(rows, self.row_unit)
        words = slice(scheme.packing.word_count(start), scheme.packing.word_count(stop))
        groups = slice(start // group, -(-stop // group))
        arrays = {
            "packed_weight": parts["packed_weight"][
                words if scheme.pack_axis == 0 else slice(start, stop)
            ],
            "scales": parts["scales"][groups],
            "zeros": parts["zeros"][
                ... if scheme.shared_zero else words if are_zeros_in_words else groups
            ],
        }
        for role in ("codebook", "global_scale"):
            if role in parts:
                arrays[role] = parts[role][...]
        if "g_idx" in parts:
            arrays["g_idx"] = self._cut_groups(parts["g_idx"], start, stop, group)
        return {role: array.reshape(-1) for role, array in arrays.items()}

    def _bounds(self, rows: Indices, unit: int) -> tuple[int, int]:
        """Return the first row and the one behind the last; both must be multiples of `unit`."""
        if not isinstance(rows, range) or (rows.step != 1 and row_count(rows) > 1):
            raise ArgumentValueError(
                "of a quantized object consecutive rows can be selected; for others, "
                "read(name).dequantize()[rows]",
                expected="an integer, or a slice with step 1",
            )
        length = self.shape[0]
        start, stop = rows.start, rows.start + row_count(rows)
        if start % unit or (stop % unit and stop != length):
            low, high = start // unit * unit, min(-(-stop // unit) * unit, length)
            raise ArgumentValueError(
                "the rows cut a group, or a word of packed integers, in two",
                expected=f"multiples of {unit}; [{low}:{high}] holds these rows",
                found=f"[{start}:{stop}]",
            )
        return start, stop

    def _cut_groups(self, g_idx: StoredArray, start: int, stop: int, group: int) -> Array:
        if self._scheme.group_axis == 1:
            whole: Array = g_idx[...]
            return whole
        part: Array = g_idx[start:stop]
        if not np.array_equal(part, np.arange(start, stop) // group):
            raise ArgumentValueError(
                "the rows of a group are scattered, as 'g_idx' says; "
                "use read(name).dequantize()[rows]",
                component="g_idx",
            )
        shifted: Array = part - part.dtype.type(start // group)
        return shifted


class ProfileSlice(QuantizedSlice):
    """An object of `zt.quant_group/1` or `zt.mx/1`: rows are cut where words and groups end."""

    _main_role = "data"

    @cached_property
    def _groups(self) -> Groups:
        return PROFILES[self._object.format].groups(self.shape, self._object.attributes or {})

    @property
    def row_unit(self) -> int:
        """Return how many rows make a whole: selections begin and end at multiples of it."""
        row = element_count(self.shape[1:])
        counts = [self._groups.per_word]
        if "zeros" in self._object.components:  # perhaps packed: then whole words of them as well
            counts.append(self._groups.per_word * self._groups.length)
        units = [count // math.gcd(count, row) for count in counts if row]
        return math.lcm(*units, self._groups.length if self._groups.axis == 0 else 1)

    def _cut(self, rows: Indices) -> dict[str, Array]:
        start, stop = self._bounds(rows, self.row_unit)
        components = self._object.components
        arrays: dict[str, Array] = {}
        for role in components:
            count = known_count(self._object, role)
            if role == "data":
                count = element_count(self.shape) // self._groups.per_word
            if count is None or not self.shape[0]:
                whole = self._file.tensor(self.name, copy=self._copy)
                return dict(whole.components)
            part = self._part(role, (count,))
            # Parts lie in the order of rows: each row has its share of all of them.
            arrays[role] = part[start * count // self.shape[0] : stop * count // self.shape[0]]
        return arrays


class BlockSlice(RowSlice):
    """A `gguf` object: rows of two axes or more are whole blocks, in any order."""

    _main_role = "data"

    def _cut(self, rows: Indices) -> dict[str, Array]:
        shape = self.shape
        if len(shape) < 2:
            raise ArgumentValueError(
                "the elements of one row are in blocks; use read(name).dequantize()[...]",
                expected="an object of two axes or more",
                found=f"shape {describe(shape)}",
            )
        row_bytes = GGUF_LAYOUTS[self._object.format].block_type.data_bytes(shape[1:])
        place: slice | Array
        if isinstance(rows, range):
            place = slice(rows.start, rows.stop if rows.stop >= 0 else None, rows.step)
        else:
            place = rows
        part: Array = self._part("data", (shape[0], row_bytes or 0))[place]
        return {"data": part.reshape(-1)}


_ROW_KINDS: Mapping[str, type[RowSlice]] = {
    "sparse_csr": CsrSlice,
    "sparse_coo": CooSlice,
    "quantized_group": QuantizedSlice,
    **dict.fromkeys(GGUF_LAYOUTS, BlockSlice),
    **dict.fromkeys(PROFILES, ProfileSlice),
}


def slice_of(file: FileObjects, name: str, *, copy: bool = False) -> TensorSlice:
    """Return a lazy slice of an object.

    Args:
        file: where it is.
        name: its name.
        copy: True gives no views of the file, and touches no map.

    Raises:
        ObjectNotFoundError: no object of that name.
        UsageError: no rows are known of the object's layout.
        LimitError: a dense object has more dimensions than `Limits.rank`.
        UnsupportedError: the storage type is unknown.
    """
    plain = file.places().of(name)
    if plain is not None:  # dense, and nothing of it has to be looked at
        return DenseSlice(file, name, plain=plain, copy=copy)
    tensor_object = file.object(name)
    if tensor_object.format == "dense":
        return DenseSlice(file, name, copy=copy)
    kind = _ROW_KINDS.get(tensor_object.format)
    if kind is None:
        raise UsageError(
            "objects of this layout cannot be sliced; read(name) gives their components",
            file=file.name,
            object_name=name,
            expected=f"one of {', '.join(('dense', *_ROW_KINDS))}",
            found=f"format {describe(tensor_object.format)}",
        )
    return kind(file, name, tensor_object, copy=copy)
