"""The lines of a browser: all names, those that match, or a tree of which parts are open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ztensor.model.showing import shape_text, shown_name, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.reading.reader import ObjectReader

_CHARACTERS = 300  # of a name
_DEEPEST = 64
_PART = re.compile(r"[./]|::")


class Line(NamedTuple):
    """A line of the list.

    Attributes:
        text: what it says, safe to print.
        place: of the tensor in the file's order; None of a branch of the tree.
        key: what a branch is called by: all parts of its name.
        depth: how far it is in the tree.
        is_open: whether a branch shows what is below it.
        below: tensors below a branch.
    """

    text: str
    place: int | None = None
    key: tuple[str, ...] = ()
    depth: int = 0
    is_open: bool = False
    below: int = 0


class Lines:
    """Which lines there are; a line is made when it is asked for.

    Args:
        names: of all tensors, in the order of the file.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.is_tree = False
        self._lower: list[str] | None = None
        self._turned: set[tuple[str, ...]] = set()  # branches that are not as they were at first
        self._places: Sequence[int] = range(len(names))
        self._branches: list[Line] = []

    def __len__(self) -> int:
        """Return how many lines there are."""
        return len(self._branches) if self.is_tree else len(self._places)

    def __getitem__(self, at: int) -> Line:
        """Return a line."""
        if self.is_tree:
            return self._branches[at]
        place = self._places[at]
        return Line(shown_name(self.names[place], _CHARACTERS), place)

    @property
    def found(self) -> int:
        """Return how many tensors match what is searched."""
        return len(self._places)

    def at_of(self, place: int | None) -> int:
        """Return the line of a tensor; the first where it has none."""
        if place is None:
            return 0
        if not self.is_tree:
            places = self._places
            return places.index(place) if place in places else 0
        return next((at for at, one in enumerate(self._branches) if one.place == place), 0)

    def search(self, words: str) -> None:
        """Keep the tensors whose names have all of these words in them, in any case."""
        wanted = words.lower().split()
        if not wanted:
            self._places = range(len(self.names))
        else:
            if self._lower is None:
                self._lower = [name.lower() for name in self.names]
            self._places = [
                at for at, name in enumerate(self._lower) if all(one in name for one in wanted)
            ]
        self._grow()

    def as_tree(self, *, is_tree: bool) -> None:
        """Show a tree, or a list."""
        self.is_tree = is_tree
        self._grow()

    def toggle(self, at: int, *, is_open: bool | None = None) -> None:
        """Open or close the branch of a line; of a tensor nothing."""
        line = self[at]
        if line.place is None and is_open is not line.is_open:
            self._turned ^= {line.key}
            self._grow()

    def _grow(self) -> None:
        self._branches = []
        if self.is_tree:
            self._below((), self._places, 0)

    def _below(self, key: tuple[str, ...], places: Sequence[int], depth: int) -> None:
        """Add the lines below a branch: names with one more part, in the order of the file."""
        groups: dict[str, list[int]] = {}
        leaves: dict[str, int] = {}
        for place in places:
            parts = _PART.split(self.names[place], maxsplit=depth + 1)
            if len(parts) <= depth + 1 or depth >= _DEEPEST:
                leaves[f"{parts[-1]}\0{place}"] = place  # a name may also be a branch
            else:
                groups.setdefault(parts[depth], []).append(place)
        for part, below in groups.items():
            name = (*key, part)
            text = shown_name(part, _CHARACTERS) or "(empty)"
            is_only = len(groups) == 1 and not leaves  # there is nothing else to look at
            is_open = is_only != (name in self._turned)
            self._branches.append(Line(text, None, name, depth, is_open, len(below)))
            if is_open:
                self._below(name, below, depth + 1)
        for place in leaves.values():
            part = _PART.split(self.names[place], maxsplit=depth)[-1]
            text = shown_name(part, _CHARACTERS) or "(empty)"
            self._branches.append(Line(text, place, key, depth))


def facts_text(reader: ObjectReader, name: str) -> str:
    """Return type and shape of a tensor in a few characters; nothing where a network knows them."""
    if not reader.objects.is_known(name):
        return ""
    one = reader.metadata(name)
    return shown_name(f"{one.type or one.dtype or '?'} {shape_text(one.shape)}", 40)


def described(reader: ObjectReader, name: str) -> list[tuple[str, str]]:
    """Return label and text of what is known of a tensor without reading it."""
    one = reader.metadata(name)
    parts = one.components.values()
    encodings = sorted({part.encoding for part in parts})
    digests = sorted({(part.digest or "no digest").partition(":")[0] for part in parts})
    facts = [
        ("shape", shape_text(one.shape)),
        ("type", one.type or one.dtype or "unknown"),
        ("stored", f"{one.format} {' + '.join(encodings)}, {' + '.join(digests)}"),
        ("size", size_text(one.stored_nbytes)),
    ]
    facts += [(str(key), repr(value)) for key, value in list(one.attributes.items())[:10]]
    return [(shown_name(label, 20), shown_name(text, 120)) for label, text in facts]
