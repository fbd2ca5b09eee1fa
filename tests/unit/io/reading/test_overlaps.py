"""Bytes that several objects share: what counts as that, and what going through them costs."""

from __future__ import annotations

from typing import Any

import pytest

import ztensor
from ztensor.errors import Reason
from ztensor.spec.encoding import ENCODINGS
from ztensor.testing.builder import draft

SIZE = 1 << 18


def frames_of(*places: tuple[int, int]) -> bytes:
    """Return a file of two frames, with an object over those from one to before another."""
    frame = b"".join(ENCODINGS["zstd"].encode(memoryview(bytes(SIZE)), level=1))
    filling = -(len(frame) + 8) % 64  # objects begin at multiples of 64: a skippable frame
    frame += b"\x50\x2a\x4d\x18" + filling.to_bytes(4, "little") + bytes(filling)
    made = draft("1.2.0")
    made.objects.clear()
    made.blobs.clear()
    made.header += bytes(64 - len(made.header)) + 2 * frame
    for number, (first, last) in enumerate(places):
        count = last - first
        fields: dict[str, Any] = {"dtype": "u8", "encoding": "zstd"}
        fields |= {"offset": 64 + first * len(frame), "length": count * len(frame)}
        fields |= {"uncompressed_length": count * SIZE}
        parts = {"data": fields}
        made.objects[f"w{number}"] = {
            "shape": [count * SIZE],
            "format": "dense",
            "components": parts,
        }
    return made.to_bytes()


@pytest.mark.parametrize(
    ("places", "wrong"),
    [
        ([(0, 1), (1, 2)], []),  # neighbours
        ([(0, 1), (0, 1)], []),  # the same: gone through once
        ([(0, 2), (1, 2)], ["w1"]),
        ([(1, 2), (0, 2)], ["w0"]),
        ([(0, 1), (0, 2)], ["w0"]),
    ],
    ids=str,
)
def test_only_what_begins_inside_of_another_costs_the_budget(
    places: list[tuple[int, int]], wrong: list[str]
) -> None:
    limits = ztensor.Limits(cost_floor=50_000, cost_factor=1)
    with ztensor.open(frames_of(*places), limits=limits) as reader:
        report = reader.verify()
    assert report.problems == ()
    assert [(one.object_name, one.reason) for one in report.unsupported] == [
        (name, Reason.LIMIT_COST) for name in wrong
    ]
