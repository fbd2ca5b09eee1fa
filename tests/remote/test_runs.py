"""The steps of a run on an S3 server: saved, listed, kept by rules, gone back to, under faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.remote.fault_proxy import Fault, FaultProxy
from tests.remote.faults import limits
from ztensor import CheckpointManager
from ztensor.errors import SourceError, UsageError

if TYPE_CHECKING:
    from tests.remote.conftest import Variables
    from tests.remote.s3_server import S3Server
    from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow

pytest.importorskip("obstore", reason="obstore reads URLs")


def state(step: int) -> dict[str, Any]:
    return {"step": step, "w": np.full((300, 100), step, np.float32), "betas": (0.9, 0.99)}


def manager_of(s3: S3Server, bucket: str, url: str | None = None, **options: Any) -> Any:
    storage = limits(s3.storage(url))
    return CheckpointManager(f"s3://{bucket}/runs/a", storage=storage, **options)


def damage(s3: S3Server, bucket: str, step: int) -> None:
    key = f"runs/a/step-{step:08d}.zt"
    body = bytearray(s3.get(bucket, key) or b"")
    body[5000] ^= 1
    s3.put(bucket, key, bytes(body))


def steps_in(s3: S3Server, bucket: str) -> list[int]:
    return [int(key[-11:-3]) for key in s3.keys(bucket)]


def test_a_run(s3: S3Server, bucket: str) -> None:
    rules: dict[str, Any] = {"keep": 2, "keep_best": ("loss", 1, "min"), "keep_every": 4}
    with manager_of(s3, bucket, **rules) as manager:
        assert manager.restore() is None
        assert manager.latest() is None
        for step, loss in enumerate((9.0, 1.0, 8.0, 7.0, 6.0, 5.0), 1):
            manager.save(step, state(step), {"loss": loss})
    assert steps_in(s3, bucket) == [2, 4, 5, 6]
    again = manager_of(s3, bucket, **rules)
    assert (again.steps(), again.latest(), again.best()) == ([2, 4, 5, 6], 6, 2)
    assert all(one.is_checked for one in again.verify())
    assert again.checkpoints()[0].path == f"s3://{bucket}/runs/a/step-00000002.zt"
    found = again.restore()
    assert (found.step, found.tree["betas"], found.tree["w"][0, 0]) == (6, (0.9, 0.99), 6)
    damage(s3, bucket, 6)
    found = again.restore()
    assert (found.step, [step for step, _ in found.skipped]) == (5, [6])
    assert again.prune(damaged=True, dry_run=True) == [6]
    assert steps_in(s3, bucket) == [2, 4, 5, 6]
    assert again.prune(damaged=True) == [6]
    with pytest.raises(UsageError, match="replaced as a whole"):
        again.pin(5)
    with pytest.raises(UsageError, match="went further"):
        manager_of(s3, bucket).save(3, state(3))
    with manager_of(s3, bucket, overwrite_newer=True, keep=None) as back:
        back.save(3, state(3))
    assert steps_in(s3, bucket) == [2, 3]
    assert s3.uploads(bucket) == []


def test_the_command(s3: S3Server, bucket: str, run: Run, variables: Variables) -> None:
    with manager_of(s3, bucket, keep=None) as manager:
        for step in (1, 2, 3):
            manager.save(step, state(step), {"loss": step})
    damage(s3, bucket, 2)
    options = ",".join(f"{key}={value}" for key, value in s3.storage().items())
    variables({"ZTENSOR_STORAGE": options})

    def ckpt(verb: str, *words: str) -> Any:
        ended = run("ckpt", verb, f"s3://{bucket}/runs/a", *words, "--json")
        return ended.code, ended.json

    code, document = ckpt("ls")
    assert (code, [one["step"] for one in document["steps"]]) == (0, [1, 2, 3])
    assert document["steps"][0]["file"] == f"s3://{bucket}/runs/a/step-00000001.zt"
    code, document = ckpt("verify")
    assert (code, [one["error"] is None for one in document["steps"]]) == (1, [True, False, True])
    assert ckpt("prune", "--keep", "1", "--dry-run")[1]["removed"] == [1, 2]
    assert ckpt("prune", "--keep", "1")[1]["removed"] == [1, 2]
    assert steps_in(s3, bucket) == [3]


def test_how_many_requests_a_save_takes(s3: S3Server, bucket: str, proxy: FaultProxy) -> None:
    with manager_of(s3, bucket, proxy.url, keep=2, background=False) as manager:
        for step in range(1, 6):
            proxy.record.clear()
            manager.save(step, state(step))
    # A list (the name is free); the object; a list; its head and tail (it opens); head and tail of
    # the step to remove (it is ours); its removal.
    asked = [(one.method, "list-type" in one.path) for one in proxy.record.seen]
    assert asked.count(("PUT", False)) == 1
    assert len(asked) <= 8, asked


@pytest.mark.parametrize("kind", ["503", "dropped", "403", "cut", "short"])
def test_a_save_that_fails_costs_no_step(
    s3: S3Server, bucket: str, proxy: FaultProxy, kind: str
) -> None:
    with manager_of(s3, bucket, keep=1) as manager:
        manager.save(1, state(1))
    saved = s3.get(bucket, "runs/a/step-00000001.zt")
    for number in range(1, 7):
        proxy.faults = [Fault(kind, first=number, count=None)]
        manager = manager_of(s3, bucket, proxy.url, keep=1, background=False)
        try:
            manager.save(2, state(2))
        except SourceError:
            whole = [s3.get(bucket, key) for key in s3.keys(bucket)]
            assert all(whole)
        else:
            assert number > 3
        proxy.faults = []
        found = manager_of(s3, bucket).restore()
        assert found.step in (1, 2)
        assert not found.skipped
        s3.delete(bucket, "runs/a/step-00000002.zt")
        s3.put(bucket, "runs/a/step-00000001.zt", saved or b"")


def test_a_store_that_cannot_be_reached_is_no_damage(
    s3: S3Server, bucket: str, proxy: FaultProxy
) -> None:
    with manager_of(s3, bucket) as manager:
        for step in (1, 2):
            manager.save(step, state(step))
    far = manager_of(s3, bucket, proxy.url)
    for number in (1, 2, 3):  # the list, and the head and end of the newest
        proxy.faults = [Fault("dropped", first=number, count=None)]
        with pytest.raises(SourceError):
            far.restore()
    proxy.faults = []
    assert far.restore().step == 2
