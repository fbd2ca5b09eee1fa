"""Limits for connections that are idle or slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

SECONDS, MOST = 10.0, 128


class BoundedProtocol(H11Protocol):
    """One connection. A request must be whole ten seconds after its first byte or the connection.

    Of more than 128 connections without a complete request the oldest is closed: requests of the
    page arrive at once, so they are not affected.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Pass on bytes of a request, and wait for the rest of it."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
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
    """Return the connections of one server without a complete request, the oldest first."""
    idle: dict[BoundedProtocol, None] = vars(state).setdefault("ztensor_idle", {})
    return idle
