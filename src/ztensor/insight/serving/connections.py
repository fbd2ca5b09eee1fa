"""What connections may hold that ask for nothing, or only slowly: little, and not for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

SECONDS, MOST = 10.0, 128


class BoundedProtocol(H11Protocol):
    """One connection. A request must be whole ten seconds after its first byte or the connection.

    Of more than 128 connections that wait for a request the oldest is closed: a request of the page
    is there at once, so it is never one of those.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, and wait for the rest where it is not whole."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._waiting is not None:
            return
        self._waiting = self.loop.call_later(SECONDS, self._close)
        idle = _idle_of(self.server_state)
        idle[self] = None
        if len(idle) > MOST:
            next(iter(idle))._close()

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        _idle_of(self.server_state).pop(self, None)

    def _close(self) -> None:
        self._stop_waiting()
        self.transport.abort()


def _idle_of(state: Any) -> dict[BoundedProtocol, None]:
    """Return the connections of one server that wait for a request, the oldest first."""
    idle: dict[BoundedProtocol, None] = vars(state).setdefault("ztensor_idle", {})
    return idle
