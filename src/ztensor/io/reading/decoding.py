"""One encoded component decoded by several threads, and its digest computed on the way.

Runs of stored bytes that decode without those before them (`Runs`, for zstd its frames) are jobs of
about a MiB. A digest wants the decoded bytes in order: the thread that ends the next piece in order
computes it over all that are ready, while they are in the processor's cache.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ztensor.locks import Lock
from ztensor.threads import run_jobs
from ztensor.threads.sharing import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ztensor.limits import Limits
    from ztensor.spec.digest import Hasher
    from ztensor.spec.encoding.base import Encoding, Runs, Stored

_JOB_BYTES = 1 << 20


class InOrder:
    """Hashes pieces of memory in order, whichever is ready first.

    Args:
        hasher: takes them.
        pieces: all of them.
        end: called when all were hashed, by the thread that did the last.
    """

    def __init__(
        self, hasher: Hasher, pieces: Sequence[memoryview], end: Callable[[Hasher], None]
    ) -> None:
        self._hasher = hasher
        self._pieces = pieces
        self._end = end
        self._ready = [False] * len(pieces)
        self._next = 0
        self._is_busy = False
        self._lock = Lock()

    def ready(self, number: int) -> None:
        """Note that a piece is ready, and hash those whose turn it is.

        Raises:
            Exception: what `end` raises.
        """
        with self._lock:
            self._ready[number] = True
            if self._is_busy:
                return  # who hashes the one before sees it
            self._is_busy = True
        while True:
            with self._lock:
                number = self._next
                if number == len(self._pieces) or not self._ready[number]:
                    self._is_busy = False
                    break
                self._next = number + 1
            self._hasher.update(self._pieces[number])
        if number == len(self._pieces):
            self._end(self._hasher)


def cut(runs: Runs) -> Iterator[range]:
    """Yield neighbouring runs that are one job."""
    decoded, first = runs.decoded, 0
    for run in range(1, len(decoded)):
        if decoded[run] - decoded[first] >= _JOB_BYTES or run == len(decoded) - 1:
            yield range(first, run)
            first = run


def decode_runs(
    encoding: Encoding,
    stored: Stored,
    runs: Runs,
    memory: memoryview,
    limits: Limits,
    hasher: Hasher | None,
    end: Callable[[Hasher], None],
) -> None:
    """Decode a component into memory by several threads.

    Args:
        encoding: the component's.
        stored: its stored bytes.
        runs: its runs.
        memory: as long as they decode to.
        limits: the caps in force.
        hasher: takes the decoded bytes; None where they need not be hashed.
        end: called with the hasher when all were, by one of the jobs.
    """
    jobs = list(cut(runs))
    pieces = [memory[runs.decoded[job.start] : runs.decoded[job.stop]] for job in jobs]
    in_order = None if hasher is None else InOrder(hasher, pieces, end)

    def work(number: int) -> None:
        job = jobs[number]
        first, last = runs.stored[job.start], runs.stored[job.stop]
        encoding.decode_run(stored, first, last, pieces[number], limits)
        if in_order is not None:
            in_order.ready(number)

    run_jobs((functools.partial(work, number) for number in range(len(jobs))), thread_count())
