"""The insight into one model: statistics, roles and findings of its tensors.

`document.py` converts it to JSON.
"""

from __future__ import annotations

import math
import os
import statistics
from typing import TYPE_CHECKING, Any

from ztensor import TensorMetadata
from ztensor.errors import FormatError, without_secrets
from ztensor.ext import ObjectReader
from ztensor.insight.analysis.comparing import diff_pairs
from ztensor.insight.analysis.document import ModelInsight
from ztensor.insight.analysis.findings import Finding, Subject, findings_of
from ztensor.insight.analysis.pairs import has_same_values
from ztensor.insight.analysis.parameters import is_float_name, parameter_count
from ztensor.insight.analysis.roles import (
    Role,
    is_buffer,
    is_optimizer_state,
    natural_key,
    roles_of,
)
from ztensor.insight.analysis.states import PlainValues, parameter_names, plain_values_of
from ztensor.insight.analysis.statistics import StatsOptions, TensorStats, survey
from ztensor.insight.text import shown_name, visible
from ztensor.typing import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


_FEW = 16  # elements below which equal values are not reported


def name_key(name: str) -> tuple[object, ...]:
    """Return a sort key for the natural order of names."""
    return natural_key(shown_name(name)), name


def outlined(reader: ObjectReader) -> ModelInsight:
    """Return the outline of a model, without values."""
    objects = tuple(reader.metadata(sorted(reader, key=name_key)))
    shown = tuple(shown_name(description.name) for description in objects)
    plain_values = plain_values_of(reader)
    roles = _roles(plain_values, shown, objects)
    stats = (
        TensorStats(metadata.name, metadata.shape, metadata.dtype, count=math.prod(metadata.shape))
        for metadata in objects
    )
    none = (None,) * len(objects)
    return _model(reader, plain_values, objects, tuple(stats), shown, tuple(roles), none)


def chosen_names(
    reader: ObjectReader, names: str | Iterable[str] | None, other: ObjectReader | None = None
) -> list[str]:
    """Return the given names that a reader has; a name in neither reader raises."""
    if names is None:
        return list(reader)
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in reader and (other is None or name not in other):
            reader.metadata(name)  # which raises
    return [name for name in dict.fromkeys(wanted) if name in reader]


def examine_one(
    reader: ObjectReader,
    names: list[str],
    known: Mapping[str, TensorStats],
    number: int,
    threads: int | None,
    progress: Progress | None,
    sample: float | None = None,
) -> tuple[ModelInsight, list[Finding]]:
    """Examine one model.

    Args:
        reader: an open file.
        names: its tensors.
        known: statistics that are already computed, by name.
        number: 0 for the first model, 1 for the second.
        threads: see `stats`.
        progress: likewise.
        sample: see `examine`.
    """
    damage: dict[str, FormatError] = {}
    left = [name for name in names if name not in known]
    options = StatsOptions(tiles=_tiles(len(left)), sample=sample)
    metadata, found = survey(reader, left, options, damage.__setitem__, threads, progress)
    metadata |= {name: reader.metadata(name) for name in names if name not in metadata}
    found |= known
    ordered = sorted(names, key=name_key)
    objects = tuple(metadata[name] for name in ordered)
    looked_at = tuple(found[name] for name in ordered)
    shown = tuple(map(shown_name, ordered))
    plain_values = plain_values_of(reader)
    roles = tuple(_roles(plain_values, shown, objects))
    log2_rms, peers = _beside_peers(roles, looked_at)
    model = _model(reader, plain_values, objects, looked_at, shown, roles, tuple(log2_rms))
    subjects = [
        _subject(stats, label, damage.get(stats.name), log2, count)
        for stats, label, log2, count in zip(looked_at, shown, log2_rms, peers, strict=True)
    ]
    return model, [*findings_of(subjects, number), *_same_content(reader, subjects, number)]


def subject_of(stats: TensorStats, damage: FormatError | None = None) -> Subject:
    """Return the input of the rules for a tensor without others of its role.

    Args:
        stats: its statistics.
        damage: the error of reading it, or None.
    """
    return _subject(stats, shown_name(stats.name), damage, None, 0)


def _subject(
    stats: TensorStats, label: str, damage: FormatError | None, log2: float | None, peers: int
) -> Subject:
    return Subject(
        stats,
        stats.dtype is not None and is_float_name(stats.dtype),
        is_buffer(label),
        is_optimizer_state(label),
        log2,
        peers,
        None if damage is None else damage.message,
    )


def _roles(
    plain_values: PlainValues, shown: Sequence[str], objects: Sequence[TensorMetadata]
) -> list[Role | None]:
    """Return the roles; an optimizer's states get the names of parameters."""
    parameters = parameter_names(
        plain_values, {description.name: description for description in objects}
    )
    labels = [
        shown_name(parameters[metadata.name]) if metadata.name in parameters else label
        for metadata, label in zip(objects, shown, strict=True)
    ]
    return roles_of(labels, [tuple(metadata.shape) for metadata in objects])


def _model(
    reader: ObjectReader,
    plain_values: PlainValues,
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
        plain_values.shown(),
        objects,
        looked_at,
        shown,
        roles,
        log2_rms,
    )


def _tiles(count: int) -> tuple[int, int]:
    """Return the grid of tiles of a matrix: fewer for many matrices, to bound memory."""
    return (32, 64) if count <= 2_000 else (16, 32) if count <= 10_000 else (8, 16)


def _title(reader: ObjectReader) -> str:
    path = without_secrets(reader.name)
    return visible(os.path.basename(path.rstrip("/\\")) or path)[-200:]


def _beside_peers(
    roles: Sequence[Role | None], looked_at: Sequence[TensorStats]
) -> tuple[list[float | None], list[int]]:
    """Return log2 of each RMS over the median of its role, and the size of the role."""
    groups: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    scales = [_scale(stats) for stats in looked_at]
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


def _scale(stats: TensorStats) -> float | None:
    """Return the RMS of a float tensor, or None."""
    return stats.rms if stats.dtype is not None and is_float_name(stats.dtype) else None


# --- Equal content --------------------------------------------------------------------------


def content_key(stats: TensorStats) -> tuple[Any, ...] | None:
    """Return a key that tensors of equal content share; None if too few elements."""
    if stats.finite < _FEW or not stats.std or stats.sampled is not None:
        return None
    return (
        stats.shape,
        stats.dtype,
        stats.count,
        stats.zeros,
        stats.min,
        stats.max,
        stats.mean,
        stats.std,
    )


def _same_content(reader: ObjectReader, subjects: Sequence[Subject], number: int) -> list[Finding]:
    """Return findings on tensors that have the same values as an earlier tensor."""
    by_key: dict[tuple[Any, ...], str] = {}
    pairs = []
    for subject in subjects:
        key = content_key(subject.stats)
        if key is not None and subject.damage is None and not subject.is_state:
            first = by_key.setdefault(key, subject.stats.name)
            if first != subject.stats.name:
                pairs.append((subject.stats.name, first))
    if not pairs:
        return []
    return [
        Finding(
            "same-content",
            "info",
            number,
            difference.name,
            1,
            0,
            f"it has the same values as {shown_name(difference.other_name)}",
        )
        for difference in diff_pairs(reader, reader, pairs)
        if has_same_values(difference)
    ]


def nbytes_of(models: Sequence[ModelInsight]) -> Callable[[Finding], int]:
    """Return a function from findings to the stored size of their tensor."""
    sizes = [
        {metadata.name: metadata.stored_nbytes for metadata in model.objects} for model in models
    ]
    return lambda finding: sizes[finding.model].get(finding.tensor, 0)
