"""A server with wrong answers: a table of lies, each with the required outcome.

One case is missing: an error with an endless body. obstore reads it until the time limit of the
request, which we cannot change.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from tests.remote.counting import Handler, Server

MIB = 1 << 20
TAG = '"v1"'
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
LONG = 10 << 30


class LyingServer(Server):
    """Serves one file under every path, with a lie.

    Args:
        data: the file.
        other: another file of the same length, for lies about versions.
        lie: a key of `LIES`, or a function that answers.
    """

    def __init__(self, data: bytes, other: bytes, lie: str | Callable[[Any], None]) -> None:
        super().__init__(_Liar)
        self.data = data
        self.other = other
        self.lie = LIES[lie][0] if isinstance(lie, str) else lie
        self.count = 0


class _Liar(Handler):
    do_PUT = do_POST = do_DELETE = Handler.recorded

    def respond(self, owner: LyingServer) -> None:
        owner.count += 1
        self.owner, self.number = owner, owner.count
        owner.lie(self)

    def right(
        self,
        data: bytes | None = None,
        *,
        claimed: int | None = None,
        body: Callable[[bytes], bytes] = bytes,
        status: int | None = None,
        **changed: str | None,
    ) -> None:
        """Answer as a good server, with the given changes; a header of None is left out."""
        data = self.owner.data if data is None else data
        size = len(data) if claimed is None else claimed
        asked = self.asked(size)
        start, stop = asked or (0, size)
        sent = body(data[start:stop])
        headers: dict[str, str | None] = {"ETag": TAG, "Accept-Ranges": "bytes"}
        headers["Content-Length"] = str(len(sent) if self.command == "GET" else size)
        if asked is not None:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        self.send_response_only(status or (200 if asked is None else 206))
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def plain(self, status: int, **headers: str) -> None:
        """Answer without a body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer(status, {"Content-Length": "0", **named})

    def raw(self, text: bytes, *, repeated: bool = False) -> None:
        """Write bytes as they are, once or until the other side hangs up."""
        self.close_connection = True
        self.wfile.write(text)
        while repeated:
            self.wfile.write(text)

    def endless(self, **headers: Any) -> None:
        """Answer with a right range and a body that does not end."""
        self.close_connection = True
        self.right(**headers)
        while self.command != "HEAD":
            self.wfile.write(bytes(MIB))


def _old(liar: _Liar, head: str) -> None:
    liar.raw(head.encode() + b"\r\n\r\n" + (liar.owner.data if liar.command == "GET" else b""))


def _then(liar: _Liar, **later: Any) -> None:
    """Be right twice, for opening, and answer otherwise from then on."""
    liar.right(**(later if liar.number > 2 else {}))


def _other_range(liar: _Liar) -> None:
    size = len(liar.owner.data)
    start, stop = liar.asked(size) or (0, size)
    liar.right(Content_Range=f"bytes {start}-{stop - 1}/{size + liar.number}")


