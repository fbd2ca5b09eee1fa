"""Locks that are free in a forked child.

A child has only the thread that forked: locks of other threads would stay locked in it for ever.
The state behind these locks is complete at any moment, or can be made anew: caches, counts, lazily
opened files. So a child starts with free locks of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

_forks = 0  # between the process that imported this module and the current one
_renewing = threading.Lock()


class Lock:
    """A lock for `with`."""

    __slots__ = ("_forks", "_lock")
    _make: Any = staticmethod(threading.Lock)

    def __init__(self) -> None:
        self._lock, self._forks = self._make(), _forks

    def __enter__(self) -> None:
        """Wait for the lock."""
        if self._forks != _forks:
            with _renewing:
                if self._forks != _forks:
                    self._lock, self._forks = self._make(), _forks
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        """Let go of the lock."""
        self._lock.release()


class RLock(Lock):
    """A lock that the thread which has it may take again."""

    __slots__ = ()
    _make: Any = staticmethod(threading.RLock)


class cached_property(functools.cached_property[_T]):  # as the one it is
    """`functools.cached_property` without the lock that Python 3.11 has in it."""

    def __init__(self, find: Callable[[Any], _T]) -> None:
        super().__init__(find)
        self.lock = contextlib.nullcontext()


def _renew() -> None:
    global _forks, _renewing  # noqa: PLW0603  # the process is another one
    _forks += 1
    _renewing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
