"""Functions that write a file replace one that is there; with `overwrite=False` they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import UsageError
from ztensor.numpy import save_file

WAYS: dict[str, Callable[..., Any]] = {
    "convert": ztensor.convert,
    "convert to another format": lambda one, out, **how: ztensor.convert(one, out, to="npz", **how),
    "convert in shards": lambda one, out, **how: ztensor.convert(
        one, out, max_shard_size="1GB", **how
    ),
    "migrate": lambda one, out, **how: ztensor.migrate(one, out, version="1.1.0", **how),
    "merge": lambda one, out, **how: ztensor.merge([one], out, **how),
    "repair": lambda one, out, **how: ztensor.repair(one, write=out, **how),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_there_stays_where_that_was_asked_for(tmp_path: Path, way: str) -> None:
    save_file({"w": np.arange(6.0)}, tmp_path / "one.zt")
    out = tmp_path / "out.zt"
    out.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists already"):
        WAYS[way](tmp_path / "one.zt", out, overwrite=False)
    assert out.read_bytes() == b"precious"
    WAYS[way](tmp_path / "one.zt", out)
    assert out.read_bytes() != b"precious"
    out.unlink()
    WAYS[way](tmp_path / "one.zt", out, overwrite=False)
    assert out.stat().st_size > 0
