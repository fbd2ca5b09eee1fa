"""Samples to figures: medians, minima, and ratios of measurements made in the same round.

The ratio of two medians mixes moments at which the machine was in different states. Two peers
measured one after the other shared theirs: the ratio is taken there, and the median of the ratios
is what is reported.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        workload: what was stored.
        operation: what was done with it.
        peer: by whom.
        round: which pass; the same operation of the same round was measured in turn.
        wall: seconds that passed.
        cpu: seconds of all its threads.
        peak: bytes by which resident memory grew at its highest.
    """

    workload: str
    operation: str
    peer: str
    round: int
    wall: float
    cpu: float
    peak: int


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """What one peer took for one operation.

    Attributes:
        count: measurements.
        least: seconds of the fastest.
        median: seconds of the one in the middle.
        cpu: CPU seconds of the one in the middle.
        peak: bytes, the median growth of resident memory.
    """

    count: int
    least: float
    median: float
    cpu: float
    peak: float


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """One peer's time as a multiple of another's.

    Attributes:
        count: rounds in which both were measured.
        median: of their ratios.
        low: their first quartile; the least where there are fewer than four.
        high: their third quartile; the greatest where there are fewer than four.
    """

    count: int
    median: float
    low: float
    high: float


class Samples:
    """All measurements of a run.

    Args:
        samples: the measurements, in any order.
    """

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._by_place: dict[tuple[str, str, str], dict[int, Sample]] = {}
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Take one more; a second one of the same round replaces the first."""
        place = (sample.workload, sample.operation, sample.peer)
        self._by_place.setdefault(place, {})[sample.round] = sample

    def __iter__(self) -> Any:
        """Iterate over all samples."""
        for rounds in self._by_place.values():
            yield from rounds.values()

    def figures(self, workload: str, operation: str, peer: str) -> Figures | None:
        """Return what a peer took, or None where it was not measured."""
        samples = list(self._by_place.get((workload, operation, peer), {}).values())
        if not samples:
            return None
        return Figures(
            len(samples),
            min(sample.wall for sample in samples),
            statistics.median(sample.wall for sample in samples),
            statistics.median(sample.cpu for sample in samples),
            statistics.median(sample.peak for sample in samples),
        )

    def ratio(self, workload: str, operation: str, peer: str, against: str) -> Ratio | None:
        """Return `peer`'s wall time over `against`'s, or None where no round has both."""
        return self.ratio_of((workload, operation, peer), (workload, operation, against))

    def ratio_of(self, of: tuple[str, str, str], to: tuple[str, str, str]) -> Ratio | None:
        """Return the ratio of two (workload, operation, peer) over the rounds that have both."""
        return paired_ratio(self._walls(of), self._walls(to))

    def above(self, workload: str, operation: str, base: str, peer: str) -> float | None:
        """Return the median of the seconds that an operation takes more than another.

        Args:
            workload: what was stored.
            operation: what was done with it.
            base: what is taken off, measured in the same round.
            peer: by whom; None is returned where no round has both.
        """
        of, off = (self._walls((workload, name, peer)) for name in (operation, base))
        found = [wall - off[key] for key, wall in of.items() if key in off]
        return statistics.median(found) if found else None

    def _walls(self, place: tuple[str, str, str]) -> dict[int, float]:
        return {one.round: one.wall for one in self._by_place.get(place, {}).values()}


def paired_ratio(of: Mapping[int, float], to: Mapping[int, float]) -> Ratio | None:
    """Return the median of `of[round] / to[round]` over the rounds both have; None without any."""
    ratios = sorted(value / to[key] for key, value in of.items() if to.get(key, 0) > 0)
    if not ratios:
        return None
    low, high = ratios[0], ratios[-1]
    if len(ratios) >= 4:
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(len(ratios), statistics.median(ratios), low, high)


def three_digits(value: float) -> str:
    """Return a number with about three significant digits and no exponent."""
    if value < 0:
        return "-" + three_digits(-value)
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.0995 or value == 0 else f"{value:.2g}"
