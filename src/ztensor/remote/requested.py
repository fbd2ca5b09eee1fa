"""A count of this process's requests to stores and servers, for progress bars."""

from __future__ import annotations

from ztensor.ext import Lock

_LOCK = Lock()
_made = [0]


def note_request() -> None:
    """Count one more; tries again are not counted."""
    with _LOCK:
        _made[0] += 1


def requests_made() -> int:
    """Return how many requests were made since the process began."""
    return _made[0]
