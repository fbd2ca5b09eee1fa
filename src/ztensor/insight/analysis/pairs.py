"""The comparison of one object in two files: metadata, then values.

Nothing is read if digests prove that values are equal. Otherwise both are read in blocks: compared
as bytes, and from the first difference on as numbers.
"""

from __future__ import annotations

import dataclasses
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import TensorMetadata
from ztensor.errors import UnsupportedError, describe
from ztensor.ext import LAYOUTS, ObjectReader, Shown, TensorObject, element_count
from ztensor.insight.analysis.streaming import component_blocks, in_step, is_quantized
from ztensor.insight.analysis.tally import Rules, ValueDiff, compare_numbers
from ztensor.quantization.floats import dequantized
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SMALL = 1 << 24  # elements of a sparse object that may be written out with all its zeros


@dataclasses.dataclass(frozen=True, slots=True)
class TensorDiff(Shown):
    """The differences of one object in two files.

    Attributes:
        name: its name in the first file, or in the second if only that has it.
        other_name: its name in the second file, which differs if names were mapped.
        before: its description in the first file, or None.
        after: its description in the second file, or None.
        differences: the kinds of difference: `only in a`, `only in b`, `shape`, `type`, `layout`,
            `attributes`, `values`; empty if equal, or within the tolerance.
        compared: the way values were compared: `digest` (not read), `bytes`, `numbers`, or None.
        values: the differences of values; None unless compared as numbers. For sparse objects of
            more than 16 million elements, of the stored values and without the index of the first.
        note: the reason if values were not compared, or None.
    """

    name: str
    other_name: str
    before: TensorMetadata | None
    after: TensorMetadata | None
    differences: tuple[str, ...] = ()
    compared: str | None = None
    values: ValueDiff | None = None
    note: str | None = None

    @property
    def is_within(self) -> bool:
        """Return whether values differ, all of them within the tolerance."""
        return self.values is not None and self.values.changed > 0 and not self.values.beyond


class _Missing:
    """The value of a missing attribute."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def has_same_values(difference: TensorDiff) -> bool:
    """Return whether two tensors were compared, and have equal values."""
    return difference.compared in ("digest", "bytes") and "values" not in difference.differences


def changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys whose values differ, with both values or `MISSING`."""
    return {
        key: (one.get(key, MISSING), other.get(key, MISSING))
        for key in dict.fromkeys((*one, *other))
        if not is_same(one.get(key, MISSING), other.get(key, MISSING))
    }


def is_same(one: Any, other: Any) -> bool:
    """Return whether two attributes are equal, NaN to NaN, and `1` not to `True` or `1.0`."""
    if isinstance(one, (float, np.floating)) and type(one) is type(other):
        return bool(one == other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, io.BytesIO) and isinstance(other, io.BytesIO):
        return one.getvalue() == other.getvalue()
    return type(one) is type(other) and bool(one == other)


def compare_pair(
    first: ObjectReader,
    second: ObjectReader,
    name: str | None,
    other: str,
    rules: Rules,
    report: Callable[[int], None],
) -> TensorDiff:
    """Return the differences of an object of one file from an object of another.

    Args:
        first: an open reader.
        second: an open reader.
        name: the object's name in the first; None if only the second has it.
        other: its name in the second, which may lack it.
        rules: the definition of a difference.
        report: called with the number of compared bytes.

    Raises:
        FormatError: stored bytes are damaged.
    """
    if name is None:
        return TensorDiff(other, other, None, second.metadata(other), ("only in b",))
    before = first.metadata(name)
    if other not in second:
        return TensorDiff(name, other, before, None, ("only in a",))
    after = second.metadata(other)
    differences = []
    if before.shape != after.shape:
        differences.append("shape")
    if not rules.values_only:
        if (before.dtype, before.type) != (after.dtype, after.type):
            differences.append("type")
        if before.format != after.format:
            differences.append("layout")
        if changed(before.attributes, after.attributes):
            differences.append("attributes")
    result = TensorDiff(name, other, before, after, tuple(differences))
    if "shape" in differences:
        return dataclasses.replace(result, note="values of different shapes are not compared")
    one = _Side(first, name)
    two = _Side(second, other)
    if rules.digests and not rules.nan_differs and _has_equal_digests(one, two):
        return dataclasses.replace(result, compared="digest")
    try:
        if not rules.nan_differs and _has_equal_bytes(one, two, report):
            return dataclasses.replace(result, compared="bytes")
        blocks = _blocks_in_step(one, two)
        note, values = None, compare_numbers(blocks, before.shape, rules, report)
    except UnsupportedError as error:
        note, values = f"values were not compared: {error.message}", None
    if values is None or values.beyond:
        differences.append("values")
    return dataclasses.replace(
        result,
        differences=tuple(differences),
        compared=None if values is None else "numbers",
        values=values,
        note=note,
    )


