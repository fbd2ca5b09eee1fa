"""Checkpoint folders of other writers behind URLs, by their root or their prefix."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.remote.conftest import Variables
from tests.remote.range_server import RangeServer
from tests.remote.s3_server import S3Server

pytestmark = pytest.mark.slow

pytest.importorskip("obstore")

FOLDERS = Path(__file__).parents[1] / "corpus" / "foreign" / "accept" / "dcp"
FOLDER = FOLDERS / "stock"


def require_same(there: ztensor.Reader, here: ztensor.Reader) -> None:
    assert set(there) == set(here)
    for name in here:
        assert np.asarray(there[name]).tobytes() == np.asarray(here[name]).tobytes()
        if here.objects.part(name).object(name).shape:
            rows, expected = there.get_slice(name)[1:], here.get_slice(name)[1:]
            assert np.asarray(rows).tobytes() == np.asarray(expected).tobytes()
    assert there.attributes == here.attributes
    assert there.verify().outcome == here.verify().outcome
    kinds = [[one.kind for one in reader.unrepresented] for reader in (there, here)]
    assert kinds[0] == kinds[1]


def test_a_checkpoint_is_read_by_the_url_of_its_root(tmp_path: Path) -> None:
    with RangeServer(FOLDER) as server, ztensor.open(FOLDER) as here:
        url = f"{server.url}/.metadata"
        with ztensor.open(url) as there:
            require_same(there, here)
        ztensor.convert(url, tmp_path / "whole.safetensors")
        with ztensor.open(tmp_path / "whole.safetensors") as whole:
            assert np.array_equal(whole["rows"], here["rows"])


def put(s3: S3Server, bucket: str, folder: Path) -> str:
    """Put a folder's files into a bucket, and return their prefix as a URL."""
    for path in folder.iterdir():
        s3.put(bucket, f"run/{folder.name}/{path.name}", path.read_bytes())
    return f"s3://{bucket}/run/{folder.name}"


@pytest.mark.parametrize("name", ["stock", "shards"])
def test_a_checkpoint_is_read_by_its_prefix_in_a_store(
    s3: S3Server, bucket: str, tmp_path: Path, variables: Variables, name: str
) -> None:
    url, storage = put(s3, bucket, FOLDERS / name), s3.storage()
    keys = ("access_key_id", "secret_access_key")  # a pickle has no secrets
    variables({f"AWS_{key.upper()}": storage[key] for key in keys})
    with ztensor.open(FOLDERS / name) as here:
        for place in (url, f"{url}/"):
            with ztensor.open(place, storage=storage) as there:
                require_same(there, here)
                with pickle.loads(pickle.dumps(there)) as again:
                    assert list(again) == list(here)
        ztensor.convert(ztensor.Remote(url, storage), tmp_path / "whole.zt")
        with ztensor.open(tmp_path / "whole.zt") as whole:
            for tensor in here:
                assert np.asarray(whole[tensor]).tobytes() == np.asarray(here[tensor]).tobytes()
