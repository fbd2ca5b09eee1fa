"""Writes that a program ends beside are reported, and it exits with another status."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ztensor.errors import SourceError

if TYPE_CHECKING:
    from ztensor.io.source.base import Sink

_LOG = logging.getLogger("ztensor")


_WRITES: weakref.WeakKeyDictionary[Sink, threading.Thread] = weakref.WeakKeyDictionary()


def note_write(sink: Sink) -> None:
    """Note that this thread writes something, in case it is a daemon that dies with the program.

    That is reported where the sink `is_open`: neither committed nor aborted.
    """
    if threading.current_thread().daemon:
        _WRITES[sink] = threading.current_thread()


class _FailingAtExit:
    """Standard output whose last flush raises an error.

    Python reports that error by `sys.unraisablehook`, and exits with 120. Everything else that is
    done at exit is done.
    """

    closed = False

    def __init__(self, stream: Any, error: BaseException) -> None:
        self._stream = stream
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

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
    for sink, thread in list(_WRITES.items()):  # daemons go on
        if thread.is_alive() and getattr(sink, "is_open", False):
            error = SourceError(
                "the write had not ended when the program did: its thread is a daemon, which ends "
                "with the program",
                file=sink.name,
            )
            _LOG.error("%s", error)
            exit_with(error)
