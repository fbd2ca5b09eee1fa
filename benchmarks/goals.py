"""What is aimed at, and whether a run reached it.

Most goals are a ratio to a peer, lower is better, on two cores. Loads are judged with every digest
checked, which no peer does; saves without digests, as the peers save, and what crc32c adds is a
goal of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from benchmarks.environments import EVERYONE
from benchmarks.foreign import PAIRS
from benchmarks.operations import OPERATIONS
from benchmarks.ratios import Ratio, Samples, three_digits
from benchmarks.workloads import FOREIGN

CHECKED, UNCHECKED = "ours", "ours-unchecked"
OLD, ST = "ztensor-1", "safetensors"
TORCH, ST_TORCH = "ours-torch", "safetensors-torch"  # measured with --torch
MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One goal and what was measured.

    Attributes:
        title: what is done.
        workload: on what.
        against: the peer's name, or the unit of an absolute goal.
        goal: the most it may be.
        measured: what it was; None where the run did not measure it.
        detail: the spread, or why nothing was measured.
        without: the same ratio with digests off, where that is not what is judged.
    """

    title: str
    workload: str
    against: str
    goal: float
    measured: float | None
    detail: str
    without: float | None = None

    @property
    def outcome(self) -> str:
        """Return `met`, `missed`, or `-` where nothing was measured."""
        if self.measured is None:
            return "-"
        return "met" if self.measured <= self.goal else "missed"


@dataclasses.dataclass(frozen=True, slots=True)
class RatioGoal:
    """Our time over a peer's.

    Attributes:
        title: what is done.
        operation: its name.
        workloads: on what.
        bounds: peer to the largest ratio that is a success.
        row: which of our rows is judged.
        beside: what the other does, where that is another operation.
    """

    title: str
    operation: str
    workloads: tuple[str, ...]
    bounds: dict[str, float]
    row: str = CHECKED
    beside: str = ""

    def judge(self, samples: Samples) -> Iterable[Verdict]:
        """Yield one verdict per workload and peer."""
        for workload in self.workloads:
            for against, bound in self.bounds.items():
                to = workload, self.beside or self.operation, against
                found = samples.ratio_of((workload, self.operation, self.row), to)
                without = None
                if self.row == CHECKED:
                    other = samples.ratio_of((workload, self.operation, UNCHECKED), to)
                    without = None if other is None else other.median
                yield Verdict(
                    self.title, workload, against, bound,
                    None if found is None else found.median, _spread(found), without,
                )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class AddedGoal:
    """By how much digests raise the ratio of a save to a peer's.

    Attributes:
        title: what is done.
        workloads: on what.
        against: the peer.
        bound: the most the ratio may rise.
    """

    title: str
    workloads: tuple[str, ...]
    against: str
    bound: float

    def judge(self, samples: Samples) -> Iterable[Verdict]:
        """Yield one verdict per workload."""
        for workload in self.workloads:
            pair = [
                samples.ratio(workload, "save", row, self.against) for row in (CHECKED, UNCHECKED)
            ]
            on, off = pair
            measured = None if on is None or off is None else on.median - off.median
            detail = "not measured"
            if on is not None and off is not None:
                detail = f"{on.median:.2f} with, {off.median:.2f} without"
            yield Verdict(self.title, workload, self.against, self.bound, measured, detail)


@dataclasses.dataclass(frozen=True, slots=True)
class FigureGoal:
    """A figure of ours alone.

    Attributes:
        title: what is measured.
        operation: its name.
        workloads: on what.
        bound: the most it may be.
        unit: `ms`, `MB`, or `x data`.
        row: which of our rows is judged.
    """

    title: str
    operation: str
    workloads: tuple[str, ...]
    bound: float
    unit: str
    row: str = CHECKED

    def judge(self, samples: Samples, nbytes: Mapping[str, int]) -> Iterable[Verdict]:
        """Yield one verdict per workload; `nbytes` has the size of each one's tensors."""
        scale: dict[str, Callable[[str], float]] = {
            "ms": lambda _: 1e-3,
            "MB": lambda _: 1e6,
            "x data": lambda workload: nbytes.get(workload, 0) or 1,
        }
        for workload in self.workloads:
            measured: dict[str, float] = {}
            for row in (self.row, UNCHECKED):
                found = samples.figures(workload, self.operation, row)
                if found is not None:
                    value = found.median if self.unit == "ms" else found.peak
                    measured[row] = value / scale[self.unit](workload)
            count = samples.figures(workload, self.operation, self.row)
            detail = "not measured" if count is None else f"{count.count} rounds"
            without = measured.get(UNCHECKED) if self.row == CHECKED else None
            yield Verdict(
                self.title, workload, self.unit, self.bound, measured.get(self.row), detail, without
            )


Goal = RatioGoal | AddedGoal | FigureGoal


