"""The place of a value in a tree: as the name of an object, and as code in messages.

The names of objects are for people. The tree is never rebuilt by splitting them, so keys may have
dots, and keys of several types may look the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import describe

if TYPE_CHECKING:
    from collections.abc import Container

# Longest name made of a path, in bytes of UTF-8, without the suffix that makes it unique.
_NAME_BYTES = 200


class Place(NamedTuple):
    """A container in a tree that is being walked.

    Attributes:
        parent: the container it is in, None for the root.
        key: its key there.
        name: the keys that lead to it, joined by dots, cut to fit a name.
        is_record: True if its entries are fields, written with a dot in code.
    """

    parent: Place | None
    key: object
    name: str
    is_record: bool = False

    def inner(self, key: object, *, is_record: bool = False) -> Place:
        """Return the place of an entry; this place if the entry has no key."""
        if key is None:
            return self._replace(is_record=is_record)
        return Place(self, key, named(self.name, key), is_record)

    def __str__(self) -> str:
        """Return the place as in code: `tree['optimizer']['state'][0]`."""
        steps, place = [], self
        while place.parent is not None:
            has_fields = place.parent.is_record
            steps.append(f".{place.key}" if has_fields else f"[{describe(place.key, 60)}]")
            place = place.parent
        if len(steps) > 40:  # the ends of a path of ten thousand steps suffice
            steps[20:-20] = ["[...]"]
        return "tree" + "".join(reversed(steps))


ROOT = Place(None, None, "")


def named(name: str, key: object) -> str:
    """Return a container's name joined with a key, cut to fit a name."""
    text = key if type(key) is str else _shown(key)
    joined = f"{name}.{text}" if name else text
    return joined if len(joined) <= _NAME_BYTES // 4 else _cut(joined)


def _shown(key: object) -> str:
    try:
        return str(key)
    except ValueError:  # an integer of more digits than Python writes
        return type(key).__name__


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")


def unique(name: str, taken: Container[str], tries: dict[str, int]) -> str:
    """Return a name for an object that is not in `taken`; `tries` is {} at first."""
    name = name.replace("\0", "\N{REPLACEMENT CHARACTER}") or "value"
    if name not in taken:
        return name
    while True:
        tries[name] = count = tries.get(name, 1) + 1
        other = f"{name}#{count}"
        if other not in taken:
            return other
