"""Jobs of a page: two at once, sixteen in the queue, thirty seconds each."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from ztensor.ext import Pool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

AT_ONCE, WAITING, SECONDS = 2, 16, 30.0
_LOOK = 0.05  # seconds between checks for the client


class StoppedError(Exception):
    """A job was stopped before it was done; the text says why."""


class Job:
    """One job, which calls `check` regularly.

    Args:
        seconds: its time limit; None for no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ends = float("inf")
        self._left = threading.Event()

    def begin(self) -> None:
        """Start the clock: time in the queue does not count."""
        if self._seconds is not None:
            self._ends = time.monotonic() + self._seconds

    def leave(self) -> None:
        """Record that the client has gone."""
        self._left.set()

    def check(self) -> None:
        """Raise if the job is to end.

        Raises:
            StoppedError: the client has gone, or the time limit is exceeded.
        """
        if self._left.is_set():
            raise StoppedError("the client has gone")
        if time.monotonic() > self._ends:
            raise StoppedError(f"it took more than {self._seconds:.0f} s; choose a smaller part")


class Workers:
    """A pool of threads for jobs."""

    def __init__(self) -> None:
        self._pool = Pool(AT_ONCE, are_alone=False)
        self._jobs: set[Job] = set()

    @property
    def count(self) -> int:
        """Return the number of jobs, with those in the queue."""
        return len(self._jobs)

    async def run(
        self,
        work: Callable[[Job], _T],
        is_left: Callable[[], Awaitable[bool]],
        seconds: float | None = SECONDS,
    ) -> _T:
        """Return the result of a job.

        Args:
            work: called in a thread.
            is_left: returns whether the client has gone.
            seconds: see `Job`.

        Raises:
            StoppedError: the job was stopped, or the queue is full.
        """
        if len(self._jobs) >= AT_ONCE + WAITING:
            raise StoppedError("too much work; try again in a moment")
        job = Job(seconds)
        self._jobs.add(job)

        def begun() -> _T:
            job.check()
            job.begin()
            try:
                return work(job)
            except Exception:
                job.check()  # the work may have converted the error into another
                raise

        future = asyncio.wrap_future(self._pool.submit(begun))
        future.add_done_callback(lambda done: self._done(job, done))
        try:
            while not future.done():
                await asyncio.wait([future], timeout=_LOOK)
                if not future.done() and await is_left():
                    raise StoppedError("the client has gone")
            return future.result()
        finally:
            job.leave()

    def _done(self, job: Job, future: asyncio.Future[_T]) -> None:
        self._jobs.discard(job)
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio logs nothing

    def close(self) -> None:
        """Stop all jobs."""
        for job in list(self._jobs):
            job.leave()
        self._pool.shutdown(wait=False, cancel_futures=True)
