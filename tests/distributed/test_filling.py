"""`load_into` in several processes: each reads its share, whatever the placements."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.distributed.processes import Processes

TASKS = "tests.distributed.tasks"
PLACEMENTS = ["0", "1", "r", "01", "10", "0r", "r1", "00"]
BOXES = ["rows", "columns", "tiles", "uneven", "one"]

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]


def saved(path: Path) -> Path:
    from tests.distributed import states
    from ztensor.torch import save_file

    shapes = {**states.SHAPES, "plain": (6,), "sharded": (8, 6)}
    save_file({name: states.whole(name, shape, 1) for name, shape in shapes.items()}, path)
    return path


@pytest.mark.parametrize("suffix", [".zt", pytest.param(".safetensors", marks=pytest.mark.slow)])
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_each_process_reads_its_share(
    world: int, suffix: str, processes: Processes, tmp_path: Path
) -> None:
    source = saved(tmp_path / f"model{suffix}")
    names = [*PLACEMENTS, *BOXES]
    alone = processes.right(world, f"{TASKS}.fill", source=source, placements=names, in_group=False)
    together = processes.right(
        world, f"{TASKS}.fill", source=source, placements=names, in_group=True
    )
    for own, shared in zip(alone, together, strict=True):
        assert own["wrong"] == shared["wrong"] == []
        assert own["read"] == own["nbytes"] == shared["nbytes"]
    for found, kinds in ((alone, BOXES), (together, names)):  # each element once
        totals = [sum(each["read"][names.index(kind)] for each in found) for kind in kinds]
        assert len({*totals[: len(PLACEMENTS)]}) == 1
        assert totals[-len(BOXES) :] == [8 * 6 * 4] * len(BOXES)


@pytest.mark.parametrize("kind", ["not there", "damaged"])
def test_where_one_process_fails_all_raise(kind: str, processes: Processes, tmp_path: Path) -> None:
    good, bad = saved(tmp_path / "good.zt"), tmp_path / "bad.zt"
    if kind == "damaged":
        bad.write_bytes(good.read_bytes()[:-1])
    found = processes.right(2, f"{TASKS}.fill_from", first=bad, others=good)
    assert found == ["ContainerError" if kind == "damaged" else "SourceNotFoundError", "UsageError"]


@pytest.mark.slow
def test_ranks_divide_the_bytes_of_a_remote_file(processes: Processes, tmp_path: Path) -> None:
    from tests.distributed import shares

    path = shares.saved(tmp_path)
    for world in (1, 2, 4):
        found = shares.measured(path, world, processes, is_remote=True)
        assert found.read == found.filled
        assert found.requests <= 8 * world
        assert found.sent < 1.2 * path.stat().st_size
