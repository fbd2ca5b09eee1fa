"""Stored bytes that several objects share: looked at once, and within a budget.

Objects may have the same bytes, as tied weights do, and parts of one another's. A check of all
objects would decode such bytes for each: a file of 28 kB, thousands of objects over one blob, kept
a machine busy for seconds. So what was found out about some bytes is found out once, and what has
to be done again all the same is counted (`Overlaps`). A copy has such bytes once (`SharedRuns`).
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

# Of what listing a file may cost: decoded bytes that are gone through again.
_TIMES_COST = 4


def _swept(flat: array.array[int]) -> tuple[list[_Pair], list[_Pair], list[_Pair]]:
    """Return what places have in common.

    Args:
        flat: offset and length of each, one after the other.

    Returns:
        Those that there are more than once; those that begin inside of another one before them;
        and where bytes begin and end that several of different places have.
    """
    places = np.frombuffer(flat, np.uint64).reshape(-1, 2)
    offsets, ends = places[:, 0], places.sum(axis=1)
    order = np.lexsort((~ends, offsets))  # of those that begin together the longest first
    places, offsets, reach = places[order], offsets[order], np.maximum.accumulate(ends[order])
    is_same = (places[1:] == places[:-1]).all(axis=1)
    is_apart = offsets[1:] >= reach[:-1]
    is_inside = ~is_apart & ~is_same
    first = np.flatnonzero(np.append(True, is_apart))  # of each run
    is_shared = np.logical_or.reduceat(np.append(False, is_inside), first)
    runs = np.stack((offsets[first], reach[np.append(first[1:], len(places)) - 1]), axis=1)
    found = places[1:][is_same], places[1:][is_inside], runs[is_shared]
    repeated, inside, shared = ([(a, b) for a, b in some.tolist()] for some in found)
    return repeated, inside, shared


class SharedRuns:
    """Runs of stored bytes that several blobs share in part: copied as a whole, and shared again.

    Only blobs that begin as ours do, at a multiple of 64, can keep their place in a run. Blobs that
    are equal need none of this, nor those beside which nothing is.

    Args:
        blobs: offset and length of each, in any order.
    """

    def __init__(self, blobs: Iterable[tuple[int, int]]) -> None:
        aligned = (blob for blob in blobs if blob[1] and not blob[0] % ALIGNMENT)
        flat = array.array("Q", itertools.chain.from_iterable(aligned))
        self._runs = _swept(flat)[2] if flat else []

    def around(self, offset: int, length: int) -> tuple[int, int] | None:
        """Return offset and length of the run a blob is in, or None where it is in none."""
        at = bisect.bisect_right(self._runs, offset, key=lambda run: run[0]) - 1
        start, stop = self._runs[at] if at >= 0 else (0, 0)
        return None if offset % ALIGNMENT or offset + length > stop else (start, stop - start)


@dataclasses.dataclass(slots=True, eq=False)
class _Outcome:
    """What was found out once, or what was raised then."""

    lock: Lock
    is_known: bool = False
    value: Any = None
    error: BaseException | None = None


class Overlaps:
    """What one call that goes through many objects knows of the bytes they share.

    Args:
        parts: all components it will go through, and their readers.

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
        # Of each place that is shared what was found out, by what it depends on.
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
        """Return what `work` gives, of what is asked for first under a key; raise what it raises.

        Args:
            file: the file of the component.
            component: what is gone through.
            key: everything the result depends on beside the place of the stored bytes.
            work: goes through it. It is given what counts bytes as they are gone through, which
                raises a `LimitError` (LIMIT_COST) where these are gone through too often.
        """
        place = file, component.offset, component.length
        known = self._found.get(place)
        if known is None:
            return work(_free)
        with self._lock:
            is_free = not known and place not in self._inside
            found = known.setdefault(key, _Outcome(Lock()))
        with found.lock:  # those that come later wait
            if not found.is_known:
                found.is_known = True
                try:
                    found.value = work(_free if is_free else lambda n: self._charge(file, n))
                except BaseException as error:  # noqa: BLE001  # raised below
                    found.error = error
        if found.error is not None:
            raise found.error.with_traceback(None)  # which would grow with each that asks
        return found.value  # type: ignore[no-any-return]  # what the same work gave

    def _charge(self, file: FileObjects, nbytes: int) -> None:
        limits, length = file.limits, file.nbytes
        most = _TIMES_COST * (limits.cost_floor + limits.cost_factor * length)
        with self._lock:
            left = self._left[file] = self._left.get(file, most) - nbytes
        if left < 0:
            error = LimitError(
                "objects have one another's bytes, and going through all of them would take "
                "far longer than a file of its length needs",
                reason=Reason.LIMIT_COST,
                expected=f"at most {most} bytes decoded again for {describe(length)} bytes",
                found="more",
            )
            error.in_python = (
                "if you trust the file, limits=ztensor.Limits(cost_floor=...) or (cost_factor=...) "
                "allows more"
            )
            raise error


def _free(nbytes: int) -> None:
    """Count nothing: it is the first time."""
