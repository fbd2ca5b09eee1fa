"""The address of a page: on 127.0.0.1 only, behind a token, until the page is closed.

The socket is open before the server's library is loaded: connections wait meanwhile. So the command
prints the address at once, and a browser starts while the server does.
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

IDLE = 30.0  # seconds after the last page was closed


class ViewServer:
    """Serves the page of one model or two, until the page is closed.

    Args:
        first: an open model; the caller closes it.
        second: an open model to compare with.
        idle: seconds from the close of the last page to the end; None for no end.

    Raises:
        MissingDependencyError: a library of the server is not installed; it is not loaded yet.
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
        # With the protocol TCP asyncio sets TCP_NODELAY: else each answer takes 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.port = self._socket.getsockname()[1]
        self.token = secrets.token_urlsafe(32)

    @property
    def viewed(self) -> Viewed:
        """Return the model; its module is loaded after the socket is open."""
        with self._lock:
            if self._viewed is None:
                from ztensor.insight.serving.model import Viewed

                self._viewed = Viewed(self._readers, self._files)
            return self._viewed

    @property
    def url(self) -> str:
        """Return the secret address of the page."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def run(self) -> None:
        """Serve until the last page is closed, `stop` is called, or Ctrl-C is pressed."""
        try:
            from ztensor.insight.serving.answers import Answers

            Answers(lambda: self.viewed, self.token, self.port, self._idle, self._ending).serve(
                self._socket
            )
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket; needed if `run` was not called."""
        self._socket.close()

    def stop(self) -> None:
        """End the server soon; thread-safe."""
        self._ending.set()
