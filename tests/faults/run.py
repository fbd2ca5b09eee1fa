"""The long form of the fault tests: `make faults`. Prints tables; exits with 1 where one is bad.

python tests/faults/run.py                 everything, ten minutes and more on two cores
python tests/faults/run.py --seed 7        other power cuts, other moments to kill at
python tests/faults/run.py --kills 1000    more real kills of each kind
python tests/faults/run.py --only 2.x      operations with this in the name of their row
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # started by path

from collections.abc import Callable, Iterable, Mapping

from tests.faults.folders import (
    DELTAS,
    DIVIDED,
    SPLITS,
    STEPS,
    FolderChange,
    cut_power_of_run,
    fail_run,
    kill_run,
)
from tests.faults.judge import Outcome
from tests.faults.kills import RUNS, kill_in_a_process
from tests.faults.operations import OPERATIONS, TARGET
from tests.faults.test_processes import Worker, together
from tests.faults.trials import (
    Tally,
    cut_power,
    fail_everywhere,
    kill_everywhere,
)
from tests.faults.two_managers import MEETINGS, meet
from tests.faults.worker import tensors
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.faults.operations import Operation

Try = Callable[[Path], Tally]
COLUMNS = ("states", "distinct", *Outcome, "litter")


def main() -> int:
    """Run everything and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of power cuts and kill moments")
    parser.add_argument("--kills", type=int, default=200, help="real kills per operation")
    parser.add_argument("--cuts", type=int, default=1000, help="power cuts per operation")
    parser.add_argument("--seconds", type=float, default=10, help="of readers against a writer")
    parser.add_argument("--only", default="", help="operations with this in the name of their row")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # torn files opened at their last state are the point
    begin = time.monotonic()
    cuts, seed, only = options.cuts, options.seed, options.only
    print(f"seed {seed}\n")
    bad = 0
    tries: dict[str, dict[str, list[Try]]] = {
        "Killed at every call, and inside every write": _of_operations(_kill),
        "Power cut: unflushed writes are there, missing, or there in part": _of_operations(
            lambda operation, nameless, folder: cut_power(
                operation, folder, nameless=nameless, count=cuts, seed=seed
            )
        ),
        "Each call fails once: no space, I/O error, short write, Ctrl-C before and behind it": (
            _of_operations(fail_everywhere)
        ),
        "Steps of a run: killed, power cuts, calls that fail": _of_folders(
            "steps", STEPS, 13, cuts, seed
        ),
        "Divided checkpoints: killed, power cuts, calls that fail": _of_folders(
            "divided", DIVIDED, 97, cuts, seed
        ),
        "Splits: killed, power cuts, calls that fail": _of_folders("split", SPLITS, 7, cuts, seed),
        "Deltas of shards: killed, power cuts, calls that fail": _of_folders(
            "delta", DELTAS, 7, cuts, seed
        ),
        "Two managers: behind each call of the one the other makes a whole change": {
            f"managers: {name}": [
                functools.partial(meet, meeting, nameless=nameless) for nameless in (True, False)
            ]
            for name, meeting in MEETINGS.items()
        },
    }
    for title, rows in tries.items():
        bad += table(title, {name: row for name, row in rows.items() if only in name})
    bad += real_kills(options.kills, seed, only)
    bad += 0 if only else races(options.seconds)
    print(f"{bad} bad; {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


# --- Tables of states -------------------------------------------------------------------------


def table(title: str, rows: Mapping[str, Iterable[Try]]) -> int:
    """Make each try in an empty folder, print a row for each name, and return the bad states."""
    if not rows:
        return 0
    print(title)
    _row("", COLUMNS)
    total, of_2 = Tally(), Tally()
    for name, tries in rows.items():
        tally = Tally()
        for attempt in tries:
            with tempfile.TemporaryDirectory() as folder:
                tally.include(attempt(Path(folder)))
        total.include(tally)
        if name.endswith("2.x"):
            of_2.include(tally)
        _tally_row(name, tally)
        for error in tally.errors:
            print(f"    {error}")
    _tally_row("all", total)
    if of_2.states:
        print(f"of 2.x: {of_2.states} states, {of_2.torn} of which did not open as they are")
    if total.repaired:
        print(f"mended by both ways of repair: {total.repaired}; ", end="")
        print(f"damage a minimal reader did not notice and ours did: {total.fooled}")
    print()
    return total.bad


def _tally_row(name: str, tally: Tally) -> None:
    _row(name, (tally.states, tally.distinct, *tally.outcomes.values(), tally.litter))


def _of_operations(judge: Callable[[Operation, bool, Path], Tally]) -> dict[str, list[Try]]:
    rows: dict[str, list[Try]] = {}
    for operation in OPERATIONS.values():
        for nameless in (True, False):
            if nameless or (operation.puts_in_place and hasattr(os, "O_TMPFILE")):
                attempt = functools.partial(judge, operation, nameless)
                rows.setdefault(operation.group, []).append(attempt)
    return rows


def _kill(operation: Operation, nameless: bool, folder: Path) -> Tally:
    return kill_everywhere(
        operation, folder, nameless=nameless, stride=7, dense_bytes=2048, repair_every=500
    )


def _of_folders(
    group: str, changes: Mapping[str, FolderChange], stride: int, cuts: int, seed: int
) -> dict[str, list[Try]]:
    return {
        f"{group}: {name}": [
            functools.partial(kill_run, change, stride=stride),
            functools.partial(kill_run, change, stride=stride, nameless=False),
            functools.partial(cut_power_of_run, change, count=cuts, seed=seed),
            functools.partial(fail_run, change),
        ]
        for name, change in changes.items()
    }


# --- Other tables -----------------------------------------------------------------------------


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
    print(f"{name:>34}", *(f"{cell!s:>16}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
