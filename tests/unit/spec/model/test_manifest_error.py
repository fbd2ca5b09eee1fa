from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from ztensor.errors import MOST_PROBLEMS, ManifestError, Problem, Reason
from ztensor.spec.container.walk import require_none


def error_of(problems: Sequence[Problem]) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        require_none(problems)
    return caught.value


BARE = Problem(Reason.FIELD_TYPE, "expected text, found null", ("dtype",))


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(Reason.FIELD_TYPE, "wrong"), "wrong"),
        (Problem(Reason.FIELD_TYPE, "wrong", (), "s 1"), "wrong (s 1)"),
        (BARE.under("objects", "w"), "['objects']['w']['dtype']: expected text, found null"),
        (Problem(Reason.FIELD_TYPE, "wrong", (0, "a\n\x1b"), "s"), r"[0]['a\n\x1b']: wrong (s)"),
        (Problem(Reason.FIELD_TYPE, "wrong", ("x" * 99,)), "['" + "x" * 60 + "...']: wrong"),
    ],
    ids=["alone", "section", "path", "escaped", "long"],
)
def test_it_prints_on_one_line(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_one_error_carries_all_problems_at_the_place_of_the_first() -> None:
    problems = [
        BARE.about("w", "data"),
        Problem(Reason.OUT_OF_BOUNDS, "too far"),
        Problem(Reason.FIELD_VALUE, "too large"),
    ]
    error = error_of(problems)
    assert error.problems == tuple(problems)
    assert (error.reason, error.object_name, error.component) == (BARE.reason, "w", "data")
    assert str(problems[0]) in str(error)
    assert "2 more" in str(error)
    assert "more" not in str(error_of(problems[:1]))


@pytest.mark.parametrize("count", [MOST_PROBLEMS - 1, MOST_PROBLEMS])
def test_a_full_list_says_that_there_may_be_more(count: int) -> None:
    text = str(error_of([BARE] * count))
    assert f"{count - 1} more problems" in text
    assert ("not looked for" in text) is (count == MOST_PROBLEMS)


def test_problems_can_be_sent_and_compared() -> None:
    assert pickle.loads(pickle.dumps(BARE)) == BARE
    assert len({BARE, BARE.under(), BARE.under(1)}) == 2
