"""Stored bytes that several objects share: looked at once, and within a budget.

Objects may have the same bytes, as tied weights do, and parts of one another's. A check of all
objects would decode such bytes for each: a file of 28 kB, thousands of objects over one blob, kept
a machine busy for seconds. So what was found out about some bytes is found out once, and what has
to be done again all the same is counted (`Overlaps`). A copy has such bytes once (`SharedRuns`).
"""

from __future__ import annotations

import array
import bisect
import concurrent.futures
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.io.reading.file import FileObjects
from ztensor.locks import Lock
from ztensor.spec.model.manifest import ALIGNMENT, Component

if TYPE_CHECKING:
    Place = tuple[FileObjects, int, int]

_T = TypeVar("_T")

# Of what listing a file may cost: decoded bytes that are gone through again.
_TIMES_COST = 4


class _Swept(NamedTuple):
    """What some places, offsets and lengths, have in common.

    Attributes:
        repeated: those that there are more than once.
        inside: those that begin inside of another one before them.
        runs: where bytes begin and end that several of different places have.
    """

    repeated: list[list[int]]
    inside: list[list[int]]
    runs: list[tuple[int, int]]


def _swept(flat: array.array[int]) -> _Swept:
    """Return what places have in common: offset and length of each, one after the other."""
    places = np.frombuffer(flat, np.uint64).reshape(-1, 2)
    offsets, ends = places[:, 0], places.sum(axis=1)
    order = np.lexsort((~ends, offsets))  # of those that begin together the longest first
    places, offsets, reach = places[order], offsets[order], np.maximum.accumulate(ends[order])
    is_same = (places[1:] == places[:-1]).all(axis=1)
    is_apart = offsets[1:] >= reach[:-1]
    is_inside = ~is_apart & ~is_same
    borders = [0, *(np.flatnonzero(is_apart) + 1).tolist(), len(places)]
    runs = [
        (int(offsets[first]), int(reach[stop - 1]))
        for first, stop in itertools.pairwise(borders)
        if is_inside[first : stop - 1].any()
    ]
    return _Swept(places[1:][is_same].tolist(), places[1:][is_inside].tolist(), runs)


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
        self._runs = _swept(flat).runs if flat else []

    def around(self, offset: int, length: int) -> tuple[int, int] | None:
        """Return offset and length of the run a blob is in, or None where it is in none."""
        at = bisect.bisect_right(self._runs, offset, key=lambda run: run[0]) - 1
        start, stop = self._runs[at] if at >= 0 else (0, 0)
        return None if offset % ALIGNMENT or offset + length > stop else (start, stop - start)


class Overlaps:
    """What one call that goes through many objects knows of the bytes they share.

    Args:
        parts: all components it will go through, and their readers.
    """

    def __init__(self, parts: Iterable[tuple[FileObjects, Component]]) -> None:
        by_reader: dict[FileObjects, array.array[int]] = {}
        for file, component in parts:
            is_common = file.format == "zt" and file.is_common(component.encoding)
            if component.length and is_common:
                place = component.offset, component.length
                by_reader.setdefault(file, array.array("Q")).extend(place)
        self._repeated: set[Place] = set()
        self._inside: set[Place] = set()
        for file, flat in by_reader.items():
            swept = _swept(flat)
            self._repeated.update((file, offset, length) for offset, length in swept.repeated)
            self._inside.update((file, offset, length) for offset, length in swept.inside)
        self._seen: set[tuple[Place, str]] = set()
        self._found: dict[Hashable, concurrent.futures.Future[object]] = {}
        self._left: dict[FileObjects, int] = {}
        self._lock = Lock()

    @staticmethod
    def runs(blobs: Iterable[tuple[int, int]]) -> SharedRuns:
        """Return the runs of bytes that several blobs share in part: offset and length of each."""
        return SharedRuns(blobs)

    @property
    def are_any(self) -> bool:
        """Return whether any bytes are shared."""
        return bool(self._repeated or self._inside)

    def is_repeated(self, file: FileObjects, component: Component) -> bool:
        """Return whether other components have exactly the same bytes."""
        repeated = self._repeated
        return bool(repeated) and (file, component.offset, component.length) in repeated

    def once(
        self, file: FileObjects, component: Component, key: Hashable, work: Callable[[], _T]
    ) -> _T:
        """Return what `work` gives, of what is asked for first under a key; raise what it raises.

        Args:
            file: the file of the component.
            component: what is gone through.
            key: everything the result depends on beside the place of the stored bytes.
            work: goes through it.
        """
        if not self.is_repeated(file, component):
            return work()
        place = file, component.offset, component.length
        own: concurrent.futures.Future[object] = concurrent.futures.Future()
        with self._lock:
            future = self._found.setdefault((place, key), own)
        if future is own:
            try:
                future.set_result(work())
            except BaseException as raised:
                future.set_exception(raised)
                raise
        error = future.exception()
        if error is not None:
            raise error.with_traceback(None)  # which would grow with each that asks
        return future.result()  # type: ignore[return-value]  # what the same work gave

    def metered(
        self,
        file: FileObjects,
        component: Component,
        chunks: Iterator[memoryview],
        purpose: str,
    ) -> Iterator[memoryview]:
        """Yield pieces of a component, as long as the budget lasts where others share its bytes.

        Args:
            file: the file of the component.
            component: what is gone through.
            chunks: its bytes.
            purpose: a word for why, since bytes may be read for this and for that.

        Raises:
            LimitError: it does not last (LIMIT_COST).
        """
        charge = self.charger(file, component, purpose)
        for chunk in chunks:
            if charge is not None:
                charge(chunk.nbytes)
            yield chunk

    def charger(
        self, file: FileObjects, component: Component, purpose: str
    ) -> Callable[[int], None] | None:
        """Return what counts bytes that are gone through again; None where it is the first time."""
        if not self.are_any:
            return None
        place = file, component.offset, component.length
        if place not in self._inside:
            with self._lock:
                if place not in self._repeated or (place, purpose) not in self._seen:
                    self._seen.add((place, purpose))
                    return None
        return lambda nbytes: self._charge(file, nbytes)

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
