"""Objects that are built on first access: a broken one stays broken."""

from __future__ import annotations

import pytest

from ztensor.errors import FormatError, Reason, SourceError
from ztensor.ext import LaterObjects, TensorObject


def test_a_broken_object_is_built_once_and_raises_each_time() -> None:
    asked = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        raise FormatError("it is broken", reason=Reason.TRUNCATED, expected="more", found="less")

    objects = LaterObjects(["a", "b"], make)
    texts = []
    for _ in range(3):
        with pytest.raises(FormatError) as caught:
            objects["a"]
        texts.append((str(caught.value), caught.value.reason, caught.value.object_name))
    assert asked == ["a"]
    assert set(texts) == {(texts[0][0], Reason.TRUNCATED, "a")}


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
