"""Feed mutated files to the reader until the time is up; end with status 1 on any escape.

    python fuzz/run.py                        ten minutes, two processes, a seed from the clock
    python fuzz/run.py --seconds 60 --seed 7  the same cases every time
    python fuzz/run.py --seed 7 --case 12345  one case again, with its traceback

An escape is what no bytes may cause: an exception outside the family, a warning, a broken promise,
more CPU time or memory than a case may take, a dead or hanging process. Each is saved with what it
takes to repeat it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import signal
import sys
import time
import traceback
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import ztensor
from ztensor.container import v1
from ztensor.testing.promise import Outcome, PromiseBroken, exercise

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutation

HERE = Path(__file__).resolve().parent
ESCAPES = HERE / "escapes"
MIB = 1 << 20

# A case of a few KB takes a fraction of a millisecond; expanding what it legally may expand to,
# a few tens of them.
CASE_SECONDS = 1.0
HANG_SECONDS = 30.0
LIMITS = ztensor.Limits(decoded_bytes=16 * MIB)
SPARE_BYTES = 64 * MIB  # the promise: memory beyond what is returned
SPACE_BYTES = 512 * MIB  # address space beyond what the process had when it began
TRACED = 257  # every so many cases memory is measured, which is slow
THREADED = 101  # and verifying uses threads
BY_COLUMNS = 8  # and the way of large manifests is taken, which must come to the same
REPORT_CASES = 500


class Escape(Exception):
    """A case took more than it may."""


class Hang(BaseException):
    """Raised by the alarm; no handler of ours may catch it."""


def run_case(data: bytes, index: int) -> Outcome:
    """Exercise one case under all its bounds.

    Raises:
        Exception: whatever escapes.
    """
    threads = 2 if index % THREADED == 0 else 1
    start = time.process_time()
    if index % TRACED:
        outcome = exercise(data, limits=LIMITS, threads=threads)
    else:
        tracemalloc.start()
        try:
            outcome = exercise(data, limits=LIMITS, threads=threads)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # NumPy reports to tracemalloc also what it asked for and did not get.
        too_large = any(refusal.reason == "limit_decoded" for refusal in outcome.refusals)
        if peak > SPARE_BYTES + outcome.largest and not too_large:
            raise Escape(f"{peak} bytes of memory where {outcome.largest} are returned")
    if index % BY_COLUMNS == 0:
        require_same_by_columns(data, outcome)
    if failures:
        raise Escape("an exception where nobody can catch it") from failures.pop()
    seconds = time.process_time() - start
    if seconds > CASE_SECONDS:
        raise Escape(f"{seconds:.1f} s of CPU time for {len(data)} bytes")
    return outcome


def require_same_by_columns(data: bytes, outcome: Outcome) -> None:
    """Read a small manifest as large ones are read.

    Raises:
        PromiseBroken: what became of the file is not what became of it before.
    """
    usual = v1.REGULAR_BYTES
    v1.REGULAR_BYTES = 0
    try:
        again = exercise(data, limits=LIMITS)
    finally:
        v1.REGULAR_BYTES = usual
    if (again.opened, again.verified, again.refusals) != (
        outcome.opened,
        outcome.verified,
        outcome.refusals,
    ):
        raise PromiseBroken(f"read by columns: {again.refusals}, else {outcome.refusals}")


def guard() -> None:
    """Make everything that must not happen an exception, and bound memory."""
    warnings.simplefilter("error")

    def unraisable(event: Any) -> None:
        failures.append(event.exc_value or event.exc_type())

    sys.unraisablehook = unraisable
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _alarm)
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        most = pages * resource.getpagesize() + SPACE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


failures: list[BaseException] = []


def _alarm(*_: object) -> None:
    raise Hang(f"more than {HANG_SECONDS} s")


def work(seed: int, first: int, step: int, until: float, current: Any, reports: Any) -> None:
    """Run cases `first`, `first + step`, ... until the time is up, and report on them."""
    mutation.corpus()
    exercise(mutation.corpus()[0].data)  # everything that is imported late is now imported
    guard()
    can_alarm = hasattr(signal, "setitimer")
    counts: collections.Counter[tuple[str, ...]] = collections.Counter()
    cases = 0
    index = first
    while time.monotonic() < until:
        current.value = index
        data = mutation.case(seed, index)
        if can_alarm:
            signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            outcome = run_case(data, index)
        except (Exception, Hang) as error:  # noqa: BLE001  # any at all: that is the search
            counts["escape", type(error).__name__] += 1
            save(seed, index, data, error)
        else:
            counts["opened" if outcome.opened else "refused at open", ""] += 1
            for refusal in outcome.refusals:
                counts[refusal.stage, refusal.family, refusal.reason] += 1
        if can_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
        cases += 1
        index += step
        if cases % REPORT_CASES == 0:
            reports.put((first, cases, counts))
            counts = collections.Counter()
    reports.put((first, cases, counts))
    reports.put((first, None, None))


def save(seed: int, index: int, data: bytes, error: BaseException | str) -> Path:
    """Keep an escape: its bytes, and beside them what happened and how to repeat it."""
    ESCAPES.mkdir(exist_ok=True)
    path = ESCAPES / f"{seed}-{index}.zt"
    path.write_bytes(data)
    what = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    command = f"python fuzz/run.py --seed {seed} --case {index}"
    path.with_suffix(".txt").write_text(f"{command}\n\n{what}\n", "utf-8")
    return path


def run(seed: int, seconds: float, workers: int) -> int:
    """Run all workers, watch over them, and print what was found; return the exit status."""
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    start = time.monotonic()
    until = start + seconds
    currents = [context.Value("q", -1, lock=False) for _ in range(workers)]
    total: collections.Counter[tuple[str, ...]] = collections.Counter()
    cases = dict.fromkeys(range(workers), 0)

    def begin(number: int, first: int) -> Any:
        process = context.Process(
            target=work,
            args=(seed, first, workers, until, currents[number], reports),
            daemon=True,
        )
        process.start()
        return process

    def lost(number: int, why: str) -> None:
        index = currents[number].value
        total["escape", why] += 1
        save(seed, index, mutation.case(seed, index), f"the process {why}")

    processes = {number: begin(number, number) for number in range(workers)}
    seen = dict.fromkeys(range(workers), (-1, start))
    finished: set[int] = set()
    next_line = start + 10
    while len(finished) < workers:
        with contextlib.suppress(Exception):  # queue.Empty, or a report cut by a dying process
            first, count, counts = reports.get(timeout=0.5)
            if count is None:
                finished.add(first % workers)
            else:
                cases[first % workers] += sum(
                    value for key, value in counts.items() if key[0] in ENDS
                )
                total.update(counts)
        now = time.monotonic()
        for number, process in processes.items():
            if number in finished:
                continue
            index = currents[number].value
            if index != seen[number][0]:
                seen[number] = (index, now)
            if not process.is_alive() and reports.empty():
                if index < 0:
                    raise SystemExit(f"a worker cannot start: exit code {process.exitcode}")
                lost(number, f"died with exit code {process.exitcode}")
            elif now - seen[number][1] > 2 * HANG_SECONDS:
                process.kill()
                process.join()
                lost(number, "hung")
            else:
                continue
            processes[number] = begin(number, currents[number].value + workers)
            seen[number] = (-1, now)
        if now > next_line:
            next_line = now + 10
            line(sum(cases.values()), now - start, total)
    print()
    for key, count in sorted(total.items()):
        print(f"{count:10}  {'  '.join(part for part in key if part)}")
    print()
    line(sum(cases.values()), time.monotonic() - start, total)
    return 1 if escapes(total) else 0


ENDS = ("opened", "refused at open", "escape")


def escapes(total: collections.Counter[tuple[str, ...]]) -> int:
    return sum(count for key, count in total.items() if key[0] == "escape")


def line(cases: int, seconds: float, total: collections.Counter[tuple[str, ...]]) -> None:
    rate = cases / seconds if seconds else 0
    found = escapes(total)
    where = f", see {ESCAPES.relative_to(HERE.parent)}" if found else ""
    print(
        f"{cases:,} cases in {seconds:.0f} s ({rate:,.0f}/s), "
        f"{total['opened', '']:,} of them opened, {found} escapes{where}",
        flush=True,
    )


def repeat(seed: int, index: int) -> int:
    """Run one case again; let whatever escapes end the process."""
    data = mutation.case(seed, index)
    guard()
    outcome = run_case(data, index)
    print(f"{len(data)} bytes, opened: {outcome.opened}, verified: {outcome.verified}")
    for refusal in outcome.refusals:
        print(f"  {refusal}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed mutated files to the reader.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()) & 0xFFFFFF)
    parser.add_argument("--case", type=int, help="run this one case of the seed again")
    options = parser.parse_args()
    if options.case is not None:
        return repeat(options.seed, options.case)
    print(f"seed {options.seed}, {len(mutation.corpus())} files to start from", flush=True)
    return run(options.seed, options.seconds, options.workers)


if __name__ == "__main__":
    sys.exit(main())
