"""A pool of threads; the caller does the work if no thread can be started."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ztensor.threads.sharing import at_most, work_alone

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")

try:
    _Threads = concurrent.futures.ThreadPoolExecutor
except RuntimeError:  # loaded during the shutdown of the interpreter

    class _Threads(concurrent.futures.Executor):  # type: ignore[no-redef]
        """No threads: the base class refuses all work by a `RuntimeError`."""

        def __init__(self, *_: object) -> None:
            """Accept the arguments of a pool."""


class Pool(_Threads):
    """A pool of threads.

    During the shutdown of the interpreter, or if the system has no more threads, the caller does
    the work.

    Args:
        workers: how many threads; each is started when there is work for it.
        are_alone: True runs nested jobs inline; False lets them use threads of their own.

    Attributes:
        count: as `workers`.
    """

    def __init__(self, workers: int, *, are_alone: bool = True) -> None:
        self.count = workers
        super().__init__(workers, "ztensor", work_alone if are_alone else None)

    def submit(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Start work on a thread, or do it at once if no thread can be started."""
        future = self.begun(work, *args, **kwargs)
        if future is None:
            future = concurrent.futures.Future()
            try:
                with at_most(1):
                    future.set_result(work(*args, **kwargs))
            except Exception as error:  # noqa: BLE001  # raised by `result()`
                future.set_exception(error)
        return future

    def begun(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T] | None:
        """Start work on a thread; return None if no thread can be started.

        For work that waits for the caller's next steps, and so cannot run inline.
        """
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()

        def once() -> _T:
            if not future.set_running_or_notify_cancel():
                raise concurrent.futures.CancelledError
            try:
                value = work(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                raise
            future.set_result(value)
            return value

        try:
            return super().submit(once)
        except RuntimeError:  # raised before or after the work was queued
            return None if future.cancel() else future

    def close(self) -> None:
        """Wait for running work, drop queued work, and end the threads."""
        self.shutdown(wait=True, cancel_futures=True)
