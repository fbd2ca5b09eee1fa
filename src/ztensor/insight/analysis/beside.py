"""The comparison of two models: changed, renamed and unusually changed tensors."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from ztensor.ext import ObjectReader
from ztensor.insight.analysis.comparing import diff_pairs
from ztensor.insight.analysis.document import Insight, Kind, ModelInsight, Pair
from ztensor.insight.analysis.findings import Finding, not_looked_at, pair_findings, ranked
from ztensor.insight.analysis.insight import chosen_names, content_key, examine_one, nbytes_of
from ztensor.insight.analysis.pairs import TensorDiff, has_same_values
from ztensor.insight.analysis.roles import is_optimizer_state, natural_key
from ztensor.typing import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def compared(
    first: ObjectReader,
    second: ObjectReader,
    pair: Pair,
    names: tuple[str, str],
    progress: Progress | None = None,
) -> Pair:
    """Return a pair of `outline` completed with the difference of its tensors.

    Args:
        first: the first model.
        second: the second model.
        pair: the indices of both tensors.
        names: the names of both tensors.
        progress: as `diff` takes it.

    Raises:
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    (found,) = diff_pairs(first, second, [names], threads=1, progress=progress)
    return dataclasses.replace(pair, kind=_kind(found), found=found)


def compared_models(
    first: ObjectReader,
    second: ObjectReader,
    names: str | Iterable[str] | None,
    threads: int | None,
    progress: Progress | None,
) -> Insight:
    """Examine two models, and compare the tensors of equal names; see `examine`.

    Raises:
        ZTensorError: what `examine` raises.
    """
    wanted = None if names is None else [names] if isinstance(names, str) else list(names)
    ours, theirs = chosen_names(first, wanted, second), chosen_names(second, wanted, first)
    ours_set = set(ours)
    common = [name for name in theirs if name in ours_set]
    phases = _Phases(
        progress,
        [
            sum(first.metadata(name).nbytes for name in common),
            sum(first.metadata(name).nbytes for name in ours),
            sum(second.metadata(name).nbytes for name in theirs),
        ],
    )
    named = [(name, name) for name in common]
    compared_pairs = diff_pairs(first, second, named, threads=threads, progress=phases.next())
    differences = {difference.name: difference for difference in compared_pairs}
    a, findings = examine_one(first, ours, {}, 0, threads, phases.next())
    damaged = {finding.tensor for finding in findings if finding.rule == "damaged"}
    for name in damaged & differences.keys():
        differences[name] = dataclasses.replace(differences[name], compared=None)
    known = {
        stats.name: stats
        for stats in a.stats
        if stats.name in differences and has_same_values(differences[stats.name])
    }
    b, more = examine_one(second, theirs, known, 1, threads, phases.next())
    # Equal tensors have equal findings, except those that compare with their role.
    findings += [one for one in more if one.tensor not in known or one.rule == "layer"]
    places = {metadata.name: place for place, metadata in enumerate(b.objects)}
    pairs = [
        Pair(place, places.get(description.name), _kind(tensor_diff), tensor_diff)
        for place, description in enumerate(a.objects)
        for tensor_diff in (differences.get(description.name),)
    ]
    pairs += [
        Pair(None, place, "added")
        for place, metadata in enumerate(b.objects)
        if metadata.name not in ours_set
    ]
    pairs, moved = _moved(first, second, a, b, pairs)
    findings += [*moved, *_odd_changes(a, b, pairs)]

    def order(pair: Pair) -> tuple[Any, ...]:
        return natural_key(a.shown[pair.a] if pair.a is not None else b.shown[pair.b or 0])

    return Insight(
        (a, b),
        ranked(findings, nbytes_of((a, b))),
        tuple(sorted(pairs, key=order)),
        not_looked_at(is_sampled=False, has_other=True),
    )


def _kind(difference: TensorDiff | None) -> Kind:
    if difference is None:
        return "removed"
    if difference.values is None and not has_same_values(difference):
        return "not compared"
    return "changed" if difference.differences else "equal"


def _moved(
    first: ObjectReader, second: ObjectReader, a: ModelInsight, b: ModelInsight, pairs: list[Pair]
) -> tuple[list[Pair], list[Finding]]:
    """Find tensors of the first model that have another name in the second."""
    gone = {pair.a for pair in pairs if pair.kind in ("changed", "removed") and pair.a is not None}
    new = {pair.b for pair in pairs if pair.kind in ("changed", "added") and pair.b is not None}
    by_key: dict[tuple[Any, ...], int] = {}
    for place in sorted(new):
        key = content_key(b.stats[place])
        if key is not None:
            by_key.setdefault(key, place)
    candidates = {}
    for place in sorted(gone):
        key = content_key(a.stats[place])
        if key is not None and key in by_key:
            candidates[a.objects[place].name] = (place, by_key[key])
    named = [(name, b.objects[there].name) for name, (_, there) in candidates.items()]
    differences = {
        difference.name: difference
        for difference in diff_pairs(first, second, named)
        if has_same_values(difference)
    }
    kinds = {pair.a: pair.kind for pair in pairs}
    added = {pair.b for pair in pairs if pair.kind == "added"}
    renamed: dict[int, int] = {}
    findings = []
    for name in differences:
        here, there = candidates[name]
        if kinds[here] == "removed" and there in added and there not in renamed.values():
            renamed[here] = there
        else:
            text = f"its values are now under {b.shown[there]}"
            findings.append(Finding("moved", "warn", 0, name, 1, 0, text))
    kept = [
        Pair(pair.a, renamed[pair.a], "renamed", differences[a.objects[pair.a].name])
        if pair.a is not None and pair.a in renamed
        else pair
        for pair in pairs
        if not (pair.kind == "added" and pair.b in renamed.values())
    ]
    return kept, findings


def _odd_changes(a: ModelInsight, b: ModelInsight, pairs: Sequence[Pair]) -> list[Finding]:
    """Return findings on tensors that changed unlike others of their role."""
    numbers: dict[tuple[str, tuple[int, ...]], list[tuple[int, float | None, float | None]]] = {}
    for pair in pairs:
        if pair.kind != "changed" or pair.a is None or pair.found is None:
            continue
        role, values = a.roles[pair.a], pair.found.values
        if role is None or values is None or is_optimizer_state(a.shown[pair.a]):
            continue
        is_training = not {"type", "layout"} & set(pair.found.differences)
        relative = values.relative if is_training else None
        snr = None if is_training else values.snr_db
        numbers.setdefault(role[:2], []).append((pair.a, relative, snr))
    findings: list[Finding] = []
    for several in numbers.values():
        medians = (
            statistics.median([stats for _, stats, _ in several if stats is not None] or [0.0]),
            statistics.median(
                [tensor_stats for _, _, tensor_stats in several if tensor_stats is not None]
                or [0.0]
            ),
        )
        for place, relative, snr in several:
            name = a.objects[place].name
            findings += pair_findings(name, relative, snr, medians, len(several))
    return findings


class _Phases:
    """Joins the progress of several calls into one."""

    def __init__(self, progress: Progress | None, sizes: list[int]) -> None:
        self._progress, self._sizes = progress, sizes
        self._total, self._at = sum(sizes), 0

    def next(self) -> Callable[[int, int], None] | None:
        """Return the progress function of the next call."""
        begun, progress = sum(self._sizes[: self._at]), self._progress
        self._at += 1
        if progress is None:
            return None
        return lambda done, _: progress(begun + done, self._total)
