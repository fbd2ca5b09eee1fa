"""A registry of file attributes with a meaning beyond their value, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import UsageError
from ztensor.limits import Budget
from ztensor.registry import Registry
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class AttributeKind:
    """The meaning of a file attribute. By default it is only a value."""

    def is_single(self, value: object) -> bool:
        """Return whether merged files may have this value only if all of them agree."""
        return False

    def conflict(self, first: str, other: str) -> UsageError:
        """Return the error for merging two files with different values."""
        return UsageError(
            "two files differ in an attribute that cannot be merged",
            file=other,
            found=f"also in {first}",
        )

    def renamed(self, value: object, names: Mapping[str, str], budget: Budget) -> object:
        """Return the value after objects of the file are renamed.

        Args:
            value: the old value.
            names: old names to new names.
            budget: charged for the memory of the new value.

        Raises:
            ZTensorError: the value is damaged.
        """
        return value

    def require_changeable(self, value: object, file: str) -> None:
        """Require that an editor may change a file with this value.

        Raises:
            UsageError: the file must be changed by other means.
        """

    def require_whole(self, value: object, folder: str) -> None:
        """Require the other files that a file with this value depends on.

        Raises:
            SourceNotFoundError: the folder lacks them.
        """

    @staticmethod
    def merged(
        every: Sequence[Mapping[str, object]], files: Sequence[str] | None = None
    ) -> dict[str, object]:
        """Merge the attributes of several files; the last value of a key wins.

        Args:
            every: the attributes of each file.
            files: their names, for the error if they differ in an attribute that cannot be merged;
                None leaves such an attribute out.

        Raises:
            UsageError: the files differ in such an attribute, and `files` is given.
        """
        merged: dict[str, object] = {}
        for attributes in every:
            merged.update(attributes)
        for name, kind, _ in kinds_of(dict(merged)):
            numbered = [(number, each.get(name)) for number, each in enumerate(every)]
            values = [(number, value) for number, value in numbered if kind.is_single(value)]
            if not values:
                continue
            first, expected = values[0]
            other = next((number for number, value in values if value != expected), None)
            if other is None:
                merged[name] = expected
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
    """Yield (name, kind, value) of the attributes that are in the registry."""
    for name in ATTRIBUTES:
        if attributes and name in attributes:
            yield name, ATTRIBUTES[name], with_dicts(attributes[name])
