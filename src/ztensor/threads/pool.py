"""Threads for a piece of work: the caller does it where no thread can be had."""

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
except RuntimeError:  # loaded while the interpreter ends, when nothing can be waited for any more

    class _Threads(concurrent.futures.Executor):  # type: ignore[no-redef]
        """No threads: what it inherits refuses all work by a `RuntimeError`, as threads do then."""

        def __init__(self, *_: object) -> None:
            """Take what threads take."""


class Pool(_Threads):
    """Threads for a piece of work.

    While the interpreter ends, or where the system has no more threads, the caller does the work.

    Args:
        workers: how many threads; each is started when there is work for it.
        are_alone: False has them share out their own work, too, as if no others worked beside them.

    Attributes:
        count: as `workers`.
    """

    def __init__(self, workers: int, *, are_alone: bool = True) -> None:
        self.count = workers
        super().__init__(workers, "ztensor", work_alone if are_alone else None)

    def submit(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Start work on a thread, or do it at once where no thread can be had."""
        future = self.begun(work, *args, **kwargs)
        if future is None:
            future = concurrent.futures.Future()
            try:
                with at_most(1):
                    future.set_result(work(*args, **kwargs))
            except Exception as error:  # noqa: BLE001  # raised where the result is asked for
                future.set_exception(error)
        return future

    def begun(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T] | None:
        """Start work on a thread; return None where no thread can be had, and nothing was begun.

        For work that waits for what the caller does next, and so cannot be done at once.
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
        except RuntimeError:  # raised before or after it was queued for threads there are
            return None if future.cancel() else future

    def close(self) -> None:
        """Wait for what is running, drop what is not begun, and end the threads."""
        self.shutdown(wait=True, cancel_futures=True)
