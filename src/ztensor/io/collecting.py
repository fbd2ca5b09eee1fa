"""Pause Python's cycle collector while many values without cycles are made."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Pause the cycle collector in a block or a decorated function.

    It would visit the new values again and again: for 10^5 values a third to half of the time.
    Cycles of other threads wait meanwhile. If the collector is off already, it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
