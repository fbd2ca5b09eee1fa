"""Report writes that the end of the program cuts off, and exit with another status."""

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
    """Note that this thread writes, in case it is a daemon, which ends with the program.

    A write is reported if the sink `is_open`: neither committed nor aborted.
    """
    if threading.current_thread().daemon:
        _WRITES[sink] = threading.current_thread()


class _FailingAtExit:
    """Standard output with a last flush that raises an error.

    Python reports the error by `sys.unraisablehook`, and exits with 120 after all other steps of
    its shutdown.
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
    """Make the program exit with 120 and report the error; only the first call counts.

    Python itself uses 120 for errors during the shutdown.
    """
    if not isinstance(sys.stdout, _FailingAtExit):
        sys.stdout = _FailingAtExit(sys.stdout, error)


@atexit.register
def _end_writes() -> None:
    """Report the unfinished writes of daemons."""
    for sink, thread in list(_WRITES.items()):  # daemons go on
        if thread.is_alive() and getattr(sink, "is_open", False):
            error = SourceError(
                "the write had not ended when the program did: its thread is a daemon, which ends "
                "with the program",
                file=sink.name,
            )
            _LOG.error("%s", error)
            exit_with(error)
