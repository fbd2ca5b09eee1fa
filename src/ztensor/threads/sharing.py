"""The number of threads for a piece of work, and a lock for large memory."""

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
# Bytes for another thread: starting one takes as long as hashing a few hundred KiB.
_SHARE_BYTES = 1 << 20
# Attributes of the current thread: `most`, `is_whole` and `has_window`, see below.
_own = threading.local()
_window = Lock()


@contextlib.contextmanager
def _with_own(name: str, value: object) -> Iterator[None]:
    before = getattr(_own, name, None)
    setattr(_own, name, value)
    try:
        yield
    finally:
        setattr(_own, name, before)


def at_most(count: int) -> contextlib.AbstractContextManager[None]:
    """Within this context, limit this thread's jobs to so many threads by default."""
    return _with_own("most", count)


def work_alone() -> None:
    """Let this thread run its jobs inline."""
    _own.most = 1


def thread_count(
    threads: int | None = None, *, processes: int = 1, lengths: Iterable[int] | None = None
) -> int:
    """Return how many threads to use: the caller's number, `ZTENSOR_NUM_THREADS`, or the cores.

    Args:
        threads: the caller's number; by default at most four, or the limit set by `at_most`.
        processes: how many processes of this machine do the same concurrently and share its cores.
        lengths: of the chunks in bytes: short ones get fewer threads.

    Raises:
        ArgumentValueError: the number, or the variable's text, is not a positive integer.
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
    """Return how many threads pay off for so many bytes; at least one."""
    most, total = workers * _SHARE_BYTES, 0
    for length in lengths:
        total += length
        if total >= most:
            return workers
    return max(1, min(workers, total // _SHARE_BYTES))


# --- Memory for a large window --------------------------------------------------------------
#
# One thread at a time has it, and others wait until it is done. Only work that ends by itself takes
# part. A thread that decodes chunk by chunk may never be resumed, and others would wait forever: it
# takes part only inside of `ends_alone()`.


def ends_alone() -> contextlib.AbstractContextManager[None]:
    """Declare that this thread finishes inside the context any decoding that it begins."""
    return _with_own("is_whole", True)  # noqa: FBT003


@contextlib.contextmanager
def large_window(*, is_whole: bool = False) -> Iterator[None]:
    """Hold the memory of a large window, after waiting for other threads; reentrant.

    Args:
        is_whole: whether the context ends without waiting for others, as in `ends_alone()`.
    """
    takes_part = is_whole or getattr(_own, "is_whole", False)
    if not takes_part or getattr(_own, "has_window", False):
        yield
        return
    with _window, _with_own("has_window", True):  # noqa: FBT003
        yield
