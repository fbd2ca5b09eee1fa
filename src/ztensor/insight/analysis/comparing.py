"""The differences of two files: pairs of objects, attributes, values of trees."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

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
from ztensor.ext import ObjectReader, Shown
from ztensor.insight.analysis.pairs import MISSING, TensorDiff, changed, compare_pair, is_same
from ztensor.insight.analysis.streaming import (
    Meter,
    opened,
    order_of_bytes,
    share_out,
)
from ztensor.insight.analysis.tally import Rules
from ztensor.insight.text import short_repr
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    _Pairs = dict[str, tuple[str | None, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class DiffReport(Shown):
    """The differences of two files.

    Attributes:
        tensors: every object of either file, in the order of the first, then of the second.
        attributes: keys of the files' attributes that differ, with both values; `MISSING` for a
            file without the key.
        values: the values of two saved trees that differ, by path as in `ztensor.open_tree`,
            likewise. A `Container` stands for a list, dict or record of another type.
    """

    tensors: tuple[TensorDiff, ...]
    attributes: Mapping[str, tuple[Any, Any]]
    values: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)

    @property
    def differing(self) -> tuple[TensorDiff, ...]:
        """Return the objects that differ."""
        return tuple(difference for difference in self.tensors if difference.differences)

    @property
    def ok(self) -> bool:
        """Return whether nothing differs, or only values within the tolerance."""
        return not (self.differing or self.attributes or self.values)

    def __repr__(self) -> str:
        """Return the number of objects, and the names of those that differ."""
        differing = self.differing
        within = sum(difference.is_within for difference in self.tensors)
        names = (tensor_diff.name for tensor_diff in differing)
        facts = [
            counted(len(self.tensors), "object"),
            f"{counted(len(differing), 'object', names)} different",
        ]
        facts += [f"{within:,} within the tolerance"] if within else []
        if self.attributes:
            facts.append(f"{counted(len(self.attributes), 'attribute', self.attributes)} different")
        if self.values:
            facts.append(f"{counted(len(self.values), 'value', self.values)} different")
        return short_repr("insight.DiffReport", facts, ".tensors, .differing, .attributes, .values")


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

    Objects differ if their shape, element type, layout or attributes do, or if a pair of values has
    `|a - b| > atol + rtol * max(|a|, |b|)`. Values of any types are compared; objects of different
    layouts as dense arrays, sparse ones up to 16 million elements. For two saved trees
    (`ztensor.save_tree`) the values that are not tensors are compared, too.

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
        ArgumentValueError: a tolerance is negative or NaN, an expression is invalid, or two objects
            get one name.
        ObjectNotFoundError: a name is in neither file.
        FormatError: stored bytes are damaged.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    for tolerance in (atol, rtol):
        if not isinstance(tolerance, (int, float)) or not tolerance >= 0:
            raise ArgumentValueError(
                "atol and rtol must be 0 or more", found=describe(tolerance, 40)
            )
    rules = Rules(atol, rtol, nan_differs, values_only, digests)
    with opened(a) as first, opened(b) as second:
        others = _renamed(first, rename or {})
        pairs: _Pairs = {name: (name, other) for name, other in others.items()}
        mapped = set(others.values())
        pairs.update((name, (None, name)) for name in second if name not in mapped)
        if names is not None:
            pairs = _chosen(pairs, [names] if isinstance(names, str) else names, first)
        differences = _compare_all(first, second, pairs, rules, threads, progress)
        if values_only or names is not None:
            return DiffReport(differences, {})
        values, ours, theirs = _changed_values(first, second)
        return DiffReport(differences, changed(ours, theirs), values)


def _changed_values(
    first: ObjectReader, second: ObjectReader
) -> tuple[dict[str, tuple[Any, Any]], dict[str, Any], dict[str, Any]]:
    """Return the values of two trees that differ, and the remaining attributes of both.

    The attribute `tree` remains if the values are equal but stored differently, as in the order of
    keys, and if a tree is damaged: its tensors can still be compared.
    """
    from ztensor.training.stored_tree import stored_tree

    files = first.attributes, second.attributes
    ours, theirs = stored_tree(first), stored_tree(second)
    if ours is None or theirs is None or is_same(ours.attribute, theirs.attribute):
        return {}, *files
    try:
        values = ours.values(), theirs.values()
    except (FormatError, LimitError, UnsupportedError):
        return {}, *files
    tensors = values[0].tensors | values[1].tensors
    differing = {
        path: pair
        for path, pair in changed(values[0].every, values[1].every).items()
        if not (MISSING in pair and path in tensors)  # compared as an object
    }
    return (differing, ours.attributes, theirs.attributes) if differing else ({}, *files)


def diff_pairs(
    first: ObjectReader,
    second: ObjectReader,
    pairs: Iterable[tuple[str, str]],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[TensorDiff, ...]:
    """Compare pairs of objects of two readers.

    A pair with damaged bytes has a `note` instead of values.

    Args:
        first: an open reader.
        second: likewise.
        pairs: names in the first and in the second reader, each of the first once.
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
            found = compare_pair(first, second, name, other, rules, report)
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
    """Return a map from the names in a reader to the names in the other."""
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
