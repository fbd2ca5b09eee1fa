"""A signal that asks a run to save and end, told to the loop and not to whatever it interrupts."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, UsageError, describe

if TYPE_CHECKING:
    from types import FrameType


class Interruption:
    """Notes that a signal came; what handled it before is called, too.

    Args:
        name: of the signal, such as "SIGTERM".

    Attributes:
        came: whether it did.

    Raises:
        ArgumentValueError: there is no signal of that name.
        UsageError: this is not the main thread, in which alone Python handles signals.
    """

    def __init__(self, name: str) -> None:
        number = getattr(signal, name, None) if isinstance(name, str) else None
        if not isinstance(number, signal.Signals):
            raise ArgumentValueError(
                "there is no such signal",
                expected="a name such as 'SIGTERM'",
                found=describe(name, 40),
            )
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("signals are handled in the main thread: make the manager there")
        self.came = False
        self._number: int = number
        self._process = os.getpid()
        self._own = self._note  # one object, by which it is known again
        self._before: Any = signal.signal(number, self._own)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child, such as a loader of data, is to end by it
            signal.signal(number, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), number)
            return
        self.came = True
        if callable(self._before):
            self._before(number, frame)

    def give_up(self) -> None:
        """Let what handled the signal before handle it again; does nothing a second time."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(self._number) is self._own:
            signal.signal(self._number, signal.SIG_DFL if self._before is None else self._before)