CHANGED = "source_changed"
FAILED = "source_failed"
# The answer, and the outcome of a load: `right`, or the reason of the error.
LIES: dict[str, tuple[Callable[[_Liar], None], str]] = {
    "none": (_Liar.right, "right"),
    "no Accept-Ranges": (lambda liar: liar.right(Accept_Ranges=None), "right"),
    "Accept-Ranges: none": (lambda liar: liar.right(Accept_Ranges="none"), "right"),
    "no ETag": (lambda liar: liar.right(ETag=None), "right"),
    "a weak ETag": (lambda liar: liar.right(ETag='W/"v1"'), "right"),
    "a long ETag": (lambda liar: liar.right(ETag=f'"{"x" * 60_000}"'), "right"),
    "an ETag that is no text": (lambda liar: liar.right(ETag='"\xff\x01"'), FAILED),
    "another ETag each time": (lambda liar: liar.right(ETag=f'"{liar.number}"'), CHANGED),
    "a weak ETag, another date later": (
        lambda liar: liar.right(
            liar.owner.other if liar.number > 2 else None,
            ETag='W/"v1"',
            Last_Modified=DATE.replace(":00 GMT", ":01 GMT") if liar.number > 2 else DATE,
        ),
        CHANGED,
    ),
    "other content, weak ETag": (
        lambda liar: liar.right(
            liar.owner.other if liar.number > 2 else None, ETag=f'W/"{liar.number > 2}"'
        ),
        CHANGED,
    ),
    "other content, same ETag": (
        lambda liar: _then(liar, data=liar.owner.other),
        "digest_mismatch",
    ),
    "other content, no ETag": (
        lambda liar: liar.right(liar.owner.other if liar.number > 2 else None, ETag=None),
        "digest_mismatch",
    ),
    "a date that is none": (lambda liar: liar.right(ETag=None, Last_Modified="soon"), FAILED),
    "HEAD of another object": (
        lambda liar: (
            liar.right(ETag='"x"', Content_Length="77") if liar.command == "HEAD" else liar.right()
        ),
        "right",
    ),
    "gzip": (lambda liar: liar.right(body=gzip.compress, Content_Encoding="gzip"), FAILED),
    "another total each time": (_other_range, FAILED),
    "an unknown total": (lambda liar: liar.right(Content_Range="bytes 0-99/*"), FAILED),
    "206 without its range": (lambda liar: liar.right(Content_Range=None), FAILED),
    "a range that is none": (lambda liar: liar.right(Content_Range="lots"), FAILED),
    "several parts": (
        lambda liar: liar.right(
            Content_Range=None, Content_Type="multipart/byteranges; boundary=x"
        ),
        FAILED,
    ),
    "416 to every range": (
        lambda liar: liar.right() if liar.headers.get("Range") is None else liar.plain(416),
        "right",
    ),
    "10 GB, and one byte": (
        lambda liar: liar.right(
            claimed=LONG, body=lambda _: b"x", Content_Length=None, Connection="close"
        ),
        FAILED,
    ),
    "10 GB where 4 KB were asked": (
        lambda liar: liar.right(
            Content_Range=f"bytes 0-{LONG - 1}/{LONG}", Content_Length=str(LONG)
        ),
        FAILED,
    ),
    "a body without end": (lambda liar: liar.endless(Content_Length=str(LONG)), FAILED),
    "a body without end or length": (lambda liar: liar.endless(Content_Length=None), FAILED),
    "a body without end, later": (
        lambda liar: liar.right() if liar.number <= 2 else liar.endless(Content_Length=str(LONG)),
        FAILED,
    ),
    "a whole without end": (
        lambda liar: (
            liar.right()
            if liar.command == "HEAD"
            else liar.endless(Content_Range=None, Content_Length=str(LONG))
        ),
        FAILED,
    ),
    "a length below zero": (lambda liar: liar.right(Content_Length="-5"), FAILED),
    "a length of 30 digits": (lambda liar: liar.right(Content_Length="9" * 30), FAILED),
    "HTTP/1.0 with a length": (
        lambda liar: _old(liar, f"HTTP/1.0 200 OK\r\nContent-Length: {len(liar.owner.data)}"),
        "right",
    ),
    "HTTP/1.0 up to its end": (lambda liar: _old(liar, "HTTP/1.0 200 OK"), FAILED),
    "redirected in a circle": (lambda liar: liar.plain(302, Location=liar.path), FAILED),
    "redirected to a file": (lambda liar: liar.plain(302, Location="file:///etc/hosts"), FAILED),
    "redirected to nowhere": (lambda liar: liar.plain(302, Location="http://["), FAILED),
    "no content": (lambda liar: liar.plain(204), "truncated"),
    "not modified": (lambda liar: liar.plain(304, ETag=TAG), FAILED),
    "wait for an hour": (lambda liar: liar.plain(429, Retry_After="3600"), FAILED),
    "go on, for ever": (
        lambda liar: liar.raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, repeated=True),
        FAILED,
    ),
    "headers without end": (
        lambda liar: liar.raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000, repeated=True),
        FAILED,
    ),
    "no HTTP": (lambda liar: liar.raw(bytes(range(256)) * 9), FAILED),
    "an empty file": (lambda liar: liar.right(b"", status=200), "truncated"),
    "a page": (
        lambda liar: liar.right(b"<html>log in</html>", Content_Type="text/html"),
        "not_ztensor",
    ),
}
