"""torch's own tests of distributed checkpoints, with our writer and reader, and torch's as control.

Tests of one process are in tests/unit/distributed/test_torch.py.

| torch's test, in test/distributed/checkpoint | case |
| --- | --- |
| test_dtensor_resharding | test_processes.py |
| test_file_system_checkpoint_cpu: tensor_and_blob, zstandard | one model |
| ... shard_tensor, different_shard_plan, rowwise_to_colwise | other shards |
| ... switch_between_sharded_tensor_to_tensor | switched |
| e2e/test_e2e_save_and_load: e2e, e2e_async_cached | end to end ... |
| ... partial_load | some keys |
| ... init_state_dict | in place |
| ... stateful_and_non_stateful_loads | stateful |
| ... different_ordered_state_dict_keys | other order |
| test_format_utils: dcp_to_torch_save, torch_save_to_dcp | formats |
| ... online_torch_save_to_dcp | online |
| test_compatibility: storage_meta; test_save_load_api | ids |
| test_checkpoint: save_error_handling, load_error_handling | failures |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.distributed.processes import Processes
from tests.extent import IS_FULL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]

SUITE = "tests.distributed.suite"
LIBRARIES = ["ztensor", "torch"]
# Function, processes, arguments.
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "one model": ("one_model", 1, {"options": {}}),
    "other shards": ("other_shards", 2, {"writer": {}}),
    "switched": ("switched", 2, {}),
    "some keys": ("some_keys", 4, {}),
    "in place": ("in_place", 1, {}),
    "stateful": ("stateful", 1, {}),
    "other order": ("other_order", 4, {}),
    "formats": ("formats", 1, {}),
    "online": ("online", 2, {}),
    "ids": ("ids", 2, {}),
    "failures": ("failures", 4, {}),
    **{
        f"end to end, {kind}": ("end_to_end", 4, {"kind": kind, "how": "sync"})
        for kind in ("fsdp", "hsdp", "fsdp and tp", "ddp")
    },
    "end to end, thread": ("end_to_end", 4, {"kind": "fsdp", "how": "thread"}),
}
EVERY = {
    **CASES,
    "end to end, process": ("end_to_end", 2, {"kind": "fsdp", "how": "process"}),
}
# Options that only one library has.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ztensor": [{"threads": 2}, {"compression": True}, {"max_shard_size": 200}],
    "torch": [{"thread_count": 2}, {"zstd": True}, {"single_file_per_rank": False}],
}


def run(case: tuple[str, int, dict[str, Any]], library: str, *place: Any) -> None:
    processes, folder = place
    function, world, arguments = case
    ended = processes.run(
        world,
        f"{SUITE}.{function}",
        library=library,
        folder=folder,
        **arguments,
    )
    assert all(one.status == 0 for one in ended), [(one.status, one.errors) for one in ended]


@pytest.mark.parametrize("name", EVERY if IS_FULL else CASES)
@pytest.mark.parametrize("library", LIBRARIES if IS_FULL else LIBRARIES[:1])
def test_a_state_comes_back(library: str, name: str, processes: Processes, tmp_path: Path) -> None:
    run(EVERY[name], library, processes, tmp_path)


@pytest.mark.parametrize("library", LIBRARIES if IS_FULL else LIBRARIES[:1])
@pytest.mark.parametrize("number", range(3))
def test_a_state_comes_back_with_any_options_of_the_writer(
    library: str, number: int, processes: Processes, tmp_path: Path
) -> None:
    options = OPTIONS[library][number]
    case = ("one_model", 1, {"options": options})
    run(case, library, processes, tmp_path / "one")
    if "zstd" not in options:
        run(("other_shards", 2, {"writer": options}), library, processes, tmp_path / "two")


def test_both_libraries_write_the_same_tensors(processes: Processes, tmp_path: Path) -> None:
    processes.right(4, f"{SUITE}.write_both", folder=tmp_path)
    with ztensor.open(tmp_path / "ztensor") as ours, ztensor.open(tmp_path / "torch") as other:
        assert ours.verify().ok
        assert len(ours) == 6
        assert set(ours) == set(other)
        for name in ours:
            assert np.array_equal(ours[name], other[name]), name
            assert ours[name].dtype == other[name].dtype
