"""The bounds a case must keep: the promise, and the cost budget in time and in memory.

Measuring memory exactly is slow, so cases run under cheap watches: an address space with little
more room than the budget, and the process's largest resident size, which is asked for after every
case. A case that touches one of them, or that is slow, or that is chosen now and then, runs once
more, measured exactly; only that measurement is a verdict.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import targets
from targets import LIMITS, Target

from ztensor.errors import ZTensorError
from ztensor.limits import MIB
from ztensor.testing import promise

with contextlib.suppress(ImportError):  # not on every system
    import resource

# The budget of the limits in force, for listing or refusing a file: memory, and time at the pace
# of a slow day.
FLOOR_BYTES, FACTOR = LIMITS.cost_floor, LIMITS.cost_factor
FLOOR_SECONDS, SECONDS_PER_BYTE = 0.5, 4e-6
# All that users do with a file takes its results beside, some of them twice.
WHOLE_BYTES, WHOLE_SECONDS = 64 * MIB, 1.5
# The cost of a case above which it is measured exactly.
QUIET_BYTES, QUIET_SECONDS = 1 * MIB, 0.1
DRIFT_BYTES = 64 * MIB  # address space for growth of the process itself
WHOLE_SPACE = 512 * MIB
MEASURED_SPACE = 2048 * MIB  # a file that claims more must not reach the system's own limits
MEASURED = 2039  # every so many cases are measured whatever they did
LONG_BYTES = 6 << 10  # and so are those that were grown
HANG_SECONDS = 60.0  # of CPU time, for a block of cases


class Escape(Exception):
    """A case broke a promise."""


class OverBudget(Escape):
    """A case took more time or memory than it may."""


class Hang(BaseException):
    """Raised by the alarm; no handler of ours may catch it."""


class Judge:
    """Runs cases in this process and judges them.

    Attributes:
        slowest: seconds of the slowest case since it was last asked.
        largest: bytes of the largest measured peak since then.
    """

    def __init__(self) -> None:
        warnings.simplefilter("error")
        sys.unraisablehook = self._unraisable
        self._failures: list[BaseException] = []
        self._can_alarm = hasattr(signal, "setitimer")
        if self._can_alarm:
            signal.signal(signal.SIGPROF, _alarm)
        self._count = 0
        self.slowest, self.largest = 0.0, 0
        self._refs: Any = None
        with contextlib.suppress(OSError):
            self._refs = open("/proc/self/clear_refs", "wb", buffering=0)  # noqa: SIM115
        gc.collect()
        gc.freeze()  # permanent objects need not be collected
        self._space = _address_space()
        self._quiet = self._forget_peak() + QUIET_BYTES

    def begin_block(self) -> None:
        """Start the alarm anew, for a block of cases."""
        if self._can_alarm:
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        self._quiet = self._forget_peak() + QUIET_BYTES
        # A process comes to need more in the course of time, and without any room left CPython
        # itself goes wrong: calls without a frame, arguments of other calls.
        self._space = _address_space()

    def end(self) -> None:
        """Stop the alarm."""
        if self._can_alarm:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def judge(self, target: Target, data: bytes, *, whole: bool) -> str:
        """Run one case; return `opened`, or the reason for which it was refused.

        Raises:
            Exception: whatever escapes.
        """
        self._count += 1
        start = time.process_time()
        memory_error = None
        space = WHOLE_SPACE if whole else FLOOR_BYTES + FACTOR * len(data)
        self._allow(space + target.room)
        try:
            outcome, memory_error = self._attempt(target, data, whole=whole)
        except (MemoryError, SystemError) as error:  # CPython raises the other for want of a frame
            outcome, memory_error = "", error
        finally:
            self._allow(MEASURED_SPACE)  # the next case is made in this process, too
        seconds = time.process_time() - start
        self.slowest = max(self.slowest, seconds)
        if self._failures:
            raise Escape("an exception that no caller can catch") from self._failures.pop()
        if (
            memory_error is not None
            or seconds > QUIET_SECONDS
            or self._count % MEASURED == 0
            or len(data) > LONG_BYTES
            or _peak() > self._quiet
        ):
            outcome = self._measured(target, data, seconds, whole=whole)
            self._quiet = self._forget_peak() + QUIET_BYTES
        return outcome

    def _attempt(
        self, target: Target, data: bytes, *, whole: bool
    ) -> tuple[str, BaseException | None]:
        try:
            return ("opened" if target.run(data, whole=whole) else "refused"), None
        except ZTensorError as error:
            if error.reason == "limit_memory":  # which the guard makes of it
                return error.reason, error
            refusal = promise.refusal_of(error, "open")
            return refusal.reason, error if _is_of_memory(error) else None

    def _measured(self, target: Target, data: bytes, seconds: float, *, whole: bool) -> str:
        """Run a case again and hold it to the budget.

        Raises:
            OverBudget: it takes more.
        """
        floor = WHOLE_SECONDS if whole else FLOOR_SECONDS
        bound = floor + SECONDS_PER_BYTE * len(data)
        for _ in range(2):  # the machine may have been busy with something else
            if seconds <= bound:
                break
            start = time.process_time()
            self._attempt(target, data, whole=whole)
            seconds = min(seconds, time.process_time() - start)
        else:
            if seconds > bound:
                raise OverBudget(f"{seconds:.2f} s of CPU time for {len(data)} bytes")
        results = _Results() if whole else None
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            with results or contextlib.nullcontext():
                outcome, error = self._attempt(target, data, whole=whole)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        if outcome == "limit_memory":
            raise OverBudget(f"more memory than {MEASURED_SPACE} bytes") from error
        most = (WHOLE_BYTES if whole else FLOOR_BYTES) + FACTOR * len(data) + target.room
        if results is not None:
            # NumPy reports to tracemalloc also memory that it asked for and did not get.
            most += sys.maxsize if results.is_unknown else results.largest
        else:
            self.largest = max(self.largest, peak)
        if peak > most:
            raise OverBudget(f"{peak} bytes of memory for {len(data)} bytes, {most} allowed")
        return outcome

    def _allow(self, space: int) -> None:
        """Bound the address space to its size before the block, and so much more."""
        if self._space is not None:
            most = self._space + DRIFT_BYTES + space
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def _forget_peak(self) -> int:
        if self._refs is not None:
            self._refs.write(b"5")  # Linux: the largest resident size is now the present one
        return _peak()

    def _unraisable(self, event: Any) -> None:
        self._failures.append(event.exc_value or event.exc_type())


class _Results:
    """Notes how much memory the results of `exercise` have, while it is entered."""

    def __init__(self) -> None:
        self.largest = 0
        self.is_unknown = False

    def __enter__(self) -> None:
        self._usual = targets.exercise
        targets.exercise = self._exercise

    def __exit__(self, *_: object) -> None:
        targets.exercise = self._usual

    def _exercise(self, data: Any, **options: Any) -> promise.Outcome:
        outcome = self._usual(data, **options)
        self.largest = max(self.largest, outcome.largest)
        self.is_unknown |= any(refusal.reason == "limit_decoded" for refusal in outcome.refusals)
        return outcome


def _alarm(*_: object) -> None:
    raise Hang(f"more than {HANG_SECONDS} s of CPU time")


def _is_of_memory(error: BaseException) -> bool:
    """Return whether an error stands for a lack of memory."""
    cause: BaseException | None = error
    for _ in range(8):  # causes may go round in a circle
        if cause is None or isinstance(cause, MemoryError):
            break
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, MemoryError)


def _peak() -> int:
    if "resource" not in globals():
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _address_space() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return pages * resource.getpagesize()
    except (NameError, OSError, ValueError):
        return None
