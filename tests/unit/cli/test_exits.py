from __future__ import annotations

import pytest

import ztensor
from ztensor import errors
from ztensor.cli.exits import ExitCode, code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ManifestError("x"), ExitCode.CORRUPT),
        (errors.ContainerError("x"), ExitCode.CORRUPT),
        (errors.NotZTensorError("x"), ExitCode.CORRUPT),
        (errors.DigestMismatchError("x"), ExitCode.CORRUPT),
        (errors.LimitError("x"), ExitCode.CORRUPT),
        (errors.UnsupportedVersionError("x"), ExitCode.UNSUPPORTED),
        (errors.MissingDependencyError("x"), ExitCode.UNSUPPORTED),
        (errors.SourceError("x"), ExitCode.FAILED),
        (errors.SourceNotFoundError("x"), ExitCode.FAILED),
        (errors.ObjectNotFoundError("x"), ExitCode.USAGE),
        (errors.NotRepresentableError("x"), ExitCode.USAGE),
        (MemoryError(), ExitCode.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_code_of(error: BaseException, code: ExitCode) -> None:
    assert code_of(error) == code


def test_every_error_of_the_library_has_a_code_that_is_not_success() -> None:
    families = [getattr(ztensor, name) for name in ztensor.__all__ if name.endswith("Error")]
    assert families
    assert all(code_of(family("x")) != ExitCode.OK for family in families)
