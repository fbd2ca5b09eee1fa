"""A model seen as a whole, or two beside each other: what is in it, and what is odd about it.

This puts together what statistics, comparison, roles and rules say. `document.py` writes it down.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from typing import TYPE_CHECKING, Any, Literal

from ztensor.analysis.comparing import TensorDiff, diff_pairs
from ztensor.analysis.findings import (
    RULES,
    Finding,
    Looked,
    findings_of,
    not_looked_at,
    pair_findings,
    ranked,
)
from ztensor.analysis.parameters import parameter_count
from ztensor.analysis.roles import Role, is_buffer, is_optimizer_state, natural_key, roles_of
from ztensor.analysis.statistics import Asked, TensorStats, survey
from ztensor.analysis.streaming import opened
from ztensor.boundary import public
from ztensor.errors import ArgumentValueError, describe, without_secrets
from ztensor.model.showing import counted, short_repr, shown_name, visible
from ztensor.notebook import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ztensor.errors import FormatError
    from ztensor.metadata import TensorMetadata
    from ztensor.reading.reader import ObjectReader
    from ztensor.typing import Progress, Readable

Kind = Literal["equal", "changed", "renamed", "added", "removed", "not compared", "not looked at"]

_LATER: Kind = "not looked at"
_FEW = 16  # elements below which equal values say nothing


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInsight:
    """One of the models, its tensors in natural order of their names.

    Attributes:
        name: the last part of its path, without what signs a URL.
        format: as `Reader.format`.
        version: as `Reader.version`.
        nbytes: of all its files.
        parameters: as `ztensor info` counts them.
        attributes: of the file.
        objects: its tensors.
        stats: of each of them.
        shown: the name of each as it may be shown.
        roles: the role of each, or None.
        log2_rms: log2 of the RMS of each over the median RMS of its role, or None.
    """

    name: str
    format: str
    version: str
    nbytes: int
    parameters: int
    attributes: Mapping[str, Any]
    objects: tuple[TensorMetadata, ...]
    stats: tuple[TensorStats, ...]
    shown: tuple[str, ...]
    roles: tuple[Role | None, ...]
    log2_rms: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A tensor of the first model and the one of the second that is compared with it.

    Attributes:
        a: its place in the first model, or None.
        b: its place in the second, or None.
        kind: what became of it.
        found: how they differ; None of one that only one model has.
    """

    a: int | None
    b: int | None
    kind: Kind
    found: TensorDiff | None = None

    @property
    def relative(self) -> float | None:
        """Return `||b - a|| / ||a||`; 0.0 of equal ones, None where nothing was compared."""
        if self.kind in ("equal", "renamed"):
            return 0.0
        values = None if self.found is None else self.found.values
        return None if values is None else values.relative


@public
@dataclasses.dataclass(frozen=True, slots=True)
class Insight(Shown):
    """What `examine` saw.

    Attributes:
        models: one, or two.
        findings: what is odd, the worst first.
        pairs: of two models their tensors beside each other, in natural order of names.
        not_looked_at: rules that could not be tried.
        sample: the share of the rows of large tensors that was looked at; None where none is large
            enough, or everything was looked at.
    """

    models: tuple[ModelInsight, ...]
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    sample: float | None = None

    def __repr__(self) -> str:
        """Return how many tensors there are, and how many findings of each level."""
        facts = [counted(len(model.objects), "tensor") for model in self.models]
        for level in ("error", "warn", "info"):
            count = sum(one.level == level for one in self.findings)
            facts += [f"{count} {level}"] if count else []
        return short_repr("Insight", facts, ".findings, .as_json()")

    def as_json(self) -> dict[str, Any]:
        """Return the document `ztensor-insight/1`, as `json.dumps(..., allow_nan=False)` takes it.

        `docs/insight.md` says what each part of it means.
        """
        from ztensor.analysis.document import document_of

        return document_of(self)


