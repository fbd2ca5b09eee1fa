"""The file at every point at which the process may be killed, and torn inside every write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ztensor
from tests.extent import amount
from tests.faults.calls import Calls
from tests.faults.images import World, after_kill
from tests.faults.judge import Outcome, read_state
from tests.faults.operations import OPERATIONS, TARGET, start
from tests.faults.test_failing_calls import CASES
from tests.faults.trials import kill_everywhere
from ztensor import edit
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.faults.operations import Operation


@pytest.mark.parametrize(("operation", "nameless"), CASES)
def test_a_killed_process_leaves_the_old_state_or_the_new_one(
    operation: Operation, nameless: bool, tmp_path: Path
) -> None:
    tally = kill_everywhere(
        operation,
        tmp_path,
        nameless=nameless,
        stride=amount(61, full=29),
        dense_bytes=0,
        repair_every=30,
    )
    assert tally.bad == 0, tally
    assert tally.fooled == 0  # a prefix of our calls never fools a minimal reader
    assert tally.outcomes[Outcome.NEW]
    if not operation.group.startswith("compact"):
        assert tally.outcomes[Outcome.OLD]
    if operation.puts_in_place or operation.is_never_torn:
        assert tally.outcomes[Outcome.RECOVERED] == 0
    else:
        assert tally.repaired


def test_a_page_of_a_write_is_where_it_was(tmp_path: Path) -> None:
    """While blobs are written, every file ends with a footer: only the commit itself is torn."""
    operation = OPERATIONS["append stream in pieces"]
    operation.prepare(tmp_path)
    with operation.in_pieces(), Calls(tmp_path) as calls:
        operation.run(tmp_path)
    torn = []
    for number in range(len(calls.log) + 1):
        world = World.before(calls)
        for call in calls.log[:number]:
            world.apply(call)
        try:
            read_state(world.files()[TARGET])
        except ztensor.FormatError:
            torn.append(number)
    assert torn == []


def test_a_killed_repair_of_another_format_leaves_the_old_file_or_the_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.arange(400)}, path, durable=False)
    sound, tail = path.read_bytes(), b"some bytes of a proxy"
    path.write_bytes(sound + tail)
    with Calls(tmp_path) as calls:
        edit.repair_format(path, in_place=True)
    ends = set()
    for label, world in after_kill(calls, stride=13, dense_bytes=0):
        files = world.files()
        ends.add(files[path.name])
        assert files[path.name] in (sound, sound + tail), label
        if files[path.name] == sound:  # first kept, then dropped
            assert files[f"{path.name}.tail-1"] == tail, label
    assert len(ends) == 2


def test_a_killed_repair_in_place_can_be_repaired(tmp_path: Path) -> None:
    start(tmp_path)
    path = tmp_path / TARGET
    old = read_state(path)
    tail = b"the beginning of something" * 50
    path.write_bytes(path.read_bytes() + tail)
    with Calls(tmp_path) as calls:
        edit.repair(path, in_place=True)
    kept = 0
    for label, world in after_kill(calls, stride=13, dense_bytes=0):
        files = world.files()
        assert read_state(files[TARGET], recover=True) == old, label
        if files[TARGET].endswith(tail):
            continue
        assert files[f"{TARGET}.tail-1"] == tail, label  # first kept, then cut
        kept += 1
    assert kept == 2
