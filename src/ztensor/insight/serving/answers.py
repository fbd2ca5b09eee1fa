"""The endpoints of the page, and the end of the server after the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ztensor.errors import SourceError, UsageError, ZTensorError
from ztensor.insight.serving.connections import BoundedProtocol
from ztensor.insight.serving.guard import Guard, integer
from ztensor.insight.serving.model import Viewed
from ztensor.insight.serving.work import Job, StoppedError, Workers
from ztensor.insight.text import visible

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    Refused = Callable[[Exception], Response]

FIRST = 600.0  # seconds to wait for a first page
_ALIVE = 32  # most streams of open pages
_BEAT = 5.0  # seconds between bytes of such a stream
_LOOK = 0.2  # seconds between checks for an open page
_CONNECTIONS = 512


class Answers:
    """Answers the requests of the page, until it is closed.

    Args:
        view: returns the model; called in a thread.
        token: the first part of each path.
        port: the port of the page.
        idle: seconds from the close of the last page to the end; None for no end.
        ending: set to end the server.
    """

    def __init__(
        self,
        view: Callable[[], Viewed],
        token: str,
        port: int,
        idle: float | None,
        ending: threading.Event,
    ) -> None:
        self._view, self._token, self._port = view, token, port
        self._idle = idle
        self._ending = ending
        self._workers = Workers()
        self._pages = self._running = 0
        self._was_seen = False
        self._last = time.monotonic()
        config = uvicorn.Config(
            self._guarded(), loop="asyncio", http=BoundedProtocol, ws="none", lifespan="off",
            log_config=None, log_level="critical", access_log=False, proxy_headers=False,
            server_header=False, date_header=False, limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5, h11_max_incomplete_event_size=16 << 10,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def serve(self, listening: socket.socket) -> None:
        """Answer requests until the end.

        Args:
            listening: the listening socket.
        """
        try:
            asyncio.run(self._serve(listening))
        finally:
            self._workers.close()

    async def _serve(self, listening: socket.socket) -> None:
        watch = asyncio.create_task(self._watch())
        ready = asyncio.create_task(self._made_ready())
        try:
            await self._server.serve(sockets=[listening])
        finally:
            watch.cancel()
            ready.cancel()

    async def _watch(self) -> None:
        while not self._ending.is_set():
            await asyncio.sleep(0.1)
            if self._pages or self._running:
                self._last = time.monotonic()
            if self._idle is None:
                continue
            if time.monotonic() - self._last > (self._idle if self._was_seen else FIRST):
                self._ending.set()
        self._server.should_exit = True

    async def _made_ready(self) -> None:
        """Prepare the page while a browser starts; an error is raised on the request for it."""

        async def is_left() -> bool:
            return self._ends

        with contextlib.suppress(Exception):
            await self._workers.run(lambda _: self._view().page(), is_left, None)

    @property
    def _ends(self) -> bool:
        return self._ending.is_set() or self._server.should_exit

    # --- Endpoints --------------------------------------------------------------------------

    def _guarded(self) -> Any:
        def tensor(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            return lambda job: self._view().tensor(number, index, job.check)

        def pair(request: Request) -> Callable[[Job], dict[str, Any]]:
            row = integer(request.path_params["row"])
            return lambda job: self._view().pair(row, job.check)

        def part(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            query = request.query_params
            return lambda job: self._view().slice(number, index, query, job.check)

        def singular(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            return lambda job: self._view().singular(number, index, job.check)

        place = "{number}/{index}"
        routes = [
            Route("/", self._answering(self._page, _refused_page)),
            Route("/alive", self._alive),
            Route("/examine", self._answering(self._examine)),
            Route(f"/tensor/{place}", self._answering(self._working(tensor))),
            Route("/pair/{row}", self._answering(self._working(pair))),
            Route(f"/slice/{place}", self._answering(self._working(part))),
            Route(f"/singular/{place}", self._answering(self._working(singular))),
        ]
        return Guard(Starlette(routes=routes), self._token, self._port)

    def _answering(
        self, answer: Any, refused: Callable[[Exception], Response] | None = None
    ) -> Any:
        """Return an endpoint: errors become texts, and the server does not end while it runs."""

        async def endpoint(request: Request) -> Response:
            self._running += 1
            try:
                response: Response = await answer(request)
            except Exception as error:  # noqa: BLE001  # the page shows the error
                return (refused or _refused)(error)
            else:
                return response
            finally:
                self._running -= 1
                self._last = time.monotonic()

        return endpoint

    def _working(self, work_of: Callable[[Request], Callable[[Job], dict[str, Any]]]) -> Any:
        async def answer(request: Request) -> Response:
            return _json(await self._workers.run(work_of(request), request.is_disconnected))

        return answer

    async def _page(self, request: Request) -> Response:
        text, policy = await self._workers.run(
            lambda _: self._view().page(), request.is_disconnected, None
        )
        headers = {"content-security-policy": f"{policy}; frame-ancestors 'none'"}
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    async def _alive(self, request: Request) -> Response:
        if self._pages >= _ALIVE:
            return Response(status_code=503)
        self._was_seen = True

        async def beats() -> AsyncIterator[bytes]:
            self._pages += 1
            try:
                beat = 0.0
                while not (self._ends or await request.is_disconnected()):
                    if time.monotonic() - beat > _BEAT:
                        beat = time.monotonic()
                        yield b"."
                    await asyncio.sleep(_LOOK)
            finally:
                self._pages -= 1
                self._last = time.monotonic()

        return StreamingResponse(beats(), media_type="text/plain")

    async def _examine(self, request: Request) -> Response:
        done = [0, 0]

        def work(job: Job) -> None:
            def progress(so_far: int, total: int) -> None:
                job.check()
                done[:] = so_far, total

            self._view().examine(progress)

        async def lines() -> AsyncIterator[bytes]:
            self._running += 1
            task = asyncio.create_task(self._workers.run(work, request.is_disconnected, None))
            try:
                while not (task.done() or self._ends):
                    yield _line({"done": done[0], "total": done[1]})
                    await asyncio.wait([task], timeout=_LOOK)
                if task.done():
                    error = task.exception()
                    yield _line({"whole": True} if error is None else {"error": _text_of(error)})
            finally:
                task.cancel()
                self._running -= 1
                self._last = time.monotonic()

        return StreamingResponse(lines(), media_type="application/x-ndjson")


def _places(request: Request) -> tuple[int, int]:
    return integer(request.path_params["number"]), integer(request.path_params["index"])


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _json(value: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _refused(error: Exception) -> Response:
    return _json({"error": _text_of(error)}, _status_of(error))


def _refused_page(error: Exception) -> Response:
    return Response(_text_of(error), _status_of(error), media_type="text/plain; charset=utf-8")


def _status_of(error: Exception) -> int:
    if isinstance(error, StoppedError):
        return 503
    if isinstance(error, SourceError):
        return 409
    if isinstance(error, UsageError):
        return 400
    return 422 if isinstance(error, ZTensorError) else 500


def _text_of(error: BaseException) -> str:
    """Return the text of an error for the page, without a place in the code."""
    if isinstance(error, (StoppedError, ZTensorError)):
        return visible(str(error))[:1000]
    if isinstance(error, asyncio.CancelledError):
        return "it was ended"
    return "internal error"
