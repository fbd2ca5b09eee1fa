"""Rules for the steps of a run: a step is kept if any rule keeps it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.options import require_choice
from ztensor.training.checkpoints.step import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Mode = Literal["min", "max"]


class Best(NamedTuple):
    """Keeps the best steps by a metric.

    Attributes:
        metric: its name.
        most: number of steps.
        mode: "min" if less is better, else "max".
    """

    metric: str
    most: int
    mode: Mode


class Rules(NamedTuple):
    """The rules of a run; a step is kept if any rule keeps it.

    Attributes:
        keep: number of newest steps, or None for all.
        best: rules for the best steps.
        every: keeps multiples of this, or None.
    """

    keep: int | None
    best: tuple[Best, ...]
    every: int | None

    def kept(self, steps: Sequence[Checkpoint]) -> set[int]:
        """Return the steps that are pinned or kept by a rule.

        Args:
            steps: the steps that open; damaged ones must not count.
        """
        order = sorted(one.step for one in steps)
        kept = set(order if self.keep is None else order[-self.keep :])
        for rule in self.best:
            kept.update(ranked(steps, rule.metric, rule.mode)[: rule.most])
        if self.every is not None:
            kept.update(step for step in order if step % self.every == 0)
        return kept | {one.step for one in steps if one.is_pinned}


def ranked(steps: Iterable[Checkpoint], metric: str, mode: Mode) -> list[int]:
    """Return the steps that have a metric, the best first, and of two equal ones the later.

    Steps with NaN are left out.
    """
    sign = 1 if mode == "min" else -1
    scores = [
        (sign * one.metrics[metric], -one.step)
        for one in steps
        if metric in one.metrics and not math.isnan(one.metrics[metric])
    ]
    return [-step for _, step in sorted(scores)]


def rules_of(keep: Any, best: Any, every: Any) -> Rules:
    """Return the rules that a caller gave.

    Raises:
        ArgumentTypeError: an argument has a wrong type.
        ArgumentValueError: a number is not positive, or a mode unknown.
    """
    given = [best] if isinstance(best, tuple) and best and isinstance(best[0], str) else best
    if not isinstance(given, (list, tuple, type(None))):
        raise _wrong_best(best)
    return Rules(
        None if keep is None else positive(keep, "keep"),
        tuple(_best_of(one) for one in given or ()),
        None if every is None else positive(every, "keep_every"),
    )


def _best_of(given: Any) -> Best:
    if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], str):
        raise _wrong_best(given)
    return Best(given[0], positive(given[1], "keep_best"), mode_of(given[2]))


def _wrong_best(given: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        "keep_best must be a metric, a number of steps, and a mode",
        expected="('loss', 2, 'min'), or a list of such",
        found=describe(given, 60),
    )


def mode_of(given: Any) -> Mode:
    """Return a mode.

    Raises:
        ArgumentValueError: it is unknown.
    """
    require_choice("mode", given, ("min", "max"))
    return given  # type: ignore[no-any-return]


def positive(given: Any, name: str) -> int:
    """Return a count.

    Args:
        given: the argument.
        name: its name.

    Raises:
        ArgumentTypeError: it is not an integer.
        ArgumentValueError: it is less than 1.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise ArgumentTypeError(f"{name} must be a number of steps", found=describe(given, 40))
    if given < 1:
        raise ArgumentValueError(
            f"{name} must be a number of steps", expected="1 or more", found=describe(given)
        )
    return given
