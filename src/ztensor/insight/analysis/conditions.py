"""Conditions of `--fail-on`: rules, levels, comparisons."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, describe
from ztensor.insight.analysis.document import Insight, ModelInsight, Pair
from ztensor.insight.analysis.findings import LEVELS, RULES, not_looked_at
from ztensor.insight.text import shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_COMPARISON = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*")

# Numbers of a tensor, and of a pair of tensors.
METRICS = ("nans", "infs", "zeros", "min", "max", "mean", "std", "rms", "crest", "kurtosis")
PAIR_METRICS = ("relative", "cosine", "snr_db", "max_abs", "changed")
ROLE_METRIC = "log2_rms"


@dataclasses.dataclass(frozen=True, slots=True)
class Met:
    """A condition that a tensor meets.

    Attributes:
        condition: the condition as given.
        tensor: the tensor's escaped name.
        text: the reason.
    """

    condition: str
    tensor: str
    text: str


def require_conditions(text: str, *, has_other: bool) -> list[Callable[[Insight], Iterator[Met]]]:
    """Return a test function for each condition.

    Args:
        text: conditions separated by commas: rules, for findings that are not excused; `error` or
            `warn` for findings of that level or worse; comparisons of a number of a tensor, such as
            `crest>500`.
        has_other: whether two models are compared.

    Raises:
        ArgumentValueError: a condition is unknown, or needs a second model.
    """
    return [_test_of(part.strip(), has_other=has_other) for part in text.split(",")]


def _test_of(part: str, *, has_other: bool) -> Callable[[Insight], Iterator[Met]]:
    if (match := _COMPARISON.fullmatch(part)) is not None:
        return _comparison(part, *match.groups(), has_other=has_other)
    if part in RULES:
        if part in not_looked_at(is_sampled=False, has_other=has_other):
            raise ArgumentValueError("this rule needs a second model", found=describe(part))
        return lambda insight: _findings(part, insight, lambda rule, _: rule == part)
    if part in LEVELS[:-1]:
        worst = LEVELS[: LEVELS.index(part) + 1]
        return lambda insight: _findings(part, insight, lambda _, level: level in worst)
    raise ArgumentValueError(
        "unknown condition",
        expected=f"{', '.join((*LEVELS[:-1], *RULES))}, or a comparison such as crest>500",
        found=describe(part),
    )


def _findings(part: str, insight: Insight, is_wanted: Callable[[str, str], bool]) -> Iterator[Met]:
    for finding in insight.findings:
        is_excused = LEVELS.index(finding.level) > LEVELS.index(RULES[finding.rule].level)
        if is_wanted(finding.rule, finding.level) and not is_excused:
            yield Met(part, shown_name(finding.tensor), finding.text)


def _comparison(
    part: str, metric: str, sign: str, number: str, *, has_other: bool
) -> Callable[[Insight], Iterator[Met]]:
    every = (*METRICS, ROLE_METRIC, *PAIR_METRICS)
    if metric not in every:
        raise ArgumentValueError(
            "unknown number of a tensor", expected=", ".join(every), found=describe(metric)
        )
    if metric in PAIR_METRICS and not has_other:
        raise ArgumentValueError("this number needs a second model", found=describe(metric))
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if math.isnan(limit):
        raise ArgumentValueError("a comparison needs a finite number", found=describe(number))
    compare = _OPERATORS[sign]

    def test(insight: Insight) -> Iterator[Met]:
        for name, value in _values(metric, insight):
            if value is not None and compare(value, limit):
                yield Met(part, name, f"{metric} is {value:.6g}")

    return test


def _values(metric: str, insight: Insight) -> Iterator[tuple[str, float | None]]:
    """Yield the escaped name and a number of each tensor."""
    if metric in PAIR_METRICS:
        first = insight.models[0]
        for pair in insight.pairs:
            if pair.a is not None:
                yield first.shown[pair.a], _of_pair(pair, metric)
        return
    model: ModelInsight = insight.models[-1]
    several: Any = model.log2_rms
    if metric != ROLE_METRIC:
        several = (getattr(stats, metric) for stats in model.stats)
    yield from zip(model.shown, several, strict=True)


def _of_pair(pair: Pair, metric: str) -> float | None:
    if metric == "relative":
        return pair.relative
    values = None if pair.found is None else pair.found.values
    return None if values is None else getattr(values, metric)
