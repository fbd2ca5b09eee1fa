"""Objects that are made when they are asked for: once each, and with their names in errors."""

from __future__ import annotations

import pytest

from ztensor.errors import ManifestError, Reason
from ztensor.model.later import LaterObjects
from ztensor.model.manifest import Component, TensorObject


def made(name: str) -> TensorObject:
    return TensorObject((len(name),), "dense", {"data": Component("u8", 0, len(name))})


def test_names_are_known_without_an_object() -> None:
    asked: list[str] = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        return made(name)

    objects = LaterObjects(["b", "aa"], make)
    assert list(objects) == ["b", "aa"]
    assert len(objects) == 2
    assert "aa" in objects
    assert "c" not in objects
    with pytest.raises(KeyError):
        objects["c"]
    assert asked == []
    assert objects["aa"].shape == (2,)
    assert objects["aa"] is objects["aa"]
    assert asked == ["aa"]


def test_an_object_that_cannot_be_made_is_asked_for_again() -> None:
    asked: list[str] = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        raise ManifestError("no", reason=Reason.FIELD_VALUE)

    objects = LaterObjects(["a"], make)
    for _ in range(2):
        with pytest.raises(ManifestError) as caught:
            objects["a"]
        assert caught.value.object_name == "a"
    assert asked == ["a", "a"]
    assert "a" in objects
