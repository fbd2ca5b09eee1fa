"""Which blobs of a file lie in a run that several of them share in part."""

from __future__ import annotations

import pytest

from ztensor.writing.overlaps import Overlaps

Blob = tuple[int, int]


@pytest.mark.parametrize(
    ("blobs", "runs"),
    [
        ([], {(64, 64): None}),
        ([(64, 64)], {(64, 64): None}),
        ([(64, 64), (64, 64)], {(64, 64): None}),
        ([(64, 64), (128, 64)], {(64, 64): None, (128, 64): None}),
        ([(64, 65), (128, 64)], {(64, 65): (64, 128), (128, 64): (64, 128)}),
        ([(64, 64), (64, 100)], {(64, 64): (64, 100), (64, 100): (64, 100)}),
        ([(64, 200), (128, 10), (192, 100)], {(128, 10): (64, 228), (192, 100): (64, 228)}),
        ([(64, 100), (100, 100)], {(64, 100): None, (100, 100): None}),  # one begins elsewhere
        ([(64, 100), (128, 0)], {(64, 100): None}),
        (
            [(0, 100), (64, 10), (640, 100), (704, 100), (1280, 9)],
            {(0, 100): (0, 100), (64, 10): (0, 100), (704, 100): (640, 164), (1280, 9): None},
        ),
    ],
)
def test_a_run_is_of_blobs_that_overlap(blobs: list[Blob], runs: dict[Blob, Blob | None]) -> None:
    for order in (blobs, blobs[::-1]):
        overlaps = Overlaps(order)
        assert {blob: overlaps.around(*blob) for blob in runs} == runs


def test_what_was_not_expected_lies_in_no_run_unless_all_of_it_does() -> None:
    overlaps = Overlaps([(64, 100), (128, 100)])
    assert overlaps.around(64, 164) == (64, 164)
    assert overlaps.around(64, 165) is None
    assert overlaps.around(0, 10) is None
    assert overlaps.around(100, 10) is None
    assert overlaps.around(192, 36) == (64, 164)
    assert overlaps.around(192, 37) is None
