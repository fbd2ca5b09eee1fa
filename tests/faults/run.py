"""The long form of the fault tests: `make faults`. Prints tables; exits with 1 where one is bad.

python tests/faults/run.py                 everything, ten minutes and more on two cores
python tests/faults/run.py --seed 7        other power cuts, other moments to kill at
python tests/faults/run.py --kills 1000    more real kills of each kind
python tests/faults/run.py --only 2.x      operations whose row has this in its name
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # started by path

from collections.abc import Callable, Iterator, Mapping

from tests.faults.divided import DIVIDED
from tests.faults.judge import Outcome
from tests.faults.kills import RUNS
from tests.faults.operations import OPERATIONS, TARGET
from tests.faults.steps import CHANGES, AnyChange, cut_power_of_run, fail_run, kill_run
from tests.faults.test_kill import kill_in_a_process
from tests.faults.test_processes import Worker, together
from tests.faults.trials import (
    COMPOUND,
    FAULTS,
    Tally,
    cut_power,
    fail_each,
    kill_everywhere,
    kill_split,
)
from tests.faults.two_managers import MEETINGS, meet
from tests.faults.worker import tensors
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.faults.operations import Operation

COLUMNS = ("states", "distinct", *Outcome, "litter")


def main() -> int:
    """Run everything and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of power cuts and kill moments")
    parser.add_argument("--kills", type=int, default=200, help="real kills per operation")
    parser.add_argument("--cuts", type=int, default=1000, help="power cuts per operation")
    parser.add_argument("--seconds", type=float, default=10, help="of readers against a writer")
    parser.add_argument("--only", default="", help="operations whose row has this in its name")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # torn files opened at their last state are the point
    begin = time.monotonic()
    print(f"seed {options.seed}\n")
    bad = crash_table("Killed at every call, and inside every write", _kill, options.only)
    bad += crash_table(
        "Power cut: what was not flushed is there, missing, or there in part",
        lambda operation, nameless, folder: cut_power(
            operation, folder, nameless=nameless, count=options.cuts, seed=options.seed
        ),
        options.only,
    )
    bad += failing_calls(options.only)
    bad += changes_of_folders("Steps of a run", "steps", CHANGES, 13, options)
    bad += meetings(options.only)
    bad += changes_of_folders("Divided checkpoints", "divided", DIVIDED, 97, options)
    bad += real_kills(options.kills, options.seed, options.only)
    bad += 0 if options.only else races(options.seconds)
    print(f"{bad} bad; {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


def _kill(operation: Operation, nameless: bool, folder: Path) -> Tally:
    return kill_everywhere(
        operation, folder, nameless=nameless, stride=7, dense_bytes=2048, repair_every=500
    )


def _tries(only: str) -> Iterator[tuple[Operation, bool]]:
    for operation in OPERATIONS.values():
        if only not in operation.group:
            continue
        yield operation, True
        if operation.puts_in_place and hasattr(os, "O_TMPFILE"):
            yield operation, False


def crash_table(title: str, judge: Callable[[Operation, bool, Path], Tally], only: str) -> int:
    """Judge every operation, print a row for each group, and return how many states are bad."""
    groups: dict[str, Tally] = {}
    for operation, nameless in _tries(only):
        with tempfile.TemporaryDirectory() as folder:
            tally = judge(operation, nameless, Path(folder))
        groups.setdefault(operation.group, Tally()).include(tally)
    if judge is _kill and only in "split":
        groups["split"] = Tally()
        for over_another in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                groups["split"].include(
                    kill_split(Path(folder), over_another=over_another, stride=7, dense_bytes=2048)
                )
    total, of_2 = Tally(), Tally()
    for name, tally in groups.items():
        total.include(tally)
        if name.endswith("2.x"):
            of_2.include(tally)
    print(title)
    _row("operation", COLUMNS)
    for name, tally in {**groups, "all": total}.items():
        counts = (tally.states, tally.distinct, *tally.outcomes.values(), tally.litter)
        _row(name, counts)
    print(f"of 2.x: {of_2.states} states, {of_2.torn} of which did not open as they are")
    print(f"mended by both ways of repair: {total.repaired}; ", end="")
    print(f"damage a minimal reader did not notice and ours did: {total.fooled}\n")
    return total.bad


def changes_of_folders(
    title: str,
    group: str,
    every: Mapping[str, AnyChange],
    stride: int,
    options: argparse.Namespace,
) -> int:
    """Judge a folder at every moment of its changes.

    Args:
        title: what is printed above the table.
        group: stands before the names of the changes, for `--only`.
        every: the changes.
        stride: bytes between two places of a write where it is killed.
        options: of the command.
    """
    cuts, seed, only = options.cuts, options.seed, options.only
    changes = {name: change for name, change in every.items() if only in f"{group}: {name}"}
    if not changes:
        return 0
    print(f"{title}: killed at every call and in every write, power cuts, calls that fail")
    _row("change", COLUMNS)
    total = Tally()
    for name, change in changes.items():
        tally = Tally()
        tries: list[Callable[[Path], Tally]] = [
            lambda folder: kill_run(change, folder, stride=stride),  # noqa: B023  # called at once
            lambda folder: kill_run(change, folder, stride=stride, nameless=False),  # noqa: B023
            lambda folder: cut_power_of_run(change, folder, count=cuts, seed=seed),  # noqa: B023
            lambda folder: fail_run(change, folder),  # noqa: B023
        ]
        for judge in tries:
            with tempfile.TemporaryDirectory() as folder:
                tally.include(judge(Path(folder)))
        total.include(tally)
        _row(name, (tally.states, tally.distinct, *tally.outcomes.values(), tally.litter))
    _row("all", (total.states, total.distinct, *total.outcomes.values(), total.litter))
    print()
    return total.bad


def meetings(only: str) -> int:
    """Let two managers of one folder meet behind each call, and return how many went wrong."""
    chosen = {name: one for name, one in MEETINGS.items() if only in f"managers: {name}"}
    if not chosen:
        return 0
    print("Two managers on one folder: behind each call of the one the other makes a whole change")
    _row("change", COLUMNS)
    total = Tally()
    for name, meeting in chosen.items():
        tally = Tally()
        for nameless in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                tally.include(meet(meeting, Path(folder), nameless=nameless))
        total.include(tally)
        _row(name, (tally.states, tally.distinct, *tally.outcomes.values(), tally.litter))
        for error in tally.errors:
            print(f"    {error}")
    _row("all", (total.states, total.distinct, *total.outcomes.values(), total.litter))
    print()
    return total.bad


def failing_calls(only: str) -> int:
    """Let each call fail in each way; every check is an assert within."""
    print("Each call fails once: no space, I/O error, short write, Ctrl-C before and behind it")
    _row("operation", ("tries", "error", "Ctrl-C", "survived", "old", "new", "torn, recovered"))
    rows: dict[str, list[int]] = {}
    for operation, nameless in _tries(only):
        row = rows.setdefault(operation.group, [0] * 7)
        with tempfile.TemporaryDirectory() as folder:
            template = Path(folder) / "template"
            template.mkdir()
            judge = operation.prepare(template)
            for faults in [*([fault] for fault in FAULTS.values()), *COMPOUND.values()]:
                for attempt in fail_each(
                    operation, faults, template, Path(folder) / "tried", judge, nameless=nameless
                ):
                    row[0] += 1
                    row[1] += isinstance(attempt.error, Exception)
                    row[2] += isinstance(attempt.error, KeyboardInterrupt)
                    row[3] += attempt.error is None
                    row[4] += attempt.outcome is Outcome.OLD
                    row[5] += attempt.outcome is Outcome.NEW
                    row[6] += attempt.outcome is Outcome.RECOVERED
    for name, row in rows.items():
        _row(name, row)
    bad = sum(row[0] - sum(row[4:]) for row in rows.values())
    bad += sum(row[6] for name, row in rows.items() if name.endswith("2.x"))
    print(f"{sum(row[0] for row in rows.values())} tries\n")
    return bad


def real_kills(tries: int, seed: int, only: str) -> int:
    """Kill real processes and return how many files were bad."""
    if not hasattr(os, "fork"):
        print("kill -9: left out, since this system has no fork\n")
        return 0
    print("kill -9 of real processes at random moments")
    bad = 0
    for number, operation in enumerate(name for name in RUNS if only in name):
        with tempfile.TemporaryDirectory() as folder:
            counts = kill_in_a_process([operation], tries, seed, Path(folder))[operation]
        if number == 0:
            _row("operation", counts)
        _row(operation, counts.values())
        bad += counts["lost"] + counts["silently wrong"] + counts["litter"]
        bad += counts["torn, recovered"] if operation.endswith("2.x") else 0
    print()
    return bad


def races(seconds: float) -> int:
    """Let readers loop against a writer, and return how many reads were bad."""
    print(f"Two readers against a writer, {seconds:g} s each")
    _row("writer", ("writes", "mapped reads", "other reads", "bad"))
    bad = 0
    for verb in ("save_for", "append_for"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / TARGET
            save_file(tensors(0), path)
            written, *read = together(
                Worker(verb, path, 10, seconds),
                Worker("read_for", path, "mapped", seconds),
                Worker("read_for", path, "read", seconds),
            )
        wrong = sum(result["bad"] for result in read)
        _row(verb.split("_")[0], (written["done"], *(result["done"] for result in read), wrong))
        bad += wrong
    print()
    return bad


def _row(name: str, cells: object) -> None:
    assert hasattr(cells, "__iter__")
    print(f"{name:>14}", *(f"{cell!s:>16}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
