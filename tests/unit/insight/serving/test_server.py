"""The answers of the server, and its end."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.unit.insight.serving.conftest import Served, W, model_of
from ztensor.numpy import save_file

Serve = Callable[..., Served]


def test_the_page_and_its_policy(served: Served) -> None:
    page = served.get()
    text = page.body.decode()
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert policy.partition("; frame-ancestors")[0] in text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in page.headers if name.lower().startswith("access-control")]
    assert "server" not in {name.lower() for name in page.headers}
    assert str(os.getcwd()) not in text


def test_tensors_slices_and_singular_values(served: Served, tmp_path: Path) -> None:
    expected = ztensor.examine(tmp_path / "model.zt").as_json()["models"][0]
    for index, name in enumerate(expected["tensors"]["name"]):
        found = served.get(f"tensor/0/{index}").json["detail"]
        assert found["max"] == pytest.approx(expected["detail"][str(index)]["max"], rel=1e-4), name
        assert found["heat"]["data"] == expected["detail"][str(index)]["heat"]["data"]
    query = "rows=1&columns=2&at=3,0,0&top=2&bottom=5&left=0&right=4"
    values = served.get(f"slice/0/0?{query}").json["values"]
    cube = W.reshape(4, 24, 64)
    assert np.allclose(np.reshape(values, (3, 4)), cube[3, 2:5, :4], rtol=1e-4)
    singular = served.get("singular/0/1").json
    assert singular["is_exact"]
    assert singular["values"][0] == pytest.approx(np.linalg.svd(W, compute_uv=False)[0], rel=1e-4)
    lines = [json.loads(line) for line in served.get("examine").body.splitlines()]
    assert lines[-1] == {"whole": True}
    assert served.get("tensor/0/1").json["detail"]["rms"] == pytest.approx(0.577, rel=1e-2)


def test_findings_and_damage_of_the_tensor_alone(serve: Serve, tmp_path: Path) -> None:
    broken = W.copy()
    broken[3, 3] = np.nan
    path = model_of(tmp_path / "m.zt", a=broken, b=W * 0)
    flip_object(path, "h.1.w")
    one = serve(path)
    rules = [
        [found["rule"] for found in one.get(f"tensor/0/{index}").json["findings"]]
        for index in (0, 1, 3, 4)
    ]
    assert rules == [["nan"], ["all-zero"], [], ["damaged"]]


@pytest.mark.parametrize(
    "path",
    [
        "tensor/0/99", "tensor/1/0", "tensor/0/-1", "tensor/0/1e3", "tensor/0/" + "9" * 40,
        "slice/0/0", "slice/0/0?rows=0&columns=1&at=0",
        "slice/0/0?rows=0&columns=1&at=0,0,0&top=0&bottom=99999999999&left=0&right=1", "pair/0",
        "slice/0/0?rows=0&columns=1&at=" + "0," * 900, "singular/0/77",
    ],
)  # fmt: skip
def test_wrong_requests_are_refused_with_a_sentence(served: Served, path: str) -> None:
    found = served.get(path)
    assert found.status == 400
    assert 5 < len(found.json["error"]) < 500
    assert "Traceback" not in found.json["error"]
    assert served.get("tensor/0/0").status == 200


def test_two_models(serve: Serve, tmp_path: Path) -> None:
    first = model_of(tmp_path / "a.zt", gone=W)
    second = model_of(tmp_path / "b.zt", **{"h.1.w": W * 3, "new": W})
    one = serve(first, second)
    rows = [one.get(f"pair/{row}").json for row in range(7)]
    kinds = sorted(row["kind"] for row in rows)
    assert kinds == ["added", "changed", "equal", "equal", "equal", "equal", "removed"]
    (changed,) = [row for row in rows if row["kind"] == "changed"]
    assert changed["relative"] == pytest.approx(0.5)


@pytest.mark.parametrize("how", ["replaced", "written", "removed"])
def test_a_file_that_changes_is_said_and_not_mixed(serve: Serve, tmp_path: Path, how: str) -> None:
    path = model_of(tmp_path / "m.zt")
    one = serve(path)
    assert one.get("tensor/0/1").status == 200
    if how == "replaced":
        save_file({"h.1.w": W}, path)
    elif how == "written":
        data = bytearray(path.read_bytes())
        path.write_bytes(data)
    else:
        path.unlink()
    for ask in ("tensor/0/1", "slice/0/1?rows=0&columns=1&at=0,0&top=0&bottom=1&left=0&right=1"):
        found = one.get(ask)
        assert found.status == 409
        assert "m.zt" in found.json["error"]
        assert str(tmp_path) not in found.json["error"]
    assert "error" in json.loads(one.get("examine").body.splitlines()[-1])
    page = one.get()
    assert page.status == 409
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.body.decode().startswith("m.zt: the file ")


def test_a_file_that_changes_before_anybody_looks_is_said(tmp_path: Path) -> None:
    path = model_of(tmp_path / "m.zt")
    one = Served(path, run=False)
    save_file({"other": W}, path)
    one.thread.start()
    try:
        assert one.get().status == one.get("tensor/0/0").status == 409
    finally:
        one.close()


def test_a_connection_before_the_start_is_answered(tmp_path: Path) -> None:
    one = Served(model_of(tmp_path / "m.zt"), run=False)
    with socket.create_connection(("127.0.0.1", one.server.port), timeout=20) as stream:
        host = f"127.0.0.1:{one.server.port}"
        stream.sendall(f"GET /{one.server.token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        one.thread.start()
        assert stream.recv(12) == b"HTTP/1.1 200"
    one.close()


@pytest.mark.slow
def test_it_ends_when_the_page_was_left(serve: Serve, tmp_path: Path) -> None:
    one = serve(model_of(tmp_path / "m.zt"), idle=0.4)
    stream = socket.create_connection(("127.0.0.1", one.server.port), timeout=10)
    host = f"127.0.0.1:{one.server.port}"
    stream.sendall(f"GET /{one.server.token}/alive HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert b"200" in stream.recv(100)
    time.sleep(1)
    assert one.thread.is_alive()  # as long as the page is there
    stream.close()
    one.thread.join(10)
    assert not one.thread.is_alive()


def test_work_ends_when_nobody_waits(serve: Serve, tmp_path: Path) -> None:
    one = serve(model_of(tmp_path / "m.zt"))
    begun, ended = threading.Event(), threading.Event()

    def forever(*rest: object) -> dict[str, object]:
        check = rest[-1]
        begun.set()
        try:
            while True:
                check()  # type: ignore[operator]
                time.sleep(0.01)
        finally:
            ended.set()

    one.server.viewed.tensor = forever  # type: ignore[assignment]
    stream = socket.create_connection(("127.0.0.1", one.server.port), timeout=10)
    host = f"127.0.0.1:{one.server.port}"
    stream.sendall(f"GET /{one.server.token}/tensor/0/0 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert begun.wait(10)
    stream.close()
    assert ended.wait(10)
    assert one.get("singular/0/1").status == 200


@pytest.mark.slow
def test_a_terabyte_is_there_at_once_and_nothing_of_it_is_read(
    serve: Serve, tmp_path: Path
) -> None:
    size, header = 512 << 20, {}
    for i in range(2000):
        name = f"layers.{i}.w"
        header[name] = {"dtype": "F32", "shape": [size // 4096, 1024],
                        "data_offsets": [i * size, (i + 1) * size]}  # fmt: skip
    text = json.dumps(header).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            file.truncate(8 + len(text) + 2000 * size)
        except OSError:
            pytest.skip("the file system has no file of a terabyte")
    one = serve(path)
    assert one.get().status == 200
    query = "rows=0&columns=1&at=0,0&top=7&bottom=9&left=0&right=1024"
    assert one.get(f"slice/0/1999?{query}").json["row_norms"]["dead"] == 2
