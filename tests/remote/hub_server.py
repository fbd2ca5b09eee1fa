"""A small hub: repositories as folders, a token, and large files sent on to another host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tests.remote.counting import Handler, Seen, Server

if TYPE_CHECKING:
    from pathlib import Path

_RESOLVE = re.compile(r"/(?P<repo>[\w.-]+/[\w.-]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


class HubServer(Server):
    """Answers as a model hub does: every file is at another host.

    Args:
        folder: `org/repo/revision/file` beneath it.
        files: the address of the host that has the same folder.
        private: repositories that only who has the token sees.
        token: the token.
    """

    def __init__(
        self, folder: Path, files: str, *, private: tuple[str, ...] = (), token: str = ""
    ) -> None:
        super().__init__(_Hub)
        self.folder = folder
        self.files = files
        self.private = private
        self.token = token


class _Hub(Handler):
    def do_GET(self) -> None:
        """Send on to where the file is, or say why not."""
        owner: HubServer = self.server.owner  # type: ignore[attr-defined]
        owner.record.begin()
        status = 500
        try:
            status = self._resolve(owner)
        finally:
            owner.record.add(Seen(self.command, self.path, self.plain_headers(), status, 0))

    do_HEAD = do_GET

    def _resolve(self, owner: HubServer) -> int:
        match = _RESOLVE.fullmatch(self.path)
        is_known = self.headers.get("Authorization") == f"Bearer {owner.token}"
        if match is None or (match["repo"] in owner.private and not is_known):
            status = 404 if match is None else 401
            self.answer(status, {"X-Error-Message": "no"}, b"Repository not found")
            return status
        place = f"{match['repo']}/{unquote(match['revision'])}/{unquote(match['path'])}"
        if not (owner.folder / place).is_file():
            self.answer(404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found")
            return 404
        self.answer(302, {"Location": f"{owner.files}/{place}?signature=abc"})
        return 302
