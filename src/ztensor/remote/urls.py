"""The store and the key of a URL.

`ztensor.Remote` holds the URL with the options of its store; here the store is made of them.
"""

from __future__ import annotations

import datetime
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor import Remote
from ztensor.errors import (
    ArgumentValueError,
    MissingDependencyError,
    UsageError,
    describe,
    without_secrets,
)
from ztensor.remote.failures import ends_of, load_library
from ztensor.remote.hub import headers, parse_hub_url
from ztensor.remote.stores import store_of
from ztensor.typing import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# The time limit of one request with its body of at most 8 MiB; then it is tried again.
_REQUEST_SECONDS = 30
_CONNECT_SECONDS = 5
_TRIES = 4  # after the first
_RETRY_SECONDS = 60  # no try begins later: a request takes at most the sum of both limits

_OF_CLOUDS = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss")
_PREFIX = re.compile(r"^(aws|azure|google|gcs)_")  # the service in an option's name
_VARIABLE = "ZTENSOR_STORAGE"
_OF_A_HUB = "hf://org/repo[@revision]/file, such as .../model.safetensors"
# The parts of such a path are written equally in a key and in a URL.
_PLAIN_URL = re.compile(
    r"(?P<base>https?://[^/?#@\s]+)/(?P<key>(?!\.\.?(/|$))[\w.~-]+(/(?!\.\.?(/|$))[\w.~-]+)*)",
    re.IGNORECASE | re.ASCII,
)
_AZURE_HOST = re.compile(r"(?P<container>[^@/]+)@(?P<account>[^./]+)\.(?P<rest>[^/]+)")


class Place(NamedTuple):
    """The place of an object.

    Attributes:
        store: an obstore store.
        key: the object's key in it.
        name: the URL without secrets.
    """

    store: Any
    key: str
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: a store has its credentials in its pickle.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "an open object of a store is not pickled, as it has credentials; open it in the other "
            "process",
            file=self.name,
        )


def _of_environment() -> dict[str, Any]:
    """Return the options in the variable, for the command and for calls without options."""
    pairs = [pair.partition("=") for pair in os.environ.get(_VARIABLE, "").split(",") if pair]
    if not all(key and mark for key, mark, _ in pairs):
        raise ArgumentValueError(
            f"malformed variable {_VARIABLE}", expected="KEY=VALUE,KEY=VALUE,..."
        )
    return {key.strip(): value for key, _, value in pairs}


def place_of(remote: Remote, *, is_folder: bool = False) -> Place:
    """Return the store and the key of a URL.

    Args:
        remote: the URL.
        is_folder: whether the URL names a folder; its key may be empty, and loses its last slash.

    Raises:
        ArgumentValueError: the URL has no bucket, or an object's URL no key, or the store does not
            know an option.
        MissingDependencyError: obstore is not installed.
    """
    place = _place_of(remote)
    if is_folder:
        return place._replace(key=place.key.rstrip("/"))
    if names_folder(remote.url) and scheme_of(remote.url) not in ("http", "https"):
        raise ArgumentValueError(
            "the URL names a folder or a whole bucket; expected one object",
            file=remote.name,
            expected=_OF_A_HUB if remote.url.lower().startswith("hf:") else "a URL with a key",
        )
    return place


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case."""
    return url.partition("://")[0].lower()


def is_store(storage: Storage | None) -> bool:
    """Return whether the caller passed a ready store, not options."""
    return storage is not None and not isinstance(storage, dict)


def has_folders(url: str) -> bool:
    """Return whether places of the URL's scheme are opened here."""
    scheme = scheme_of(url)
    return scheme in _KINDS or scheme == "file"


def names_folder(url: str) -> bool:
    """Return whether a URL can only name a folder: it has no query, and no key or a last slash.

    Raises:
        ArgumentValueError: a URL of a hub names no repository.
    """
    bucket, _, key = url.partition("://")[2].partition("/")
    if url.lower().startswith(("memory:", "file:")):
        return url.endswith("/")
    if url.lower().startswith("hf://"):
        return url.endswith("/") or not parse_hub_url(url).path
    return bucket != "" and "?" not in url and (not key or key.endswith("/"))


