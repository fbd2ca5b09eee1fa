"""How many threads work is shared out to, and the threads themselves.

Every thread of the package that reads, computes or writes is made here: so work that was begun
ends, also where the interpreter is about to end and starts no more threads.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from ztensor.errors import ArgumentValueError, SourceError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_P = ParamSpec("_P")
_T = TypeVar("_T")

# More than four readers of one file gain nothing on any disk measured, and cost other processes.
_MOST = 4
# Jobs that are handed over before one is waited for, by the thread: what they hold is bounded.
_AHEAD = 4

_LOG = logging.getLogger("ztensor")

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


try:
    _Threads = concurrent.futures.ThreadPoolExecutor
except RuntimeError:  # loaded while the interpreter ends, when nothing can be waited for any more

    class _Threads(concurrent.futures.Executor):  # type: ignore[no-redef]
        """No threads."""

        def __init__(self, *_: object) -> None:
            """Take what threads take."""

        def submit(self, *_: Any, **__: Any) -> Any:
            """Refuse all work, as threads do then."""
            raise RuntimeError


class Pool(_Threads):
    """Threads for a piece of work.

    While the interpreter ends, or where the system has no more threads, the caller does the work.

    Args:
        workers: how many threads.
        are_alone: False has them share out their own work, too, as if no others worked beside them.
    """

    def __init__(self, workers: int, *, are_alone: bool = True) -> None:
        super().__init__(workers, "ztensor", _work_alone if are_alone else None)

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
        job = _Job(functools.partial(work, *args, **kwargs))
        try:
            return super().submit(job)
        except RuntimeError:  # raised before or after the job was queued for threads there are
            return None if job.is_taken_back() else job.future


class _Job(Generic[_T]):
    """Work that is done once, by a thread, unless the caller takes it back before."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._turn = threading.Lock()
        self.future: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def is_taken_back(self) -> bool:
        return self._turn.acquire(blocking=False)

    def __call__(self) -> _T:
        if not self._turn.acquire(blocking=False):
            raise concurrent.futures.CancelledError
        try:
            value = self._work()
        except BaseException as error:
            self.future.set_exception(error)
            raise
        self.future.set_result(value)
        return value


def _work_alone() -> None:
    _own.most = 1


