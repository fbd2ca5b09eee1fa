"""Processes of this machine as an executor that goes on where one of them dies."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import signal
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Processes(concurrent.futures.Executor):
    """Worker processes. Where one dies, all that were given something lose it; new ones follow.

    Args:
        count: how many there are at a time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = _pool(count)

    def submit(
        self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[_T]:
        """Give work to a process; see `concurrent.futures.Executor`."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = _pool(self._count)
            return self._pool.submit(fn, *args, **kwargs)

    def alone(self, job: Callable[[], _T]) -> _T:
        """Return what a job gives that has a process to itself: no other can take it down.

        Raises:
            BrokenProcessPool: the process died again.
            Exception: what the job raises.
        """
        with _pool(1) as pool:
            return pool.submit(job).result()

    def shutdown(self, *how: Any, **options: Any) -> None:
        """End the processes; see `concurrent.futures.Executor`."""
        self._pool.shutdown(*how, **options)


def _pool(count: int) -> ProcessPoolExecutor:
    # Not forked: a copy of this process would have its locks, but not its threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        count, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
