"""Threads: how many there are, the threads themselves, and jobs that they share.

Threads that share work are made here: so work that was begun ends, also where the interpreter is
about to end and starts no more threads. `sharing.py` says
how many there are; `pool.py` has the threads, and is loaded for the first; `background.py` reports
writes that a program ended beside.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ztensor.threads.sharing import ends_alone

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterable

# Jobs that are handed over before one is waited for, by the thread: what they hold is bounded.
_AHEAD = 4


def _do_whole(job: Callable[[], None]) -> None:
    with ends_alone():
        job()


def run_jobs(jobs: Iterable[Callable[[], None]], workers: int, *, are_whole: bool = False) -> None:
    """Do all jobs, with several threads where there are several; each begins in its turn.

    Args:
        jobs: gone through as they are begun, few ahead.
        workers: how many threads.
        are_whole: whether each job decodes what it begins to decode, and waits for no other one
            meanwhile. Then those that need much memory for it may wait for each other.

    Raises:
        Exception: what the first job that failed raised; those not begun are dropped.
    """
    left = (functools.partial(_do_whole, job) for job in jobs) if are_whole else iter(jobs)
    first = list(itertools.islice(left, 2 if workers > 1 else 0))
    if len(first) < 2:
        for job in itertools.chain(first, left):
            job()
        return
    from ztensor.threads.pool import Pool

    begun: list[concurrent.futures.Future[None]] = []
    with Pool(workers) as threads:
        try:
            for job in itertools.chain(first, left):
                begun.append(threads.submit(job))
                if len(begun) > _AHEAD * workers:
                    begun.pop(0).result()
            while begun:
                begun.pop(0).result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
