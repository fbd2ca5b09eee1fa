"""How many threads work is shared out to, and the threads themselves."""

from __future__ import annotations

import concurrent.futures
import os
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ztensor.errors import ArgumentValueError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")

# More than four readers of one file gain nothing on any disk measured, and cost other processes.
_MOST = 4


def thread_count(threads: int | None = None) -> int:
    """Return how many threads to use: what was asked for, `ZTENSOR_NUM_THREADS`, or the cores.

    Args:
        threads: what the caller asked for; None for the default, at most four.

    Raises:
        ArgumentValueError: the number, or the variable's text, is no positive integer.
    """
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ArgumentValueError(
                "threads must be a positive integer", found=describe(threads, 40)
            )
        return threads
    text = os.environ.get("ZTENSOR_NUM_THREADS")
    if text:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ArgumentValueError(
                "ZTENSOR_NUM_THREADS must be a positive integer", found=describe(text, 40)
            )
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)


class Crew:
    """Threads that are started when the first work comes, and are gone when it is closed.

    Args:
        count: how many threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def submit(
        self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Start work on one of the threads."""
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.count, "ztensor")
        return self._pool.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Wait for what is running, drop what is not, and end the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
