"""The servers, started once for each process of tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.remote.fault_proxy import FaultProxy
from tests.remote.hub_server import TOKEN, HubServer
from tests.remote.range_server import RangeServer
from tests.remote.s3_server import S3Server
from tests.unit.cli.conftest import run

__all__ = ["run"]

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto", reason="moto is the S3 server of these tests")
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """Give the name of a new, empty bucket."""
    name = f"bucket-{next(_NUMBERS)}"
    s3.make_bucket(name)
    return name


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """Give a proxy before the S3 server, without a fault yet."""
    with FaultProxy(s3.url) as server:
        yield server


Variables = Callable[[Mapping[str, object]], None]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    """Give a function that sets variables of the environment; None removes one."""

    def put(values: Mapping[str, object]) -> None:
        for name, value in values.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, str(value))

    return put


@pytest.fixture
def hub_files(tmp_path: Path) -> Iterator[RangeServer]:
    """Give the host that the hub sends files on to; it serves `tmp_path`."""
    with RangeServer(tmp_path) as server:
        yield server


@pytest.fixture
def hub(tmp_path: Path, hub_files: RangeServer, variables: Variables) -> Iterator[HubServer]:
    """Give a hub whose repositories are `tmp_path/org/repo/revision`, with a token to read some."""
    private = ("org/closed",)
    with HubServer(tmp_path, hub_files.url, private=private, token=TOKEN) as server:
        tokens = dict.fromkeys(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"))
        variables({"HF_ENDPOINT": f"{server.url}/", "HF_HOME": tmp_path / "empty", **tokens})
        yield server
