"""What is found wrong with a manifest before any of its objects is read."""

from __future__ import annotations

import pytest

import ztensor
from ztensor.errors import ManifestError, Reason
from ztensor.testing.builder import draft, stored


def test_only_so_many_wrong_objects_are_told() -> None:
    made = draft("1.2.0")
    for number in range(300):
        parts = {"coords": ({"dtype": "f32"}, b""), "values": ({"dtype": "i32"}, stored("i32"))}
        made.add(f"odd{number}", [2, 2], parts, format="sparse_coo")
    with pytest.raises(ManifestError, match="and 255 more problems") as caught:
        ztensor.open(made.to_bytes())
    assert {problem.reason for problem in caught.value.problems} == {Reason.INDEX_DTYPE}
    assert len(caught.value.problems) == 256
