"""Folders of processes that saved without collectives are opened as one checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor.distributed import PartWriter, commit
from ztensor.distributed.root import BOXES
from ztensor.errors import FormatError, Reason

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
ours: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def save(folder: Path, process: int, boxes: object, step: int = 0) -> None:
    """Save the folder of one process: two elements, described by its boxes, and a plain value."""
    home = folder / f"{process:05d}"
    home.mkdir(parents=True)
    with PartWriter(home, process=process) as part:
        part.add("own", np.full(2, process, "f4"))
        record = part.finish()
    commit(home, [record], {BOXES: boxes, "step": step}, writer="torch")


def load(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Load a state; raise the error of the library, not the one of torch that has it."""
    try:
        dcp.load(state, storage_reader=ours.StorageReader(folder), no_dist=True)
    except dcp.CheckpointException as error:
        raise error.failures[0][0] from None
    return state


def test_values_and_replicas_of_the_own_rank_win(tmp_path: Path) -> None:
    for process in (0, 1, 2):
        save(tmp_path, process, {"own": ("w", (2,), (0,))}, step=process)
    found = load(tmp_path, {"w": torch.full((2,), 9.0), "step": None})
    assert found["w"].tolist() == [0, 0]
    assert found["step"] == 0


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (("w", (2,)), Reason.SHARD_INDEX),
        (("w", (2,), (0,), (1,)), Reason.SHARD_INDEX),
        (["w", (2,), (0,)], Reason.SHARD_INDEX),
        ((3, (2,), (0,)), Reason.SHARD_INDEX),
        (("w", [2], (0,)), Reason.SHARD_INDEX),
        (("w", (2,), (0.0,)), Reason.SHARD_INDEX),
        (("w", (2,), (1,)), Reason.SHARD_INDEX),
        (None, Reason.FIELD_VALUE),
    ],
    ids=["two", "four", "list", "number", "shape", "float", "outside", "none"],
)
def test_malformed_boxes_are_refused(box: object, reason: Reason, tmp_path: Path) -> None:
    save(tmp_path, 0, None if box is None else {"own": box})
    with refused(FormatError, reason):
        load(tmp_path, {"w": torch.zeros(2)})
