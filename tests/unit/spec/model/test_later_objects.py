"""Objects that are described when one is asked for: what is wrong with one stays."""

from __future__ import annotations

import pytest

from ztensor.errors import FormatError, Reason, SourceError
from ztensor.ext import LaterObjects, TensorObject


def test_a_broken_object_is_looked_at_once_and_told_each_time() -> None:
    asked = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        raise FormatError("it is broken", reason=Reason.TRUNCATED, expected="more", found="less")

    objects = LaterObjects(["a", "b"], make)
    told = []
    for _ in range(3):
        with pytest.raises(FormatError) as caught:
            objects["a"]
        told.append((str(caught.value), caught.value.reason, caught.value.object_name))
    assert asked == ["a"]
    assert set(told) == {(told[0][0], Reason.TRUNCATED, "a")}


def test_a_failing_read_is_tried_again() -> None:
    asked = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        if len(asked) == 1:
            raise SourceError("the server is away")
        return TensorObject((0,), "dense", {})

    objects = LaterObjects(["a"], make)
    with pytest.raises(SourceError):
        objects["a"]
    assert objects["a"].shape == (0,)
    assert asked == ["a", "a"]
