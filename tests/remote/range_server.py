"""A server of files by ranges, as good or as poor as asked, which counts.

    python -m tests.remote.range_server FOLDER [--delay SECONDS]

prints its port, and runs until its input ends: for benchmarks, in a process of its own.
"""

from __future__ import annotations

import argparse
import email.utils
import os
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from tests.remote.counting import Handler, Server, serve

Validator = Literal["etag", "date"] | None


class RangeServer(Server):
    """Serves the files of a folder over HTTP/1.1.

    Args:
        folder: its files are served by their paths.
        validator: the version in an answer: an ETag, a date, or none.
        ranges: whether ranges are answered at all; without, each answer is the whole file.
        suffix: whether `bytes=-n` is; without, it is 400.
        delay: seconds that each request waits, as over a network.
    """

    def __init__(
        self,
        folder: Path,
        *,
        validator: Validator = "etag",
        ranges: bool = True,
        suffix: bool = True,
        delay: float = 0.0,
    ) -> None:
        super().__init__(_Files)
        self.folder = folder
        self.validator = validator
        self.ranges = ranges
        self.suffix = suffix
        self.delay = delay


class _Files(Handler):
    def respond(self, owner: RangeServer) -> None:
        """Answer with a file, or a range of it."""
        time.sleep(owner.delay)
        path = owner.folder / unquote(urlsplit(self.path).path).lstrip("/")
        try:
            file = path.open("rb")
        except OSError:
            self.answer(404, {}, b"not here")
            return
        with file:
            status = os.fstat(file.fileno())
            size = status.st_size
            headers = {"Content-Type": "application/octet-stream"}
            tag = f'"{status.st_mtime_ns:x}-{size:x}-{status.st_ino:x}"'
            date = email.utils.formatdate(status.st_mtime, usegmt=True)
            if owner.validator == "etag":
                headers["ETag"] = tag
            if owner.validator is not None:
                headers["Last-Modified"] = date
            if owner.ranges:
                headers["Accept-Ranges"] = "bytes"
            asked = self.asked(size) if owner.ranges else None
            if self._has_changed(owner.validator, tag, status.st_mtime):
                self.answer(412, headers, b"changed")
            elif asked is None:
                self._send(200, headers, file, 0, size)
            elif not owner.suffix and "=-" in self.headers["Range"]:
                self.answer(400, headers, b"no such ranges here")
            elif asked[0] >= asked[1]:
                headers["Content-Range"] = f"bytes */{size}"
                self.answer(416, headers, b"beyond the end")
            else:
                headers["Content-Range"] = f"bytes {asked[0]}-{asked[1] - 1}/{size}"
                self._send(206, headers, file, *asked)

    def _has_changed(self, validator: Validator, tag: str, modified: float) -> bool:
        wanted = self.headers.get("If-Match")
        if wanted is not None and validator == "etag":
            return tag not in wanted and wanted != "*"
        since = self.headers.get("If-Unmodified-Since")
        if since is not None and validator is not None:
            return int(modified) > email.utils.parsedate_to_datetime(since).timestamp()
        return False

    def _send(self, status: int, headers: dict[str, str], file: Any, start: int, stop: int) -> None:
        self.answer(status, {**headers, "Content-Length": str(stop - start)})
        if self.command == "HEAD":
            return
        self.wfile.flush()
        self.sent = self.connection.sendfile(file, start, stop - start)
        if self.sent < stop - start:  # the file was cut meanwhile
            self.close_connection = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args()
    serve(RangeServer(given.folder, delay=given.delay))
