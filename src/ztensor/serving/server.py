"""The server of a page: on 127.0.0.1 alone, behind a token, and gone when the page is."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ztensor.boundary import turn
from ztensor.errors import SourceError, UsageError, ZTensorError
from ztensor.model.showing import visible
from ztensor.serving.connections import BoundedProtocol
from ztensor.serving.guard import Guard, integer
from ztensor.serving.work import Job, StoppedError, Workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from ztensor.reading.reader import ObjectReader
    from ztensor.serving.model import Viewed

IDLE = 30.0  # seconds after the last page was left
FIRST = 600.0  # seconds in which a first page is waited for
_ALIVE = 32  # streams that tell that a page is there
_BEAT = 5.0  # seconds between bytes of such a stream
_LOOK = 0.2  # seconds between looks at whether the page is still there
_CONNECTIONS = 512


class ViewServer:
    """Serves the page of one model or two, until nobody looks at it.

    Args:
        first: an open model; the caller closes it.
        second: another one, to compare it with.
        idle: seconds from when the last page was left to the end; None for none.
    """

    idle = IDLE

    def __init__(
        self, first: ObjectReader, second: ObjectReader | None = None, idle: float | None = IDLE
    ) -> None:
        self._readers = first, second
        self._viewed: Viewed | None = None
        self._lock = threading.Lock()
        self.workers = Workers()
        self._idle = idle
        self._pages = self._running = 0
        self._was_seen = False
        self._last = time.monotonic()
        # Said to be TCP, as asyncio asks for no delay of what is: else answers take 40 ms each.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.port = self._socket.getsockname()[1]
        self.token = secrets.token_urlsafe(32)
        config = uvicorn.Config(
            self._guarded(), http=BoundedProtocol, ws="none", lifespan="off", log_config=None,
            log_level="critical", access_log=False, proxy_headers=False, server_header=False,
            date_header=False, limit_concurrency=_CONNECTIONS, timeout_keep_alive=5,
            h11_max_incomplete_event_size=16 << 10, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def viewed(self) -> Viewed:
        """Return what is looked at; what looks is loaded when the address is already there."""
        with self._lock:
            if self._viewed is None:
                from ztensor.serving.model import Viewed

                self._viewed = Viewed(*self._readers)
            return self._viewed

    @property
    def url(self) -> str:
        """Return the address of the page; whoever knows it may look."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @property
    def was_seen(self) -> bool:
        """Return whether a page was opened."""
        return self._was_seen

    def run(self) -> None:
        """Serve until the last page was left, `stop` is called, or Ctrl-C is pressed."""
        try:
            asyncio.run(self._serve())
        finally:
            self.close()

    def close(self) -> None:
        """Give back the address; to be called where `run` was not."""
        self.workers.close()
        self._socket.close()

    def stop(self) -> None:
        """End soon; may be called by another thread."""
        self._server.should_exit = True

    async def _serve(self) -> None:
        watch = asyncio.create_task(self._watch())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while self._idle is not None:
            await asyncio.sleep(min(self._idle / 4, 1.0))
            if self._pages or self._running:
                self._last = time.monotonic()
            if time.monotonic() - self._last > (self._idle if self._was_seen else FIRST):
                self.stop()

    # --- What may be asked ------------------------------------------------------------------

    def _guarded(self) -> Any:
        def tensor(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            return lambda job: self.viewed.tensor(number, index, job.check)

        def pair(request: Request) -> Callable[[Job], dict[str, Any]]:
            row = integer(request.path_params["row"])
            return lambda job: self.viewed.pair(row, job.check)

        def part(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            query = request.query_params
            return lambda job: self.viewed.slice(number, index, query, job.check)

        def singular(request: Request) -> Callable[[Job], dict[str, Any]]:
            number, index = _places(request)
            return lambda job: self.viewed.singular(number, index, job.check)

        place = "{number}/{index}"
        routes = [
            Route("/", self._answering(self._page)),
            Route("/alive", self._alive),
            Route("/examine", self._answering(self._examine)),
            Route(f"/tensor/{place}", self._answering(self._working(tensor))),
            Route("/pair/{row}", self._answering(self._working(pair))),
            Route(f"/slice/{place}", self._answering(self._working(part))),
            Route(f"/singular/{place}", self._answering(self._working(singular))),
        ]
        return Guard(Starlette(routes=routes), self.token, self.port)

    def _answering(self, answer: Any) -> Any:
        """Return an endpoint: errors become texts, and while it runs the server does not end."""

        async def endpoint(request: Request) -> Response:
            self._running += 1
            try:
                response: Response = await answer(request)
            except Exception as error:  # noqa: BLE001  # a page is told what a caller would be
                return _refused(error)
            else:
                return response
            finally:
                self._running -= 1
                self._last = time.monotonic()

        return endpoint

    def _working(self, work_of: Callable[[Request], Callable[[Job], dict[str, Any]]]) -> Any:
        async def answer(request: Request) -> Response:
            return _json(await self.workers.run(work_of(request), request.is_disconnected))

        return answer

    async def _page(self, request: Request) -> Response:
        text, policy = await self.workers.run(
            lambda _: self.viewed.page(), request.is_disconnected, None
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
                while not (self._server.should_exit or await request.is_disconnected()):
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

            self.viewed.examine(progress)

        async def lines() -> AsyncIterator[bytes]:
            self._running += 1
            task = asyncio.create_task(self.workers.run(work, request.is_disconnected, None))
            try:
                while not (task.done() or self._server.should_exit):
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
    status = 500
    if isinstance(error, StoppedError):
        status = 503
    elif isinstance(error, SourceError):
        status = 409
    elif isinstance(error, UsageError):
        status = 400
    elif isinstance(error, ZTensorError):
        status = 422
    return _json({"error": _text_of(error)}, status)


def _text_of(error: BaseException) -> str:
    """Return what a page is told: the sentence of an error of ours, never where in the code."""
    if isinstance(error, (StoppedError, ZTensorError)):
        return visible(str(error))[:1000]
    if isinstance(error, asyncio.CancelledError):
        return "it was ended"
    try:
        turn(error)  # type: ignore[arg-type]  # raises an error of ours, or nothing
    except ZTensorError as ours:
        return visible(ours.message)[:1000]
    return "something went wrong that should not have"
