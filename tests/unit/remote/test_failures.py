"""Errors of stores become one of ours, which names missing rights and no secret."""

from __future__ import annotations

import pytest

from ztensor.errors import Reason, SourceError, SourceNotFoundError, SourcePermissionError
from ztensor.remote.failures import failure

SIGNED = "X-Amz-Signature=0123456789abcdef"
URL = "s3://bucket/m.zt"


def failed(kind: str, text: str, url: str = URL) -> SourceError:
    """Return our error for one of obstore's: a class and a text, which ends with the whole URL."""
    raised: Exception = type(kind, (Exception,), {})(f"{text} https://host/m.zt?{SIGNED}")
    return failure(raised, "cannot read", url)


# obstore's class and text; our class, and what our message says.
CASES: list[tuple[str, str, type[SourceError], str]] = [
    ("GenericError", "Client error with status 403", SourcePermissionError, "s3:GetObject"),
    ("GenericError", "status 403", SourcePermissionError, "cannot read: forbidden (status 403)"),
    ("PermissionDeniedError", "", SourcePermissionError, "cannot read: forbidden"),
    ("UnauthenticatedError", "", SourcePermissionError, "AWS_ACCESS_KEY_ID"),
    ("UnauthenticatedError", "", SourcePermissionError, "no credentials that the store accepts"),
    ("GenericError", "status 401", SourcePermissionError, "store accepts (status 401)"),
    ("GenericError", "no credential in the chain", SourcePermissionError, "skip_signature"),
    ("GenericError", "status 404 <Code>NoSuchBucket</Code>", SourceNotFoundError, "no such bucket"),
    ("GenericError", "Server error with status 503", SourceError, "status 503"),
    ("GenericError", "kind: TimedOut", SourceError, "too long"),
    ("GenericError", "kind: ConnectionRefused", SourceError, "refused"),
    ("GenericError", "<Code>PermanentRedirect</Code>", SourceError, "AWS_REGION"),
    ("GenericError", "dns error: failed to lookup", SourceError, "AWS_ENDPOINT_URL"),
    ("NotSupportedError", "", SourceError, "does not support"),
    ("GenericError", "unknown words", SourceError, "the request failed"),
]


@pytest.mark.parametrize(("kind", "text", "family", "says"), CASES)
def test_each_cause(kind: str, text: str, family: type[SourceError], says: str) -> None:
    error = failed(kind, text)
    assert type(error) is family
    assert says in str(error)
    assert URL in str(error)
    assert SIGNED not in str(error)
    assert "https://host" not in str(error)


@pytest.mark.parametrize(
    ("kind", "text"), [("PreconditionError", ""), ("GenericError", "status 412")]
)
def test_a_failed_condition_means_that_the_object_changed(kind: str, text: str) -> None:
    assert failed(kind, text).reason is Reason.SOURCE_CHANGED


@pytest.mark.parametrize("url", ["gs://b/k", "az://b/k", "abfs://b@a/k", "https://h/k"])
def test_each_service_says_what_it_needs(url: str) -> None:
    error = failed("PermissionDeniedError", "", url)
    assert error.hint is not None
    assert "storage=" in str(error)  # what only code can do, so not in the hint


@pytest.mark.parametrize("words", ["kind: TimedOut", "token", "status 403", "TooManyRedirects"])
def test_only_the_ends_of_a_long_answer_are_searched(words: str) -> None:
    around = "x " * 5_000_000
    hidden = failure(Exception(f"it {around} {words} {around} ended"), "cannot read", URL)
    assert str(hidden) == str(failure(Exception("it ended"), "cannot read", URL))
    for text in (f"{words} {around}", f"{around} {words}"):
        assert str(failure(Exception(text), "cannot read", URL)) != str(hidden)


@pytest.mark.parametrize(
    "name", ["tokenizer", "credential", "status-404", "TimedOut", "status: 403"]
)
def test_the_words_of_a_url_are_not_a_cause(name: str) -> None:
    error = OSError(f"Error performing GET http://h/{name}.zt in 5ms - Connection refused")
    found = failure(error, "cannot read", "http://h/")
    assert type(found) is SourceError
    assert "refused" in str(found)
