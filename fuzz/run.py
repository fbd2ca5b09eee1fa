"""Feed damaged files of every format to the reader, and hold it to the promise and the budget.

    python fuzz/run.py                            ten minutes, a seed from the clock
    python fuzz/run.py --cases 20000000 --jobs 2  so many cases, two processes
    python fuzz/run.py --seconds 60 --seed 7 --formats gguf,onnx
    python fuzz/run.py --seed 7 --case gguf:12345 one case again, with its traceback

An escape is what no bytes may cause: an exception outside the family, or what the guard made of one
(`Reason.UNFORESEEN`), a warning, a broken promise, a dead or hanging process. A case is over budget
that takes more time or memory than listing or refusing so many bytes may. Each is saved with what
it takes to repeat it, and the run ends with status 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from judging import HANG_SECONDS, Hang, Judge, OverBudget
from targets import BLOCK, TARGETS, rounds

HERE = Path(__file__).resolve().parent
ESCAPES = HERE / "escapes"
REPORT_SECONDS = 2.0
SAVED = 5  # escapes that are kept of one kind; all are counted

Counts = collections.Counter[tuple[str, str]]


def blocks(names: list[str], first: int, step: int) -> Any:
    """Yield target and number of each block that a worker has, without end."""
    turn = [name for name in rounds() if name in names]
    done = dict.fromkeys(names, 0)
    for number in range(1 << 62):
        name = turn[number % len(turn)]
        if number % step == first:
            yield number, name, done[name]
        done[name] += 1


def work(
    seed: int, names: list[str], plan: tuple[int, int, int], until: tuple[float, int],
    current: Any, reports: Any,
) -> None:  # fmt: skip
    """Run the blocks `first`, `first + step`, ... of a round, and report on them.

    Args:
        seed: of the run.
        names: of the targets.
        plan: the first block and the step, and the block to begin with.
        until: the time and the number of blocks at which to stop.
        current: where the block and the case in hand are noted.
        reports: where counts go.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    logging.getLogger("ztensor").disabled = True  # it reports each torn file
    first, step, begin = plan
    parent = os.getppid()
    for name in names:
        for data, whole in warm_up(name):
            with contextlib.suppress(Exception):
                TARGETS[name].run(data, whole=whole)  # imports the lazy modules is now imported
    judge = Judge()
    counts: Counts = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    next_report = time.monotonic() + REPORT_SECONDS
    for number, name, block in blocks(names, first, step):
        if number < begin:
            continue
        if time.monotonic() > until[0] or number >= until[1] or os.getppid() != parent:
            break  # the parent was killed: this process ends itself
        target = TARGETS[name]
        judge.begin_block()
        for at, (data, whole) in enumerate(target.cases(seed, block)):
            current[0], current[1] = number, at
            try:
                counts[name, judge.judge(target, data, whole=whole)] += 1
            except (Exception, Hang) as error:  # noqa: BLE001  # any at all: that is the search
                kind = "OVER BUDGET" if isinstance(error, OverBudget) else "ESCAPE"
                counts[name, kind] += 1
                place = f"{name} {where(error)}"
                kinds[place] += 1
                if kinds[place] <= SAVED:
                    save(seed, name, block * BLOCK + at, data, error)
                reports.put((first, "kind", f"{kind} {place}"))
                judge.begin_block()
        current[0], current[1] = number + step, 0
        counts[name, " milliseconds"] = round(1000 * judge.slowest)
        counts[name, " bytes"] = judge.largest
        judge.slowest, judge.largest = 0.0, 0
        reports_due = time.monotonic() > next_report
        flush(reports, first, counts, due=reports_due)
        if reports_due:
            next_report = time.monotonic() + REPORT_SECONDS
    judge.end()
    flush(reports, first, counts, due=True)
    reports.put((first, "end", None))


_held: dict[tuple[str, str], int] = {}


def flush(reports: Any, first: int, counts: Counts, *, due: bool) -> None:
    """Hand counts over now and then; of the largest numbers the largest is kept."""
    for key in [key for key in counts if key[1].startswith(" ")]:
        _held[key] = max(_held.get(key, 0), counts.pop(key))
    if due:
        reports.put((first, "counts", (dict(counts), dict(_held))))
        counts.clear()


