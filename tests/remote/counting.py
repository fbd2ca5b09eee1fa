"""The base of the servers of these tests: threads that end, and a record of every request."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

# A connection on which nothing happens is closed after this long, so that no thread stays.
IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class Seen:
    """One request and its answer.

    Attributes:
        method: of the request.
        path: with its query.
        headers: of the request, names in lower case.
        status: of the answer, 0 where there was none.
        sent: bytes of the answer's body.
        taken: bytes of the request's body.
    """

    method: str
    path: str
    headers: dict[str, str]
    status: int
    sent: int
    taken: int = 0


class Record:
    """All requests since the last `clear`, in the order in which they began.

    `seen` waits until no request is under way, as a client has its answer before the
    server is done. One thread answers one request at a time.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._begun = 0
        self._under_way: dict[int, int] = {}  # the number of a thread's request
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Note that a request of this thread is under way; `add` ends it."""
        with self._changed:
            self._under_way[threading.get_ident()] = self._begun
            self._begun += 1

    def add(self, one: Seen) -> None:
        """Record the request of this thread, which has ended."""
        with self._changed:
            self._seen[self._under_way.pop(threading.get_ident())] = one
            self._changed.notify_all()

    @property
    def seen(self) -> list[Seen]:
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, IDLE_SECONDS)
            return [one for _, one in sorted(self._seen.items(), key=operator.itemgetter(0))]

    def clear(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, IDLE_SECONDS)
            self._seen.clear()

    def __len__(self) -> int:
        """Return how many there were."""
        return len(self.seen)

    @property
    def sent(self) -> int:
        """Return how many bytes all bodies of answers had."""
        return sum(one.sent for one in self.seen)


class Handler(BaseHTTPRequestHandler):
    """Answers in HTTP/1.1, over connections that are kept, and prints nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def plain_headers(self) -> dict[str, str]:
        """Return the request's headers, names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send an answer with a length; the body is left out of one to HEAD."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that hung up."""


class Server:
    """A server on loopback, on a port the system chose, that runs between `with` and its end.

    Attributes:
        record: the requests.
    """

    def __init__(self, handler: type[Handler]) -> None:
        self.record = Record()
        self._server = _Threads(("127.0.0.1", 0), handler)
        self._server.owner = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Return the address, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
