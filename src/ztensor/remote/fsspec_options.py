"""Options of stores as users of fsspec write them: s3fs, gcsfs, adlfs and its HTTP file system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe, without_secrets


def translated(options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return the options of `storage_options=` by obstore's names, without those that are None.

    Args:
        options: as s3fs, gcsfs, adlfs or fsspec's HTTP file system takes them.
        url: its scheme chooses the names; of a scheme without names they are returned unchanged.

    Raises:
        ArgumentTypeError: `options` is not a dict.
        ArgumentValueError: an unknown name, or a value that has no counterpart.
    """
    if not isinstance(options, Mapping):
        kind = describe(type(options).__name__)
        raise ArgumentTypeError(f"storage_options must be a dict, not of the type {kind}")
    names = _NAMES.get(url.partition("://")[0].lower())
    if names is None:
        return dict(options)
    outer = {name: value for name, value in options.items() if name != "client_kwargs"}
    inner = options.get("client_kwargs") or {}
    if not isinstance(inner, Mapping):
        kind = describe(type(inner).__name__)
        raise ArgumentTypeError(f"client_kwargs must be a dict, not of the type {kind}")
    found: dict[str, Any] = {}
    for name, value in {**outer, **{f"client_kwargs.{k}": v for k, v in inner.items()}}.items():
        if name not in names:
            raise ArgumentValueError(
                "unknown name in storage_options",
                file=without_secrets(url),
                expected=f"one of {', '.join(names)}",
                found=describe(name),
            )
        target = names[name]
        if value is not None:
            found.update({target: value} if isinstance(target, str) else target(value))
    return found


def _anonymous(value: object) -> dict[str, Any]:
    return {"skip_signature": True} if value else {}


def _verified(value: object) -> dict[str, Any]:
    return {} if value else {"client_options": {"allow_invalid_certificates": True}}


def _headers(value: object) -> dict[str, Any]:
    return {"client_options": {"default_headers": value}}


def _google(token: object) -> dict[str, Any]:
    """Return credentials from gcsfs's `token`: a file, a service account's dict, or a word."""
    if isinstance(token, Mapping):
        try:
            return {"service_account_key": json.dumps(dict(token))}
        except (TypeError, ValueError, RecursionError) as error:
            kind = type(error).__name__  # its text may have parts of the key
        raise ArgumentValueError("the token cannot be written as JSON", found=kind)
    if token in ("anon", "google_default"):
        return _anonymous(token == "anon")  # noqa: S105  # a word
    if isinstance(token, str) and token.endswith(".json"):
        return {"application_credentials": token}
    raise ArgumentValueError(
        "this token has no counterpart; storage= takes a credential_provider of obstore",
        expected="'anon', 'google_default', a dict, or the path of a .json file",
    )


def _connection(text: object) -> dict[str, Any]:
    """Return the options in a connection string of Azure: `AccountName=...;AccountKey=...`."""
    pairs = [pair.partition("=") for pair in str(text).split(";")]
    found = {_CONNECTION[key]: value for key, _, value in pairs if key in _CONNECTION}
    if not found:
        wanted = "AccountName=...;AccountKey=..."
        raise ArgumentValueError("malformed connection_string", expected=wanted)
    return found


_CONNECTION = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}
_S3 = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": _anonymous,
    "endpoint_url": "endpoint",
    "profile": "profile",
    "requester_pays": "request_payer",
    "client_kwargs.endpoint_url": "endpoint",
    "client_kwargs.region_name": "region",
    "client_kwargs.aws_access_key_id": "access_key_id",
    "client_kwargs.aws_secret_access_key": "secret_access_key",
    "client_kwargs.aws_session_token": "session_token",
    "client_kwargs.verify": _verified,
}
_GOOGLE = {"token": _google, "endpoint_url": "base_url"}
_AZURE = {
    **{name: name for name in ("account_name", "account_key", "client_id", "client_secret")},
    "tenant_id": "tenant_id",
    "sas_token": "sas_key",
    "connection_string": _connection,
    "anon": _anonymous,
}
_HTTP = {"headers": _headers, "client_kwargs.headers": _headers}
_NAMES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GOOGLE),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZURE),
    **dict.fromkeys(("http", "https"), _HTTP),
    "hf": {"token": "token"},
}