def warm_up(name: str) -> Any:
    target = TARGETS[name]
    for data in target.seeds()[:20]:
        yield data, False
        yield data, True


def where(error: BaseException) -> str:
    """Return kind and place of an exception, which identify a finding."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "ztensor" in frame.filename] or frames
    last = ours[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} {last.name}"


def save(seed: int, name: str, index: int, data: bytes, error: BaseException | str) -> Path:
    """Keep an escape: its bytes, and beside them what happened and how to repeat it."""
    ESCAPES.mkdir(exist_ok=True)
    path = ESCAPES / f"{name}-{seed}-{index}.bin"
    path.write_bytes(data)
    what = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    command = f"python fuzz/run.py --seed {seed} --case {name}:{index}"
    path.with_suffix(".txt").write_text(f"{command}\n\n{what}\n", "utf-8")
    return path


class Run:
    """The processes of a run, and their findings."""

    def __init__(self, options: argparse.Namespace, names: list[str]) -> None:
        self._seed, self._names, self._jobs = options.seed, names, options.jobs
        self._context = multiprocessing.get_context("spawn")
        self._reports = self._context.Queue()
        self._start = time.monotonic()
        seconds = float("inf") if options.seconds is None else options.seconds
        most = 1 << 60 if options.cases is None else -(-options.cases // BLOCK)
        self._until = (self._start + seconds, most)
        self._currents = [
            self._context.Array("q", [-1, 0], lock=False) for _ in range(options.jobs)
        ]
        self.counts: Counts = collections.Counter()
        self.most: dict[tuple[str, str], int] = {}
        self.kinds: collections.Counter[str] = collections.Counter()

    def go(self) -> None:
        """Run until all is done, and watch over the processes."""
        # Threads of the reader share one heap, as the bound on the address space counts each.
        os.environ["MALLOC_ARENA_MAX"] = "1"
        processes = {number: self._begin(number, 0) for number in range(self._jobs)}
        seen = dict.fromkeys(processes, ((-1, 0), time.monotonic()))
        next_line = self._start + 10
        while processes:
            self._take()
            now = time.monotonic()
            for number, process in list(processes.items()):
                place = tuple(self._currents[number])
                if place != seen[number][0]:
                    seen[number] = (place, now)
                is_hung = now - seen[number][1] > 5 * HANG_SECONDS  # a busy machine has its pauses
                if process.is_alive() and not is_hung:
                    continue
                if is_hung:
                    process.kill()
                process.join()
                if process.exitcode == 0:
                    del processes[number]
                    continue
                self._lost(number, "hung" if is_hung else f"died with exit code {process.exitcode}")
                processes[number] = self._begin(number, self._currents[number][0] + 1)
                seen[number] = ((-1, 0), now)
            if now > next_line:
                next_line = now + 10
                print(self.line(), flush=True)
        while self._take(wait=0.2):
            pass

    def _begin(self, number: int, begin: int) -> Any:
        process = self._context.Process(
            target=work,
            args=(
                self._seed, self._names, (number, self._jobs, begin), self._until,
                self._currents[number], self._reports,
            ),
            daemon=True,
        )  # fmt: skip
        process.start()
        return process

    def _take(self, wait: float = 0.5) -> bool:
        with contextlib.suppress(Exception):  # queue.Empty, or a report cut by a dying process
            _, what, value = self._reports.get(timeout=wait)
            if what == "counts":
                self.counts.update(value[0])
                for key, number in value[1].items():
                    self.most[key] = max(self.most.get(key, 0), number)
            elif what == "kind":
                self.kinds[value] += 1
            return True
        return False

    def _lost(self, number: int, why: str) -> None:
        """Note the case of a process that is gone; the rest of its block is left out."""
        number, at = self._currents[number]
        if number < 0:
            raise SystemExit(f"a worker cannot work: {why}")
        _, name, block = next(one for one in blocks(self._names, 0, 1) if one[0] == number)
        data = b""
        with contextlib.suppress(Exception):  # making the case may fail itself
            cases = enumerate(TARGETS[name].cases(self._seed, block))
            data = next(data for number, (data, _) in cases if number == at)
        save(self._seed, name, block * BLOCK + at, data, f"the process {why}")
        self.counts[name, "ESCAPE"] += 1
        self.kinds[f"ESCAPE {name}: the process {why}"] += 1

    @property
    def cases(self) -> int:
        """Return how many cases were run."""
        return sum(self.counts.values())

    @property
    def failures(self) -> int:
        """Return how many of them escaped or were over budget."""
        return sum(count for (_, what), count in self.counts.items() if what.isupper())

    def line(self) -> str:
        """Return how far it is."""
        seconds = time.monotonic() - self._start
        where_to = f", see {ESCAPES.relative_to(HERE.parent)}" if self.failures else ""
        return (
            f"{self.cases:,} cases in {seconds:.0f} s ({self.cases / seconds:,.0f}/s), "
            f"{self.failures} escapes or over budget{where_to}"
        )

    def table(self) -> str:
        """Return the findings, by format."""
        columns = ("cases", "opened", "refused", "escapes", "over budget", "slowest", "peak")
        rows = [("format", *columns)]
        totals = [0] * 5
        for name in self._names:
            of_it = {what: count for (one, what), count in self.counts.items() if one == name}
            escapes, over = of_it.pop("ESCAPE", 0), of_it.pop("OVER BUDGET", 0)
            opened, all_others = of_it.pop("opened", 0), sum(of_it.values())
            numbers = [opened + all_others + escapes + over, opened, all_others, escapes, over]
            totals = [one + more for one, more in zip(totals, numbers, strict=True)]
            slowest = self.most.get((name, " milliseconds"), 0)
            peak = self.most.get((name, " bytes"), 0) / (1 << 10)
            rows.append((name, *(f"{n:,}" for n in numbers), f"{slowest} ms", f"{peak:,.0f} KiB"))
        rows.append(("all", *(f"{n:,}" for n in totals), "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if at == 0 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        found = [f"{count:8}  {kind}" for kind, count in self.kinds.most_common()]
        return "\n".join([*lines, "", *found])

    def reasons(self) -> str:
        """Return how often each reason was given, by format."""
        found = [(n, what, c) for (n, what), c in self.counts.items() if what != "opened"]
        return "\n".join(f"{count:10}  {name:12}  {what}" for name, what, count in sorted(found))


def repeat(seed: int, case: str) -> int:
    """Run one case again; let whatever escapes end the process."""
    name, _, index = case.partition(":")
    if name not in TARGETS or not index.isdigit():
        raise SystemExit(f"no such case: {case}; it looks like gguf:12345")
    block, at = divmod(int(index), BLOCK)
    cases = enumerate(TARGETS[name].cases(seed, block))
    data, whole = next(found for number, found in cases if number == at)
    print(f"{len(data)} bytes, {data[:64]!r}")
    for one, is_whole in warm_up(name):
        with contextlib.suppress(Exception):
            TARGETS[name].run(one, whole=is_whole)
    print(Judge().judge(TARGETS[name], data, whole=whole))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed damaged files to the reader.")
    parser.add_argument("--cases", type=int, help="stop after so many")
    parser.add_argument("--seconds", type=float, help="stop after so long; 600 without --cases")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--formats", help=f"some of: {','.join(TARGETS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()) & 0xFFFFFF)
    parser.add_argument("--case", help="run this one case of the seed again, FORMAT:NUMBER")
    parser.add_argument("--reasons", action="store_true", help="count the refusals by reason")
    options = parser.parse_args()
    if options.case is not None:
        return repeat(options.seed, options.case)
    names = list(TARGETS) if options.formats is None else options.formats.split(",")
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no such formats: {', '.join(unknown)}")
    if options.cases is None and options.seconds is None:
        options.seconds = 600.0
    print(f"seed {options.seed}, {len(names)} formats, {options.jobs} processes", flush=True)
    run = Run(options, names)
    run.go()
    if options.reasons:
        print(f"\n{run.reasons()}")
    print(f"\n{run.table()}\n{run.line()}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
