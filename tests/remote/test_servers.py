"""The servers of these tests do what they say; else what is held against them says nothing."""

from __future__ import annotations

import http.client
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.remote.fault_proxy import KINDS, Fault, FaultProxy
from tests.remote.range_server import RangeServer, Validator
from tests.remote.upload_server import UploadServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remote.counting import Server
    from tests.remote.s3_server import S3Server

DATA = bytes(range(256)) * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(DATA)
    return tmp_path


def ask(
    server: Server, *, path: str = "/data", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("asked", "status", "start", "stop"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=100-", 206, 100, len(DATA)),
        ("bytes=-5", 206, len(DATA) - 5, len(DATA)),
        (f"bytes={len(DATA) - 3}-{len(DATA) + 50}", 206, len(DATA) - 3, len(DATA)),
    ],
)
def test_a_range_is_answered(folder: Path, asked: str, status: int, start: int, stop: int) -> None:
    with RangeServer(folder) as server:
        got, headers, body = ask(server, Range=asked)
    assert (got, body) == (status, DATA[start:stop])
    assert headers["content-range"] == f"bytes {start}-{stop - 1}/{len(DATA)}"
    assert [one.sent for one in server.record.seen] == [stop - start]


def test_connections_are_kept(folder: Path) -> None:
    with RangeServer(folder) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for _ in range(3):
            connection.request("GET", "/data", headers={"Range": "bytes=0-0"})
            kept = connection.sock
            assert connection.getresponse().read() == DATA[:1]
            assert connection.sock is kept
            assert kept is not None
        connection.close()
        assert len(server.record) == 3


def test_a_poor_server(folder: Path) -> None:
    with RangeServer(folder, ranges=False, validator=None) as server:
        status, headers, body = ask(server, Range="bytes=0-9")
        assert (status, body) == (200, DATA)
        assert not {"etag", "last-modified", "accept-ranges"} & set(headers)
    with RangeServer(folder, suffix=False) as server:
        assert ask(server, Range="bytes=-9")[0] == 400
        assert ask(server, Range="bytes=0-0")[0] == 206
        assert ask(server, Range=f"bytes={len(DATA)}-")[0] == 416
        assert ask(server, path="/none")[0] == 404
        assert ask(server, method="HEAD")[1]["content-length"] == str(len(DATA))


@pytest.mark.parametrize("validator", ["etag", "date"])
def test_a_changed_file_is_told(folder: Path, validator: Validator) -> None:
    with RangeServer(folder, validator=validator) as server:
        headers = ask(server)[1]
        condition = (
            {"If_Match": headers["etag"]}
            if validator == "etag"
            else {"If_Unmodified_Since": headers["last-modified"]}
        )
        assert ask(server, **condition)[0] == 200
        (folder / "data").write_bytes(b"other")
        os.utime(folder / "data", (time.time() + 10, time.time() + 10))
        assert ask(server, **condition)[0] == 412


def test_a_fault_strikes_the_requests_it_names(folder: Path) -> None:
    with RangeServer(folder) as behind, FaultProxy(behind.url) as server:
        server.faults = [Fault("503", first=2, count=2, method="GET")]
        assert [ask(server)[0] for _ in range(4)] == [200, 503, 503, 200]
        assert ask(server, method="HEAD")[0] == 200
        server.faults = [Fault("403", count=None, path="data")]
        assert [ask(server)[0] for _ in range(3)] == [403, 403, 403]
        assert ask(server, path="/none")[0] == 404
        assert [one.status for one in server.record.seen][:4] == [200, 503, 503, 200]


def _outcome(server: Server) -> tuple[int, int]:
    """Return the status and how many bytes came, 0 and 0 where the connection ended."""
    try:
        status, _, body = ask(server, Range="bytes=0-99")
    except http.client.IncompleteRead as error:
        return 206, len(error.partial)
    except (ConnectionError, http.client.HTTPException):
        return 0, 0
    return status, len(body)


EACH = [
    ("503", 503, None, 0),
    ("500", 500, None, 0),
    ("403", 403, None, 0),
    ("404", 404, None, 0),
    ("dropped", 0, 0, 0),
    ("unheard", 0, 0, 1),
    ("cut", 206, 50, 1),
    ("short", 206, 50, 1),
    ("long", 206, 107, 1),
    ("elsewhere", 206, 100, 1),
    ("whole", 200, len(DATA), 1),
    ("redirected", 302, 0, 0),
    ("trickled", 206, 100, 1),
    ("silent", 0, 0, 0),
    ("then", 206, 100, 1),
]


@pytest.mark.parametrize(("kind", "status", "count", "reached"), EACH)
def test_each_fault(folder: Path, kind: str, status: int, count: int | None, reached: int) -> None:
    done = []
    with RangeServer(folder) as behind, FaultProxy(behind.url) as server:
        server.faults = [
            Fault(kind, to="http://127.0.0.1:1", seconds=0.001, action=lambda: done.append(1))
        ]
        got, length = _outcome(server)
        assert got == status
        assert count is None or length == count
        assert len(behind.record) == reached
        assert _outcome(server) == (206, 100), "the next request is as it should be"
    assert done == [1] * (kind == "then")


def test_the_table_above_has_all_faults() -> None:
    assert {case[0] for case in EACH} == set(KINDS)


@pytest.mark.slow
def test_the_s3_server(s3: S3Server, bucket: str, proxy: FaultProxy) -> None:
    s3.put(bucket, "a/b.zt", DATA)
    assert s3.keys(bucket) == ["a/b.zt"]
    assert s3.get(bucket, "a/b.zt") == DATA
    assert s3.uploads(bucket) == []
    s3.ask("POST", f"/{bucket}/dangling?uploads")
    assert s3.uploads(bucket) == ["dangling"]
    store = pytest.importorskip("obstore.store")
    through = store.S3Store(bucket, client_options={"allow_http": True}, **s3.storage(proxy.url))
    assert bytes(through.get_range("a/b.zt", start=1, end=3)) == DATA[1:3]
    assert [(one.method, one.status) for one in proxy.record.seen] == [("GET", 206)]
    s3.delete(bucket, "a/b.zt")
    assert s3.get(bucket, "a/b.zt") is None


def test_a_store_for_benchmarks_keeps_what_is_put() -> None:
    store = pytest.importorskip("obstore.store")
    with UploadServer() as server:
        keys = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
        box = store.S3Store("box", endpoint=server.url, client_options={"allow_http": True}, **keys)
        box.put("a/small", b"12345", use_multipart=False)
        box.put("a/large", DATA, use_multipart=True, chunk_size=5000)
        assert bytes(box.get("a/large").bytes()) == DATA
        assert bytes(box.get_range("a/small", start=1, end=3)) == b"23"
        assert bytes(box.get("a/small", options={"range": {"suffix": 2}}).bytes()) == b"45"
        box.copy("a/small", "b")
        assert [one["path"] for page in box.list() for one in page] == ["a/large", "a/small", "b"]
        box.delete("a/small")
        assert sorted(server.objects) == ["/box/a/large", "/box/b"]
        assert server.uploads == {}
