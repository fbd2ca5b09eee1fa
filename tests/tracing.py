"""What memory a test takes, as Python counts it."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Count what is allocated: the function given returns what is held, and the most that was."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()
