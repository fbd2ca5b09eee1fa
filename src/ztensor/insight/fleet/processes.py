"""Processes of this machine as an executor that goes on where one of them dies."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Processes(concurrent.futures.Executor):
    """Worker processes of this machine, of which one that dies takes no file of others with it.

    Of a `concurrent.futures.ProcessPoolExecutor` all workers end where one is killed, and all files
    that they had been given are errors. Here new processes follow, and each of these files is done
    once more by a process that does nothing else. Processes are spawned, so the program's own
    module must not begin its work where it is imported: `if __name__ == "__main__":`.

    Args:
        count: how many there are at a time; as many as there are processors by default.

    Raises:
        ValueError: `count` is not positive.
    """

    def __init__(self, count: int | None = None) -> None:
        self._pool = _pool(count)
        # As other executors name it; see `_most` in `running.py`.
        self._max_workers = os.cpu_count() or 1 if count is None else count

    def submit(
        self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Give work to a process; see `concurrent.futures.Executor`."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = _pool(self._max_workers)
            return self._pool.submit(fn, *args, **kwargs)

    def alone(self, job: Callable[[], _T]) -> _T:
        """Return what a job gives that has a process to itself: no other can take it down.

        Raises:
            BrokenProcessPool: the process died again.
            Exception: what the job raises.
        """
        with _pool(1) as pool:
            return pool.submit(job).result()

    def shutdown(  # as of the base class
        self,
        wait: bool = True,  # noqa: FBT001, FBT002
        *,
        cancel_futures: bool = False,
    ) -> None:
        """End the processes; see `concurrent.futures.Executor`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _pool(count: int | None) -> ProcessPoolExecutor:
    # Not forked: a copy of this process would have its locks, but not its threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        count, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
