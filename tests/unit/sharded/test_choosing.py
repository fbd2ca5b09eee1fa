"""Which files of a folder are its model, where no index says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ztensor.numpy import save_file
from ztensor.sharded.choosing import chosen
from ztensor.sharded.folders import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

SHARDS = ["m-00001-of-00002", "m-00002-of-00002"]


@pytest.mark.parametrize("suffix", [".zt", ".safetensors"])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (SHARDS, SHARDS),
        (["m", *SHARDS], ["m"]),
        (["n", *SHARDS], [*SHARDS, "n"]),
        (["m", *SHARDS, "n-00001-of-00001"], ["m", "n-00001-of-00001"]),
    ],
    ids=["shards", "the same in one file", "another file", "shards of another"],
)
def test_a_whole_file_replaces_its_own_shards(
    tmp_path: Path, names: list[str], expected: list[str], suffix: str
) -> None:
    for name in names:
        save_file({name: np.ones(2)}, tmp_path / f"{name}{suffix}")
    found = chosen(LocalFolder(str(tmp_path)))
    assert found == [f"{name}{suffix}" for name in expected]
