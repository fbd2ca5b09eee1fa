"""A server of files by ranges, as good or as poor as asked, which counts.

    python -m tests.remote.range_server FOLDER [--delay SECONDS]

prints its port, and runs until its input ends: for benchmarks, in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import email.utils
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from tests.remote.counting import Handler, Seen, Server

Validator = Literal["etag", "date"] | None
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


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
    def do_GET(self) -> None:
        """Answer with a file, or a range of it."""
        owner: RangeServer = self.server.owner  # type: ignore[attr-defined]
        owner.record.begin()
        status, sent = 500, 0
        try:
            time.sleep(owner.delay)
            status, sent = self._serve(owner)
        finally:
            owner.record.add(Seen(self.command, self.path, self.plain_headers(), status, sent))

    do_HEAD = do_GET

    def _serve(self, owner: RangeServer) -> tuple[int, int]:
        path = owner.folder / unquote(urlsplit(self.path).path).lstrip("/")
        try:
            file = path.open("rb")
        except OSError:
            return self._plainly(404, {}, b"not here")
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
            if self._has_changed(owner.validator, tag, status.st_mtime):
                return self._plainly(412, headers, b"changed")
            asked = self.headers.get("Range")
            if owner.ranges:
                headers["Accept-Ranges"] = "bytes"
            if asked is None or not owner.ranges:
                return self._send(200, headers, file, 0, size)
            match = _RANGE.fullmatch(asked)
            if match is None or match[1] == match[2] == "" or (not match[1] and not owner.suffix):
                return self._plainly(400, headers, b"no such ranges here")
            if match[1]:
                start = int(match[1])
                stop = min(size, int(match[2]) + 1) if match[2] else size
            else:
                start, stop = max(0, size - int(match[2])), size
            if start >= stop:
                headers["Content-Range"] = f"bytes */{size}"
                return self._plainly(416, headers, b"beyond the end")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
            return self._send(206, headers, file, start, stop)

    def _has_changed(self, validator: Validator, tag: str, modified: float) -> bool:
        wanted = self.headers.get("If-Match")
        if wanted is not None and validator == "etag":
            return tag not in wanted and wanted != "*"
        since = self.headers.get("If-Unmodified-Since")
        if since is not None and validator is not None:
            return int(modified) > email.utils.parsedate_to_datetime(since).timestamp()
        return False

    def _plainly(self, status: int, headers: dict[str, str], body: bytes) -> tuple[int, int]:
        self.answer(status, headers, body)
        return status, len(body)

    def _send(
        self, status: int, headers: dict[str, str], file: Any, start: int, stop: int
    ) -> tuple[int, int]:
        self.answer(status, {**headers, "Content-Length": str(stop - start)})
        if self.command == "HEAD":
            return status, 0
        self.wfile.flush()
        sent = self.connection.sendfile(file, start, stop - start)
        if sent < stop - start:  # the file was cut meanwhile
            self.close_connection = True
        return status, sent


def main() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="the longest it runs")
    given = parser.parse_args()
    with RangeServer(given.folder, delay=given.delay) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