def _spread(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not measured"
    return f"{three_digits(ratio.low)} to {three_digits(ratio.high)}, {ratio.count} rounds"


_FEW = ("large", "mixed")
_ZSTD = ("zstd-random", "zstd-pruned", "zstd-ternary", "zstd-int4")

GOALS = (
    RatioGoal("open, list the names", "keys", ("many",), {OLD: 0.6, ST: 0.65}),
    RatioGoal("open, list the names", "keys", ("names-36",), {ST: 2.5}),
    RatioGoal("the same of a file that is new", "keys-new", ("names-36",), {ST: 2.5}),
    RatioGoal("open, list the names", "keys", ("names-144",), {ST: 1.5}),
    RatioGoal("the same of a file that is new", "keys-new", ("names-144",), {ST: 1.5}),
    RatioGoal("open, list the names", "keys", ("names-288",), {ST: 1.3}),
    RatioGoal("the same of a file that is new", "keys-new", ("names-288",), {ST: 1.3}),
    RatioGoal("one tensor after another", "each", ("singles",), {ST: 0.7}),
    RatioGoal("one after another, into own memory", "each-owned", ("singles",), {ST: 1.3}),
    RatioGoal("rows of one after another", "each-slice", ("singles",), {ST: 1.3}),
    RatioGoal("what one after another is", "each-described", ("singles",), {OLD: 2.0}),
    RatioGoal("load mapped", "mapped", ("many",), {OLD: 0.3, ST: 0.3}),
    RatioGoal("load mapped", "mapped", _FEW, {OLD: 1.5, ST: 0.01}),
    FigureGoal("load mapped", "mapped", _FEW, 1.0, "ms"),
    RatioGoal("load mapped, sum every byte", "touched", ("small",), {OLD: 0.5, ST: 0.3}),
    RatioGoal("load into own memory", "owned", _FEW, {OLD: 0.55, ST: 0.55}),
    RatioGoal("load into own memory", "owned", ("small", "many"), {OLD: 0.3, ST: 0.4}),
    RatioGoal("save, no digest", "save", _FEW, {OLD: 1.0, ST: 1.0}, UNCHECKED),
    RatioGoal("save, no digest", "save", ("small",), {OLD: 0.55, ST: 0.65}, UNCHECKED),
    RatioGoal("save, no digest", "save", ("many",), {OLD: 0.35, ST: 0.4}, UNCHECKED),
    AddedGoal("what crc32c adds to a save", (*_FEW, "small", "many"), OLD, 0.1),
    RatioGoal("zstd load", "zstd-load", _ZSTD, {OLD: 0.3}),
    RatioGoal("zstd load", "zstd-load", ("zstd-many",), {OLD: 0.35}),
    RatioGoal("zstd load", "zstd-load", ("zstd-small",), {OLD: 0.4}),
    RatioGoal("zstd save", "zstd-save", _ZSTD, {OLD: 0.75}),
    RatioGoal("save with sha256", "save-sha256", _FEW, {OLD: 0.65}),
    FigureGoal("open a small file, new interpreter", "first", ("tiny",), 0.5, "ms"),
    RatioGoal("cold: load mapped, sum every byte", "touched-cold", ("mixed",), {OLD: 1.0}),
    RatioGoal(
        "cold: load mapped, beside plain reads",
        "touched-cold",
        ("mixed",),
        {CHECKED: 1.1},
        beside="cat-cold",
    ),
    RatioGoal(
        "cold: load into own memory, beside plain reads",
        "owned-cold",
        ("mixed",),
        {CHECKED: 1.1},
        beside="cat-cold",
    ),
    FigureGoal("memory of an owned load", "owned", (*_FEW, "small"), 1.05, "x data"),
    FigureGoal("memory of opening", "keys", ("moe",), 100.0, "MB"),
    RatioGoal("torch: one tensor after another", "each", ("singles",), {ST_TORCH: 0.35}, TORCH),
    RatioGoal("torch: load mapped", "mapped", ("many",), {ST_TORCH: 0.5}, TORCH),
    FigureGoal("torch: load mapped", "mapped", ("llama",), 5.0, "ms", TORCH),
    RatioGoal("torch: save", "save", ("mixed", "many"), {CHECKED: 1.1}, TORCH),
)


def _foreign_goals() -> Iterable[RatioGoal | FigureGoal]:
    """Yield what is aimed at for files of other libraries: to be as fast as they are, or faster."""
    for pair in PAIRS:
        for ours in pair.ours:
            what = f"{pair.title(ours)}: "
            for name in pair.workloads:
                for operation in FOREIGN[name].operations:
                    if operation == "start" and EVERYONE[pair.library].is_large:
                        continue  # PyTorch's import is most of it
                    bound = pair.bounds.get(operation, 1.0)
                    title = what + OPERATIONS[operation].title
                    yield RatioGoal(title, operation, (name,), {pair.library: bound}, ours)
            if pair.is_mapped and "llama" in pair.workloads:
                yield FigureGoal(f"{what}load mapped", "mapped", ("llama",), 10.0, "ms", ours)


FOREIGN_GOALS = tuple(_foreign_goals())


def judge(
    samples: Samples, nbytes: Mapping[str, int], goals: Iterable[Goal] = GOALS
) -> list[Verdict]:
    """Return a verdict on every goal, in the order of the table."""
    verdicts: list[Verdict] = []
    for goal in goals:
        if isinstance(goal, FigureGoal):
            verdicts += goal.judge(samples, nbytes)
        else:
            verdicts += goal.judge(samples)
    return verdicts
