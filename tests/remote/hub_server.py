"""A small hub: repositories as folders, a token, and large files sent on to another host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.remote.counting import Handler, Server

_RESOLVE = re.compile(r"/(?P<repo>[\w.-]+/[\w.-]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_TREE = re.compile(
    r"/api/models/(?P<repo>[\w.-]+/[\w.-]+)/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?"
)


TOKEN = "hf_not_a_real_one"  # noqa: S105


def entry(path: str, *, is_folder: bool = False) -> dict[str, object]:
    """Return the entry of a file or a folder in a hub's list."""
    kind = {"type": "directory"} if is_folder else {"type": "file", "size": 1}
    return {**kind, "path": path, "oid": "0" * 40}


class HubServer(Server):
    """Answers as a model hub does: every file is at another host.

    Args:
        folder: contains `org/repo/revision/file`.
        files: the address of the host that has the same folder.
        private: repositories that need the token.
        token: the token.

    Attributes:
        entries: of each list, before the folder's own.
        page: entries of an answer; small, so that small folders have several pages.
        body: every list's, in place of the entries.
    """

    def __init__(
        self, folder: Path, files: str, *, private: tuple[str, ...] = (), token: str = ""
    ) -> None:
        super().__init__(_Hub)
        self.folder = folder
        self.files = files
        self.private = private
        self.token = token
        self.entries: list[object] = []
        self.page = 2
        self.body: bytes | None = None


class _Hub(Handler):
    def respond(self, owner: HubServer) -> None:
        """Send on to where the file is, or say why not."""
        match = _TREE.fullmatch(urlsplit(self.path).path)
        if match is None:
            self._resolve(owner)
        else:
            self._list(owner, match)

    def _list(self, owner: HubServer, match: re.Match[str]) -> None:
        folder = owner.folder / match["repo"] / unquote(match["revision"])
        within = folder / unquote(match["path"] or "")
        is_known = self.headers.get("Authorization") == f"Bearer {owner.token}"
        is_hidden = match["repo"] in owner.private and not is_known
        if is_hidden or not within.is_dir():
            self.answer(401 if is_hidden else 404, {}, b"no")
            return
        entries = owner.entries + [
            entry(path.relative_to(folder).as_posix(), is_folder=path.is_dir())
            for path in sorted(within.iterdir())
        ]
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        headers = {"Content-Type": "application/json"}
        if start + owner.page < len(entries):
            place = f"{owner.url}{urlsplit(self.path).path}?cursor={start + owner.page}"
            headers["Link"] = f'<{place}>; rel="next"'
        body = json.dumps(entries[start : start + owner.page]).encode()
        self.answer(200, headers, body if owner.body is None else owner.body)

    def _resolve(self, owner: HubServer) -> None:
        match = _RESOLVE.fullmatch(self.path)
        is_known = self.headers.get("Authorization") == f"Bearer {owner.token}"
        if match is None or (match["repo"] in owner.private and not is_known):
            status = 404 if match is None else 401
            self.answer(status, {"X-Error-Message": "no"}, b"Repository not found")
            return
        place = f"{match['repo']}/{unquote(match['revision'])}/{unquote(match['path'])}"
        if not (owner.folder / place).is_file():
            self.answer(404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found")
            return
        self.answer(302, {"Location": f"{owner.files}/{place}?signature=abc"})
