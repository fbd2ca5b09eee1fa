"""Background saves complete even if the program ends, and lost saves are reported."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING

from ztensor.errors import SourceError
from ztensor.threads.background import exit_with

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("ztensor")


class BackgroundSave:
    """A write in its own thread that completes even if the program ends.

    Python waits for the thread at exit, and an exit hook does so if Ctrl-C interrupted that. A
    failure that `wait` has not raised by then is reported, and the program exits with 120, Python's
    status for errors after the exit status is settled.

    Args:
        work: the function that writes; None for a write that has ended.
        name: the target of the write, for messages.
    """

    def __init__(self, work: Callable[[], None] | None, name: str) -> None:
        self.name = name
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"ztensor {name}")
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; if the interpreter is shutting down, write before this returns.

        Raises:
            Exception: the error of a write that is done at once.
        """
        _BACKGROUND.add(self)
        if threading.main_thread().is_alive():  # otherwise Python no longer waits for threads
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter or the system starts no more threads
                pass
            else:
                return
        self._run()
        self.wait()

    def wait(self) -> None:
        """Wait until the write has ended.

        Raises:
            BaseException: the error of the write; raised once.
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
        except BaseException as error:  # noqa: BLE001  # raised by `wait`
            self._failure = error
            _LOG.error("%s was not saved: %s", self.name, error)
        else:
            _BACKGROUND.discard(self)


_BACKGROUND: set[BackgroundSave] = set()
if hasattr(os, "register_at_fork"):  # a child process does not have the threads
    os.register_at_fork(after_in_child=_BACKGROUND.clear)


@atexit.register
def _end_all() -> None:
    """Wait for running writes, and report lost ones."""
    for background in list(_BACKGROUND):
        try:
            background.wait()
        except KeyboardInterrupt as error:
            lost = SourceError(
                "the write had not ended when the program did: it was interrupted",
                file=background.name,
            )
            lost.__cause__ = error
            _LOG.error("%s", lost)
            exit_with(lost)
        except BaseException as error:  # noqa: BLE001  # reported at the end
            exit_with(error)
