"""The base of the servers of these tests: threads that end, and a record of every request."""

from __future__ import annotations

import contextlib
import operator
import sys
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
    """Answers in HTTP/1.1, over connections that are kept; records each request, prints nothing.

    A subclass has `respond`, and `do_PUT` and the like where it takes bodies.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS

    def recorded(self) -> None:
        """Answer a request, and record it with the status and the bytes of the answer."""
        owner: Any = self.server.owner  # type: ignore[attr-defined]
        self.status = self.sent = 0
        self.taken = b""
        owner.record.begin()
        try:
            self.taken = self._body()
            self.respond(owner)
        except OSError:
            self.close_connection = True
        finally:
            headers = {name.lower(): value for name, value in self.headers.items()}
            taken = len(self.taken)
            owner.record.add(Seen(self.command, self.path, headers, self.status, self.sent, taken))

    do_GET = do_HEAD = recorded

    def respond(self, owner: Any) -> None:
        """Answer a request to a server."""
        raise NotImplementedError

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def asked(self, size: int) -> tuple[int, int] | None:
        """Return the requested range of an object of a size; None for the whole object."""
        text = self.headers.get("Range")
        if text is None:
            return None
        start, _, last = text.removeprefix("bytes=").partition("-")
        if not start:
            return max(0, size - int(last)), size
        return int(start), min(size, int(last) + 1) if last else size

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send an answer with a length; the body is left out of one to HEAD."""
        self.status = status
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.sent += len(body)
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


def serve(server: Server) -> None:
    """Print the port of a server, and run it until the input ends."""
    with server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
