"""A server over a small model, in a thread of its own; it stops with the test."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save_file

pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
pytest.importorskip("starlette", reason="pip install starlette uvicorn")

W = np.linspace(-1, 1, 96 * 64, dtype=np.float32).reshape(96, 64)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    def __init__(self, *paths: Path, idle: float | None = None, run: bool = True) -> None:
        from ztensor.insight.serving.server import ViewServer

        self.readers = [ztensor.open(path, mmap=False) for path in paths]
        first, *rest = self.readers
        self.server = ViewServer(first, rest[0] if rest else None, idle)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        if run:
            self.thread.start()

    def get(
        self, path: str = "", method: str = "GET", *, raw: str | None = None, **headers: str
    ) -> Answer:
        """Ask for a path behind the token, or for `raw`; headers by name, `_` for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        target = f"/{self.server.token}/{path}" if raw is None else raw
        connection.putrequest(
            method, target, skip_host="Host" in headers, skip_accept_encoding=True
        )
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        found = Answer(response.status, dict(response.headers), response.read())
        connection.close()
        return found

    def close(self) -> None:
        self.server.stop()
        self.thread.join(20)
        for reader in self.readers:
            reader.close()
        assert not self.thread.is_alive()


def model_of(path: Path, **extra: Any) -> Path:
    tensors = {f"h.{i}.w": W * (i + 1) for i in range(4)} | {"cube": W.reshape(4, 24, 64)} | extra
    save_file(tensors, path)
    return path


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Serve files, until the test ends."""
    running: list[Served] = []

    def start(*paths: Path, idle: float | None = None) -> Served:
        running.append(Served(*paths, idle=idle))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def served(serve: Callable[..., Served], tmp_path: Path) -> Served:
    return serve(model_of(tmp_path / "model.zt"))
