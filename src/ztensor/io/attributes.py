"""Attributes of a file that mean more than their value, found by name in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import UsageError
from ztensor.registry import Registry
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ztensor.limits import Budget


class AttributeKind:
    """What an attribute of a file means; by default no more than its value."""

    def is_single(self, value: object) -> bool:
        """Return whether a file made of several has this value only where they all agree."""
        return False

    def conflict(self, one: str, other: str) -> UsageError:
        """Return the error of two files whose values differ, and of which one file is made."""
        return UsageError(
            "two files differ in an attribute that one file has once",
            file=other,
            found=f"also in {one}",
        )

    def renamed(self, value: object, names: Mapping[str, str], budget: Budget) -> object:
        """Return the value of a file whose objects get other names.

        Args:
            value: the old value.
            names: old names to new ones.
            budget: is charged the memory that this takes.

        Raises:
            ZTensorError: the value is damaged.
        """
        return value

    def require_changeable(self, value: object, file: str) -> None:
        """Raise where a file of this path is changed by other means than an editor.

        Raises:
            UsageError: so it is.
        """

    def require_whole(self, value: object, folder: str) -> None:
        """Raise where a file means nothing without others, which the folder lacks.

        Raises:
            SourceNotFoundError: so it is.
        """


ATTRIBUTES: Registry[str, AttributeKind] = Registry(
    {
        "tree": "ztensor.training.tree.stored:TREE",
        "divided": "ztensor.distributed.root:ROOT_KIND",
    }
)


def kinds_of(attributes: Mapping[str, Any] | None) -> Iterator[tuple[str, AttributeKind, Any]]:
    """Yield the attributes that mean more than their value: name, kind, value."""
    for name in ATTRIBUTES:
        if attributes and name in attributes:
            yield name, ATTRIBUTES[name], with_dicts(attributes[name])


def merged_attributes(
    every: Sequence[Mapping[str, object]],
) -> tuple[dict[str, object], tuple[str, int, int] | None]:
    """Return the attributes of several files as those of one; of equal keys the last one wins.

    Returns:
        The attributes, without one that a file has once and in which the files differ; the name of
        that one, and the numbers of two files that differ in it.
    """
    merged: dict[str, object] = {}
    for attributes in every:
        merged.update(attributes)
    differing = None
    for name, kind, _ in kinds_of(merged):
        found = {number: each.get(name) for number, each in enumerate(every)}
        values = {number: value for number, value in found.items() if kind.is_single(value)}
        first = next(iter(values), 0)
        other = next((number for number in values if values[number] != values[first]), None)
        if other is not None:
            del merged[name]
            differing = name, first, other
        elif values:
            merged[name] = values[first]
    return merged, differing
