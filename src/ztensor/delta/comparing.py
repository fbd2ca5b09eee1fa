"""Two states tensor by tensor, and the difference of each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ztensor import Tensor
from ztensor.delta import stream
from ztensor.delta.changes import Change, Kind, Part
from ztensor.delta.file import SparsePart, whole_parts
from ztensor.delta.states import PLAIN_LAYOUTS, State, content_id, headers_of, stored_form


class Pair(NamedTuple):
    """A tensor that differs between two states, and is in the new one.

    Attributes:
        name: its name.
        old: the tensor before; None if it is added.
        new: the tensor after.
        ids: the ids of both; None for the first if it is added.
    """

    name: str
    old: Tensor | None
    new: Tensor
    ids: tuple[bytes | None, bytes]

    @property
    def kind(self) -> Kind:
        """Return how the tensor differs: `"changed"` if only in elements."""
        old, new = self.old, self.new
        if old is None:
            return "added"
        is_same_kind = (
            tuple(old.shape) == tuple(new.shape)
            and old.format == new.format
            and headers_of(old) == headers_of(new)
            and (new.format in PLAIN_LAYOUTS or dict(old.attributes) == dict(new.attributes))
        )
        return "changed" if is_same_kind else "replaced"


class Comparison:
    """Two states, and which of their tensors differ.

    Args:
        base: the state before.
        new: the state after.
        ids: the algorithm of the ids.
        keep: whether a name takes part; other tensors stay as they are in `base`.
        threads: how many compute ids; None uses the cores, at most four.

    Attributes:
        base: the argument.
        new: the argument.
        ids: the argument.
        names: the tensors that are changed, added or replaced, in the order of the new state.
        removed: name to id of each removed tensor.
        base_id: the id of the state before.
        result_id: the id of the state after.
        elements: the number of elements of the state after.
    """

    def __init__(
        self,
        base: State,
        new: State,
        ids: str,
        keep: Callable[[str], bool] = lambda _: True,
        threads: int | None = None,
    ) -> None:
        self.base, self.new, self.ids = base, new, ids
        self._before = before = base.ids(ids, threads=threads)
        self._after = after = new.ids(ids, filter(keep, new), threads)
        self.names = [name for name in after if before.get(name) != after[name]]
        self.removed = {
            name: old for name, old in before.items() if keep(name) and name not in after
        }
        kept = {name: old for name, old in before.items() if name not in self.removed}
        self.base_id = content_id(before, ids)
        self.result_id = content_id({**kept, **after}, ids)
        self.elements = sum(map(new.element_count, after))
        self.elements += sum(base.element_count(name) for name in kept if name not in after)

    def pairs(self) -> Iterator[Pair]:
        """Yield the tensors of `names`."""
        for name in self.names:
            ids = self._before.get(name), self._after[name]
            yield Pair(name, None if ids[0] is None else self.base[name], self.new[name], ids)

    def attributes(self) -> dict[str, object]:
        """Return the new value of each file attribute that differs; None for a removed one.

        Empty where a state is a mapping, which has no attributes.
        """
        if not (self.base.has_attributes and self.new.has_attributes):
            return {}
        old, new = self.base.attributes, self.new.attributes
        changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
        return {**changed, **{key: None for key in old if key not in new}}


def difference(pair: Pair, *, effort: stream.Effort, values: stream.Values) -> Change:
    """Return the difference of a tensor; equal components have no part."""
    kind, tensor = pair.kind, pair.new
    whole = whole_parts(tensor)
    parts: dict[str, Part] = {**whole}
    before = pair.old.components if pair.old is not None and kind == "changed" else {}
    for role, array in before.items():
        old = stored_form(array)
        blob = stream.encode(old, whole[role].blob.view(old.dtype), effort=effort, values=values)
        if blob is None:
            del parts[role]
            continue
        sparse = SparsePart(whole[role].header, np.frombuffer(blob, np.uint8))
        whole[role].changed = sparse.changed
        if sparse.nbytes < whole[role].nbytes:
            parts[role] = sparse
    is_stored = kind != "changed" or tensor.format not in PLAIN_LAYOUTS
    attributes = dict(tensor.attributes) if is_stored else {}
    return Change(pair.name, kind, tuple(tensor.shape), tensor.format, attributes, *pair.ids, parts)
