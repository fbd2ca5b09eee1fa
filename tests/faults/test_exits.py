"""Programs that end while something is written; `exits.py` does the same more often."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.exits import KINDS, run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    from tests.remote.s3_server import S3Server

    with S3Server() as server:
        server.make_bucket("runs")
        yield server.storage()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "store"])
def test_what_was_begun_is_there_when_the_program_has_ended(name: str, tmp_path: Path) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    verdict = run(name, str(tmp_path))
    assert verdict in ({"new", "old, as the program says"} if KINDS[name].may_lose else {"new"})


def test_what_was_begun_is_in_the_store_when_the_program_has_ended(store: dict[str, str]) -> None:
    assert run("store", "s3://runs/own", store) == "new"
