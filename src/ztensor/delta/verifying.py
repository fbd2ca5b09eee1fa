"""`verify`: the bytes, streams and order of deltas; and with a base, the states that they give."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ztensor.delta.chain import Deltas, Found, Graph, opened, ordered, shown
from ztensor.delta.changes import Delta
from ztensor.delta.errors import DeltaError, DeltaReason, wrong_result
from ztensor.delta.folding import links_from
from ztensor.delta.states import State, content_id
from ztensor.errors import ArgumentValueError, ZTensorError
from ztensor.typing import Readable, TensorLike


@dataclasses.dataclass(frozen=True)
class DeltaVerifyReport:
    """What `verify` checked and found.

    Attributes:
        deltas: how many deltas were read.
        tensors: how many changes of tensors.
        undecoded: how many of them were read, but not decoded, as they need the base.
        states_checked: whether the states were checked, too: a base or new state was given.
        problems: errors, each with its file and tensor.
    """

    deltas: int
    tensors: int
    undecoded: int
    states_checked: bool
    problems: tuple[ZTensorError, ...]

    @property
    def ok(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems


def verify(
    deltas: Deltas,
    *,
    base: Readable | Mapping[str, TensorLike] | None = None,
    new: Readable | Mapping[str, TensorLike] | None = None,
) -> DeltaVerifyReport:
    """Return the problems of deltas: of their bytes and streams, and of their order.

    Args:
        deltas: a folder of deltas, or several of them, in any order.
        base: the state before. With it, every tensor that the deltas change is computed, and its
            id compared with the recorded one.
        new: the state after; its id is compared with the last result.

    Raises:
        DeltaError: a path in a list is not a delta (`delta_dialect`).
        SourceError: the folder or a path in a list cannot be read.
    """
    with Found(deltas) as found:
        problems = list(found.damaged.values())
        undecoded = 0
        for delta in found.deltas:
            was_closed = delta.is_closed
            try:
                undecoded += sum(_decode(each, problems) for each in opened([delta]))
            except ZTensorError as error:  # of the table
                problems.append(error)
            if was_closed:
                delta.close()
        try:
            if base is None:
                links = ordered(found.deltas)
            else:
                with State.of(base) as before:
                    links = links_from(before, found.deltas)
                    problems += _wrong_states(before, links, {p.object_name for p in problems})
                    problems += _not_reached(found.deltas, links)
                    undecoded = 0
            if new is not None and links:
                with State.of(new) as after:
                    if links[-1].ids is None:
                        raise ArgumentValueError(
                            "a delta without ids is compared with a state by `apply` and `diff`",
                            file=links[-1].name,
                        )
                    _compare(links[-1], after)
        except DeltaError as error:
            problems.append(error)
        return DeltaVerifyReport(
            deltas=len(found.deltas),
            tensors=sum(map(len, found.deltas)),
            undecoded=undecoded,
            states_checked=base is not None or new is not None,
            problems=tuple(problems),
        )


def _decode(delta: Delta, problems: list[ZTensorError]) -> int:
    """Read the changes of a delta; return how many cannot be decoded without the base."""
    undecoded = 0
    for name in delta:
        try:
            for part in delta[name].parts.values():
                collections.deque(part.changes(None), maxlen=0)
        except ZTensorError as error:
            if error.reason is DeltaReason.NEEDS_BASE:  # type: ignore[comparison-overlap]
                undecoded += 1
            else:
                problems.append(error.locate(file=delta.name, object_name=name))
    return undecoded


def _wrong_states(
    base: State, links: Sequence[Delta], broken: Collection[str | None]
) -> Iterator[ZTensorError]:
    """Compute each tensor behind each link, and yield the errors.

    Args:
        base: the state before.
        links: in the order to apply them.
        broken: tensors with known problems, which are left out.
    """
    algorithm = links[0].ids if links else None
    ids = {} if algorithm is None else base.ids(algorithm)
    for delta in links if algorithm is not None and not broken else ():
        after = {name: change.new for name, change in delta.items() if change.new is not None}
        ids = {name: ids[name] for name in ids if name not in delta.removed} | after
        if content_id(ids, algorithm or "") != delta.result:
            yield wrong_result(has_ids=True, file=delta.name)
    for name in dict.fromkeys(name for delta in links for name in delta if name not in broken):
        tensor = base.get(name)
        try:
            for delta in links:
                if name in delta:
                    tensor = delta[name].tensor(tensor)
                    if not delta[name].is_result(tensor, delta.ids):
                        raise wrong_result(has_ids=delta.ids is not None, file=delta.name)
                elif name in delta.removed:
                    tensor = None
        except ZTensorError as error:
            yield error.locate(object_name=name)


def _not_reached(deltas: Sequence[Delta], links: Sequence[Delta]) -> Iterator[DeltaError]:
    """Yield an error for each delta that neither follows from the first link nor leads to it."""
    start = links[0].base if links else None
    if start is None:
        return
    edges = [(each.base, each.result) for each in deltas if each.base and each.result]
    reached = Graph(edges).paths(start)
    before = Graph([(result, base) for base, result in edges]).paths(start)
    apart = [delta for delta in deltas if delta.base not in {None, *reached, *before}]
    for delta in apart:
        if any(delta.base == other.result for other in apart):
            continue
        message = "the delta cannot be reached from the base, and nothing behind it was computed"
        expected = f"a delta that gives {shown([str(delta.base)])}"
        details = {"file": delta.name, "expected": expected, "found": "none"}
        yield DeltaError(message, reason=DeltaReason.CHAIN, **details)


def _compare(last: Delta, new: State) -> None:
    """Compare a state with the result of a delta that has ids.

    Raises:
        DeltaError: they differ (`delta_result`).
    """
    ids = new.ids(str(last.ids))
    if (found := content_id(ids, str(last.ids))) != last.result:
        others = [name for name, change in last.items() if change.new != ids.get(name)]
        details: dict[str, Any] = {"object_name": others[0] if others else None, "file": new.name}
        details |= {"expected": last.result, "found": found}
        message = "the new state is not the result of the deltas"
        raise DeltaError(message, reason=DeltaReason.RESULT, **details)
