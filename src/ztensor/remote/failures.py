"""Errors of stores, translated to ours: attempt, place, cause and missing rights; never a secret.

The messages of obstore contain the whole URL with its signature, and the server's answer. They are
never repeated: known causes are searched for in them, and reported in our words.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    MissingDependencyError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    UsageError,
    ZTensorError,
)
from ztensor.remote.requested import note_request

if TYPE_CHECKING:
    from collections.abc import Callable

WRITING = "cannot write"  # an attempt, as `failure` takes it
_STATUS = re.compile(r"\b(?:status(?: code)?|HTTP error)\W{1,4}([1-5]\d\d)\b", re.IGNORECASE)
_CODE = re.compile(r"<Code>([A-Za-z]{3,60})</Code>")
_NO_HOST = "the host is not known"
# Patterns of obstore's messages, and the cause to report. The first match counts.
_CAUSES = (
    (r"TimedOut|timed out|deadline has elapsed", "it took too long"),
    (r"Connection ?[Rr]efused", "nothing answers there: the connection was refused"),
    (
        r"dns error|failed to lookup address|getaddrinfo|Name or service not known|nodename nor",
        _NO_HOST,
    ),
    (
        r"CertificateUnknown|invalid peer certificate|UnknownIssuer|CERTIFICATE_VERIFY",
        "its certificate is not trusted",
    ),
    (r"TooManyRedirects", "it is redirected in a circle, or too often"),
    (r"MissingContentLength", "the server does not say how long the file is"),
    (
        r"UnexpectedRange|NoContentRange|ParseContentRange",
        "the server answered with another range than was asked for, or did not say with which",
    ),
    (
        r"InvalidLastModified|InvalidContentLength|BadHeader|\bParse\(",
        "the answer is not valid HTTP",
    ),
    (r"BadScheme", "plain http needs the option allow_http"),
    (r"IncompleteMessage|connection closed before|ConnectionReset", "the connection was dropped"),
    (r"Body|UnexpectedEof|end of file before", "the answer ended in its middle"),
    (r"kind: Connect\b|tcp connect error", "no connection could be made"),
)
# Causes are named at the beginning or the end of a message. Between them is the server's answer, of
# any length.
_END_CHARACTERS = 4 << 10
# Words of a URL are not a cause, except for the service that gives keys.
_URL = re.compile(r"\bhttps?://(?!169\.254\.169\.254|metadata\.google)[^\s,]+")
_CREDENTIALS = re.compile(
    r"credential|instance metadata|169\.254\.169\.254|metadata\.google|InvalidAccessKey|token(?!,)",
    re.IGNORECASE,
)

# By the scheme: what reading needs, where keys come from, what reads a public object.
_NEEDS = {
    "s3": (
        "s3:GetObject on the object (and s3:ListBucket, or a missing one reads as forbidden)",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        "AWS_SKIP_SIGNATURE=true",
    ),
    "gs": (
        "storage.objects.get on the object",
        "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
        "ZTENSOR_STORAGE=skip_signature=true",
    ),
    "az": (
        "the role Storage Blob Data Reader, or a SAS token with read",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
        "ZTENSOR_STORAGE=skip_signature=true",
    ),
}
# The same for writing an object, and for giving up its parts.
_WRITING_NEEDS = {
    "s3": "s3:PutObject and s3:AbortMultipartUpload on the object",
    "gs": "storage.objects.create (and storage.objects.delete, to replace one) on the bucket",
    "az": "the role Storage Blob Data Contributor, or a SAS token with create and write",
}
# The process that used the library first: its threads do not survive a fork.
_first_process: list[int] = []
_SAME = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}


def failure(error: BaseException, doing: str, name: str) -> SourceError:
    """Return our error for one of a store.

    Args:
        error: of obstore or huggingface_hub.
        doing: the attempt, as it reads in a sentence: "cannot read".
        name: the URL without secrets.
    """
    kind, text = type(error).__name__, _URL.sub("", ends_of(error))
    status = _STATUS.search(text)
    code = _CODE.search(text)
    response = getattr(error, "response", None)  # of huggingface_hub's error
    number = int(status[1]) if status else getattr(response, "status_code", 0)
    facts = [f"status {number}"] if number else []
    facts += [code[1]] if code else []
    detail = f" ({', '.join(facts)})" if facts else ""
    if isinstance(error, FileNotFoundError) or number == 404:
        problem: SourceError = SourceNotFoundError(f"{doing}: no such object{detail}", file=name)
        if code and code[1] == "NoSuchBucket":
            problem = SourceNotFoundError(f"{doing}: no such bucket{detail}", file=name)
        return problem
    if kind == "PreconditionError" or number == 412:
        return changed(name)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or number in (401, 403):
        is_unknown = kind == "UnauthenticatedError" or number == 401
        return _forbidden(doing, name, detail, is_unknown=is_unknown)
    if not number and _CREDENTIALS.search(text):
        return _forbidden(doing, name, detail, is_unknown=True)
    if kind == "NotSupportedError":
        return SourceError(f"{doing}: the server does not support this request{detail}", file=name)
    cause = next((cause for pattern, cause in _CAUSES if re.search(pattern, text)), None)
    if cause is None:
        cause = "the server answered with an error" if number else "the request failed"
    problem = SourceError(f"{doing}: {cause}{detail}", file=name)
    if number in (301, 307) or (code and code[1] == "PermanentRedirect"):
        problem.hint = "the bucket is in another region: set AWS_REGION"
    elif cause == _NO_HOST and _SAME.get(scheme := _scheme(name), scheme) == "s3":
        problem.hint = (
            "AWS_ENDPOINT_URL names the server, by default Amazon's in the region AWS_REGION"
        )
    return problem


def ends_of(error: BaseException) -> str:
    """Return the text of a library's error; of a long one the begin and the end."""
    text = str(error)
    if len(text) <= 2 * _END_CHARACTERS:
        return text
    return f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"


