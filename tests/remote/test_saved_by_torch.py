"""Checkpoints of `torch.distributed.checkpoint` on an S3 server, and in a store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ztensor

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
dcp: Any = pytest.importorskip("torch.distributed.checkpoint")

import ztensor.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state(step: int) -> dict[str, Any]:
    weight = torch.arange(5000.0).reshape(50, 100) + step
    return {"w": weight, "tied": weight, "coo": torch.eye(3).to_sparse(), "step": step, "b": (1, 2)}


def loaded(url: str, storage: Any, **options: Any) -> dict[str, Any]:
    found = {**state(9), "tied": torch.zeros(50, 100), "step": None, "b": None}
    reader = ztensor.torch.StorageReader(url, storage=storage, **options)
    dcp.load(found, storage_reader=reader, no_dist=True)
    return found


def is_right(found: dict[str, Any], step: int) -> bool:
    right = state(step)
    return all(
        torch.equal(found[name].to_dense(), right[name].to_dense()) for name in ("w", "tied", "coo")
    ) and (found["step"], found["b"]) == (step, (1, 2))


@pytest.mark.slow
def test_checkpoints_are_saved_to_s3_and_replaced(s3: S3Server, bucket: str) -> None:
    url, storage = f"s3://{bucket}/run/step", s3.storage()
    writer = ztensor.torch.StorageWriter(url, storage=storage)
    for step in (1, 2):
        dcp.save(state(step), storage_writer=writer, no_dist=True)
        assert is_right(loaded(url, storage), step)
    assert is_right(loaded(url, storage, verify=True, threads=2), 2)
    assert len(s3.keys(bucket)) == 2
    assert not s3.uploads(bucket)
    with ztensor.open(url, storage=storage) as reader:
        assert reader.get_slice("w")[3].tolist() == state(2)["w"][3].tolist()


def test_a_save_that_is_refused_leaves_the_checkpoint_in_s3(s3: S3Server, bucket: str) -> None:
    url, storage = f"s3://{bucket}/step", s3.storage()
    dcp.save(
        state(1), storage_writer=ztensor.torch.StorageWriter(url, storage=storage), no_dist=True
    )
    for refused, overwrite in (({"f": print}, True), (state(2), False)):
        writer = ztensor.torch.StorageWriter(url, storage=storage, overwrite=overwrite)
        with pytest.raises(dcp.CheckpointException):
            dcp.save(refused, storage_writer=writer, no_dist=True)
    assert is_right(loaded(url, storage), 1)
    assert len(s3.keys(bucket)) == 2
