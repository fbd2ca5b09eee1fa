"""What is aimed at, and whether a run reached it.

The goals are budgets, not races: what a user waits for, and how long that may take on a quiet
machine of two cores. Some are a ratio to a peer, in one interleaved run; lower is better. Loads are
judged with every digest checked and saves with digests written, which no peer does. Rows that need
a server, a copy of a file or torch are in `beside.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from benchmarks.environments import EVERYONE
from benchmarks.foreign import PAIRS
from benchmarks.operations import AGAIN, OPERATIONS
from benchmarks.ratios import Ratio, Samples, three_digits
from benchmarks.workloads import FOREIGN

CHECKED, UNCHECKED, EARLIER = "ours", "ours-unchecked", "ours-before"
OLD, ST = "ztensor-1", "safetensors"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One goal and what was measured.

    Attributes:
        title: what is done.
        workload: on what.
        against: the peer's name, or the unit of an absolute goal.
        goal: the most it may be; None where there is no budget.
        measured: what it was; None where the run did not measure it.
        detail: the spread, or why nothing was measured.
        without: the same ratio with digests off, where that is not what is judged.
        before: the same of another checkout, where one was measured in the same run.
    """

    title: str
    workload: str
    against: str
    goal: float | None
    measured: float | None
    detail: str
    without: float | None = None
    before: float | None = None

    @property
    def outcome(self) -> str:
        """Return `met`, `missed`, or `-` where nothing was measured or there is no budget."""
        if self.measured is None or self.goal is None:
            return "-"
        return "met" if self.measured <= self.goal else "missed"


@dataclasses.dataclass(frozen=True, slots=True)
class RatioGoal:
    """Our time over a peer's.

    Attributes:
        title: what is done.
        operation: its name.
        workloads: on what.
        bounds: peer to the largest ratio that is a success, or None.
        row: which of our rows is judged.
    """

    title: str
    operation: str
    workloads: tuple[str, ...]
    bounds: Mapping[str, float | None]
    row: str = CHECKED

    def judge(self, samples: Samples) -> Iterable[Verdict]:
        """Yield one verdict per workload and peer."""
        for workload in self.workloads:
            for against, bound in self.bounds.items():
                to = workload, self.operation, against
                medians: dict[str, float] = {}
                for row in (self.row, UNCHECKED, EARLIER):
                    ratio = samples.ratio_of((workload, self.operation, row), to)
                    if ratio is not None:
                        medians[row] = ratio.median
                found = samples.ratio_of((workload, self.operation, self.row), to)
                yield Verdict(
                    self.title, workload, against, bound, medians.get(self.row), _spread(found),
                    *_others(self.row, medians),
                )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class AboveGoal:
    """By how many milliseconds a whole process of ours takes longer than `import numpy`.

    Attributes:
        title: what is done.
        operation: its name.
        workloads: on what.
        bound: the most it may be, in milliseconds.
    """

    title: str
    operation: str
    workloads: tuple[str, ...]
    bound: float

    def judge(self, samples: Samples) -> Iterable[Verdict]:
        """Yield one verdict per workload; what the others take is its detail."""
        for workload in self.workloads:
            found = {
                peer: samples.above(workload, self.operation, "process-numpy", peer)
                for peer in (CHECKED, EARLIER, ST, OLD)
            }
            milliseconds = {
                peer: seconds * 1e3 for peer, seconds in found.items() if seconds is not None
            }
            measured, before = milliseconds.pop(CHECKED, None), milliseconds.pop(EARLIER, None)
            others = [f"{peer} {three_digits(value)} ms" for peer, value in milliseconds.items()]
            detail = "not measured" if measured is None else ", ".join(others)
            yield Verdict(
                self.title, workload, "ms above import numpy", self.bound, measured, detail,
                before=before,
            )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class FigureGoal:
    """A figure of ours alone.

    Attributes:
        title: what is measured.
        operation: its name.
        workloads: on what.
        bound: the most it may be.
        unit: `ms`, `us`, `MB`, or `x data`.
        row: which of our rows is judged.
        per: how many times that was done: a time is divided by it.
    """

    title: str
    operation: str
    workloads: tuple[str, ...]
    bound: float
    unit: str
    row: str = CHECKED
    per: int = 1

    def judge(self, samples: Samples, nbytes: Mapping[str, int]) -> Iterable[Verdict]:
        """Yield one verdict per workload; `nbytes` has the size of each one's tensors."""
        scale: dict[str, Callable[[str], float]] = {
            "ms": lambda _: 1e-3 * self.per,
            "us": lambda _: 1e-6 * self.per,
            "MB": lambda _: 1e6,
            "x data": lambda workload: nbytes.get(workload, 0) or 1,
        }
        for workload in self.workloads:
            measured: dict[str, float] = {}
            for row in (self.row, UNCHECKED, EARLIER):
                found = samples.figures(workload, self.operation, row)
                if found is not None:
                    value = found.median if self.unit in ("ms", "us") else found.peak
                    measured[row] = value / scale[self.unit](workload)
            count = samples.figures(workload, self.operation, self.row)
            detail = "not measured" if count is None else f"{count.count} rounds"
            yield Verdict(
                self.title, workload, self.unit, self.bound, measured.get(self.row), detail,
                *_others(self.row, measured),
            )  # fmt: skip


