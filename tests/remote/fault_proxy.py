"""A proxy in front of a server, which injects faults of networks and stores.

`Fault` is a kind of fault and the requests it strikes; `KINDS` is the table of kinds. Each request
is recorded, whether it reached the server or not.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.remote.counting import Handler, Server

_UPSTREAM_SECONDS = 30.0
_HOP_BY_HOP = frozenset(["connection", "keep-alive", "transfer-encoding", "te", "trailer"])
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
    "<Message>{message}</Message><RequestId>0</RequestId></Error>"
)


@dataclass
class Fault:
    """A fault, and the requests it strikes.

    Attributes:
        kind: one of `KINDS`.
        first: the number, from 1, of the first request it happens to, of those that match.
        count: number of requests from there on; None for all.
        method: only requests of this method match.
        path: only requests with a match of this expression in path and query.
        to: where a redirect leads, without the path.
        action: what `then` does before the request goes on.
        seconds: how long a silence lasts, or the pause between two pieces of a trickle.
        matched: how many requests matched so far.
    """

    kind: str
    first: int = 1
    count: int | None = 1
    method: str | None = None
    path: str = ""
    to: str = ""
    action: Callable[[], None] | None = None
    seconds: float = 0.0
    matched: int = field(default=0, init=False)

    def strikes(self, method: str, path: str) -> bool:
        """Return whether it happens to a request, and count it where it matches."""
        if (self.method and method != self.method) or not re.search(self.path, path):
            return False
        self.matched += 1
        behind = self.matched - self.first
        return behind >= 0 and (self.count is None or behind < self.count)


@dataclass
class Answer:
    """The answer of the server behind."""

    status: int
    headers: dict[str, str]
    body: bytes

    def with_length(self, length: int) -> dict[str, str]:
        kept = {n: v for n, v in self.headers.items() if n.lower() != "content-length"}
        return {**kept, "Content-Length": str(length)}


class FaultProxy(Server):
    """Stands before a server; to be given to a client as the server's address.

    Args:
        server: the address of the server behind, `http://host:port`.

    Attributes:
        faults: what happens; empty for nothing. Set while no request is under way.
    """

    def __init__(self, server: str) -> None:
        super().__init__(_Proxy)
        self.behind = urlsplit(server).netloc
        self.faults: list[Fault] = []

    def fault_of(self, method: str, path: str) -> Fault | None:
        struck = [fault for fault in self.faults if fault.strikes(method, path)]
        return struck[0] if struck else None


class _Proxy(Handler):
    do_PUT = do_POST = do_DELETE = Handler.recorded

    def respond(self, owner: FaultProxy) -> None:
        fault = owner.fault_of(self.command, self.path)
        try:
            if fault is None:
                self.relay(self.forward(owner))
            else:
                KINDS[fault.kind](self, owner, fault)
        except http.client.HTTPException:
            self.close_connection = True

    def forward(self, owner: FaultProxy, *, without: str = "") -> Answer:
        """Ask the server behind, leaving out one header where asked."""
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _HOP_BY_HOP and name.lower() not in (without, "content-length")
        }
        connection = http.client.HTTPConnection(owner.behind, timeout=_UPSTREAM_SECONDS)
        try:
            connection.request(
                self.command,
                self.path,
                body=self.taken or (b"" if self.command in ("PUT", "POST") else None),
                headers=headers,
            )
            answer = connection.getresponse()
            kept = {n: v for n, v in answer.getheaders() if n.lower() not in _HOP_BY_HOP}
            return Answer(answer.status, kept, answer.read())
        finally:
            connection.close()

    def relay(self, answer: Answer) -> None:
        headers = answer.headers
        if self.command != "HEAD":
            headers = answer.with_length(len(answer.body))
        self.answer(answer.status, headers, answer.body)

    def hang_up(self) -> None:
        """Close the connection without a word more."""
        self.close_connection = True

    def begin(self, answer: Answer, length: int, body: bytes) -> None:
        """Send headers that claim a length, and a body that may have another."""
        self.answer(answer.status, answer.with_length(length), body)
        self.wfile.flush()


Happens = Callable[[_Proxy, FaultProxy, Fault], None]


def _refusing(status: int, code: str, message: str) -> Happens:
    """Answer as a store does that refuses."""
    body = _ERROR.format(code=code, message=message).encode()
    return lambda proxy, _, fault: proxy.answer(status, {"Content-Type": "application/xml"}, body)


def _unheard(proxy: _Proxy, owner: FaultProxy, _: Fault) -> None:
    proxy.forward(owner)
    proxy.hang_up()


def _cut(proxy: _Proxy, owner: FaultProxy, _: Fault) -> None:
    answer = proxy.forward(owner)
    proxy.begin(answer, len(answer.body), answer.body[: len(answer.body) // 2])
    proxy.hang_up()


def _short(proxy: _Proxy, owner: FaultProxy, _: Fault) -> None:
    answer = proxy.forward(owner)
    kept = answer.body[: len(answer.body) // 2]
    proxy.begin(answer, len(kept), kept)


def _long(proxy: _Proxy, owner: FaultProxy, _: Fault) -> None:
    answer = proxy.forward(owner)
    proxy.begin(answer, len(answer.body) + 7, answer.body + b"surplus")


def _elsewhere(proxy: _Proxy, owner: FaultProxy, _: Fault) -> None:
    answer = proxy.forward(owner)
    for name, value in answer.headers.items():
        if name.lower() == "content-range":
            start, stop = (int(number) + 1 for number in value.split()[1].split("/")[0].split("-"))
            answer.headers[name] = f"bytes {start}-{stop}/{value.split('/')[1]}"
    proxy.relay(answer)


def _trickled(proxy: _Proxy, owner: FaultProxy, fault: Fault) -> None:
    answer = proxy.forward(owner)
    proxy.begin(answer, len(answer.body), b"")
    step = max(1, len(answer.body) // 20)
    for start in range(0, len(answer.body), step):
        proxy.wfile.write(answer.body[start : start + step])
        proxy.wfile.flush()
        time.sleep(fault.seconds)


def _silent(proxy: _Proxy, _: FaultProxy, fault: Fault) -> None:
    time.sleep(fault.seconds)
    proxy.hang_up()


def _then(proxy: _Proxy, owner: FaultProxy, fault: Fault) -> None:
    assert fault.action is not None
    fault.action()
    proxy.relay(proxy.forward(owner))


# What can happen to a request.
KINDS: dict[str, Happens] = {
    "503": _refusing(503, "SlowDown", "Please reduce your request rate."),
    "500": _refusing(500, "InternalError", "We encountered an internal error."),
    "403": _refusing(403, "AccessDenied", "Access Denied"),
    "404": _refusing(404, "NoSuchKey", "The specified key does not exist."),
    "dropped": _silent,  # before the server hears of it, at once
    "unheard": _unheard,  # done, but the answer is lost
    "cut": _cut,  # half of the body, then the connection is closed
    "short": _short,  # half of the body, and the length says so
    "long": _long,  # more than was asked
    "elsewhere": _elsewhere,  # the range that comes is said to be another one
    # 200 and the whole object where a range was asked
    "whole": lambda proxy, owner, _: proxy.relay(proxy.forward(owner, without="range")),
    "redirected": lambda proxy, _, fault: proxy.answer(302, {"Location": fault.to + proxy.path}),
    "trickled": _trickled,  # in 20 pieces with pauses
    "silent": _silent,  # no answer for a while, and then none
    "then": _then,  # something else happens first, as a change of the object
}
