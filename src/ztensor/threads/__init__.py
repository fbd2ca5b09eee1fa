"""Threads that share work.

All of them are made here, so that work that was begun ends, even while the interpreter shuts down
and starts no more threads. `sharing.py`: the number of threads; `pool.py`: the threads, loaded with
the first; `background.py`: a report of writes that the end of the program cut off.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ztensor.threads.sharing import ends_alone

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterable

# Jobs submitted ahead for each thread: their memory is bounded.
_AHEAD = 4


def _do_whole(job: Callable[[], None]) -> None:
    with ends_alone():
        job()


def run_jobs(jobs: Iterable[Callable[[], None]], workers: int, *, are_whole: bool = False) -> None:
    """Run all jobs in order, on threads if there are several.

    Args:
        jobs: iterated lazily, a few ahead.
        workers: how many threads.
        are_whole: whether each job finishes the decoding that it begins, without waiting for other
            jobs. Then jobs with large windows may wait for each other's memory.

    Raises:
        Exception: the error of the first job that failed; queued jobs are dropped.
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
