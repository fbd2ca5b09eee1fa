"""What two files differ in: names, shapes, types, attributes, and then values, number by number.

Nothing is read where digests already say that values are equal. Else both are read in step, in
blocks: first compared as bytes, and from the first difference on as numbers.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import TensorMetadata
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    LimitError,
    ObjectNotFoundError,
    UnsupportedError,
    counted,
    describe,
)
from ztensor.ext import LAYOUTS, ObjectReader, Shown, TensorObject, element_count
from ztensor.insight.analysis.streaming import (
    Meter,
    component_blocks,
    in_step,
    is_quantized,
    opened,
    order_of_bytes,
    share_out,
)
from ztensor.insight.analysis.tally import Rules, ValueDiff, compare_numbers
from ztensor.insight.text import short_repr
from ztensor.quantization.floats import dequantized
from ztensor.typing import Array, Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ztensor.insight.analysis.streaming import Progress

    _Pairs = dict[str, tuple[str | None, str]]

_SMALL = 1 << 24  # elements of a sparse object that may be written out with all its zeros


@dataclasses.dataclass(frozen=True, slots=True)
class TensorDiff(Shown):
    """How one object differs between two files.

    Attributes:
        name: its name in the first file; in the second one where only that has it.
        other_name: its name in the second file, another one where names were mapped.
        before: what the first file says of it, or None where it is only in the second.
        after: what the second file says of it, or None where it is only in the first.
        differences: what differs, of `only in a`, `only in b`, `shape`, `type`, `layout`,
            `attributes`, `values`; empty where nothing does, or only within the tolerance.
        compared: how values were compared: `digest` (nothing was read), `bytes`, `numbers`, or
            None where they were not.
        values: how they differ; None unless they were compared as numbers. Of sparse objects of
            more than 16 million elements the stored values, without the index of the first.
        note: why values were not compared, or None.
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


@dataclasses.dataclass(frozen=True, slots=True)
class DiffReport(Shown):
    """What two files differ in.

    Attributes:
        tensors: every object of either, in the order of the first file, then of the second.
        attributes: keys of the files' own attributes that differ, with the value in each; the
            word `MISSING` stands where one has none.
        values: of two saved trees the values that differ, by path, as `ztensor.open_tree` has
            them, likewise. A `Container` stands for a list, dict or record of another type.
    """

    tensors: tuple[TensorDiff, ...]
    attributes: Mapping[str, tuple[Any, Any]]
    values: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)

    @property
    def differing(self) -> tuple[TensorDiff, ...]:
        """Return the objects that differ."""
        return tuple(found for found in self.tensors if found.differences)

    @property
    def ok(self) -> bool:
        """Return whether nothing differs, or only values within the tolerance."""
        return not (self.differing or self.attributes or self.values)

    def __repr__(self) -> str:
        """Return how many objects there are, and which of them differ."""
        differing = self.differing
        within = sum(found.is_within for found in self.tensors)
        facts = [
            counted(len(self.tensors), "object"),
            f"{counted(len(differing), 'object', (one.name for one in differing))} different",
        ]
        facts += [f"{within:,} within the tolerance"] if within else []
        if self.attributes:
            facts.append(f"{counted(len(self.attributes), 'attribute', self.attributes)} different")
        if self.values:
            facts.append(f"{counted(len(self.values), 'value', self.values)} different")
        return short_repr("insight.DiffReport", facts, ".tensors, .differing, .attributes, .values")