@public
def examine(
    source: Readable,
    other: Readable | None = None,
    names: str | Iterable[str] | None = None,
    *,
    sample: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Insight:
    """Look at all tensors of a model, and find what is odd about them.

    Everything is read once, and of a second model what its digests do not prove to be equal. A
    tensor whose bytes are damaged is a finding, and the others are looked at all the same.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        other: a second model, whose tensors are compared with those of the same name.
        names: the tensors, by their names in either model; all by default.
        sample: look only at this share of the rows, above 0 and below 1, of dense tensors that are
            stored raw and have 2^20 elements or more: some of each of 32 parts, chosen by the
            name. Digests of these are not checked, and rules that a sample cannot tell are in
            `not_looked_at`; a NaN that it has is found. Not with a second model.
        threads: how many to use, each for a tensor; as many as there are cores, four at most, by
            default.
        progress: called with the bytes that were read so far and those to read.

    Raises:
        ObjectNotFoundError: a name is in none of the models.
        ArgumentValueError: an argument cannot work.
        FormatError: the manifest of a file is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    if sample is not None:
        _require_sample(sample, has_other=other is not None)
    with opened(source) as first:
        if other is None:
            chosen = _chosen(first, names)
            model, findings = _seen(first, chosen, {}, 0, threads, progress, sample)
            is_sampled = any(one.sampled is not None for one in model.stats)
            return Insight(
                (model,),
                ranked(findings, _nbytes_of((model,))),
                not_looked_at=not_looked_at(is_sampled=is_sampled, has_other=False),
                sample=sample if is_sampled else None,
            )
        with opened(other) as second:
            return _two(first, second, names, threads, progress)


def outline(first: ObjectReader, second: ObjectReader | None = None) -> Insight:
    """Return what is known of one model or two before any value is read; nothing is found yet.

    Raises:
        FormatError: the manifest of a file is damaged.
        SourceError: it could not be read.
    """
    readers = [first] if second is None else [first, second]
    models = [_outlined(reader) for reader in readers]
    pairs = []
    if second is not None:
        places = [{one.name: at for at, one in enumerate(model.objects)} for model in models]
        for name in sorted(places[0].keys() | places[1].keys(), key=_name_key):
            a, b = (place.get(name) for place in places)
            pairs.append(Pair(a, b, "added" if a is None else "removed" if b is None else _LATER))
    return Insight(tuple(models), (), tuple(pairs), tuple(RULES))


def _name_key(name: str) -> tuple[object, ...]:
    return natural_key(shown_name(name)), name


def _outlined(reader: ObjectReader) -> ModelInsight:
    objects = tuple(reader.metadata(sorted(reader, key=_name_key)))
    shown = tuple(shown_name(one.name) for one in objects)
    roles = roles_of(shown, [tuple(one.shape) for one in objects])
    stats = (
        TensorStats(one.name, one.shape, one.dtype, count=math.prod(one.shape)) for one in objects
    )
    none = (None,) * len(objects)
    return _model(reader, objects, tuple(stats), shown, tuple(roles), none)


def compared(
    first: ObjectReader,
    second: ObjectReader,
    pair: Pair,
    names: tuple[str, str],
    progress: Progress | None = None,
) -> Pair:
    """Return a pair of `outline` with how its tensors differ.

    Args:
        first: the first model.
        second: the second.
        pair: the places of both.
        names: of both tensors.
        progress: as `diff` takes it.

    Raises:
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    (found,) = diff_pairs(first, second, [names], threads=1, progress=progress)
    return dataclasses.replace(pair, kind=_kind(found), found=found)


def _require_sample(sample: float, *, has_other: bool) -> None:
    if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not 0 < sample < 1:
        raise ArgumentValueError(
            "a sample is a share of the rows", expected="above 0, below 1", found=describe(sample)
        )
    if has_other:
        raise ArgumentValueError("two models are compared as a whole: a sample is of one alone")


def _chosen(
    reader: ObjectReader, names: str | Iterable[str] | None, other: ObjectReader | None = None
) -> list[str]:
    """Return the names in one reader; those that neither has are an error."""
    if names is None:
        return list(reader)
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in reader and (other is None or name not in other):
            reader.metadata(name)  # which raises
    return [name for name in dict.fromkeys(wanted) if name in reader]


def _seen(
    reader: ObjectReader,
    names: list[str],
    known: Mapping[str, TensorStats],
    number: int,
    threads: int | None,
    progress: Progress | None,
    sample: float | None = None,
) -> tuple[ModelInsight, list[Finding]]:
    """Look at one model.

    Args:
        reader: an open file.
        names: its tensors.
        known: statistics that need not be made again.
        number: 0 of the first model, 1 of the second.
        threads: as `stats` takes it.
        progress: likewise.
        sample: as `examine` takes it.
    """
    damage: dict[str, FormatError] = {}
    left = [name for name in names if name not in known]
    asked = Asked(tiles=_tiles(len(left)), sample=sample)
    metadata, found = survey(reader, left, asked, damage.__setitem__, threads, progress)
    metadata |= {name: reader.metadata(name) for name in names if name not in metadata}
    found |= known
    ordered = sorted(names, key=_name_key)
    objects = tuple(metadata[name] for name in ordered)
    looked_at = tuple(found[name] for name in ordered)
    shown = tuple(map(shown_name, ordered))
    roles = tuple(roles_of(shown, [tuple(one.shape) for one in objects]))
    log2_rms, peers = _beside_peers(roles, looked_at)
    model = _model(reader, objects, looked_at, shown, roles, tuple(log2_rms))
    looked = [
        _looked(one, label, damage.get(one.name), log2, count)
        for one, label, log2, count in zip(looked_at, shown, log2_rms, peers, strict=True)
    ]
    return model, [*findings_of(looked, number), *_same_content(reader, looked, number)]


def looked_alone(one: TensorStats, damage: FormatError | None = None) -> Looked:
    """Return what rules know of a tensor that was looked at without the others of its role.

    Args:
        one: its statistics.
        damage: why it could not be read, or None.
    """
    return _looked(one, shown_name(one.name), damage, None, 0)


def _looked(
    one: TensorStats, label: str, damage: FormatError | None, log2: float | None, peers: int
) -> Looked:
    return Looked(
        one,
        one.dtype is not None and is_float_name(one.dtype),
        is_buffer(label),
        is_optimizer_state(label),
        log2,
        peers,
        None if damage is None else damage.message,
    )


def _model(
    reader: ObjectReader,
    objects: tuple[TensorMetadata, ...],
    looked_at: tuple[TensorStats, ...],
    shown: tuple[str, ...],
    roles: tuple[Role | None, ...],
    log2_rms: tuple[float | None, ...],
) -> ModelInsight:
    return ModelInsight(
        _title(reader),
        reader.format,
        reader.version,
        reader.nbytes,
        parameter_count(reader, objects),
        reader.attributes,
        objects,
        looked_at,
        shown,
        roles,
        log2_rms,
    )


def is_float_name(dtype: str) -> bool:
    """Return whether a type of this long name is one of real or complex floats."""
    return "float" in dtype or "complex" in dtype


def _tiles(count: int) -> tuple[int, int]:
    """Return into how many tiles matrices are cut: fewer of many, as all are held in memory."""
    return (32, 64) if count <= 2_000 else (16, 32) if count <= 10_000 else (8, 16)


def _title(reader: ObjectReader) -> str:
    path = without_secrets(reader.name)
    return visible(os.path.basename(path.rstrip("/\\")) or path)[-200:]


def _beside_peers(
    roles: Sequence[Role | None], looked_at: Sequence[TensorStats]
) -> tuple[list[float | None], list[int]]:
    """Return log2 of each RMS over the median of its role, and how many tensors the role has."""
    groups: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    scales = [_scale(one) for one in looked_at]
    for role, scale in zip(roles, scales, strict=True):
        if role is not None and scale is not None:
            groups.setdefault(role[:2], []).append(scale)
    medians = {key: statistics.median(several) for key, several in groups.items()}
    log2_rms: list[float | None] = []
    peers = []
    for role, scale in zip(roles, scales, strict=True):
        median = 0.0 if role is None else medians.get(role[:2], 0.0)
        peers.append(0 if role is None else len(groups.get(role[:2], ())))
        ratio = scale / median if median and scale is not None else 0.0
        log2_rms.append(math.log2(ratio) if 0 < ratio < math.inf else None)
    return log2_rms, peers


def _scale(one: TensorStats) -> float | None:
    """Return the RMS of floats that have one."""
    return one.rms if one.dtype is not None and is_float_name(one.dtype) else None


# --- Equal content --------------------------------------------------------------------------


def _content_key(one: TensorStats) -> tuple[Any, ...] | None:
    """Return what tensors of one content have in common; None where it would say nothing."""
    if one.finite < _FEW or not one.std or one.sampled is not None:
        return None
    return (one.shape, one.dtype, one.count, one.zeros, one.min, one.max, one.mean, one.std)


def _same_content(reader: ObjectReader, looked: Sequence[Looked], number: int) -> list[Finding]:
    """Return which tensors of one model have the same values as one before them."""
    by_key: dict[tuple[Any, ...], str] = {}
    pairs = []
    for one in looked:
        key = _content_key(one.stats)
        if key is not None and one.damage is None and not one.is_state:
            first = by_key.setdefault(key, one.stats.name)
            if first != one.stats.name:
                pairs.append((one.stats.name, first))
    return [
        Finding(
            "same-content",
            "info",
            number,
            found.name,
            1,
            0,
            f"it has the same values as {shown_name(found.other_name)}",
        )
        for found in diff_pairs(reader, reader, pairs)
        if _is_same(found)
    ]


def _is_same(found: TensorDiff) -> bool:
    return found.compared in ("digest", "bytes") and "values" not in found.differences


# --- Two models -----------------------------------------------------------------------------


def _two(
    first: ObjectReader,
    second: ObjectReader,
    names: str | Iterable[str] | None,
    threads: int | None,
    progress: Progress | None,
) -> Insight:
    wanted = None if names is None else [names] if isinstance(names, str) else list(names)
    ours, theirs = _chosen(first, wanted, second), _chosen(second, wanted, first)
    ours_set, common = set(ours), [name for name in theirs if name in set(ours)]
    phases = _Phases(
        progress,
        [
            sum(first.metadata(name).nbytes for name in common),
            sum(first.metadata(name).nbytes for name in ours),
            sum(second.metadata(name).nbytes for name in theirs),
        ],
    )
    named = [(name, name) for name in common]
    compared = diff_pairs(first, second, named, threads=threads, progress=phases.next())
    differences = {found.name: found for found in compared}
    a, findings = _seen(first, ours, {}, 0, threads, phases.next())
    damaged = {one.tensor for one in findings if one.rule == "damaged"}
    for name in damaged & differences.keys():
        differences[name] = dataclasses.replace(differences[name], compared=None)
    known = {
        one.name: one
        for one in a.stats
        if one.name in differences and _is_same(differences[one.name])
    }
    b, more = _seen(second, theirs, known, 1, threads, phases.next())
    # What is equal has equal findings, but for those that others of its role make.
    findings += [one for one in more if one.tensor not in known or one.rule == "layer"]
    places = {one.name: place for place, one in enumerate(b.objects)}
    pairs = [
        Pair(place, places.get(one.name), _kind(found), found)
        for place, one in enumerate(a.objects)
        for found in (differences.get(one.name),)
    ]
    pairs += [
        Pair(None, place, "added")
        for place, one in enumerate(b.objects)
        if one.name not in ours_set
    ]
    pairs, moved = _moved(first, second, a, b, pairs)
    findings += [*moved, *_odd_changes(a, b, pairs)]

    def order(pair: Pair) -> tuple[Any, ...]:
        return natural_key(a.shown[pair.a] if pair.a is not None else b.shown[pair.b or 0])

    return Insight(
        (a, b),
        ranked(findings, _nbytes_of((a, b))),
        tuple(sorted(pairs, key=order)),
        not_looked_at(is_sampled=False, has_other=True),
    )


def _kind(found: TensorDiff | None) -> Kind:
    if found is None:
        return "removed"
    if found.values is None and not _is_same(found):
        return "not compared"
    return "changed" if found.differences else "equal"


def _moved(
    first: ObjectReader, second: ObjectReader, a: ModelInsight, b: ModelInsight, pairs: list[Pair]
) -> tuple[list[Pair], list[Finding]]:
    """Find content of the first model that has another name in the second."""
    gone = {pair.a for pair in pairs if pair.kind in ("changed", "removed") and pair.a is not None}
    new = {pair.b for pair in pairs if pair.kind in ("changed", "added") and pair.b is not None}
    by_key: dict[tuple[Any, ...], int] = {}
    for place in sorted(new):
        key = _content_key(b.stats[place])
        if key is not None:
            by_key.setdefault(key, place)
    candidates = {}
    for place in sorted(gone):
        key = _content_key(a.stats[place])
        if key is not None and key in by_key:
            candidates[a.objects[place].name] = (place, by_key[key])
    named = [(name, b.objects[there].name) for name, (_, there) in candidates.items()]
    found = {one.name: one for one in diff_pairs(first, second, named) if _is_same(one)}
    kinds = {pair.a: pair.kind for pair in pairs}
    added = {pair.b for pair in pairs if pair.kind == "added"}
    renamed: dict[int, int] = {}
    findings = []
    for name in found:
        here, there = candidates[name]
        if kinds[here] == "removed" and there in added and there not in renamed.values():
            renamed[here] = there
        else:
            text = f"its values are now under {b.shown[there]}"
            findings.append(Finding("moved", "warn", 0, name, 1, 0, text))
    kept = [
        Pair(pair.a, renamed[pair.a], "renamed", found[a.objects[pair.a].name])
        if pair.a is not None and pair.a in renamed
        else pair
        for pair in pairs
        if not (pair.kind == "added" and pair.b in renamed.values())
    ]
    return kept, findings


def _odd_changes(a: ModelInsight, b: ModelInsight, pairs: Sequence[Pair]) -> list[Finding]:
    """Return which tensors changed unlike others of their role."""
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
            statistics.median([one for _, one, _ in several if one is not None] or [0.0]),
            statistics.median([one for _, _, one in several if one is not None] or [0.0]),
        )
        for place, relative, snr in several:
            name = a.objects[place].name
            findings += pair_findings(name, relative, snr, medians, len(several))
    return findings


class _Phases:
    """Joins the progress of several calls to one."""

    def __init__(self, progress: Progress | None, sizes: list[int]) -> None:
        self._progress, self._sizes = progress, sizes
        self._total, self._at = sum(sizes), 0

    def next(self) -> Callable[[int, int], None] | None:
        """Return what the next call reports to."""
        begun, progress = sum(self._sizes[: self._at]), self._progress
        self._at += 1
        if progress is None:
            return None
        return lambda done, _: progress(begun + done, self._total)


def _nbytes_of(models: Sequence[ModelInsight]) -> Callable[[Finding], int]:
    sizes = [{one.name: one.stored_nbytes for one in model.objects} for model in models]
    return lambda finding: sizes[finding.model].get(finding.tensor, 0)
