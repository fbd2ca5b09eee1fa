"""Chains: the deltas of a folder or list, ordered by the ids of states.

The result of one link is the base of the next. Names of files and labels never order.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeAlias

from ztensor.delta.changes import Delta
from ztensor.delta.dialects import DIALECTS
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.opening import find
from ztensor.delta.opening import open as open_delta
from ztensor.errors import ZTensorError, describe, system_call
from ztensor.ext import path_text
from ztensor.typing import Path

Deltas: TypeAlias = "Delta | Path | Iterable[Delta | Path]"
"""A delta or its path, a folder of deltas, or several of them."""

_LEAST_DIGITS = 6  # of an id by its start
MOST_OPEN = 64  # each is two files when it is mapped; some systems allow 256


# --- The graph ----------------------------------------------------------------------------------


class Graph:
    """States as nodes, and deltas as edges between them.

    Args:
        edges: the ids of base and result of each delta.
    """

    def __init__(self, edges: Sequence[tuple[str, str]]) -> None:
        self.edges = edges
        self.following: dict[str, list[int]] = collections.defaultdict(list)
        for number, (base, _) in enumerate(edges):
            self.following[base].append(number)
        given = {result for base, result in edges if base != result}  # an empty delta gives none
        left = {base for base, result in edges if base != result}
        states = dict.fromkeys(state for edge in edges for state in edge)
        self.starts = [state for state in states if state not in given]
        self.ends = [state for state in states if state not in left]

    def forks(self) -> dict[str, list[int]]:
        """Return the states from which deltas lead apart, with these deltas.

        A delta that skips others, as `fold` makes it, is not a fork: the states meet again.
        """
        forks = {}
        for base, numbers in self.following.items():
            states = {self.edges[number][1] for number in numbers} - {base}
            if len(states) > 1:
                reached = {state: self.paths(state).keys() - {state} for state in states}
                apart = [s for s in states if not any(s in each for each in reached.values())]
                if len(apart) != 1:
                    forks[base] = numbers
        return forks

    def paths(self, start: str) -> dict[str, list[int]]:
        """Return the states that are reached from one, each with the fewest edges to it."""
        paths: dict[str, list[int]] = {start: []}
        waiting = collections.deque([start])
        while waiting:
            state = waiting.popleft()
            for number in self.following.get(state, ()):
                result = self.edges[number][1]
                if result not in paths:
                    paths[result] = [*paths[state], number]
                    waiting.append(result)
        return paths


def ordered(
    deltas: Iterable[Delta], base_id: str | None = None, to: str | None = None
) -> list[Delta]:
    """Return the deltas that lead from one state to another, in the order to apply them.

    Of several ways to the same state, the one with the fewest links is taken. A delta that changes
    no tensor follows those that give its state. Deltas of a dialect without ids keep their order.

    Args:
        deltas: open deltas, in any order.
        base_id: the id of the state before; None takes the only state that no delta gives.
        to: the state after: its id, at least six first digits of it, or the label of the delta that
            gives it. None takes the only end that is reached.

    Returns:
        The links; none if the base already is the state after.

    Raises:
        DeltaError: a link is missing, or there are several starts or ends (`delta_chain`).
    """
    links = list(deltas)
    edges = [(each.base, each.result) for each in links if each.base and each.result]
    if len(edges) < len(links):
        if not edges and to is None:
            return links
        raise _refusal("deltas without ids cannot be ordered", "ids in all of them", "none")
    graph = Graph(edges)
    target = None if to is None else _state(links, to)
    start = base_id
    if start is None:
        starts = [s for s in graph.starts if target is None or target in graph.paths(s)]
        if len(starts) != 1:
            raise _refusal("the deltas are not one chain", "one start", shown(starts))
        start = starts[0]
    elif start not in graph.following and start not in (target, *graph.ends):
        raise _refusal("no delta starts from the base", shown(graph.following), shown([start]))
    paths = graph.paths(start)
    if target is None:
        ends = [end for end in graph.ends if end in paths]
        if len(ends) != 1:
            raise _refusal("the deltas have several ends", "one, or its name", shown(ends))
        target = ends[0]
    if target not in paths:
        missing = [s for s in graph.starts if target in graph.paths(s)]
        reached = [end for end in graph.ends if end in paths]
        raise _refusal(
            f"a link is missing before {shown([target])}",
            f"a delta from {shown(reached)} to {shown(missing)}",
            "none",
        )
    states = [start, *(edges[number][1] for number in paths[target])]
    steps = [[], *([number] for number in paths[target])]
    still = [[n for n in graph.following.get(s, ()) if edges[n][1] == s] for s in states]
    return [links[n] for pair in zip(steps, still, strict=True) for part in pair for n in part]


def _state(links: Sequence[Delta], to: str) -> str:
    """Return the id of the state that the caller names.

    Raises:
        DeltaError: no delta gives it, or several deltas with that label or start of an id.
    """
    word = str(to)
    results = {each.result for each in links if each.result}
    states = {each.base for each in links if each.base} | results
    if word in states:
        return word
    found = {each.result for each in links if each.label == word and each.result}
    if not found and len(word.rpartition(":")[2]) >= _LEAST_DIGITS:
        found = {s for s in states if s.startswith(word) or s.rpartition(":")[2].startswith(word)}
    if len(found) != 1:
        labels = [describe(each.label) for each in links if each.label is not None]
        known = ", ".join(labels[-3:] or [shown(results)])
        names = shown(found) if found else describe(to)
        raise _refusal("no single state has that id or label", f"such as {known}", names)
    return found.pop()


def shown(states: Iterable[str]) -> str:
    """Return ids as text, each with twelve digits."""
    words = [f"{word}:{digits[:12]}" for word, _, digits in (s.partition(":") for s in states)]
    more = f" and {len(words) - 4} more" if len(words) > 4 else ""
    return ", ".join(words[:4]) + more or "none"


def _refusal(message: str, expected: str, found: str) -> DeltaError:
    return DeltaError(message, reason=DeltaReason.CHAIN, expected=expected, found=found)


# --- Files --------------------------------------------------------------------------------------


def opened(links: Iterable[Delta]) -> list[Delta]:
    """Return deltas of a `Found`, each of them open."""
    found = list(links)
    for delta in found:
        if delta.is_closed:
            delta.reopen(open_delta(delta.name))
    return found


class Found:
    """The deltas of files and folders: a context, which closes those it opened.

    Deltas behind the first `MOST_OPEN` are closed at once, and `opened` opens them again.

    Args:
        source: a delta, or its path; a folder; or several of them.

    Attributes:
        deltas: in the order of the list, and of names in a folder.
        others: the paths of other files in folders.
        damaged: path to error of each file in a folder that cannot be read.

    Raises:
        DeltaError: a path in the list is not a delta (`delta_dialect`).
        ZTensorError: a path in the list cannot be read.
    """

    def __init__(self, source: Deltas) -> None:
        self.deltas: list[Delta] = []
        self.others: list[str] = []
        self.damaged: dict[str, ZTensorError] = {}
        self._ours: list[Delta] = []
        is_one = isinstance(source, Delta | str | os.PathLike)
        try:
            for each in [source] if is_one else source:  # type: ignore[union-attr]
                self._add(each)  # type: ignore[arg-type]
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        """Return the files themselves."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the deltas that were opened here."""
        for each in self._ours:
            each.close()

    def _add(self, source: Delta | Path) -> None:
        if isinstance(source, Delta):
            self.deltas.append(source)
        elif not os.path.isdir(path := path_text(source)):
            self._take(open_delta(path))
        elif (version := find(path)) is not None:
            self._take(version)
        else:
            for within in _within(path):
                try:
                    delta = find(within)
                    if delta is None:
                        self.others.append(within)
                    else:
                        self._take(delta)
                except ZTensorError as error:
                    self.damaged[within] = error

    def _take(self, delta: Delta) -> None:
        self.deltas.append(delta)
        self._ours.append(delta)
        if len(self._ours) > MOST_OPEN:
            delta.close()