class _Missing:
    """Stands for an attribute that is not there."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def has_same_values(found: TensorDiff) -> bool:
    """Return whether two tensors were compared, and have equal values."""
    return found.compared in ("digest", "bytes") and "values" not in found.differences


def diff(
    a: Readable,
    b: Readable,
    names: str | Iterable[str] | None = None,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    nan_differs: bool = False,
    values_only: bool = False,
    digests: bool = True,
    rename: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DiffReport:
    """Compare two files of any formats and versions, object by object.

    Objects differ where their shape, element type, layout or attributes do, or where a pair of
    values has `|a - b| > atol + rtol * max(|a|, |b|)`. Values are compared whatever the types;
    those of different layouts as dense arrays, of sparse ones up to 16 million elements. Of two
    saved trees (`ztensor.save_tree`) the values around their tensors are compared, too.

    Args:
        a: an open reader, or anything `ztensor.open` takes.
        b: likewise.
        names: objects to compare, by their names in either; all by default, and then the files'
            own attributes too.
        atol: absolute tolerance.
        rtol: relative tolerance.
        nan_differs: NaN is not equal to NaN.
        values_only: types, layouts and attributes may differ.
        digests: equal digests of the stored bytes prove equal values, and nothing is read.
        rename: regular expressions to replacements, applied in order to each name in `a` as
            `re.sub` does, to find it in `b`.
        threads: how many to use, each for an object; as many as there are cores, four at most,
            by default.
        progress: called with the bytes of `a` compared so far and those to compare.

    Raises:
        ArgumentValueError: a tolerance is negative or NaN, an expression is none, or two objects
            get one name.
        ObjectNotFoundError: a name is in neither file.
        FormatError: stored bytes are damaged.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    for tolerance in (atol, rtol):
        if not isinstance(tolerance, (int, float)) or not tolerance >= 0:
            raise ArgumentValueError("a tolerance is not 0 or more", found=describe(tolerance, 40))
    rules = Rules(atol, rtol, nan_differs, values_only, digests)
    with opened(a) as first, opened(b) as second:
        others = _renamed(first, rename or {})
        pairs: _Pairs = {name: (name, other) for name, other in others.items()}
        mapped = set(others.values())
        pairs.update((name, (None, name)) for name in second if name not in mapped)
        if names is not None:
            pairs = _chosen(pairs, [names] if isinstance(names, str) else names, first)
        found = _compare_all(first, second, pairs, rules, threads, progress)
        if values_only or names is not None:
            return DiffReport(found, {})
        values, ours, theirs = _changed_values(first, second)
        return DiffReport(found, _changed(ours, theirs), values)


def _changed_values(
    first: ObjectReader, second: ObjectReader
) -> tuple[dict[str, tuple[Any, Any]], dict[str, Any], dict[str, Any]]:
    """Return the values of two trees that differ, and the attributes that are left to compare.

    Trees that differ in no value but are not stored alike, as in the order of keys, are left; so
    is one that is damaged, since its tensors can be compared all the same.
    """
    from ztensor.training.told import told_tree

    files = first.attributes, second.attributes
    ours, theirs = told_tree(first), told_tree(second)
    if ours is None or theirs is None or _is_same(ours.attribute, theirs.attribute):
        return {}, *files
    try:
        values = ours.values(), theirs.values()
    except (FormatError, LimitError, UnsupportedError):
        return {}, *files
    tensors = values[0].tensors | values[1].tensors
    changed = {
        path: pair
        for path, pair in _changed(values[0].every, values[1].every).items()
        if not (MISSING in pair and path in tensors)  # an object's
    }
    return (changed, ours.attributes, theirs.attributes) if changed else ({}, *files)


