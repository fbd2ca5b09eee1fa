"""Writes that a program ends beside are reported, and it exits with another status."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import weakref
from typing import Any, Protocol

from ztensor.errors import SourceError

_LOG = logging.getLogger("ztensor")


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


def exit_with(error: BaseException) -> None:
    """Have the program exit with 120, and say why; the first error that is given counts.

    That is Python's own number for an error that comes when the exit status is settled already.
    """
    if not isinstance(sys.stdout, _FailingAtExit):
        sys.stdout = _FailingAtExit(sys.stdout, error)


@atexit.register
def _end_writes() -> None:
    """Report what daemons had not written."""
    for reference in _WRITES.keyrefs():  # a list: daemons go on
        write = reference()
        thread = None if write is None else _WRITES.get(write)
        if write is not None and write.is_open and thread is not None and thread.is_alive():
            error = SourceError(
                "the write had not ended when the program did: its thread is a daemon, which ends "
                "with the program",
                file=write.name,
            )
            _LOG.error("%s", error)
            exit_with(error)