def _within(folder: str) -> Iterator[str]:
    """Yield the paths in a folder that can be deltas, sorted."""
    with system_call("cannot list the folder", folder):
        names = sorted(os.listdir(folder))
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith((".zt", ".safetensors")) or DIALECTS["slime"].is_one(path):
            yield path


# --- The log ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Link:
    """A delta of a chain, from its manifest.

    Attributes:
        path: the delta.
        dialect: `"zt"`, or the word of another dialect.
        base: the id of the state before; None in a dialect without ids.
        result: the id of the state after, likewise.
        label: the caller's text, such as a step; None without one.
        tensors: how many tensors are changed, added, replaced or removed.
        changed: how many elements differ; None in a dialect that does not record it.
        elements: the number of elements of the state after, likewise.
        nbytes: bytes of the delta.
    """

    path: str
    dialect: str
    base: str | None
    result: str | None
    label: str | None
    tensors: int
    changed: int | None
    elements: int | None
    nbytes: int

    @classmethod
    def of(cls, delta: Delta) -> Link:
        """Return the link of an open delta."""
        tensors, changed, elements = len(delta) + len(delta.removed), delta.changed, delta.elements
        names = delta.name, delta.dialect, delta.base, delta.result, delta.label
        return cls(*names, tensors, changed, elements, delta.nbytes)


