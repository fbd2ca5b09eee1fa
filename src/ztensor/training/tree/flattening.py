"""The values of a tree by their keys joined by dots, for people and patterns."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ztensor.training.tree.names import named, unique
from ztensor.training.tree.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.training.tree.decode import LeafAt

# Longer lists of plain values are one value if containers are listed.
_MOST_ITEMS = 16
_PLAIN = frozenset([bool, int, float, str, type(None)])


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A placeholder for a tensor, or for a container whose values follow.

    Attributes:
        text: a description for people.
        framework: framework of a tensor, None for a container.
    """

    text: str
    framework: str | None = None

    @property
    def is_tensor(self) -> bool:
        """Return whether it is the placeholder of a tensor."""
        return self.framework is not None

    @classmethod
    def for_leaf(cls, leaf: LeafAt) -> Standing:
        """Return the placeholder of a tensor."""
        return cls(f"tensor '{leaf.name}'", leaf.framework)

    def __repr__(self) -> str:
        """Return the description."""
        return self.text


def flat(tree: Any, *, containers: bool = False) -> dict[str, Any]:
    """Return a tree's values by path, in order; depth costs nothing.

    Equal paths get suffixes such as `#2`, as the names of objects do.

    Args:
        tree: the tree.
        containers: True adds a placeholder for each container before its values. A list of more
            than 16 plain values is one value then.
    """
    values: dict[str, Any] = {}
    tries: dict[str, int] = {}
    for path, value in _walked(tree, containers=containers):
        values[unique(path, values, tries)] = value
    return values


def _walked(tree: Any, *, containers: bool) -> Iterator[tuple[str, Any]]:
    stack: list[Iterator[tuple[str, Any]]] = [iter((("", tree),))]
    while stack:
        for name, value in stack[-1]:
            inside: Any = None
            kind = type(value)
            if isinstance(value, (dict, Record)):
                inside = value.items()
            elif (kind is list or kind is tuple) and not (containers and _is_one(value)):
                inside = enumerate(value)
            if not inside or not len(value):
                yield name, value
                continue
            if containers:
                is_record = isinstance(value, Record)
                yield name, Standing(f"a {value.class_name if is_record else kind.__qualname__}")
            stack.append(iter([(named(name, key), item) for key, item in inside]))
            break
        else:
            stack.pop()


def _is_one(value: Any) -> bool:
    return len(value) > _MOST_ITEMS and set(map(type, value)) <= _PLAIN
