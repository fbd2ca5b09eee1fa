"""Looking at a model, or at two beside each other: from what is open to an `Insight`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import ObjectReader
from ztensor.insight.analysis.beside import compared_models
from ztensor.insight.analysis.document import LATER, Insight, Pair
from ztensor.insight.analysis.findings import RULES, not_looked_at, ranked
from ztensor.insight.analysis.insight import chosen_names, name_key, nbytes_of, outlined, seen
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
            chosen = chosen_names(first, names)
            model, findings = seen(first, chosen, {}, 0, threads, progress, sample)
            is_sampled = any(one.sampled is not None for one in model.stats)
            return Insight(
                (model,),
                ranked(findings, nbytes_of((model,))),
                not_looked_at=not_looked_at(is_sampled=is_sampled, has_other=False),
                sample=sample if is_sampled else None,
            )
        with opened(other) as second:
            return compared_models(first, second, names, threads, progress)


def outline(first: ObjectReader, second: ObjectReader | None = None) -> Insight:
    """Return what is known of one model or two before any value is read; nothing is found yet.

    Raises:
        FormatError: the manifest of a file is damaged.
        SourceError: it could not be read.
    """
    readers = [first] if second is None else [first, second]
    models = [outlined(reader) for reader in readers]
    pairs = []
    if second is not None:
        places = [{one.name: at for at, one in enumerate(model.objects)} for model in models]
        for name in sorted(places[0].keys() | places[1].keys(), key=name_key):
            a, b = (place.get(name) for place in places)
            pairs.append(Pair(a, b, "added" if a is None else "removed" if b is None else LATER))
    return Insight(tuple(models), (), tuple(pairs), tuple(RULES))


def _require_sample(sample: float, *, has_other: bool) -> None:
    if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not 0 < sample < 1:
        raise ArgumentValueError(
            "a sample is a share of the rows", expected="above 0, below 1", found=describe(sample)
        )
    if has_other:
        raise ArgumentValueError("two models are compared as a whole: a sample is of one alone")
