"""`fold`: one delta for several in a row.

Without the base, the changes of a tensor are merged by position: differences are added, and new
bits of a later link win. With it, `make` compares the base with the state after the links.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ztensor.delta import stream
from ztensor.delta.applied import Applied
from ztensor.delta.chain import Deltas, Found, opened, ordered, shown
from ztensor.delta.changes import Change, Delta, Part, bound
from ztensor.delta.errors import DeltaError, DeltaReason, needs_base, require
from ztensor.delta.file import DeltaWriter, SparsePart, WholePart, whole_parts
from ztensor.delta.making import in_order, make
from ztensor.delta.report import DeltaReport
from ztensor.delta.segment import Changes
from ztensor.delta.states import State, content_id
from ztensor.delta.stream import Effort, Values
from ztensor.ext import thread_count
from ztensor.options import require_choice
from ztensor.typing import Array, Path, Readable, TensorLike


def fold(
    deltas: Deltas,
    path: Path,
    *,
    base: Readable | Mapping[str, TensorLike] | None = None,
    effort: Effort | None = None,
) -> DeltaReport:
    """Write one delta that changes a state as several in a row do.

    Args:
        deltas: a folder of deltas, or several of them, in any order.
        path: the new file.
        base: the state before: a file or mapping, as for `make`. Required if positions or values
            are unknown without it, and for `effort="small"`. With it, the delta is the one that
            `make` writes of both states.
        effort: as in `make`; None is `"fast"`.

    Raises:
        DeltaError: the deltas are not one chain (`delta_chain`), the base is required
            (`delta_needs_base`) or another (`delta_base`), or a delta is damaged.
        SourceError: a file cannot be read or written.
    """
    require_choice("effort", effort, (None, "fast", "small"))
    with Found(deltas) as found:
        if base is None:
            return _merge(opened(ordered(found.deltas)), path, effort)
        with State.of(base) as before:
            links = links_from(before, found.deltas)
            ids = links[0].ids if links else None
            are_new = all(
                part.needs_old is None
                for delta in links
                for change in delta.values()
                for part in change.parts.values()
            )
            return make(
                before,
                Applied(before, links),
                path,
                effort=effort or "fast",
                values="new" if are_new else "difference",
                ids="xxh3-128" if ids == "xxh3-128" else "sha256",
                label=links[-1].label if links else None,
            )


def links_from(base: State, deltas: Sequence[Delta], to: str | None = None) -> list[Delta]:
    """Return the deltas that lead from a state to `to`, or the end, in the order to apply them.

    Raises:
        DeltaError: no delta starts from the state (`delta_base`), or they are not one chain.
    """
    algorithm = next((delta.ids for delta in deltas if delta.ids), None)
    found = None if algorithm is None else content_id(base.ids(algorithm), algorithm)
    states = {state for delta in deltas for state in (delta.base, delta.result)}
    if found is not None and found not in states:
        expected, message = (d.base for d in deltas if d.base), "no delta starts from the base"
        details = {"expected": shown(expected), "found": shown([found]), "file": base.name}
        raise DeltaError(message, reason=DeltaReason.BASE, **details)
    return bound(opened(ordered(deltas, found, to)), base)


def _merge(links: Sequence[Delta], path: Path, effort: Effort | None) -> DeltaReport:
    """Write one delta for several without the base."""
    first, last = links[0], links[-1]
    if effort == "small" or not (first.base and last.result and last.elements is not None):
        raise needs_base("small deltas, and deltas without ids, are folded with the base only")
    removed: dict[str, bytes] = {}
    attributes: dict[str, object] = {}
    for delta in links:
        attributes.update(delta.attributes)
    with DeltaWriter(path) as writer:
        names = list(dict.fromkeys(n for delta in links for n in (*delta, *delta.removed)))
        work = functools.partial(_folded, links)
        for name, change in zip(names, in_order(work, names, thread_count(None)), strict=True):
            if isinstance(change, bytes):
                removed[name] = change
            elif change is not None:
                writer.add(change)
        ids = first.base, last.result
        return writer.finish(ids, last.elements, removed, attributes, last.label)


def _folded(links: Sequence[Delta], name: str) -> Change | bytes | None:
    """Return the folded change of a tensor; its old id if it is removed; None without a change.

    Raises:
        DeltaError: the base is required, or the changes do not follow one another.
    """
    found = [delta[name] if name in delta else delta.removed.get(name) for delta in links]
    steps = [each for each in found if each is not None]
    states = [(s, None) if isinstance(s, bytes) else (s.old, s.new) for s in steps]
    for (_, after), (before, _) in itertools.pairwise(states):
        message = "a link changes another tensor than the link before it gives"
        chain: dict[str, Any] = {"reason": DeltaReason.CHAIN, "object_name": name}
        require(after == before, message, before, expected=after, **chain)
    old, last = states[0][0], steps[-1]
    if isinstance(last, bytes):
        return old
    if last.new is None or old == last.new:
        return None
    changes = [step for step in steps if isinstance(step, Change)]
    wholes = [number for number, change in enumerate(changes) if change.kind != "changed"]
    changes = changes[wholes[-1] if wholes else 0 :]
    kind, attributes, parts = last.kind, last.attributes, dict[str, Part]()
    if changes[0].kind == "changed":
        for role in dict.fromkeys(role for change in changes for role in change.parts):
            merged = _merged([each.parts[role] for each in changes if role in each.parts])
            if merged is not None:
                parts[role] = merged
    else:
        tensor = changes[0].tensor(None)
        for change in changes[1:]:
            tensor = change.tensor(tensor)
        kind, attributes = "added" if old is None else "replaced", tensor.attributes
        parts.update(whole_parts(tensor))
    message = "nothing is left of changes between different tensors"
    require(parts, message, [*found], object_name=name)
    return Change(name, kind, last.shape, last.layout, attributes, old, last.new, parts)


def _merged(parts: Sequence[Part]) -> Part | None:
    """Return the difference of one component by several links; None if nothing is left."""
    header = parts[0].header
    is_same = all(part.header == header for part in parts)
    require(is_same, "links have other types of a component", header)
    if any(part.needs_old == "positions" for part in parts):
        raise needs_base("the positions of changes are counted with the base")
    dtype = header.stored_dtype
    whole = [number for number, part in enumerate(parts) if part.whole is not None]
    if whole:
        out = header.empty()
        for part in parts[whole[-1] :]:
            part.apply(out, out)
        return WholePart(header, out.view(np.uint8), out.size)
    values: Values = "new" if any(part.needs_old is None for part in parts) else "difference"
    blob = stream.encode_changes(
        _windows(parts, values), header.nbytes // dtype.itemsize, dtype, values=values
    )
    sparse = SparsePart(header, np.frombuffer(blob, np.uint8))
    return sparse if sparse.changed else None


def _windows(parts: Sequence[Part], values: Values) -> Iterator[Changes]:
    """Yield the merged changes of each range of as many elements as a segment has at most."""
    runs = [_run(number, part) for number, part in enumerate(parts)]
    merged = heapq.merge(*runs, key=operator.itemgetter(0, 1))
    for _, group in itertools.groupby(merged, operator.itemgetter(0)):
        window = list(group)
        positions = np.concatenate([positions for *_, positions, _ in window])
        bits = np.concatenate([bits for *_, bits in window])
        are_new = [parts[number].needs_old is None for _, number, *_ in window]
        order = np.argsort(positions, kind="stable")  # runs, which are merged
        positions, bits = positions[order], bits[order]
        starts = np.flatnonzero(np.diff(positions, prepend=-1))
        if values == "new":
            sizes = [positions.size for *_, positions, _ in window]
            is_new = np.repeat(are_new, sizes)[order]
            numbers = np.arange(bits.size)
            last = np.maximum.reduceat(np.where(is_new, numbers, -1), starts)
            if last.min() < 0:
                raise needs_base("a link stores differences where no other has new values")
            bits[numbers < np.repeat(last, np.diff(starts, append=bits.size))] = 0
        positions, bits = positions[starts], np.add.reduceat(bits, starts, dtype=bits.dtype)
        kept = slice(None) if values == "new" else np.flatnonzero(bits)
        yield positions[kept], bits[kept]


def _run(number: int, part: Part) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield the changes of a link by window: the window's number, the link's, and both arrays."""
    changes = stream.divided(part.changes(None), stream.MOST_ELEMENTS)
    for window, (positions, bits) in changes:
        yield window, number, positions, bits
