"""Google Cloud Storage, by a store of ours that speaks its protocol: read, written, listed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.remote.upload_server import UploadServer
from ztensor.errors import Reason, SourceError, SourceNotFoundError, UsageError
from ztensor.numpy import load_file, save_file

pytestmark = pytest.mark.slow

pytest.importorskip("obstore", reason="obstore reads URLs")
SMALL = {"a": np.arange(100.0), "b": np.ones((30, 50), np.float32)}
LARGE = {"a": np.arange(3_000_000.0)}


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with UploadServer() as made:
        yield made


@pytest.fixture
def storage(server: UploadServer) -> dict[str, Any]:
    empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = {"gcs_base_url": server.url, "disable_oauth": True, **empty}
    return {"service_account_key": json.dumps(key), "client_options": {"allow_http": True}}


def test_read_and_written(server: UploadServer, storage: dict[str, Any]) -> None:
    place = ztensor.Remote("gs://box/one/m.zt", storage)
    for model in (SMALL, LARGE):
        save_file(model, place)
        found = load_file(place)
        assert all((found[name] == model[name]).all() for name in model)
    assert server.uploads == {}
    with ztensor.open(place) as reader:
        assert reader.get_slice("a")[7:9].tolist() == [7, 8]
        save_file(SMALL, place)
        with pytest.raises(SourceError) as changed:
            reader["a"]
    assert changed.value.reason is Reason.SOURCE_CHANGED
    other = ztensor.Remote("gs://box/one/other.zt", storage)
    ztensor.convert(place, other, overwrite=False)
    with pytest.raises(UsageError, match="exists"):
        ztensor.convert(place, other, overwrite=False)
    with pytest.raises(SourceNotFoundError, match="no such object"):
        ztensor.open("gs://box/none.zt", storage=storage)


def test_options_as_gcsfs_has_them(server: UploadServer, storage: dict[str, Any]) -> None:
    save_file(SMALL, ztensor.Remote("gs://box/m.zt", storage))
    options = {"token": "anon", "endpoint_url": server.url}
    assert (load_file("gs://box/m.zt", storage_options=options)["a"] == SMALL["a"]).all()


def test_sets_and_runs(storage: dict[str, Any]) -> None:
    save_file(SMALL, ztensor.Remote("gs://box/set/m.zt", storage), max_shard_size="1kB")
    with ztensor.open("gs://box/set/", storage=storage) as reader:
        assert sorted(reader) == ["a", "b"]
    with ztensor.CheckpointManager("gs://box/run", storage=storage, keep=2) as manager:
        for step in (1, 2, 3):
            manager.save(step, {"step": step, **SMALL})
    assert manager.steps() == [2, 3]
