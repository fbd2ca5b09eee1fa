"""Describe the tree of a file without reading tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.distributed.opened import tree_attribute
from ztensor.errors import UsageError, ZTensorError
from ztensor.ext import FileObjects, ObjectReader, foreign_bytes
from ztensor.limits import Budget
from ztensor.training.tree.decode import LeafAt, decode
from ztensor.training.tree.flattening import Standing, flat
from ztensor.training.tree.stored import ATTRIBUTE, shape_of, split_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TreeValues(NamedTuple):
    """The values of a tree by their paths, as in `LazyTree`.

    Attributes:
        every: all values, with a `Standing` for each tensor and container.
        tensors: paths of tensors.
        containers: paths of containers, before their values.
    """

    every: dict[str, Any]
    tensors: frozenset[str]
    containers: frozenset[str]

    @property
    def plain(self) -> dict[str, Any]:
        """Return the plain values."""
        others = self.tensors | self.containers
        return {path: value for path, value in self.every.items() if path not in others}


class StoredTree(NamedTuple):
    """The tree of an open file.

    Attributes:
        attributes: the other attributes of the file.
        attribute: the attribute of the tree, by its key.
        reader: the file.
    """

    attributes: dict[str, Any]
    attribute: dict[str, Any]
    reader: ObjectReader

    def values(self) -> TreeValues:
        """Return the values of the tree, with placeholders for tensors.

        Raises:
            FormatError: its shape is damaged.
            UnsupportedError: a newer release saved it, or it has a type that is unknown here.
            LimitError: a safety cap is exceeded.
        """
        values = flat(decoded(self.reader, Standing.for_leaf), containers=True)
        placeholders = {
            path: value for path, value in values.items() if isinstance(value, Standing)
        }
        tensors = frozenset(path for path, value in placeholders.items() if value.is_tensor)
        return TreeValues(values, tensors, frozenset(placeholders.keys() - tensors))


def stored_tree(reader: ObjectReader) -> StoredTree | None:
    """Return the tree of an open file, None if it has none."""
    attributes, attribute = split_tree(reader.attributes)
    return None if attribute is None else StoredTree(attributes, {ATTRIBUTE: attribute}, reader)


def decoded(reader: ObjectReader, leaf: Callable[[LeafAt], Any], **options: Any) -> Any:
    """Return the tree of an open file; see `ztensor.training.tree.decode`.

    Raises:
        UsageError: the file holds no tree.
        FormatError: its shape is damaged.
        UnsupportedError: a newer release saved it, or it has a type that is unknown here.
        LimitError: a safety cap is exceeded.
    """
    parts = reader.objects.parts()
    budget = Budget(parts[0].limits, sum(part.nbytes for part in parts))
    try:
        attribute = reader.attributes.get(ATTRIBUTE)
        if attribute is None:
            attribute = tree_attribute(parts[0])
        if attribute is None:
            raise _no_tree(parts)
        with foreign_bytes("the tree"):
            shape, stored = shape_of(attribute, budget)
        return decode(shape, budget, leaf, stored=stored, **options)
    except ZTensorError as error:
        raise error.locate(file=reader.name) from error.__cause__


def _no_tree(parts: Iterable[FileObjects]) -> UsageError:
    trees = sum(ATTRIBUTE in (part.attributes or {}) for part in parts)
    if trees > 1:
        return UsageError(
            "the files hold different trees, so together they have none; load each by itself",
            found=f"{trees} trees",
        )
    error = UsageError("the file holds no tree")
    error.in_python = "ztensor.numpy.load_file gives the tensors of any file"
    return error
