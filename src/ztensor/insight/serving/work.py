"""Work for a page: two at once, sixteen that wait, thirty seconds each, ended when nobody waits."""

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
_LOOK = 0.05  # seconds between looks at whether somebody still waits


class StoppedError(Exception):
    """Work ended before it was done; its text says why, where anybody is left to be told."""


class Job:
    """One piece of work, which looks at `check` now and then.

    Args:
        seconds: how long it may take; None for as long as somebody waits.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ends = float("inf")
        self._left = threading.Event()

    def begin(self) -> None:
        """Start the clock: waiting for others does not count."""
        if self._seconds is not None:
            self._ends = time.monotonic() + self._seconds

    def leave(self) -> None:
        """Note that nobody waits for it any more."""
        self._left.set()

    def check(self) -> None:
        """Go on, or raise.

        Raises:
            StoppedError: nobody waits any more, or it took too long.
        """
        if self._left.is_set():
            raise StoppedError("nobody waits for it any more")
        if time.monotonic() > self._ends:
            raise StoppedError(f"it took more than {self._seconds:.0f} s; choose a smaller part")


class Workers:
    """Threads that do the work."""

    def __init__(self) -> None:
        self._pool = Pool(AT_ONCE, are_alone=False)
        self._jobs: set[Job] = set()

    @property
    def count(self) -> int:
        """Return how many pieces of work are there, those that wait among them."""
        return len(self._jobs)

    async def run(
        self,
        work: Callable[[Job], _T],
        is_left: Callable[[], Awaitable[bool]],
        seconds: float | None = SECONDS,
    ) -> _T:
        """Return what work gives.

        Args:
            work: called in a thread.
            is_left: tells whether nobody waits any more.
            seconds: as `Job` takes it.

        Raises:
            StoppedError: it was ended, or there is too much to do.
        """
        if len(self._jobs) >= AT_ONCE + WAITING:
            raise StoppedError("there is too much to do; try again in a moment")
        job = Job(seconds)
        self._jobs.add(job)

        def begun() -> _T:
            job.check()
            job.begin()
            try:
                return work(job)
            except Exception:
                job.check()  # a call in between may have made another error of the one it raised
                raise

        future = asyncio.wrap_future(self._pool.submit(begun))
        future.add_done_callback(lambda done: self._done(job, done))
        try:
            while not future.done():
                await asyncio.wait([future], timeout=_LOOK)
                if not future.done() and await is_left():
                    raise StoppedError("nobody waits for it any more")
            return future.result()
        finally:
            job.leave()

    def _done(self, job: Job, future: asyncio.Future[_T]) -> None:
        self._jobs.discard(job)
        if not future.cancelled():
            future.exception()  # looked at, so that nothing is said of it

    def close(self) -> None:
        """End all work."""
        for job in list(self._jobs):
            job.leave()
        self._pool.shutdown(wait=False, cancel_futures=True)
