"""How many threads work is shared out to, and the threads themselves."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ztensor.errors import ArgumentValueError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


# Bytes that are worth another thread: to start one takes as long as to hash a few hundred KiB.
_SHARE_BYTES = 1 << 20


def worth(workers: int, lengths: Iterable[int]) -> int:
    """Return how many of some threads are worth their start for so many bytes; one at least."""
    most, total = workers * _SHARE_BYTES, 0
    for length in lengths:
        total += length
        if total >= most:
            return workers
    return max(1, min(workers, total // _SHARE_BYTES))


class Turns:
    """Memory that all threads share: who needs much of it waits until others have given it back.

    Only those take part who are sure to come to an end by themselves. Who decodes piece by piece
    may be left alone between two pieces, and others would wait for ever: it counts only inside of
    `whole()`.

    Args:
        most: bytes that are lent at a time. A larger demand is met when nothing is lent.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lent = 0
        self._changed = threading.Condition()
        self._own = threading.local()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Say that this thread ends inside of it whatever it begins to decode."""
        before = getattr(self._own, "is_whole", False)
        self._own.is_whole = True
        try:
            yield
        finally:
            self._own.is_whole = before

    @contextlib.contextmanager
    def lent(self, nbytes: int, *, is_whole: bool = False) -> Iterator[None]:
        """Wait for memory, and give it back behind.

        A thread that has some does not wait for more: others might wait for what it has.

        Args:
            nbytes: how much.
            is_whole: whether this is ended without waiting for anybody, as inside of `whole()`.
        """
        own = self._own
        has_some = getattr(own, "has_some", False)
        if has_some or not (is_whole or getattr(own, "is_whole", False)):
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._lent or self._lent + nbytes <= self._most)
            self._lent += nbytes
        own.has_some = True
        try:
            yield
        finally:
            own.has_some = False
            with self._changed:
                self._lent -= nbytes
                self._changed.notify_all()


# What decoding has to look back on, where that is much: one window of zstd's level 22 at a time.
WINDOWS = Turns(128 << 20)


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


def run_jobs(jobs: Sequence[Callable[[], None]], workers: int) -> None:
    """Do all jobs, with several threads where there are several of both.

    Raises:
        Exception: what the first job that failed raised; those not begun are dropped.
    """
    if workers <= 1 or len(jobs) < 2:
        for job in jobs:
            job()
        return
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