Goal = RatioGoal | AboveGoal | FigureGoal


def _others(row: str, medians: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Return what was measured without digests and of another checkout, of our main row."""
    return (medians.get(UNCHECKED), medians.get(EARLIER)) if row == CHECKED else (None, None)


def _spread(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not measured"
    return f"{three_digits(ratio.low)} to {three_digits(ratio.high)}, {ratio.count} rounds"


_FEW = ("large", "mixed")
_FEW_NAMES = ("names-20", "names-147", "names-300")
_ZSTD = ("zstd-random", "zstd-pruned", "zstd-ternary", "zstd-mixed", "zstd-int4")

# The budgets of what a user waits for. A ratio with None is printed, and has no budget.
GOALS = (
    AboveGoal("new process: open, read one", "process-one", ("names-147",), 28.0),
    AboveGoal("new process: load_file", "process-load", ("names-147",), 28.0),
    AboveGoal("new process: ztensor ls", "process-ls", ("names-147",), 45.0),
    AboveGoal("new process: ztensor verify", "process-verify", ("names-147",), 45.0),
    FigureGoal("open a new file, list the names", "keys-new", _FEW_NAMES, 0.5, "ms"),
    FigureGoal("open a new file, list the names", "keys-new", ("names-1000",), 1.0, "ms"),
    RatioGoal("open a new file, list the names", "keys-new", ("many",), {OLD: 0.5, ST: None}),
    RatioGoal("open it again", "keys", ("names-147", "many"), {OLD: None, ST: None}),
    RatioGoal("one tensor again and again", "again", ("singles",), {ST: 1.0, OLD: None}),
    FigureGoal("one tensor again and again", "again", ("singles",), 2.0, "us", per=AGAIN),
    FigureGoal("each tensor for the first time", "each", ("singles",), 15.0, "us", per=5000),
    FigureGoal("load mapped, a new file", "mapped-new", ("tensors-10000",), 30.0, "ms"),
    RatioGoal("load into own memory", "owned", ("small",), {ST: 0.6, OLD: None}),
    RatioGoal("load into own memory", "owned", ("many",), {ST: 1.0, OLD: None}),
    RatioGoal("load into own memory", "owned", _FEW, {ST: 0.5, OLD: 1.3}),
    RatioGoal("save with crc32c, theirs without", "save", _FEW, {ST: 1.0, OLD: 1.0}),
    RatioGoal("save with crc32c, theirs without", "save", ("small", "many"), {ST: 1.2, OLD: 1.2}),
    RatioGoal("zstd load", "zstd-load", _ZSTD, {OLD: 0.4}),
    RatioGoal("zstd load", "zstd-load", ("zstd-small",), {OLD: 1.5}),
    RatioGoal("zstd load", "zstd-load", ("zstd-many",), {OLD: 4.0}),
    RatioGoal("rows of one tensor after another", "each-slice", ("singles",), {ST: 1.3}),
    RatioGoal("1 % of each tensor", "slice", ("large",), {ST: 1.3}),
    FigureGoal("memory of an owned load", "owned", (*_FEW, "small"), 1.05, "x data"),
    FigureGoal("memory of opening", "keys", ("moe",), 100.0, "MB"),
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
