"""The layout `quantized_group`: its floats, its codes and its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztensor.errors import ArgumentValueError
from ztensor.ext import Rows, cached_property, element_count, result_dtype
from ztensor.quantization.dequantizing import dequantize_array, integers_of_view
from ztensor.quantization.scheme import GroupScheme, require_sizes
from ztensor.quantization.unpacking import Indices, whole_units
from ztensor.typing import Array


class GroupRows(Rows):
    """Rows of `quantized_group`; selections end where words and groups of all components end."""

    @cached_property
    def _scheme(self) -> GroupScheme:
        dtype = result_dtype(self.object.components["packed_weight"])
        return GroupScheme.from_attributes(self.object.attributes, dtype, self.shape)

    @cached_property
    def _parts(self) -> dict[str, Any]:
        scheme, shape, components = self._scheme, self.shape, self.object.components
        shapes = scheme.shapes(shape, result_dtype(components["zeros"]))
        parts = {role: self.part(role, shapes[role]) for role in shapes if role in components}
        sizes = {}
        for role in parts:
            known = self.object.components[role].known_count()
            sizes[role] = element_count(shapes[role]) if known is None else known
        require_sizes(scheme, shape, sizes, {role: part.dtype for role, part in parts.items()})
        return parts

    @property
    def _has_packed_zeros(self) -> bool:
        zeros = result_dtype(self.object.components["zeros"])
        return self._scheme.has_packed_zeros(zeros)

    @property
    def unit(self) -> int:
        """Return the row unit: selections begin and end at its multiples."""
        scheme = self._scheme
        group = scheme.group_length(self.shape) if scheme.group_axis == 0 else 1
        are_zeros_in_words = self._has_packed_zeros and scheme.group_axis == 1
        is_in_words = scheme.pack_axis == 0 or are_zeros_in_words
        return math.lcm(group, scheme.packing.count if is_in_words else 1)

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return the components of consecutive rows, which cut no word or group."""
        parts, scheme, shape = self._parts, self._scheme, self.shape
        group = scheme.group_length(shape) if scheme.group_axis == 0 else 1
        are_zeros_in_words = self._has_packed_zeros and scheme.group_axis == 1
        start, stop = whole_units(rows, self.unit, shape[0])
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

    def _cut_groups(self, g_idx: Any, start: int, stop: int, group: int) -> Array:
        if self._scheme.group_axis == 1:
            whole: Array = g_idx[...]
            return whole
        part: Array = g_idx[start:stop]
        if not np.array_equal(part, np.arange(start, stop) // group):
            raise ArgumentValueError(
                "'g_idx' scatters the rows of groups; use read(name).dequantize()[rows]",
                component="g_idx",
            )
        shifted: Array = part - part.dtype.type(start // group)
        return shifted


class Groups:
    """The arithmetic of the layout: methods of `ztensor.ext.Quantized`."""

    dequantize = staticmethod(dequantize_array)
    float_attributes = staticmethod(GroupScheme.other_attributes)
    integers = staticmethod(integers_of_view)
    rows = GroupRows


GROUPS = Groups()