def thread_count(threads: int | None = None, *, processes: int = 1) -> int:
    """Return how many threads to use: what was asked for, `ZTENSOR_NUM_THREADS`, or the cores.

    Args:
        threads: what the caller asked for; None for the default, at most four, or what `at_most`
            says.
        processes: how many of this machine do the same at the same time, and so share its cores.

    Raises:
        ArgumentValueError: the number, or the variable's text, is no positive integer.
    """
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
    """Memory that all threads share: who needs much of it waits until others have given it back.

    Only those take part who are sure to come to an end by themselves. Who decodes piece by piece
    may be left alone between two pieces, and others would wait for ever: it counts only inside of
    `whole()`.

    Args:
        most: bytes that are lent at a time. A larger demand is met when nothing is lent.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.renew()

    def renew(self) -> None:
        """Have nothing lent, as in a forked child, which has none of the threads that wait."""
        self._lent = 0
        self._changed = threading.Condition()
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
    def lent(self, nbytes: int, *, is_whole: bool = False) -> Iterator[None]:
        """Wait for memory, and give it back behind.

        A thread that has some does not wait for more: others might wait for what it has.

        Args:
            nbytes: how much.
            is_whole: whether this is ended without waiting for anybody, as inside of `whole()`.
        """
        own = self._own
        has_some = getattr(own, "has_some", False)
        if has_some or not (is_whole or getattr(own, "is_whole", False)):
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._lent or self._lent + nbytes <= self._most)
            self._lent += nbytes
        own.has_some = True
        try:
            yield
        finally:
            own.has_some = False
            with self._changed:
                self._lent = max(0, self._lent - nbytes)  # renewed since
                self._changed.notify_all()


# What decoding has to look back on, where that is much: one window of zstd's level 22 at a time.
WINDOWS = Turns(128 << 20)


class Crew:
    """Threads that are started when the first work comes, and are gone when it is closed.

    Args:
        count: how many threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: Pool | None = None

    def submit(
        self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Start work on one of the threads; see `Pool.submit`."""
        return self._threads().submit(work, *args, **kwargs)

    def begun(
        self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T] | None:
        """Start work on one of the threads, or return None; see `Pool.begun`."""
        return self._threads().begun(work, *args, **kwargs)

    def _threads(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.count)
        return self._pool

    def close(self) -> None:
        """Wait for what is running, drop what is not, and end the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def run_jobs(jobs: Iterable[Callable[[], None]], workers: int) -> None:
    """Do all jobs, with several threads where there are several; each begins in its turn.

    Args:
        jobs: gone through as they are begun, few ahead.
        workers: how many threads.

    Raises:
        Exception: what the first job that failed raised; those not begun are dropped.
    """
    left = iter(jobs)
    first = list(itertools.islice(left, 2 if workers > 1 else 0))
    if len(first) < 2:
        for job in itertools.chain(first, left):
            job()
        return
    begun: collections.deque[concurrent.futures.Future[None]] = collections.deque()
    with Pool(workers) as threads:
        try:
            for job in itertools.chain(first, left):
                begun.append(threads.submit(job))
                if len(begun) > _AHEAD * workers:
                    begun.popleft().result()
            while begun:
                begun.popleft().result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


class Background:
    """A write in a thread of its own that ends although the program does.

    Python waits for the thread before it ends, and so does this where Ctrl-C broke that off. A
    failure that `end` has not raised by then is reported, and the program exits with 120: Python's
    own number for an error that comes when the exit status is settled already.

    Args:
        work: what is done.
        name: what it writes, for messages.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.name = name
        self._work: Callable[[], None] | None = work
        self._thread = threading.Thread(target=self._run, name=f"ztensor {name}")
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """Return whether it has begun and not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; where the interpreter ends, do it all before this returns.

        Raises:
            Exception: what the work raises where it is done at once.
        """
        _BACKGROUND.add(self)
        if threading.main_thread().is_alive():  # else Python no longer waits for threads
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter or the system starts no more
                pass
            else:
                return
        self._run()
        self.end()

    def end(self) -> None:
        """Wait until it has ended.

        Raises:
            BaseException: what the work raised; once.
        """
        if self._thread.ident is not None:
            self._thread.join()
        _BACKGROUND.discard(self)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        work, self._work = self._work, None
        try:
            if work is not None:
                work()
        except BaseException as error:  # noqa: BLE001  # raised by `end`
            self._failure = error
            _LOG.error("%s was not saved: %s", self.name, error)
        else:
            _BACKGROUND.discard(self)


_BACKGROUND: set[Background] = set()
if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_BACKGROUND.clear)
    os.register_at_fork(after_in_child=WINDOWS.renew)


class Write(Protocol):
    """What is written to until it is committed or aborted."""

    @property
    def name(self) -> str:
        """Return the path or URL."""
        ...

    @property
    def is_open(self) -> bool:
        """Return whether it is neither committed nor aborted."""
        ...


_WRITES: weakref.WeakKeyDictionary[Write, threading.Thread] = weakref.WeakKeyDictionary()


def note_write(write: Write) -> None:
    """Note that this thread writes something, in case it is a daemon that dies with the program."""
    if threading.current_thread().daemon:
        _WRITES[write] = threading.current_thread()


class _FailingAtExit:
    """Standard output whose last flush raises an error.

    Python reports that error by `sys.unraisablehook`, and exits with 120. Everything else that is
    done at exit is done.
    """

    def __init__(self, stream: Any, error: BaseException) -> None:
        self._stream = stream
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def closed(self) -> bool:
        return False

    def flush(self) -> None:
        if self._stream is not None and not self._stream.closed:
            self._stream.flush()
        if sys.is_finalizing():
            raise self._error


@atexit.register
def _end_writes() -> None:
    """Wait for what is written in the background, and report what is lost."""
    lost: list[BaseException] = []
    for background in list(_BACKGROUND):
        try:
            background.end()
        except KeyboardInterrupt as error:
            lost.append(_lost(background.name, "it was interrupted"))
            lost[-1].__cause__ = error
        except BaseException as error:  # noqa: BLE001  # reported at the end
            lost.append(error)
    for reference in _WRITES.keyrefs():  # a list: daemons go on
        write = reference()
        thread = None if write is None else _WRITES.get(write)
        if write is not None and write.is_open and thread is not None and thread.is_alive():
            lost.append(_lost(write.name, "its thread is a daemon, which ends with the program"))
    if lost:
        sys.stdout = _FailingAtExit(sys.stdout, lost[0])


def _lost(name: str, why: str) -> SourceError:
    error = SourceError(f"the write had not ended when the program did: {why}", file=name)
    _LOG.error("%s", error)
    return error
