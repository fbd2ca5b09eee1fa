"""Access control: only the page itself may send requests.

The token is the first part of the path and part of the address; a cookie would be sent to all other
ports of this machine. A hostile page in the same browser does not know the token, and is refused by
its `Host` (a name bound to 127.0.0.1), its `Origin`, or `Sec-Fetch-Site`.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]

_LONGEST_PATH, _LONGEST_QUERY = 256, 2048
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Passes requests of the page to an application, and refuses all others.

    Args:
        app: receives the path without the token.
        token: the first part of a path.
        port: the port of the server.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        path = self._path_of(scope)
        status = 404 if path is None else 405 if scope["method"] not in ("GET", "HEAD") else 200
        if path is None or status != 200:
            headers = [*HEADERS, (b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self._app(inner, receive, with_headers)

    def _path_of(self, scope: Message) -> str | None:
        """Return the path after the token; None if the request is not from the page."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(bytes(name).lower(), []).append(bytes(value))
        raw = bytes(scope.get("raw_path") or scope["path"].encode("utf-8", "replace"))
        if len(raw) > _LONGEST_PATH or len(scope.get("query_string", b"")) > _LONGEST_QUERY:
            return None
        token, slash, rest = raw.removeprefix(b"/").partition(b"/")
        if not hmac.compare_digest(token, self._token) or not slash or b"%" in rest:
            return None
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return None
        if any(origin != b"http://" + hosts[0] for origin in headers.get(b"origin", ())):
            return None
        sites = set(headers.get(b"sec-fetch-site", ()))
        if not sites <= {b"same-origin", b"none"} and not (_is_visit(headers) and not rest):
            return None
        return "/" + rest.decode("ascii", "replace")


def _is_visit(headers: dict[bytes, list[bytes]]) -> bool:
    """Return whether a request is a navigation to the page, by a link or the redirecting file.

    Such a link contains the token, and no page can read another window.
    """
    mode, target = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return mode == [b"navigate"] and target == [b"document"]


def integer(text: str | None) -> int:
    """Return a number of a request, of at most 15 digits.

    Raises:
        ArgumentValueError: the text is not such a number.
    """
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ArgumentValueError("the request needs a number", found=describe(text, 40))
    return int(text)
