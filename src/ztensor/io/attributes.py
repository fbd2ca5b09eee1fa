"""Attributes of a file that mean more than their value, found by name in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import UsageError
from ztensor.limits import Budget
from ztensor.registry import Registry
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


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

    @staticmethod
    def merged(
        every: Sequence[Mapping[str, object]], files: Sequence[str] | None = None
    ) -> dict[str, object]:
        """Return the attributes of several files as of one; of equal keys the last one wins.

        Args:
            every: the attributes of each file.
            files: their names, for the error where they differ in an attribute that a file has
                once; without them, such an attribute is left out.

        Raises:
            UsageError: they differ in one, and `files` are given.
        """
        merged: dict[str, object] = {}
        for attributes in every:
            merged.update(attributes)
        for name, kind, _ in kinds_of(dict(merged)):
            found = [(number, each.get(name)) for number, each in enumerate(every)]
            values = [(number, value) for number, value in found if kind.is_single(value)]
            if not values:
                continue
            first, one = values[0]
            other = next((number for number, value in values if value != one), None)
            if other is None:
                merged[name] = one
            elif files is None:
                del merged[name]
            else:
                raise kind.conflict(files[first], files[other])
        return merged


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
