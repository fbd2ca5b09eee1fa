"""What a store refused is one error of ours, with what is missing and without a secret."""

from __future__ import annotations

import os

import pytest

from ztensor.errors import (
    Reason,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    UsageError,
)
from ztensor.remote.failures import failure, require_process

SIGNED = "X-Amz-Signature=0123456789abcdef"
URL = "s3://bucket/m.zt"


def raised(kind: str, text: str) -> Exception:
    error: Exception = type(kind, (Exception,), {})(f"{text} https://host/m.zt?{SIGNED}")
    return error


CASES = [
    (
        "GenericError",
        "Client error with status 403 Forbidden",
        SourcePermissionError,
        "s3:GetObject",
    ),
    ("UnauthenticatedError", "", SourcePermissionError, "AWS_ACCESS_KEY_ID"),
    ("GenericError", "no credential in the chain", SourcePermissionError, "skip_signature"),
    ("GenericError", "status 404 <Code>NoSuchBucket</Code>", SourceNotFoundError, "no such bucket"),
    ("GenericError", "Server error with status 503", SourceError, "status 503"),
    ("GenericError", "kind: TimedOut", SourceError, "too long"),
    ("GenericError", "kind: ConnectionRefused", SourceError, "refused"),
    ("GenericError", "<Code>PermanentRedirect</Code>", SourceError, "AWS_REGION"),
    ("GenericError", "dns error: failed to lookup", SourceError, "AWS_ENDPOINT_URL"),
    ("NotSupportedError", "", SourceError, "does not support"),
    ("GenericError", "words of nobody", SourceError, "the request failed"),
]


@pytest.mark.parametrize(("kind", "text", "family", "says"), CASES)
def test_each_cause(kind: str, text: str, family: type[SourceError], says: str) -> None:
    error = failure(raised(kind, text), "cannot read", URL)
    assert type(error) is family
    assert says in str(error)
    assert URL in str(error)
    assert SIGNED not in str(error)
    assert "https://host" not in str(error)


@pytest.mark.parametrize("words", ["kind: TimedOut", "token", "status 403", "TooManyRedirects"])
def test_the_middle_of_a_long_answer_is_not_searched(words: str) -> None:
    around = "x " * 5_000_000
    hidden = failure(Exception(f"it {around} {words} {around} ended"), "cannot read", URL)
    assert type(hidden) is SourceError
    assert str(hidden) == str(failure(Exception("it ended"), "cannot read", URL))
    for text in (f"{words} {around}", f"{around} {words}"):
        assert str(failure(Exception(text), "cannot read", URL)) != str(hidden)


def test_what_was_not_found_and_what_changed() -> None:
    assert type(failure(FileNotFoundError("x"), "cannot read", URL)) is SourceNotFoundError
    for kind, text in [("PreconditionError", ""), ("GenericError", "status 412")]:
        assert failure(raised(kind, text), "cannot read", URL).reason is Reason.SOURCE_CHANGED


@pytest.mark.parametrize("url", ["gs://b/k", "az://b/k", "abfs://b@a/k", "https://h/k"])
def test_each_service_says_what_it_needs(url: str) -> None:
    error = failure(raised("PermissionDeniedError", ""), "cannot read", url)
    assert error.hint is not None
    assert "storage=" in str(error)  # what only code can do, so not in the hint


def test_a_process_forked_from_one_that_used_a_store_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        require_process(URL)
    forked = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: forked)
    with pytest.raises(UsageError, match="forked") as caught:
        require_process(URL)
    assert caught.value.in_python is not None


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("GenericError", "status 401", "no credentials that the store accepts (status 401)"),
        ("UnauthenticatedError", "", "no credentials that the store accepts"),
        ("GenericError", "status 403", "forbidden (status 403)"),
        ("PermissionDeniedError", "", "forbidden"),
    ],
)
def test_nobody_known_is_told_from_somebody_forbidden(kind: str, text: str, says: str) -> None:
    error = failure(raised(kind, text), "cannot read", URL)
    assert f"cannot read: {says}" in str(error)
    assert isinstance(error, SourcePermissionError)
