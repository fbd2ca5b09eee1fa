"""Attacks by a page in the same browser, and by a user of the same machine."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time

import pytest

from tests.unit.insight.serving.conftest import Served


def test_only_the_token_opens(served: Served) -> None:
    token = served.server.token
    wrong = ["", token[:-1], token + "x", token.lower(), "x" * 43, "%00", "..", "a" * 5000, "\xe9"]
    for one in wrong:
        for rest in ("", "alive", "tensor/0/0"):
            path = f"/{one}/{rest}".encode("latin-1").decode("latin-1")
            found = ask(served, path)
            assert found in (404, 400), one
    assert served.get(raw=f"/{token}").status == 404
    assert served.get(raw=f"//{token}/").status == 404
    assert len(token) >= 43


def ask(served: Served, path: str) -> int:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as stream:
        host = f"127.0.0.1:{served.server.port}"
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        return int(stream.recv(100).split()[1])


FRAME = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example",
}  # fmt: skip
HOSTS = (
    "evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1.evil.example:{port}",
    "evil.example:{port}", "[::1]:{port}", "127.0.0.1:{port}@evil.example", "",
)  # fmt: skip
SITES = ("cross-site", "same-site", "none, cross-site", "")
# A path, a method and headers of a request with the right token.
REFUSED: list[tuple[str, str, dict[str, str]]] = [
    *(("", "GET", {"Host": host}) for host in HOSTS),
    *(
        ("tensor/0/0", "GET", {"Origin": origin})
        for origin in ("null", "https://evil.example", "http://127.0.0.1", "http://localhost:1")
    ),
    *(("tensor/0/0", "GET", {"Sec_Fetch_Site": site}) for site in SITES),
    *(("", "GET", {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}) for site in SITES),
    *(("", "GET", {"Sec_Fetch_Site": site, **FRAME}) for site in SITES),
    *(
        ("tensor/0/0", method, {})
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT")
    ),
    ("alive", "GET", UPGRADE),
]


@pytest.mark.parametrize(("path", "method", "headers"), REFUSED, ids=str)
def test_a_request_of_another_page_is_refused(
    served: Served, path: str, method: str, headers: dict[str, str]
) -> None:
    port = str(served.server.port)
    headers = {name: value.replace("{port}", port) for name, value in headers.items()}
    found = served.get(path, method, **headers)
    assert found.status in (405, 404, 400)
    assert not [name for name in found.headers if name.lower().startswith("access-control")]


def test_both_names_of_this_machine_are_taken(served: Served) -> None:
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{served.server.port}"
        assert served.get("tensor/0/0", Host=host, Origin=f"http://{host}").status == 200


def test_a_link_from_the_file_that_leads_here_opens_the_page_alone(served: Served) -> None:
    visit = {
        "Sec_Fetch_Site": "cross-site",
        "Sec_Fetch_Mode": "navigate",
        "Sec_Fetch_Dest": "document",
    }
    assert served.get("", **visit).status == 200
    assert served.get("tensor/0/0", **visit).status == 404


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "tensor/0/..%2f0", "%2e%2e/", "./../",
     "static/page.js", "tensor/0/0/../../..", "tensor//0/0", "tensor/0/0%00", "a" * 300,
     "?" + "q=1&" * 1000, "tensor\\0\\0"],
)  # fmt: skip
def test_no_path_leads_out(served: Served, path: str) -> None:
    found = served.get(path)
    assert found.status in (404, 400)
    assert b"root" not in found.body


def test_huge_headers_and_garbage_end_the_connection(served: Served) -> None:
    long = b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000
    place = "127.0.0.1", served.server.port
    for data in (b"\x00" * 1000, long, b"GET " + b"/a" * 50_000):
        with socket.create_connection(place, timeout=10) as stream, contextlib.suppress(OSError):
            stream.sendall(data)
            stream.sendall(b"\r\n\r\n")
            assert b" 200 " not in stream.recv(1000)
    assert served.get("tensor/0/0").status == 200


@pytest.mark.slow
def test_connections_that_say_nothing_shut_nobody_out(served: Served) -> None:
    """Also those that send their request byte by byte."""
    idle = []
    for at in range(600):
        with contextlib.suppress(OSError):
            stream = socket.create_connection(("127.0.0.1", served.server.port), timeout=5)
            idle.append(stream)
            if at % 2:
                stream.sendall(b"GET / HTTP/1.1\r\n")
    for _ in range(20):
        assert served.get("tensor/0/0").status == 200
    for stream in idle:
        stream.close()


@pytest.mark.slow
def test_a_request_must_be_complete_in_ten_seconds(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as stream:
        ended = False
        for letter in b"GET / HTTP/1.1" * 10:
            try:
                stream.sendall(bytes([letter]))
                time.sleep(0.1)
            except OSError:
                ended = True
                break
        assert ended


@pytest.mark.slow
def test_a_storm_of_requests_that_are_left_at_once(served: Served) -> None:
    token, host = served.server.token, f"127.0.0.1:{served.server.port}"

    def storm() -> None:
        for _ in range(60):
            with contextlib.suppress(OSError):
                stream = socket.create_connection(("127.0.0.1", served.server.port), timeout=5)
                stream.sendall(
                    f"GET /{token}/singular/0/1 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
                )
                stream.close()

    threads = [threading.Thread(target=storm) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    answers = [503]
    while answers[-1] == 503 and len(answers) < 300:  # the last of the storm may still arrive
        answers.append(served.get("singular/0/1").status)
        time.sleep(0.1)
    assert answers[-1] == 200


def test_streams_that_tell_of_a_page_are_bounded(served: Served) -> None:
    streams = []
    for _ in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=10)
        connection.request("GET", f"/{served.server.token}/alive")
        streams.append((connection, connection.getresponse().status))
    statuses = [status for _, status in streams]
    assert statuses.count(200) == 32
    assert set(statuses) == {200, 503}
    for connection, _ in streams:
        connection.close()
