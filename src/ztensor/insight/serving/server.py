"""The address of a page: on 127.0.0.1 alone, behind a token, and gone when the page is.

The address is there before a server's library is loaded: who connects meanwhile waits. So a command
can say where the page is at once, and a browser starts while the server does.
"""

from __future__ import annotations

import importlib.util
import secrets
import socket
import threading
from typing import TYPE_CHECKING

from ztensor.errors import MissingDependencyError
from ztensor.ext import Lock, ObjectReader
from ztensor.insight.serving.watching import OpenedFiles

if TYPE_CHECKING:
    from ztensor.insight.serving.model import Viewed

IDLE = 30.0  # seconds after the last page was left


class ViewServer:
    """Serves the page of one model or two, until nobody looks at it.

    Args:
        first: an open model; the caller closes it.
        second: another one, to compare it with.
        idle: seconds from when the last page was left to the end; None for none.

    Raises:
        MissingDependencyError: a library that serves is not installed; none is loaded here.
    """

    idle = IDLE

    def __init__(
        self, first: ObjectReader, second: ObjectReader | None = None, idle: float | None = IDLE
    ) -> None:
        if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
            raise MissingDependencyError(
                "the page needs a server, and `ztensor report` writes the same page without one",
                install="starlette uvicorn",
            )
        self._readers = [first] if second is None else [first, second]
        self._files = OpenedFiles(self._readers)
        self._viewed: Viewed | None = None
        self._lock = Lock()
        self._idle = idle
        self._ending = threading.Event()
        # Said to be TCP, as asyncio asks for no delay of what is: else answers take 40 ms each.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.port = self._socket.getsockname()[1]
        self.token = secrets.token_urlsafe(32)

    @property
    def viewed(self) -> Viewed:
        """Return what is looked at; what looks is loaded when the address is already there."""
        with self._lock:
            if self._viewed is None:
                from ztensor.insight.serving.model import Viewed

                self._viewed = Viewed(self._readers, self._files)
            return self._viewed

    @property
    def url(self) -> str:
        """Return the address of the page; whoever knows it may look."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def run(self) -> None:
        """Serve until the last page was left, `stop` is called, or Ctrl-C is pressed."""
        try:
            from ztensor.insight.serving.answers import Answers

            Answers(lambda: self.viewed, self.token, self.port, self._idle, self._ending).serve(
                self._socket
            )
        finally:
            self.close()

    def close(self) -> None:
        """Give back the address; to be called where `run` was not."""
        self._socket.close()

    def stop(self) -> None:
        """End soon; may be called by another thread."""
        self._ending.set()
