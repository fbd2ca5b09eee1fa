"""How many threads work is shared out to."""

from __future__ import annotations

import os

from ztensor.errors import ArgumentValueError, describe

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
