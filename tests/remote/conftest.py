"""The servers, started once for each process of tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.remote.fault_proxy import FaultProxy
from tests.remote.s3_server import S3Server

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
