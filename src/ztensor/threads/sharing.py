"""How many threads work is shared out to, and memory that they share."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, describe
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# More than four readers of one file gain nothing on any disk measured, and cost other processes.
_MOST = 4
# Bytes that are worth another thread: to start one takes as long as to hash a few hundred KiB.
_SHARE_BYTES = 1 << 20
# What a thread says of itself: `most`, `is_whole` and `has_window`, see below.
_own = threading.local()
_window = Lock()


@contextlib.contextmanager
def _saying(name: str, value: object) -> Iterator[None]:
    before = getattr(_own, name, None)
    setattr(_own, name, value)
    try:
        yield
    finally:
        setattr(_own, name, before)


def at_most(count: int) -> contextlib.AbstractContextManager[None]:
    """Have what this thread does within it share its work out to so many threads by default."""
    return _saying("most", count)


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
    name, count = "threads", getattr(_own, "most", None) if threads is None else threads
    if count is None:
        name, count = "ZTENSOR_NUM_THREADS", _by_default(processes)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentValueError(f"{name} must be a positive integer", found=describe(count, 40))
    return count if lengths is None else worth(count, lengths)


def _by_default(processes: int) -> Any:
    text = os.environ.get("ZTENSOR_NUM_THREADS")
    if text:
        return int(text) if text.isascii() and text.isdigit() else text
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min(_MOST, cores // processes))


def worth(workers: int, lengths: Iterable[int]) -> int:
    """Return how many of some threads are worth their start for so many bytes; one at least."""
    most, total = workers * _SHARE_BYTES, 0
    for length in lengths:
        total += length
        if total >= most:
            return workers
    return max(1, min(workers, total // _SHARE_BYTES))


# --- Memory for a large window --------------------------------------------------------------
#
# One thread at a time has it, and others wait until it is done. Only those take part that are sure
# to end by themselves. A thread that decodes piece by piece may be left alone between two pieces,
# and others would wait for ever: it counts only inside of `ends_alone()`.


def ends_alone() -> contextlib.AbstractContextManager[None]:
    """Say that this thread ends inside of it whatever it begins to decode."""
    return _saying("is_whole", True)  # noqa: FBT003


@contextlib.contextmanager
def large_window(*, is_whole: bool = False) -> Iterator[None]:
    """Wait for the memory of a large window; a thread that has it waits for no more.

    Args:
        is_whole: whether this is ended without waiting for anybody, as inside of `ends_alone()`.
    """
    takes_part = is_whole or getattr(_own, "is_whole", False)
    if not takes_part or getattr(_own, "has_window", False):
        yield
        return
    with _window, _saying("has_window", True):  # noqa: FBT003
        yield
