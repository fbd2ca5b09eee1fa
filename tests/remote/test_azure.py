"""Azure Blob Storage, by its emulator: read, written, listed."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import SourceNotFoundError, UsageError
from ztensor.numpy import load_file, save_file

pytest.importorskip("obstore", reason="obstore reads URLs")
SERVER = os.environ.get("AZURITE") or shutil.which("azurite-blob")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        SERVER is None,
        reason="`npm install -g azurite` brings the server, or AZURITE=.../azurite-blob names it",
    ),
]
ACCOUNT = "devstoreaccount1"
# The emulator's own, in its documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
MODEL = {"a": np.arange(3_000_000.0), "b": np.ones((30, 50), np.float32)}


def make_container(port: int, name: str) -> None:
    date = email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in headers.items())]
    signed = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, Any]]:
    assert SERVER is not None
    options = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
    with subprocess.Popen([SERVER, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            until = time.monotonic() + 30
            found = None
            while found is None and time.monotonic() < until:
                found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found is not None
            make_container(int(found[1]), "box")
            endpoint = f"http://127.0.0.1:{found[1]}/{ACCOUNT}"
            yield {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}
        finally:
            process.terminate()


def test_read_written_and_listed(storage: dict[str, Any], tmp_path: Path) -> None:
    for name in ("m.zt", "m.safetensors", "m.npz"):
        place = ztensor.Remote(f"az://box/one/{name}", storage, cache=tmp_path / "kept")
        save_file(MODEL, place)
        for _ in range(2):
            found = load_file(place)
            assert all((found[one] == MODEL[one]).all() for one in MODEL)
        with ztensor.open(place) as reader:
            assert (reader.get_slice("a")[7:9] == MODEL["a"][7:9]).all()
            assert reader.verify().problems == ()
    with pytest.raises(UsageError, match="exists"):
        ztensor.convert(place, ztensor.Remote("az://box/one/m.zt", storage), overwrite=False)
    save_file(MODEL, ztensor.Remote("az://box/set/model.zt", storage), max_shard_size="16MB")
    for url in ("az://box/set/", "az://box/set", "az://box/set/model.zt"):
        with ztensor.open(url, storage=storage) as reader:
            assert isinstance(reader, ztensor.io.ShardedReader)
            assert (reader["b"] == MODEL["b"]).all()
    with pytest.raises(SourceNotFoundError):
        ztensor.open("az://box/none.zt", storage=storage)
