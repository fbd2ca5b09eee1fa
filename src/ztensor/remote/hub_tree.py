"""What is in a folder of a repository: the tree that a model hub's API answers with, page by page.

The hub is asked directly, as only the head of an answer tells where the next page is. It gets the
token, and no other host does: a redirect to another one goes without, and of the link to the next
page only the query is taken.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from ztensor.errors import SourceError, UsageError, describe
from ztensor.ext import Store
from ztensor.remote.failures import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 30.0  # of one request with its body
_TRIES = 3
_WAIT_SECONDS = 0.2  # before the second try; twice that before the third
_PAGE_BYTES = 2 << 20
_MOST_PAGES = 100
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next\b')
_DOING = "cannot list"


def tree(url: str, path: str, headers: Mapping[str, str], name: str) -> list[Store.Listed]:
    """Return what is in a folder of a repository.

    Args:
        url: what the hub's API has for the folder.
        path: the folder's path in the repository; empty for the repository itself.
        headers: sent with each request, to this host alone.
        name: what messages call the folder.

    Raises:
        SourceError: the hub does not answer, or not as hubs do.
        UsageError: more is in the folder than can be looked through.
    """
    found = list[Store.Listed]()
    start = f"{path}/" if path else ""
    query = ""
    for _ in range(_MOST_PAGES):
        body, link = _page(f"{url}{query}", headers, name)
        for kind, entry in _entries(body, name):
            rest = entry.removeprefix(start)
            if entry.startswith(start) and rest and "/" not in rest:
                found.append(Store.Listed(rest, is_folder=kind == "directory"))
        following = _NEXT.search(link)
        if following is None:
            return found
        query = f"?{following[1].partition('#')[0].partition('?')[2]}"
    raise UsageError("more is in the folder than is looked through; name a file", file=name)


def _entries(body: bytes, name: str) -> list[tuple[str, str]]:
    """Return kind and path of each entry of a page."""
    try:
        entries = json.loads(body)
        return [(str(one["type"]), str(one["path"])) for one in entries]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SourceError(
            f"{_DOING}: the hub did not answer with a list of files",
            file=name,
            found=describe(body[:40]),
        ) from None


def _page(url: str, headers: Mapping[str, str], name: str) -> tuple[bytes, str]:
    """Return the body of an answer, and its header `Link`; tried again where that may help."""
    opener = urllib.request.build_opener(_WithoutToken)
    request = urllib.request.Request(url, headers={"user-agent": "ztensor", **headers})  # noqa: S310
    wait = _WAIT_SECONDS
    problem: SourceError | None = None
    for left in reversed(range(_TRIES)):
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                return _body(answer, name), answer.headers.get("Link") or ""
        # A ValueError: redirected to what is no URL.
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, SourceError):
                raise
            status = getattr(error, "code", 0 if isinstance(error, ValueError) else 599)
            if not left or (status < 500 and status != 429):
                problem = failure(error, _DOING, name)
        if problem is not None:  # raised where the other is no more: it holds headers and the URL
            raise problem
        time.sleep(wait)
        wait *= 2
    raise AssertionError


def _body(answer: Any, name: str) -> bytes:
    """Return a body within limits of time and length."""
    until = time.monotonic() + _SECONDS
    body = bytearray()
    while piece := answer.read1(1 << 16):
        body += piece
        if len(body) > _PAGE_BYTES:
            raise SourceError(
                f"{_DOING}: the hub's answer is too long",
                file=name,
                expected=f"at most {_PAGE_BYTES} bytes",
            )
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return bytes(body)


class _WithoutToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects; a token is not sent on to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request to the new place, where that is one on the web."""
        if _host(newurl)[0] not in ("http", "https"):
            return None
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and _host(newurl) != _host(req.full_url):
            new.remove_header("Authorization")
        return new


def _host(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc.lower()