def _scheme(name: str) -> str:
    return name.partition("://")[0].lower()


def _forbidden(doing: str, name: str, detail: str, *, is_unknown: bool) -> SourcePermissionError:
    scheme = _scheme(name)
    needs = _NEEDS.get(_SAME.get(scheme, scheme))
    what = "no credentials that the store accepts" if is_unknown else "forbidden"
    problem = SourcePermissionError(f"{doing}: {what}{detail}", file=name)
    if scheme == "hf":
        problem.hint = (
            "a private or gated repository needs a token that may read it: HF_TOKEN, or the file "
            "that `hf auth login` writes; gated ones also that you accepted their terms"
        )
        return problem
    if needs is None:
        problem.hint = "a signed URL may have expired"
        problem.in_python = (
            "a token is sent by "
            "storage={'client_options': {'default_headers': {'authorization': ...}}}"
        )
        return problem
    right, variables, public = needs
    if doing == WRITING:
        right = _WRITING_NEEDS[_SAME.get(scheme, scheme)]
        problem.hint = f"writing needs {right}; keys come from {variables}"
        return problem
    problem.hint = (
        f"reading needs {right}; keys come from {variables}; {public} reads what is public"
    )
    problem.in_python = "storage={...} takes keys and options, such as 'skip_signature': True"
    return problem


def changed(name: str, expected: str | None = None, found: str | None = None) -> SourceError:
    """Return the error for an object that was replaced or removed after it was opened."""
    return SourceError(
        "the object was replaced or removed after it was opened; open it again",
        reason=Reason.SOURCE_CHANGED,
        file=name,
        expected=expected,
        found=found,
    )


def require_process(name: str) -> None:
    """Count a request. Refuse it in a process forked from one that used obstore: it would hang.

    Args:
        name: the URL without secrets.

    Raises:
        UsageError: the process is such a fork.
    """
    note_request()
    process = os.getpid()
    if not _first_process:
        _first_process.append(process)
    if _first_process[0] != process:
        error = UsageError(
            "this process was forked from one that had used a store, and cannot use one itself",
            file=name,
        )
        error.in_python = (
            'start workers another way: DataLoader(..., multiprocessing_context="spawn"), '
            'or multiprocessing.get_context("spawn")'
        )
        raise error


def load_library() -> Any:
    """Return obstore with its submodules.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise MissingDependencyError("URLs need the library obstore", install="obstore") from error
    return obstore


def asked(
    ask: Callable[[Any], Any],
    doing: str,
    name: str,
    translate: Callable[[BaseException], Exception | None] = lambda _: None,
) -> Any:
    """Make a request, and translate errors of the library.

    Args:
        ask: called with the library.
        doing: the attempt, as it reads in a sentence: "cannot read".
        name: the URL without secrets.
        translate: returns the error to raise in place of the library's; None for the usual one.

    Raises:
        SourceError: it failed.
    """
    obstore = load_library()
    require_process(name)
    try:
        return ask(obstore)
    except ZTensorError as error:
        error.locate(file=name)
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = translate(error) or failure(error, doing, name)
    # Raised outside of the handler: the library's error contains the whole URL, and tools that
    # pickle errors for other processes include their context, even if it is suppressed.
    raise problem