@dataclasses.dataclass(frozen=True)
class Chain:
    """The deltas of a folder or list, in order.

    Attributes:
        links: each behind the links that give its base: first those from the state from which most
            states are reached, then the unreachable ones.
        starts: the ids of states that no link gives. If there are several, links are missing
            between them, or full files are in their place.
        ends: the ids of states from which no link starts.
        forks: id of each state from which links lead to different states, to their paths.
        unreachable: the paths of links that cannot be reached from the first link's base.
        others: the paths of other files in folders, such as full states.
        damaged: path to error of each file in a folder that cannot be read.
    """

    links: tuple[Link, ...]
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    forks: Mapping[str, tuple[str, ...]]
    unreachable: tuple[str, ...]
    others: tuple[str, ...]
    damaged: Mapping[str, ZTensorError]

    @property
    def ok(self) -> bool:
        """Return whether every delta can be read, and they lead from one state to one other."""
        is_one = len(self.starts) <= 1 and len(self.ends) <= 1 and not self.forks
        return is_one and not self.unreachable and not self.damaged


def log(source: Deltas) -> Chain:
    """Return the links of a folder or list in order; only manifests are read.

    Args:
        source: a folder of deltas, or several deltas.

    Raises:
        DeltaError: a path in a list is not a delta (`delta_dialect`).
        SourceError: the folder or a path in a list cannot be read.
    """
    with Found(source) as found:
        links = [Link.of(delta) for delta in found.deltas]
    named = [link for link in links if link.base and link.result]
    graph = Graph([(str(link.base), str(link.result)) for link in named])
    reached = {state: graph.paths(state) for state in graph.starts or list(graph.following)[:1]}
    first = max(reached, key=lambda state: len(reached[state]), default="")
    order = dict.fromkeys(
        number
        for start in [first, *reached, *graph.following]
        for state in reached.get(start, [start])
        for number in graph.following.get(state, ())
    )
    apart = [named[n].path for n in order if named[n].base not in reached.get(first, ())]
    forks = {s: tuple(named[n].path for n in numbers) for s, numbers in graph.forks().items()}
    alone = [link for link in links if not (link.base and link.result)]
    return Chain(
        links=(*[named[number] for number in order], *alone),
        starts=tuple(sorted(graph.starts, key=lambda state: state != first)),
        ends=tuple(graph.ends),
        forks=forks,
        unreachable=tuple(apart + [link.path for link in alone[len(links) == 1 :]]),
        others=tuple(found.others),
        damaged=found.damaged,
    )
