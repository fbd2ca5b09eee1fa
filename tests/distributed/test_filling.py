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


def test_elements_of_every_type_are_sent(processes: Processes, tmp_path: Path) -> None:
    import torch

    from tests.remote.range_server import RangeServer
    from ztensor.torch import save_file

    names = (
        "float8_e4m3fn float8_e5m2 bfloat16 float16 float32 float64 complex64 complex128 bool "
        "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
    )
    kinds = [getattr(torch, name) for name in names.split()]
    some = torch.randint(0, 2, (4, 6, 16), dtype=torch.uint8)
    tensors = {f"{place} {kind}": some.view(kind) for kind in kinds for place in ("whole", "cut")}
    save_file(tensors, tmp_path / "m.zt")
    with RangeServer(tmp_path) as server:
        task = f"{TASKS}.fill_types"
        copy = tmp_path / "m.zt"
        assert processes.right(2, task, source=f"{server.url}/m.zt", copy=copy) == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("divided", ["0", "1"])
def test_ranks_divide_the_bytes_of_a_remote_file(
    processes: Processes, tmp_path: Path, divided: str
) -> None:
    from tests.distributed import shares

    path = shares.saved(tmp_path)
    for world in (1, 2, 4):
        found = shares.measured(path, world, processes, is_remote=True, divided=divided)
        assert sum(found.read) == sum(found.filled) - (world - 1) * shares.NORM_BYTES
        assert found.requests <= 8 * world
        assert found.sent < 1.2 * path.stat().st_size
