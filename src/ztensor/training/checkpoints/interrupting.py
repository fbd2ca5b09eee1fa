"""Note a signal that asks a run to save and end, for the training loop to look at."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, UsageError, describe

if TYPE_CHECKING:
    from types import FrameType


class Interruption:
    """Notes that a signal came; the previous handler is called, too.

    Args:
        name: name of the signal, such as "SIGTERM".

    Attributes:
        came: whether it came.

    Raises:
        ArgumentValueError: the signal is unknown.
        UsageError: this is not the main thread, and Python handles signals only there.
    """

    def __init__(self, name: str) -> None:
        number = getattr(signal, name, None) if isinstance(name, str) else None
        if not isinstance(number, signal.Signals):
            raise ArgumentValueError(
                "unknown signal",
                expected="a name such as 'SIGTERM'",
                found=describe(name, 40),
            )
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("signals are handled in the main thread: make the manager there")
        self.came = False
        self._number: int = number
        self._process = os.getpid()
        self._own = self._note  # kept, to be recognized in `give_up`
        self._before: Any = signal.signal(number, self._own)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child, such as a data loader, must end
            signal.signal(number, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), number)
            return
        self.came = True
        if callable(self._before):
            self._before(number, frame)

    def give_up(self) -> None:
        """Restore the previous handler; does nothing a second time."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(self._number) is self._own:
            signal.signal(self._number, signal.SIG_DFL if self._before is None else self._before)
