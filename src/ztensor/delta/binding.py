"""Deltas of dialects without shapes and types take both from the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ztensor.delta.changes import Delta
from ztensor.delta.states import Header, State, headers_of


class Form(NamedTuple):
    """A tensor without its values: shape, layout and types.

    Attributes:
        shape: its shape.
        layout: its layout.
        headers: role to type and length.
    """

    shape: tuple[int, ...]
    layout: str
    headers: Mapping[str, Header]


class Forms(Mapping[str, Form]):
    """The forms of all tensors of a state after deltas; each is looked up on first use.

    Args:
        base: the state before.
    """

    def __init__(self, base: State) -> None:
        self._base = base
        self._forms: dict[str, Form | None] = dict.fromkeys(base)

    def __getitem__(self, name: str) -> Form:
        """Return the form of a tensor; a KeyError without such a tensor."""
        form = self._forms[name]
        if form is None:
            tensor = self._base[name]
            form = Form(tuple(tensor.shape), tensor.format, headers_of(tensor))
            self._forms[name] = form
        return form

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._forms)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._forms)

    def follow(self, delta: Delta) -> None:
        """Become the forms after a delta."""
        for name in delta.removed:
            self._forms.pop(name, None)
        for name, change in delta.items():
            if change.kind != "changed":
                headers = {role: part.header for role, part in change.parts.items()}
                self._forms[name] = Form(change.shape, change.layout, headers)


def bound(deltas: Sequence[Delta], base: State) -> list[Delta]:
    """Return deltas in which every change has its shape and type.

    Args:
        deltas: in the order to apply them.
        base: the state before.

    Raises:
        DeltaError: the base has no tensor that a delta changes (`delta_tensor`), or one that the
            dialect cannot change (`delta_shape`).
    """
    if all(delta.is_bound for delta in deltas):
        return list(deltas)
    forms, links = Forms(base), list[Delta]()
    for delta in deltas:
        links.append(delta.bound(forms))
        forms.follow(links[-1])
    return links
