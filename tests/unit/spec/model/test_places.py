from __future__ import annotations

import pytest

from ztensor.errors import Reason
from ztensor.spec.container.walk import check_place
from ztensor.spec.model.manifest import align


@pytest.mark.parametrize(
    ("offset", "aligned"),
    [(0, 0), (1, 64), (8, 64), (63, 64), (64, 64), (65, 128), (2**64 - 1, 2**64), (2**40, 2**40)],
)
def test_align(offset: int, aligned: int) -> None:
    assert align(offset) == aligned


MISPLACED = Reason.OFFSET_ALIGNMENT
OUTSIDE = Reason.OUT_OF_BOUNDS


@pytest.mark.parametrize(
    ("offset", "length", "reasons"),
    [
        (64, 0, []),
        (64, 192, []),
        (192, 64, []),
        (256, 0, []),
        (64, 193, [OUTSIDE]),
        (256, 1, [OUTSIDE]),
        (320, 0, [OUTSIDE]),
        (0, 8, [OUTSIDE]),
        (0, 300, [OUTSIDE, OUTSIDE]),
        (8, 8, [MISPLACED]),
        (65, 1, [MISPLACED]),
        (127, 200, [MISPLACED, OUTSIDE]),
        (2**64 - 64, 128, [OUTSIDE]),  # the sum does not wrap
        (64, 2**64 - 1, [OUTSIDE]),
    ],
)
def test_a_blob_lies_between_header_and_manifest(
    offset: int, length: int, reasons: list[Reason]
) -> None:
    problems = check_place((offset, length), 256, 64, ("offset",), "a section")
    assert [problem.reason for problem in problems] == reasons
    assert all(problem.path == ("offset",) for problem in problems)
