"""Work on stored bytes that several objects share once, and within a budget.

Objects may share all bytes, as tied weights do, or overlap in part. Decoding them per object is an
attack: a file of 28 kB with thousands of objects over one blob kept a machine busy for seconds.
`Overlaps` keeps the result of the first walk and charges a budget for every further one.
`SharedRuns` lets a copy write shared bytes once.
"""

from __future__ import annotations

import array
import bisect
import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.io.reading.file import FileObjects
from ztensor.locks import Lock
from ztensor.spec.model.manifest import ALIGNMENT, Component

_T = TypeVar("_T")
_Pair = tuple[int, int]
_Place = tuple[FileObjects, int, int]
Charge = Callable[[int], None]

# Bytes that may be decoded again, as a multiple of the budget for listing a file.
_TIMES_COST = 4


def _swept(flat: array.array[int]) -> tuple[list[_Pair], list[_Pair], list[_Pair]]:
    """Return how extents overlap.

    Args:
        flat: offset and length of each extent, alternating.

    Returns:
        Extents that occur more than once; extents that begin inside an earlier, different one; and
        the (start, stop) of the runs that overlapping extents cover.
    """
    places = np.frombuffer(flat, np.uint64).reshape(-1, 2)
    offsets, ends = places[:, 0], places.sum(axis=1)
    order = np.lexsort((~ends, offsets))  # by offset, the longest first
    places, offsets, reach = places[order], offsets[order], np.maximum.accumulate(ends[order])
    is_same = (places[1:] == places[:-1]).all(axis=1)
    is_apart = offsets[1:] >= reach[:-1]
    is_inside = ~is_apart & ~is_same
    first = np.flatnonzero(np.append(True, is_apart))  # of each run
    is_shared = np.logical_or.reduceat(np.append(False, is_inside), first)
    runs = np.stack((offsets[first], reach[np.append(first[1:], len(places)) - 1]), axis=1)
    results = places[1:][is_same], places[1:][is_inside], runs[is_shared]
    repeated, inside, shared = ([(a, b) for a, b in pairs.tolist()] for pairs in results)
    return repeated, inside, shared


class SharedRuns:
    """Runs of stored bytes that blobs overlap in part; a copy writes each run once.

    Only blobs at multiples of 64 can keep their position in a run. Equal blobs and isolated blobs
    are in no run.

    Args:
        blobs: (offset, length) of each, in any order.
    """

    def __init__(self, blobs: Iterable[tuple[int, int]]) -> None:
        aligned = (blob for blob in blobs if blob[1] and not blob[0] % ALIGNMENT)
        flat = array.array("Q", itertools.chain.from_iterable(aligned))
        self._runs = _swept(flat)[2] if flat else []

    def around(self, offset: int, length: int) -> tuple[int, int] | None:
        """Return (offset, length) of the run that contains a blob, or None."""
        at = bisect.bisect_right(self._runs, offset, key=lambda run: run[0]) - 1
        start, stop = self._runs[at] if at >= 0 else (0, 0)
        return None if offset % ALIGNMENT or offset + length > stop else (start, stop - start)


@dataclasses.dataclass(slots=True, eq=False)
class _Outcome:
    """The result of the first walk over some bytes, or the error it raised."""

    lock: Lock
    is_known: bool = False
    value: Any = None
    error: BaseException | None = None


class Overlaps:
    """The shared bytes of many objects, and the results of one pass over them.

    Args:
        parts: (file, component) of every component that will be visited.

    Attributes:
        are_any: whether any bytes are shared.
    """

    runs = SharedRuns

    def __init__(self, parts: Iterable[tuple[FileObjects, Component]]) -> None:
        by_file: dict[FileObjects, array.array[int]] = {}
        for file, component in parts:
            if component.length and file.format == "zt" and file.is_common(component.encoding):
                place = component.offset, component.length
                by_file.setdefault(file, array.array("Q")).extend(place)
        self._inside: set[_Place] = set()
        # Shared extents to the outcomes of their walks, by key.
        self._found: dict[_Place, dict[Hashable, _Outcome]] = {}
        for file, flat in by_file.items():
            repeated, inside, _ = _swept(flat)
            self._inside.update((file, *place) for place in inside)
            self._found.update({(file, *place): {} for place in repeated})
        self._found.update({place: {} for place in self._inside})
        self.are_any = bool(self._found)
        self._left: dict[FileObjects, int] = {}
        self._lock = Lock()

    def once(
        self, file: FileObjects, component: Component, key: Hashable, work: Callable[[Charge], _T]
    ) -> _T:
        """Return the result of `work`, which runs once per key; later calls share it or its error.

        Args:
            file: the file of the component.
            component: the component.
            key: everything that the result depends on besides the extent of the stored bytes.
            work: visits the component. Its argument is called with the number of bytes visited and
                raises `LimitError` (LIMIT_COST) once shared bytes exceed the budget.
        """
        place = file, component.offset, component.length
        known = self._found.get(place)
        if known is None:
            return work(_free)
        with self._lock:
            is_free = not known and place not in self._inside
            outcome = known.setdefault(key, _Outcome(Lock()))
        with outcome.lock:  # other threads wait for the result
            if not outcome.is_known:
                outcome.is_known = True
                try:
                    outcome.value = work(_free if is_free else lambda n: self._charge(file, n))
                except BaseException as error:  # noqa: BLE001  # raised below
                    outcome.error = error
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)  # a traceback would grow with each raise
        return outcome.value  # type: ignore[no-any-return]  # equal keys give one type

    def _charge(self, file: FileObjects, nbytes: int) -> None:
        limits, length = file.limits, file.nbytes
        most = _TIMES_COST * (limits.cost_floor + limits.cost_factor * length)
        with self._lock:
            left = self._left[file] = self._left.get(file, most) - nbytes
        if left < 0:
            error = LimitError(
                "overlapping objects would be decoded too often",
                reason=Reason.LIMIT_COST,
                expected=f"at most {most} bytes decoded again in a file of {describe(length)}",
                found="more",
            )
            error.in_python = (
                "if you trust the file, limits=ztensor.Limits(cost_floor=...) or (cost_factor=...) "
                "allows more"
            )
            raise error


def _free(nbytes: int) -> None:
    """Charge nothing: the first visit is free."""
