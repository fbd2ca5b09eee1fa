"""Checkpoint folders of other writers behind URLs: the root is named, its files lie beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.remote.range_server import RangeServer
from tests.remote.s3_server import S3Server
from ztensor.errors import UnsupportedError

pytestmark = pytest.mark.slow

pytest.importorskip("obstore")

FOLDERS = Path(__file__).parents[1] / "corpus" / "foreign" / "accept" / "dcp"
FOLDER = FOLDERS / "stock"


def test_a_checkpoint_is_read_by_the_url_of_its_root(tmp_path: Path) -> None:
    with RangeServer(FOLDER) as server, ztensor.open(FOLDER) as here:
        url = f"{server.url}/.metadata"
        with ztensor.open(url) as there:
            assert set(there) == set(here)
            for name in here:
                assert np.asarray(there[name]).tobytes() == np.asarray(here[name]).tobytes()
            assert np.array_equal(there.get_slice("rows")[1:3], here.get_slice("rows")[1:3])
            assert there.attributes == here.attributes
            assert there.verify().outcome == "ok"
        ztensor.convert(url, tmp_path / "whole.safetensors")
        with ztensor.open(tmp_path / "whole.safetensors") as whole:
            assert np.array_equal(whole["rows"], here["rows"])


def put(s3: S3Server, bucket: str, folder: Path) -> str:
    """Put a folder's files into a bucket, and return their prefix as a URL."""
    for path in folder.iterdir():
        s3.put(bucket, f"run/{folder.name}/{path.name}", path.read_bytes())
    return f"s3://{bucket}/run/{folder.name}"


def test_a_checkpoint_is_read_by_its_prefix_in_a_store(s3: S3Server, bucket: str) -> None:
    url, storage = put(s3, bucket, FOLDER), s3.storage()
    with ztensor.open(FOLDER) as here:
        for place in (url, f"{url}/"):
            with ztensor.open(place, storage=storage) as there:
                assert set(there) == set(here)
                for name in here:
                    assert np.asarray(there[name]).tobytes() == np.asarray(here[name]).tobytes()
                assert there.verify().outcome == "ok"
    s3.put(bucket, "run/stock/model.safetensors", ztensor.numpy.save({"w": np.ones(3)}))
    with ztensor.open(f"{url}/", storage=storage) as model:
        assert list(model) == ["w"]


def test_shards_of_processes_in_a_store_say_what_to_do(s3: S3Server, bucket: str) -> None:
    url = put(s3, bucket, FOLDERS / "shards")
    with pytest.raises(UnsupportedError, match="many processes") as caught:
        ztensor.open(f"{url}/", storage=s3.storage())
    assert caught.value.hint == "download the folder, and open that"
