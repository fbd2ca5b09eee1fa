"""Stored bytes that several objects share: looked at once, and within a budget.

Objects may lie over the same bytes, as tied weights do, and over parts of one another's. A check
of all objects would decode such bytes for each: a file of 28 kB, thousands of objects over one
blob, kept a machine busy for seconds. So what was found out about some bytes is found out once,
and what has to be done again all the same is counted.
"""

from __future__ import annotations

import array
import concurrent.futures
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.locks import Lock
from ztensor.spec.model.objects import TableObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ztensor.io.reading.file import FileObjects
    from ztensor.spec.model.manifest import Component

    Place = tuple[FileObjects, int, int]

_T = TypeVar("_T")

# Of what listing a file may cost: decoded bytes that are gone through again.
_TIMES_COST = 4


class Overlaps:
    """What one call that goes through many objects knows of the bytes they share.

    Args:
        parts: all components it will go through, and their readers.
    """

    def __init__(self, parts: Iterable[tuple[FileObjects, Component]]) -> None:
        by_reader: dict[FileObjects, array.array[int]] = {}
        for file, component in parts:
            is_common = file.format == "zt" and file.fetching.is_common(component.encoding)
            if component.length and is_common:
                place = component.offset, component.length
                by_reader.setdefault(file, array.array("Q")).extend(place)
        self._repeated: set[Place] = set()
        self._inside: set[Place] = set()  # they begin inside of one before them
        for file, flat in by_reader.items():
            repeated, inside = _shared(np.frombuffer(flat, np.uint64).reshape(-1, 2))
            self._repeated.update((file, offset, length) for offset, length in repeated)
            self._inside.update((file, offset, length) for offset, length in inside)
        self._seen: set[tuple[Place, str]] = set()
        self._found: dict[Hashable, concurrent.futures.Future[object]] = {}
        self._left: dict[FileObjects, int] = {}
        self._lock = Lock()

    @property
    def are_any(self) -> bool:
        """Return whether any bytes are shared."""
        return bool(self._repeated or self._inside)

    def is_repeated(self, file: FileObjects, component: Component) -> bool:
        """Return whether other components lie over exactly the same bytes."""
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
        with self._lock:
            future = self._found.get((place, key))
            is_first = future is None
            if future is None:
                future = self._found[place, key] = concurrent.futures.Future()
        if is_first:
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
        """Return pieces of a component, as long as the budget lasts where others share its bytes.

        Args:
            file: the file of the component.
            component: what is gone through.
            chunks: its bytes.
            purpose: a word for why, since bytes may be read for this and for that.

        Raises:
            LimitError: it does not last (LIMIT_COST).
        """
        charge = self.charger(file, component, purpose)
        return chunks if charge is None else _charged(chunks, charge)

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
                "objects lie over one another's bytes, and going through all of them would take "
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


def lie_apart(file: FileObjects) -> bool:
    """Return whether no object of a file can lie over another's bytes, where that is told cheaply.

    Args:
        file: an open file; of one that has no table the answer is no.
    """
    objects = file.manifest.objects
    if not isinstance(objects, TableObjects) or objects.others:
        return False
    places = np.stack([objects.table.offsets, objects.table.lengths], 1)
    repeated, inside = _shared(places[places[:, 1] > 0].astype(np.uint64))
    return not repeated and not inside


def _charged(chunks: Iterator[memoryview], charge: Callable[[int], None]) -> Iterator[memoryview]:
    for chunk in chunks:
        charge(chunk.nbytes)
        yield chunk


def _shared(
    places: np.ndarray[Any, np.dtype[np.uint64]],
) -> tuple[list[list[int]], list[list[int]]]:
    """Return which places there are more than once, and which begin inside of others.

    Args:
        places: (count, 2) offsets and lengths.
    """
    offsets, ends = places[:, 0], places.sum(axis=1)
    order = np.lexsort((~ends, offsets))  # of those that begin together the longest first
    places, offsets, reach = places[order], offsets[order], np.maximum.accumulate(ends[order])
    is_same = (places[1:] == places[:-1]).all(axis=1)
    is_inside = (offsets[1:] < reach[:-1]) & ~is_same
    return places[1:][is_same].tolist(), places[1:][is_inside].tolist()
