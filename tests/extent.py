"""How much of the long tables of tests a run goes through: a sample, or everything.

`make test` takes a sample of each long table. It has cases of every kind that the table has (each
format, each attack, each fault), drawn with a fixed seed: it is the same in each run and process.
`ZTENSOR_TESTS=full` takes whole tables, and more examples from Hypothesis. The suites `attacks`,
`remote` and `distributed` (`make suite`) set it. Nothing else reads the variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

T = TypeVar("T")

IS_FULL = os.environ.get("ZTENSOR_TESTS") == "full"


def sample(cases: Iterable[T], most: int, kind: Callable[[T], object] = lambda _: "") -> list[T]:
    """Return the cases that this run takes of a table, in its order.

    Args:
        cases: the whole table.
        most: how many of each kind the short form takes.
        kind: what kind a case is; by default all are of one. Its text draws the sample.
    """
    everything = list(cases)
    if IS_FULL:
        return everything
    kinds: dict[str, list[int]] = {}
    for place, case in enumerate(everything):
        kinds.setdefault(str(kind(case)), []).append(place)
    taken = {
        place
        for name, places in kinds.items()
        for place in Random(name).sample(places, min(most, len(places)))
    }
    return [case for place, case in enumerate(everything) if place in taken]


def amount(short: int, *, full: int) -> int:
    """Return how many cases of an endless table this run takes, or how large one is."""
    return full if IS_FULL else short


def examples(full: int) -> int:
    """Return how many examples Hypothesis tries: a tenth, but 20 at least, or all."""
    return amount(max(20, full // 10), full=full)