def _place_of(remote: Remote) -> Place:
    scheme = scheme_of(remote.url)
    storage = remote.storage
    if is_store(storage):
        bucket, key = _parts(remote)
        if scheme in ("memory", "file"):
            key = f"{bucket}/{key}".strip("/")
        elif scheme in ("http", "https") and type(storage).__name__ == "HTTPStore":
            key = _beneath(remote, str(storage.url))
        return Place(storage, key, remote.name)
    options = {**(_of_environment() if scheme in _OF_CLOUDS else {}), **(storage or {})}
    try:
        return Place(*_KINDS[scheme](load_library(), remote, options), remote.name)
    except load_library().exceptions.BaseError as error:
        raise _refused(error, remote) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise ArgumentValueError(
            "the store does not know these options",
            file=remote.name,
            found=describe(sorted(map(str, options))),
        ) from None


def _refused(error: Exception, remote: Remote) -> ArgumentValueError:
    """Return the error for options that obstore refused, without their values."""
    text = ends_of(error)
    key = re.search(r"Configuration key: '([\w.-]{1,200})'", text)
    if key is not None:
        return ArgumentValueError(
            "unknown option of the store; storage= takes the names of obstore, storage_options= "
            "the names of fsspec",
            file=remote.name,
            found=describe(key[1]),
        )
    missing = re.search(r"([A-Z][\w ]{1,200} must be specified)", text)
    detail = f": {missing[1]}" if missing else ""
    return ArgumentValueError(
        f"the store cannot be opened with these options{detail}", file=remote.name
    )


def _parts(remote: Remote) -> tuple[str, str]:
    """Return bucket and key; for HTTP, host and path."""
    bucket, _, key = remote.url.partition("://")[2].partition("/")
    return bucket, key


def _beneath(remote: Remote, base: str) -> str:
    """Return the key of a URL in a ready store of a server."""
    if "?" in remote.url:  # a query may choose the object
        raise ArgumentValueError(
            "a ready store of a server sends no query; pass the URL without a store",
            file=remote.name,
        )
    start = base.rstrip("/") + "/"
    if not remote.url.startswith(start):
        raise ArgumentValueError(
            "the store is for another place", file=remote.name, expected=without_secrets(start)
        )
    return urllib.parse.unquote(remote.url[len(start) :])


def _require(part: str, remote: Remote, what: str) -> str:
    if not part:
        raise ArgumentValueError(f"the URL names no {what.split()[-1]}", file=remote.name)
    return part


def _http_settings(options: dict[str, Any], *, plain: bool) -> dict[str, Any]:
    """Take the settings of requests out of the options; return them with our time limits."""
    client = {
        "timeout": f"{_REQUEST_SECONDS}s",
        "connect_timeout": f"{_CONNECT_SECONDS}s",
        "user_agent": "ztensor",
        **({"allow_http": True} if plain else {}),
        **(options.pop("client_options", None) or {}),
    }
    retry = {
        "max_retries": _TRIES,
        "retry_timeout": datetime.timedelta(seconds=_RETRY_SECONDS),
        "backoff": {
            "init_backoff": datetime.timedelta(milliseconds=100),
            "max_backoff": datetime.timedelta(seconds=5),
            "base": 2,
        },
        **(options.pop("retry_config", None) or {}),
    }
    return {"client_options": client, "retry_config": retry}