# --- Equality of digests and bytes ----------------------------------------------------------


class _Side:
    """One of two objects that are compared."""

    def __init__(self, reader: ObjectReader, name: str) -> None:
        self.file = reader.objects.part(name)
        self.name = name
        self.object: TensorObject = self.file.object(name)

    def blocks(self, role: str) -> Iterator[Array]:
        return component_blocks(self.file, self.name, role)


def _is_alike(one: _Side, two: _Side) -> bool:
    """Return whether equal components imply equal values."""
    ours, theirs = one.object, two.object
    return (
        ours.format == theirs.format
        and ours.components.keys() == theirs.components.keys()
        and (not is_quantized(ours.format) or ours.attributes == theirs.attributes)
        and all(
            (component.dtype, component.type)
            == (theirs.components[role].dtype, theirs.components[role].type)
            for role, component in ours.components.items()
        )
    )


def _has_equal_digests(one: _Side, two: _Side) -> bool:
    """Return whether digests prove that all components are equal."""
    if not _is_alike(one, two):
        return False
    for role, ours in one.object.components.items():
        theirs = two.object.components[role]
        digest = one.file.stored(ours).digest
        if (
            digest is None
            or digest.known is None
            or digest != two.file.stored(theirs).digest
            or ours.length != theirs.length
            or ours.encoding != theirs.encoding
            or not one.file.is_common(ours.encoding)
            or ours.byte_order != theirs.byte_order
            or ours.nonzero_is_true != theirs.nonzero_is_true
            or ours.digest_may_cover_decoded
            or theirs.digest_may_cover_decoded
        ):
            return False
    return True


def _has_equal_bytes(one: _Side, two: _Side, report: Callable[[int], None]) -> bool:
    """Return whether all components are equal, byte for byte; stops at the first difference."""
    if not _is_alike(one, two):
        return False
    for role in one.object.components:
        for ours, theirs in in_step(one.blocks(role), two.blocks(role)):
            if ours.size != theirs.size or not np.array_equal(_as_words(ours), _as_words(theirs)):
                return False
            report(ours.nbytes)
    return True


def _as_words(block: Array) -> Array:
    """Return a block's bytes as the widest integers that fit, which compare fastest."""
    width = max(width for width in (1, 2, 4, 8) if block.nbytes % width == 0)
    return block.view(np.uint8).view(f"u{width}")


# --- Numbers --------------------------------------------------------------------------------


def _blocks_in_step(one: _Side, two: _Side) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of flat blocks of the values of both."""
    formats = {one.object.format, two.object.format}
    for word in formats:
        if word not in LAYOUTS:
            raise UnsupportedError(f"the layout {describe(word)} is unknown")
        is_sparse = word != "dense" and not is_quantized(word)
        if is_sparse and element_count(one.object.shape) > _SMALL:
            if len(formats) == 1 and _has_equal_places(one, two):
                return in_step(one.blocks("values"), two.blocks("values"))
            raise UnsupportedError("the sparse object is too large to be compared as a dense one")
    return in_step(_dense_blocks(one), _dense_blocks(two))


def _dense_blocks(side: _Side) -> Iterator[Array]:
    if side.object.format == "dense":
        yield from side.blocks("data")
    elif is_quantized(side.object.format):
        yield from dequantized(side.file, side.name)
    else:
        yield side.file.tensor(side.name, copy=True).to_dense().reshape(-1)


def _has_equal_places(one: _Side, two: _Side) -> bool:
    """Return whether two sparse objects of one layout have their values at the same places."""
    layout = LAYOUTS[one.object.format]
    return all(
        np.array_equal(ours, theirs)
        for role in layout.index_roles
        for ours, theirs in in_step(one.blocks(role), two.blocks(role))
    )
