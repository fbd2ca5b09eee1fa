"""How many threads work is shared out to, and memory that they share."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, describe
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# More than four readers of one file gain nothing on any disk measured, and cost other processes.
_MOST = 4
_own = threading.local()


@contextlib.contextmanager
def at_most(count: int) -> Iterator[None]:
    """Have what this thread does within it share its work out to so many threads by default."""
    before = getattr(_own, "most", None)
    _own.most = count
    try:
        yield
    finally:
        _own.most = before


def work_alone() -> None:
    """Have this thread share its work out to no other."""
    _own.most = 1


def thread_count(
    threads: int | None = None, *, processes: int = 1, lengths: Iterable[int] | None = None
) -> int:
    """Return how many threads to use: what was asked for, `ZTENSOR_NUM_THREADS`, or the cores.

    Args:
        threads: what the caller asked for; None for the default, at most four, or what `at_most`
            says.
        processes: how many of this machine do the same at the same time, and so share its cores.
        lengths: of the pieces of work, in bytes: no more threads are used than these are worth.

    Raises:
        ArgumentValueError: the number, or the variable's text, is no positive integer.
    """
    count = _count(threads, processes)
    return count if lengths is None else worth(count, lengths)


def _count(threads: int | None, processes: int) -> int:
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ArgumentValueError(
                "threads must be a positive integer", found=describe(threads, 40)
            )
        return threads
    most: int | None = getattr(_own, "most", None)
    if most is not None:
        return most
    text = os.environ.get("ZTENSOR_NUM_THREADS")
    if text:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ArgumentValueError(
                "ZTENSOR_NUM_THREADS must be a positive integer", found=describe(text, 40)
            )
        return int(text)
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min(_MOST, cores // processes))


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
    """Memory for a large window: one thread at a time has it, and others wait until it is done.

    Only those take part that are sure to end by themselves. A thread that decodes piece by piece
    may be left alone between two pieces, and others would wait for ever: it counts only inside of
    `whole()`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
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
    def lent(self, *, is_whole: bool = False) -> Iterator[None]:
        """Wait for the memory; a thread that has some waits for no more.

        Args:
            is_whole: whether this is ended without waiting for anybody, as inside of `whole()`.
        """
        own = self._own
        takes_part = is_whole or getattr(own, "is_whole", False)
        if not takes_part or getattr(own, "has_some", False):
            yield
            return
        with self._lock:
            own.has_some = True
            try:
                yield
            finally:
                own.has_some = False


WINDOWS = Turns()