def _s3(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    bucket, key = _parts(remote)
    endpoint = str(
        _option(options, "endpoint", "endpoint_url")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or os.environ.get("AWS_ENDPOINT")
        or ""
    )
    if endpoint and not re.match(r"https?://", endpoint, re.IGNORECASE):
        raise ArgumentValueError(
            "the endpoint of a store is not a URL",
            file=remote.name,
            expected="http:// or https:// before the host, in `endpoint` or AWS_ENDPOINT_URL",
            found=describe(endpoint, 80),
        )
    settings = _http_settings(options, plain=endpoint.lower().startswith("http://"))
    if endpoint and not _option(options, "endpoint", "endpoint_url"):
        options["endpoint"] = endpoint
    if not _option(options, "region", "default_region"):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options["region"] = region or "us-east-1"
    profile = options.pop("profile", None)
    if profile is not None or _needs_profile(options):
        options["credential_provider"] = _profile(profile)
    bucket = _require(bucket, remote, "a bucket")
    return store_of(library.store.S3Store, bucket, {**options, **settings}), key


def _needs_profile(options: dict[str, Any]) -> bool:
    """Return whether to use a profile of AWS: it exists, and no keys are given."""
    given = ("access_key_id", "skip_signature", "credential_provider", "token", "session_token")
    if any(_option(options, name) is not None for name in given):
        return False
    others = "ACCESS_KEY_ID SKIP_SIGNATURE WEB_IDENTITY_TOKEN_FILE CONTAINER_CREDENTIALS_FULL_URI"
    others += " CONTAINER_CREDENTIALS_RELATIVE_URI"
    if any(os.environ.get(f"AWS_{name}") for name in others.split()):
        return False
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return bool(os.environ.get("AWS_PROFILE")) or os.path.exists(os.path.expanduser(file))


def _profile(name: str | None) -> Callable[[], Any]:
    """Return the credentials of a profile of AWS; None takes the one of the environment."""
    try:
        from boto3 import Session
        from botocore.exceptions import ProfileNotFound
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise MissingDependencyError(
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; or, to use a profile of AWS, install "
            "boto3",
            install="boto3",
        ) from error
    try:
        provider: Callable[[], Any] = Boto3CredentialProvider(Session(profile_name=name))
    except ProfileNotFound as error:
        raise ArgumentValueError("AWS has no such profile", found=describe(name)) from error
    return provider


def _option(options: Mapping[str, Any], *names: str) -> Any:
    """Return an option by one of its names, in any case, with or without a service's prefix."""
    found = {_PREFIX.sub("", key.lower()): value for key, value in options.items()}
    return next((found[name] for name in names if found.get(name) is not None), None)


def _gs(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    bucket, key = _parts(remote)
    base = str(_option(options, "base_url") or "")
    settings = _http_settings(options, plain=base.lower().startswith("http://"))
    store = library.store.GCSStore(_require(bucket, remote, "a bucket"), **settings, **options)
    return store, key


def _azure(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    container, key = _parts(remote)
    whole = _AZURE_HOST.fullmatch(container)
    if whole is not None:  # abfs://container@account.dfs.core.windows.net/key
        container = whole["container"]
        if _option(options, "account_name", "storage_account_name") is None:
            options["account_name"] = whole["account"]
    endpoint = str(_option(options, "endpoint") or "")
    is_plain = endpoint.lower().startswith("http://") or bool(_option(options, "use_emulator"))
    settings = _http_settings(options, plain=is_plain)
    store = library.store.AzureStore(
        _require(container, remote, "a container"), **settings, **options
    )
    return store, key


def _http(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    """Return a store of a host; of one object if its URL has a query, which a key would escape."""
    _require(_parts(remote)[0], remote, "a host")
    settings = _http_settings(options, plain=remote.url.lower().startswith("http://"))
    plain = _PLAIN_URL.fullmatch(remote.url)
    base, key = (plain["base"], plain["key"]) if plain else (remote.url, "")
    return store_of(library.store.HTTPStore, base, {**options, **settings}), key


def _hub(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    file = parse_hub_url(remote.url)
    authorization = headers(options.pop("token", None))
    client = dict(options.pop("client_options", None) or {})
    client["default_headers"] = {**authorization, **(client.get("default_headers") or {})}
    options["client_options"] = client
    settings = _http_settings(options, plain=file.base.lower().startswith("http://"))
    return store_of(library.store.HTTPStore, file.base, {**options, **settings}), file.path


def _memory(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    raise ArgumentValueError(
        "an object in memory needs its store; pass it as storage=", file=remote.name
    )


_KINDS: dict[str, Callable[[Any, Remote, dict[str, Any]], tuple[Any, str]]] = {
    **dict.fromkeys(("s3", "s3a"), _s3),
    **dict.fromkeys(("gs", "gcs"), _gs),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _azure),
    **dict.fromkeys(("http", "https"), _http),
    "hf": _hub,
    "memory": _memory,
}
