"""Writes in the background end although the program does, and what is lost is reported."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ztensor.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("ztensor")


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
