"""Distributed checkpoints in a store: repair of a lost root, removal of unfinished saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztensor
from tests.remote.conftest import Variables
from tests.remote.s3_server import S3Server
from tests.unit.cli.conftest import Run
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, compact, read_root, repair
from ztensor.errors import SourceNotFoundError

obstore: Any = pytest.importorskip("obstore")

URL = "s3://any/run/step"
ROOT = "run/step/checkpoint.zt"
TENSORS: dict[str, Any] = {
    "w": np.arange(24.0).reshape(6, 4),
    "scalar": np.float32(3),
    "none": np.empty((0, 3)),
}


@pytest.fixture
def store() -> Any:
    store = pytest.importorskip("obstore.store").MemoryStore()
    save(URL, TENSORS, storage=store, values={"step": 7})
    return store


def keys(store: Any) -> list[str]:
    return sorted(one["path"] for page in obstore.list(store) for one in page)


def is_whole(store: Any) -> bool:
    with ztensor.open(URL, storage=store) as reader:
        same = all(np.array_equal(reader[name], value) for name, value in TENSORS.items())
        return same and reader.verify().ok


def test_a_lost_root_in_a_store_is_made_of_the_files(store: Any) -> None:
    obstore.delete(store, ROOT)
    with pytest.raises(SourceNotFoundError):
        read_root(URL, storage=store)
    for url in (URL, f"{URL}/"):
        with pytest.raises(SourceNotFoundError, match="root of the") as caught:
            ztensor.open(url, storage=store)
        assert f"ztensor repair '{URL}/'" in (caught.value.hint or "")
    planned = repair(URL, storage=store, dry_run=True)
    assert planned.written == f"{URL}/checkpoint.zt"
    assert ROOT not in keys(store)
    assert repair(URL, storage=store) == planned
    assert is_whole(store)
    assert repair(URL, storage=store).written is None


@pytest.mark.parametrize("damage", [b"", b"ZTEN", bytes(4096)])
def test_a_damaged_root_in_a_store_is_kept_beside_the_new_one(store: Any, damage: bytes) -> None:
    for number in (1, 2):
        obstore.put(store, ROOT, damage)
        report = repair(URL, storage=store)
        assert report.kept == f"{URL}/checkpoint.zt.damaged-{number}"
        kept = obstore.get(store, f"{ROOT}.damaged-{number}").bytes()
        assert bytes(kept) == damage
        assert is_whole(store)


def remove(store: Any, name: str) -> None:
    obstore.delete(store, next(key for key in keys(store) if name in key))


def test_a_root_with_a_missing_file_is_left_as_it_is(store: Any) -> None:
    remove(store, "/00001-")
    before = bytes(obstore.get(store, ROOT).bytes())
    with pytest.raises(SourceNotFoundError, match="is missing") as caught:
        repair(URL, storage=store)
    assert "'w' at [2, 0]" in (caught.value.hint or "")
    assert bytes(obstore.get(store, ROOT).bytes()) == before


@pytest.mark.parametrize("hours", [-1.0, float("nan"), float("inf")])
def test_hours_that_are_none_are_refused(store: Any, hours: float) -> None:
    with pytest.raises(ztensor.UsageError, match="hours"):
        compact(URL, storage=store, older_than=hours)


@pytest.mark.parametrize("change", [repair, compact])
def test_a_server_that_is_only_read_says_so(change: Any) -> None:
    with pytest.raises(ztensor.ZTensorError) as caught:
        change("http://127.0.0.1:9/run/step")
    assert "127.0.0.1:9" in str(caught.value)


@pytest.mark.slow
def test_the_command_mends_a_checkpoint_in_s3(
    s3: S3Server,
    bucket: str,
    variables: Variables,
    run: Run,
) -> None:
    url, storage = f"s3://{bucket}/step", s3.storage()
    names = {"endpoint": "AWS_ENDPOINT_URL"}
    variables({names.get(name, f"AWS_{name.upper()}"): storage[name] for name in storage})
    save(url, TENSORS)
    s3.delete(bucket, "step/checkpoint.zt")
    assert run("repair", url, "--dry-run").code == 0
    assert "step/checkpoint.zt" not in s3.keys(bucket)
    assert "written" in run("repair", url).out
    with ztensor.open(url) as reader:
        assert np.array_equal(reader["w"], TENSORS["w"])
    with PartWriter(url, process=9) as part:
        part.add("w", TENSORS["w"])
        part.finish()
    count = len(s3.keys(bucket))
    assert "0 files removed" in run("compact", url).out
    assert "1 file removed" in run("compact", url, "--older-than", "0").out
    assert len(s3.keys(bucket)) == count - 1
    assert run("verify", url).code == 0
