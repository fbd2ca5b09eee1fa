"""Power cuts: unflushed writes may be there, missing or there in part, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ztensor
from tests.faults.calls import Calls
from tests.faults.images import after_power_cut
from tests.faults.judge import Judge, Outcome, read_state
from tests.faults.operations import NEW, OPERATIONS, TARGET, dense, start
from tests.faults.test_failing_calls import CASES
from tests.faults.trials import cut_power
from ztensor.accepted import Durable

if TYPE_CHECKING:
    from tests.faults.operations import Operation

SEED = 20
OF_2 = [
    one
    for one in OPERATIONS.values()
    if one.is_never_torn and not one.puts_in_place and one.between is None
]


@pytest.mark.parametrize(("operation", "nameless"), CASES)
def test_a_power_cut_leaves_the_old_state_or_the_new_one(
    operation: Operation, nameless: bool, tmp_path: Path
) -> None:
    tally = cut_power(operation, tmp_path, nameless=nameless, count=120, seed=SEED)
    assert tally.bad == 0, tally
    # A quarter of the cuts come after the return: then it is the new one.
    assert tally.outcomes[Outcome.NEW] >= 30


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("save over", "the file"),
        ("save over", "the folder"),
        ("append one", "the blobs"),
        ("append stream in pieces", "the blobs"),
        ("append one", "the commit"),
        ("replace", "the blobs"),
        ("remove", "the commit"),
        ("remove behind an unflushed append", "the blobs"),
        ("append one, 2.x", "the guard"),
        ("append stream in pieces, 2.x", "the guard"),
        ("append one, 2.x", "the room"),
        ("replace, 2.x", "the room"),
        ("remove, 2.x", "the room"),
        ("remove, 2.x", "the footer"),
        ("append, atomic", "the file"),
        ("compact", "the folder"),
        ("merge", "the file"),
    ],
)
def test_each_flush_is_needed(name: str, what: str, tmp_path: Path) -> None:
    """A model that finds nothing without a flush would prove nothing with it."""
    left_out: dict[str, Callable[[int], bool]] = {
        "the file": lambda number: number == 1,
        "the blobs": lambda number: number == 1,
        "the folder": lambda number: number == 2,
        "the commit": lambda number: number == 2,
        "the guard": lambda number: number == 1,
        "the room": lambda number: number == 2,
        "the footer": lambda number: number == 3,
    }
    tally = cut_power(OPERATIONS[name], tmp_path, count=300, seed=SEED, unflushed=left_out[what])
    if name == "compact":  # old and new state say the same: the folder's flush gives back room
        assert tally.bad == 0
    else:
        assert tally.bad > 0


@pytest.mark.parametrize("operation", OF_2, ids=lambda operation: operation.name)
def test_where_the_length_comes_before_the_bytes_the_old_state_is_recovered(
    operation: Operation, tmp_path: Path
) -> None:
    """A file that grew and has zeros in the place of its footer: no order of writes helps there."""
    tally = cut_power(operation, tmp_path, count=200, seed=SEED, length_first=True)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.RECOVERED]


def test_an_unflushed_save_is_not_promised(tmp_path: Path) -> None:
    """What `durable=False` means: no mixture by a kill, but no promise about a power cut."""
    start(tmp_path)
    judge = Judge(read_state(tmp_path / TARGET), {"objects": {"a": dense(NEW)}, "attributes": {}})
    with Calls(tmp_path) as calls, ztensor.Writer(tmp_path / TARGET, durable=False) as writer:
        writer.write("a", NEW)
    assert "flush" not in {call.kind for call in calls.log}
    dice = random.Random(SEED)
    outcomes = {
        judge.of(after_power_cut(calls, dice, len(calls.log)).files().get(TARGET))
        for _ in range(300)
    }
    assert Outcome.LOST in outcomes


@pytest.mark.parametrize("durable", ["auto", True, False])
def test_what_is_flushed_when(durable: Durable, tmp_path: Path) -> None:
    """A file before it gets its name, its folder behind that; a new file only on demand."""
    for is_new in (True, False):
        with (
            Calls(tmp_path) as calls,
            ztensor.Writer(tmp_path / "a.zt", durable=durable) as writer,
        ):
            writer.write("a", NEW)
        kinds = [call.kind for call in calls.log]
        is_flushed = durable is True or (durable == "auto" and not is_new)
        wanted = ["flush", "rename", "flush folder"] if is_flushed else ["rename"]
        assert [kind for kind in kinds if kind == "rename" or "flush" in kind] == wanted