def diff_pairs(
    first: ObjectReader,
    second: ObjectReader,
    pairs: Iterable[tuple[str, str]],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[TensorDiff, ...]:
    """Compare objects of two readers, each with the one that is named beside it.

    A pair that cannot be compared, as bytes of it are damaged, has a `note` that says so.

    Args:
        first: an open reader.
        second: likewise.
        pairs: names in both, those of the first once each.
        threads: as `diff` takes it.
        progress: likewise.

    Raises:
        ObjectNotFoundError: a name of the first is not in it.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    named: _Pairs = {name: (name, other) for name, other in pairs}
    rules = Rules()
    return _compare_all(first, second, named, rules, threads, progress, keeps_going=True)


def _compare_all(
    first: ObjectReader,
    second: ObjectReader,
    pairs: _Pairs,
    rules: Rules,
    threads: int | None,
    progress: Progress | None,
    *,
    keeps_going: bool = False,
) -> tuple[TensorDiff, ...]:
    sizes = {}
    for key, (name, other) in pairs.items():
        is_common = name is not None and other in second
        sizes[key] = first.metadata(name).nbytes if is_common and name is not None else 0
    meter = Meter(sum(sizes.values()), progress)

    def compare(key: str) -> TensorDiff:
        name, other = pairs[key]
        report = meter.part(sizes[key])
        try:
            found = _compare(first, second, name, other, rules, report)
        except FormatError as error:
            if not keeps_going or name is None:
                raise
            before, after = first.metadata(name), second.metadata(other)
            found = TensorDiff(name, other, before, after, note=error.message)
        report(sizes[key])
        return found

    common = [name for name, size in sizes.items() if size]
    order = order_of_bytes(first.objects, common)
    if order is not None:
        order += sorted(sizes.keys() - set(order))
    return tuple(share_out(compare, sizes, threads, order).values())


def _renamed(reader: ObjectReader, rename: Mapping[str, str]) -> dict[str, str]:
    """Return the names in a reader, and what each is called in the other."""
    others = {name: name for name in reader}
    for pattern, replacement in rename.items():
        try:
            compiled = re.compile(pattern)
            others = {name: compiled.sub(replacement, other) for name, other in others.items()}
        except (re.error, IndexError) as error:
            raise ArgumentValueError(
                f"not a regular expression and its replacement: {error}",
                found=f"{describe(pattern)} = {describe(replacement)}",
            ) from error
        except TypeError as error:
            raise ArgumentTypeError(
                "rename maps text to text", found=describe(pattern, 40)
            ) from error
    home: dict[str, str] = {}
    for name, other in others.items():
        if home.setdefault(other, name) != name:
            raise ArgumentValueError(
                "two objects get one name",
                found=f"{describe(home[other])} and {describe(name)} both become {describe(other)}",
            )
    return others


def _chosen(pairs: _Pairs, names: Iterable[str], reader: ObjectReader) -> _Pairs:
    by_other = {other: key for key, (_, other) in pairs.items()}
    chosen = {}
    for name in names:
        key = name if name in pairs else by_other.get(name)
        if key is None:
            raise ObjectNotFoundError.named(name, reader, reader.name)
        chosen[key] = pairs[key]
    return chosen


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        key: (one.get(key, MISSING), other.get(key, MISSING))
        for key in dict.fromkeys((*one, *other))
        if not _is_same(one.get(key, MISSING), other.get(key, MISSING))
    }


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two attributes are equal, NaN to NaN, and `1` not to `True` or `1.0`."""
    if isinstance(one, (float, np.floating)) and type(one) is type(other):
        return bool(one == other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, io.BytesIO) and isinstance(other, io.BytesIO):
        return one.getvalue() == other.getvalue()
    return type(one) is type(other) and bool(one == other)


def _compare(
    first: ObjectReader,
    second: ObjectReader,
    name: str | None,
    other: str,
    rules: Rules,
    report: Callable[[int], None],
) -> TensorDiff:
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
        if _changed(before.attributes, after.attributes):
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


# --- Equal without a look at numbers --------------------------------------------------------


class _Side:
    """One of two objects that are compared."""

    def __init__(self, reader: ObjectReader, name: str) -> None:
        self.file = reader.objects.part(name)
        self.name = name
        self.object: TensorObject = self.file.object(name)

    def blocks(self, role: str) -> Iterator[Array]:
        return component_blocks(self.file, self.name, role)


def _is_alike(one: _Side, two: _Side) -> bool:
    """Return whether equal components of the two mean equal values."""
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
    """Return whether digests tell that all components are equal, byte for byte."""
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
    """Return a block's bytes in the widest words that fit, which compare fastest."""
    width = max(width for width in (1, 2, 4, 8) if block.nbytes % width == 0)
    return block.view(np.uint8).view(f"u{width}")


# --- Numbers --------------------------------------------------------------------------------


def _blocks_in_step(one: _Side, two: _Side) -> Iterator[tuple[Array, Array]]:
    """Return the values of both in step, flat."""
    formats = {one.object.format, two.object.format}
    for word in formats:
        if word not in LAYOUTS:
            raise UnsupportedError(f"the layout {describe(word)} is unknown")
        is_sparse = word != "dense" and not is_quantized(word)
        if is_sparse and element_count(one.object.shape) > _SMALL:
            if len(formats) == 1 and _has_equal_places(one, two):
                return in_step(one.blocks("values"), two.blocks("values"))
            raise UnsupportedError("it is sparse, and too large to write out with its zeros")
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
