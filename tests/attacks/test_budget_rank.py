"""Arrays of more dimensions than `Limits.rank`, by every way to an array."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import Reason
from ztensor.io.reading.loading import load_all
from ztensor.limits import Limits
from ztensor.numpy import save_file

WAYS: dict[str, Callable[[Any], Any]] = {
    "[]": lambda reader: reader["deep"][...],
    "read_numpy": lambda reader: reader.read_numpy("deep"),
    "read_numpy copy": lambda reader: reader.read_numpy("deep", copy=True),
    "read_tensors": lambda reader: reader.read_tensors(["deep"]),
    "read_into": lambda reader: reader.read_into("deep", np.empty((1,) * 9, np.float32)),
    "get_slice": lambda reader: reader.get_slice("deep")[...],
    "load views": lambda reader: load_all(reader.objects.parts()[0], copy=False),
    "load copies": lambda reader: load_all(reader.objects.parts()[0], copy=True),
}


@pytest.fixture(params=["few", "columns"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small file, and one that is parsed in bulk."""
    count = 2 if request.param == "few" else 1000
    tensors = {f"plain {i}": np.zeros((1, 2), np.float32) for i in range(count)}
    save_file({**tensors, "deep": np.zeros((1,) * 5, np.float32)}, tmp_path / "a.zt")
    return tmp_path / "a.zt"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mmap", [True, False])
def test_no_way_to_an_array_forgets_the_rank(path: Path, way: str, mmap: bool) -> None:
    """Attack: a cap on dimensions that only some ways to an array asked for."""
    with ztensor.open(path, mmap=mmap, limits=Limits(rank=4)) as reader:
        with refused(ztensor.LimitError, Reason.LIMIT_RANK) as caught:
            WAYS[way](reader)
        assert caught.value.object_name == "deep"
    with ztensor.open(path, mmap=mmap, limits=Limits(rank=5)) as reader:
        if way != "read_into":
            WAYS[way](reader)
