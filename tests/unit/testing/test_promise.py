"""The oracle lets good and refused files pass, and sees each way of breaking the promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import FormatError, LimitError, Reason, SourceError
from ztensor.testing.builder import VALUES, VERSIONS, build
from ztensor.testing.promise import PromiseBroken, exercise
from ztensor.typing import VerifyReport


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_file(version: str) -> None:
    outcome = exercise(build(version), keep=True)
    assert outcome.opened
    assert outcome.verified
    assert outcome.refusals == []
    assert outcome.largest > 0
    for (name, role), array in outcome.arrays.items():
        if role == "dense":
            assert array.tolist() == VALUES[name]


def test_a_file_that_is_refused() -> None:
    outcome = exercise(build(broken="field_missing"))
    assert not outcome.opened
    assert not outcome.verified
    (refusal,) = outcome.refusals
    assert (refusal.stage, refusal.family) == ("open", "FormatError")
    assert refusal.reason == Reason.FIELD_MISSING


def breaks(monkeypatch: pytest.MonkeyPatch, method: str, result: Any) -> None:
    """Let a reader's method give a result, or raise it."""

    def broken(*_: Any, **__: Any) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(ztensor.Reader, method, broken)


@pytest.mark.parametrize(
    "error",
    [
        FormatError("no rule", reason=Reason.UNFORESEEN),  # made by the guard
        LimitError("no stack", reason=Reason.LIMIT_STACK),
        SourceError("a disk"),
        FormatError("without a reason"),
        FormatError("\x1b[31m red", reason=Reason.FIELD_TYPE),
        FormatError("two\nlines", reason=Reason.FIELD_TYPE),
        FormatError("long" * 2000, reason=Reason.FIELD_TYPE),
        FormatError("verify finds nothing", reason=Reason.FIELD_TYPE),
        ztensor.UsageError("a right call", reason=Reason.ARGUMENT),
    ],
    ids=lambda error: error.message[:20],
)
def test_errors_that_break_the_promise(
    monkeypatch: pytest.MonkeyPatch, error: ztensor.ZTensorError
) -> None:
    breaks(monkeypatch, "read", error)
    with pytest.raises(PromiseBroken):
        exercise(build())


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("__len__", 3),
        ("read", ztensor.Tensor(np.zeros(9))),
        ("verify", VerifyReport((), (), 0, 0, 0, 0)),
    ],
    ids=["length", "other tensor", "fewer objects"],
)
def test_results_that_break_the_promise(
    monkeypatch: pytest.MonkeyPatch, method: str, result: Any
) -> None:
    breaks(monkeypatch, method, result)
    with pytest.raises(PromiseBroken):
        exercise(build())


def test_views_and_copies_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ztensor.Reader.read

    def broken(self: ztensor.Reader, name: str, *, copy: bool = False) -> ztensor.Tensor:
        tensor = real(self, name, copy=copy)
        if name != "matrix" or copy:
            return tensor
        return ztensor.Tensor(tensor.components["data"] + 1, shape=tensor.shape)

    monkeypatch.setattr(ztensor.Reader, "read", broken)
    with pytest.raises(PromiseBroken, match="view and copy"):
        exercise(build())
