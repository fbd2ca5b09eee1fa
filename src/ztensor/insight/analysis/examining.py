"""Examine one model or two: from open files to an `Insight`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import ObjectReader
from ztensor.insight.analysis.beside import compared_models
from ztensor.insight.analysis.document import LATER, Insight, Pair
from ztensor.insight.analysis.findings import RULES, not_looked_at, ranked
from ztensor.insight.analysis.insight import (
    chosen_names,
    examine_one,
    name_key,
    nbytes_of,
    outlined,
)
from ztensor.insight.analysis.streaming import opened
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable


def examine(
    source: Readable,
    other: Readable | None = None,
    names: str | Iterable[str] | None = None,
    *,
    sample: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Insight:
    """Examine all tensors of a model, or of two, and list unusual ones as findings.

    Everything is read once; tensors of a second model with equal digests are not read. A tensor
    with damaged bytes is a finding, and the others are still examined.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        other: a second model, whose tensors are compared with tensors of the same name.
        names: the tensors, by their names in either model; all by default.
        sample: read only this share of the rows, above 0 and below 1, of dense tensors that are
            stored raw and have 2^20 elements or more: some of each of 32 parts, chosen by the name.
            Their digests are not checked, and rules that need all rows are in `not_looked_at`; a
            NaN in the sample is found. It cannot be combined with a second model.
        threads: the number of threads, each for a tensor; by default the number of cores, at most
            four.
        progress: called with the bytes read so far and the bytes to read.

    Raises:
        ObjectNotFoundError: a name is in neither model.
        ArgumentValueError: an argument is invalid.
        FormatError: the manifest of a file is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    if sample is not None:
        _require_sample(sample, has_other=other is not None)
    with opened(source) as first:
        if other is None:
            chosen = chosen_names(first, names)
            model, findings = examine_one(first, chosen, {}, 0, threads, progress, sample)
            is_sampled = any(stats.sampled is not None for stats in model.stats)
            return Insight(
                (model,),
                ranked(findings, nbytes_of((model,))),
                not_looked_at=not_looked_at(is_sampled=is_sampled, has_other=False),
                sample=sample if is_sampled else None,
            )
        with opened(other) as second:
            return compared_models(first, second, names, threads, progress)


def outline(first: ObjectReader, second: ObjectReader | None = None) -> Insight:
    """Return the insight into one model or two before any value is read, without findings.

    Raises:
        FormatError: the manifest of a file is damaged.
        SourceError: the file could not be read.
    """
    readers = [first] if second is None else [first, second]
    models = [outlined(reader) for reader in readers]
    pairs = []
    if second is not None:
        places = [
            {metadata.name: at for at, metadata in enumerate(model.objects)} for model in models
        ]
        for name in sorted(places[0].keys() | places[1].keys(), key=name_key):
            a, b = (place.get(name) for place in places)
            pairs.append(Pair(a, b, "added" if a is None else "removed" if b is None else LATER))
    return Insight(tuple(models), (), tuple(pairs), tuple(RULES))


def _require_sample(sample: float, *, has_other: bool) -> None:
    if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not 0 < sample < 1:
        raise ArgumentValueError(
            "sample must be a share of the rows",
            expected="above 0, below 1",
            found=describe(sample),
        )
    if has_other:
        raise ArgumentValueError("a sample needs one model; two models are compared in full")
