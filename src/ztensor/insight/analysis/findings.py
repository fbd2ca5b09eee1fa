"""Rules that find unusual tensors of a model, as data, and their findings.

Thresholds were chosen so that almost nothing is found in healthy checkpoints of many kinds:
`docs/guides/insight.md` has the table. The absence of findings does not prove that a model is good.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal

from ztensor.insight.analysis.channels import OUTLIER, Norms
from ztensor.insight.analysis.statistics import TensorStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


Level = Literal["error", "warn", "info"]
LEVELS: tuple[Level, ...] = ("error", "warn", "info")

_MANY = 4096  # elements from which on moments are reliable
_PEERS = 5  # least number of other tensors in a role for comparisons with its median
_WIDE = 256  # least number of channels on both axes for outlier channels
_TALL = 64  # least number of rows or columns for dead channels


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        title: a few words.
        level: the level of a finding that is not excused.
        threshold: the bound for the number of a finding.
        meaning: a sentence for the page of rules.
        is_exact: whether the rule needs every element, not a sample.
    """

    title: str
    level: Level
    threshold: float
    meaning: str
    is_exact: bool = True


RULES: dict[str, Rule] = {
    "damaged": Rule("Damaged", "error", 0, "Stored bytes do not match their digest or form."),
    "nan": Rule("NaN", "error", 0, "Some values are not a number."),
    "inf": Rule("Infinite values", "error", 0, "Some values are infinite."),
    "layer": Rule(
        "Layer out of line",
        "error",
        2,
        "log2 of the RMS over the median RMS of the role is beyond 2: four times or a quarter.",
        is_exact=False,
    ),
    "saturated": Rule(
        "Saturated", "warn", 0.001, "Too many values are the largest the type of 8 bits has."
    ),
    "lone-value": Rule("Lone value", "warn", 100, "The largest value is over 100 times the RMS."),
    "outlier-channel": Rule(
        "Outlier channels",
        "warn",
        OUTLIER,
        f"Few rows or columns are over {OUTLIER} times the median norm.",
    ),
    "dead-channel": Rule("Dead channels", "warn", 0, "Whole rows or columns are zero."),
    "all-zero": Rule("All zero", "warn", 0, "Every value is zero."),
    "constant": Rule("Constant", "warn", 0, "Every value is the same, and not zero."),
    "zeros": Rule("Mostly zeros", "info", 0.9, "More than 90 % of the values are zero."),
    "same-content": Rule("Same content", "info", 0, "Two tensors have the same values."),
    "moved": Rule("Moved", "warn", 0, "The content of a tensor is under another's name."),
    "change": Rule(
        "Change out of line",
        "warn",
        8,
        "The relative change is over 8 times the median of the role.",
        is_exact=False,
    ),
    "noisy": Rule(
        "Noisier than its kind",
        "warn",
        6,
        "The SNR is over 6 dB below the median of the role.",
        is_exact=False,
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule on a tensor.

    Attributes:
        rule: the id of the rule, a key of `RULES`.
        level: `error`, `warn` or `info`.
        model: 0 for the first model, 1 for the second.
        tensor: the tensor's name, in that model.
        value: the number.
        threshold: the bound of the rule.
        text: a sentence, without the name.
    """

    rule: str
    level: Level
    model: int
    tensor: str
    value: float
    threshold: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The input of the rules for one tensor.

    Attributes:
        stats: statistics of its values.
        is_float: whether its elements are floats: integers are not weights.
        is_buffer: whether its name is that of a constant.
        is_state: whether it belongs to an optimizer.
        log2_rms: log2 of its RMS over the median of its role, or None.
        peers: the number of tensors of its role, including itself.
        damage: the error of reading it, or None.
    """

    stats: TensorStats
    is_float: bool
    is_buffer: bool = False
    is_state: bool = False
    log2_rms: float | None = None
    peers: int = 0
    damage: str | None = None


def findings_of(subjects: Iterable[Subject], model: int = 0) -> Iterator[Finding]:
    """Yield the findings of the rules for single tensors."""
    for subject in subjects:
        for rule, level, value, text in _look(subject):
            name, threshold = subject.stats.name, RULES[rule].threshold
            yield Finding(rule, level or RULES[rule].level, model, name, value, threshold, text)


_Found = tuple[str, Level | None, float, str]


def _look(subject: Subject) -> Iterator[_Found]:
    if subject.damage is not None:
        yield "damaged", None, 1, subject.damage
        return
    if not subject.is_float or not subject.stats.count:
        return
    yield from _not_finite(subject)
    if subject.is_state or subject.stats.std is None:
        return
    if subject.stats.sampled is not None:  # a sample proves presence, not absence
        yield from _layer(subject)
        return
    if subject.stats.std == 0:
        if subject.stats.finite == subject.stats.count:
            yield from _one_value(subject)
        return
    for look in _LOOKS:
        yield from look(subject)


def _not_finite(subject: Subject) -> Iterator[_Found]:
    stats = subject.stats
    excuse: Level | None = "info" if stats.count == 1 else None
    if stats.nans:
        text = f"{stats.nans:,} of {stats.count:,} values are NaN"
        yield "nan", excuse, stats.nans, text
    if stats.infs:
        if stats.infs == stats.negative_infs and not stats.nans:
            excuse = "info"  # as in masks
        text = f"{stats.infs:,} of {stats.count:,} values are infinite"
        if stats.infs == stats.negative_infs:
            text += ", all below zero as in masks"
        yield "inf", excuse, stats.infs, text


def _one_value(subject: Subject) -> Iterator[_Found]:
    stats = subject.stats
    is_matrix = len(stats.shape) > 1
    if stats.mean == 0:
        is_odd = is_matrix and not subject.is_buffer
        yield "all-zero", None if is_odd else "info", stats.count, "every value is zero"
    elif stats.count > 1:
        is_odd = is_matrix and stats.count >= _TALL and not subject.is_buffer
        level: Level | None = None if is_odd else "info"
        yield "constant", level, stats.count, f"every value is {stats.mean:.6g}"


def _layer(subject: Subject) -> Iterator[_Found]:
    value = subject.log2_rms
    if value is None or abs(value) <= RULES["layer"].threshold or subject.peers <= _PEERS:
        return
    if len(subject.stats.shape) < 2 or subject.stats.count < _MANY:
        return
    times = 2.0 ** abs(value)
    text = f"RMS is {_times(times)} times" if value > 0 else f"RMS is 1/{_times(times)} of"
    yield "layer", None, value, f"{text} the median of its {subject.peers:,} peers"


def _lone_value(subject: Subject) -> Iterator[_Found]:
    crest = subject.stats.crest if subject.stats.count >= _MANY else None
    if crest is not None and crest > RULES["lone-value"].threshold:
        yield "lone-value", None, crest, f"the largest value is {_times(crest)} times the RMS"


def _outliers(subject: Subject) -> Iterator[_Found]:
    channels = subject.stats.channels
    if channels is None or min(channels.rows.count, channels.columns.count) < _WIDE:
        return
    for noun, norms in (("row", channels.rows), ("column", channels.columns)):
        if 0 < norms.outliers <= norms.count / 100:
            ratio = norms.max / norms.median
            text = f"{noun} {norms.argmax:,} is {_times(ratio)} times the median {noun}"
            if norms.outliers > 1:
                text += f", and {norms.outliers - 1:,} more over {OUTLIER} times"
            yield "outlier-channel", None, ratio, text


def _dead(subject: Subject) -> Iterator[_Found]:
    channels = subject.stats.channels
    if channels is None:
        return
    for noun, norms in (("row", channels.rows), ("column", channels.columns)):
        if norms.dead and norms.count >= _TALL:
            level: Level | None = "info" if subject.is_buffer else None
            yield "dead-channel", level, norms.dead, _dead_text(norms, noun)


def _dead_text(norms: Norms, noun: str) -> str:
    verb = f"{noun} is" if norms.dead == 1 else f"{noun}s are"
    return f"{norms.dead:,} of {norms.count:,} {verb} zero"


def _zeros(subject: Subject) -> Iterator[_Found]:
    share = subject.stats.zeros / subject.stats.count
    if share > RULES["zeros"].threshold and subject.stats.count >= _MANY:
        yield "zeros", None, share, f"{share:.1%} of the values are zero"


def _saturated(subject: Subject) -> Iterator[_Found]:
    stats = subject.stats
    share = stats.at_limit / stats.count
    rows = stats.count // stats.shape[-1] if stats.shape and stats.shape[-1] else 1
    # With a scale for each row, one saturated value per row is normal.
    if share > RULES["saturated"].threshold and stats.at_limit >= max(16, 2 * rows):
        text = f"{share:.2%} of the values have the largest magnitude of {stats.dtype}"
        yield "saturated", None, share, text


_LOOKS: tuple[Callable[[Subject], Iterator[_Found]], ...] = (
    _layer,
    _saturated,
    _lone_value,
    _outliers,
    _dead,
    _zeros,
)


def pair_findings(
    name: str,
    relative: float | None,
    snr_db: float | None,
    medians: tuple[float, float],
    peers: int,
) -> Iterator[Finding]:
    """Yield findings on a tensor that changed unlike others of its role.

    Args:
        name: its name in the first model.
        relative: its relative change; None if the types differ.
        snr_db: its signal to noise ratio; None if the types are equal.
        medians: the medians of both numbers in its role.
        peers: the number of tensors of the role.
    """
    if peers <= _PEERS:
        return
    if relative is not None and medians[0] > 0 and math.isfinite(relative):
        times, limit = relative / medians[0], RULES["change"].threshold
        if times > limit:
            much = f"{relative:.3g}, {_times(times)} times the median of its kind"
            text = f"the relative change is {much}"
            yield Finding("change", "warn", 1, name, times, limit, text)
    if snr_db is not None:
        below, limit = medians[1] - snr_db, RULES["noisy"].threshold
        if below > limit:
            text = f"SNR is {snr_db:.3g} dB, {below:.3g} dB below the median of its kind"
            yield Finding("noisy", "warn", 1, name, below, limit, text)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if 1000 <= ratio < 1e9 else f"{ratio:.3g}"


def ranked(findings: Iterable[Finding], nbytes: Callable[[Finding], int]) -> tuple[Finding, ...]:
    """Return findings sorted by level, then by the size of the tensor, descending."""

    def key(finding: Finding) -> tuple[int, int, int, str, str]:
        return (
            LEVELS.index(finding.level),
            -nbytes(finding),
            finding.model,
            finding.tensor,
            finding.rule,
        )

    return tuple(sorted(findings, key=key))


def not_looked_at(*, is_sampled: bool, has_other: bool) -> tuple[str, ...]:
    """Return the rules that cannot be applied to a sample, or without a second model."""
    of_two = {"moved", "change", "noisy"}
    return tuple(
        rule
        for rule, definition in RULES.items()
        if (is_sampled and definition.is_exact) or (rule in of_two and not has_other)
    )
