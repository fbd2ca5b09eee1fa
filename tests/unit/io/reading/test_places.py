"""Plain tensors: names, closed and changed files, threads, and readers of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    DigestMismatchError,
)
from ztensor.numpy import load
from ztensor.testing.builder_2 import File2, dense


@pytest.mark.parametrize("digest", ["fffffffffffffffd", "fffffffffffffffe", "ffffffffffffffff"])
def test_the_largest_digests_are_digests_like_others(digest: str) -> None:
    """As signed numbers they are those that stand for no digest, and for one of another kind."""
    file = File2()
    objects = {str(number): dense(file.part(np.full(3, number)), [3]) for number in range(9)}
    objects["4"]["parts"]["data"]["digest"] = f"xxh3:{digest}"
    data = file.seal({"objects": objects})
    uses: list[Any] = [
        lambda: load(data),
        lambda: ztensor.open(data).read_numpy("4", copy=True),
    ]
    for use in uses:
        with pytest.raises(DigestMismatchError) as caught:
            use()
        assert caught.value.object_name == "4"
    with ztensor.open(data) as reader:
        assert [problem.object_name for problem in reader.verify().problems] == ["4"]
