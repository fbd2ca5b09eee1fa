"""URLs of files in object stores and on HTTP servers: which store and key one means.

A `Remote` is a URL with what opens its store. Credentials are never part of what messages, names
or pickles show: they come from the environment, as the clouds' own tools have it, from a
credential provider, or from `storage=`. Signatures in a query stay in the URL and are cut wherever
it is shown.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingDependencyError,
    UsageError,
    describe,
    without_secrets,
)
from ztensor.source.failures import ends_of
from ztensor.source.hub import headers, parse_hub_url
from ztensor.source.paths import is_url, path_text
from ztensor.source.stores import store_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.typing import Path

# One request: the time it may take with its body, of 8 MiB at most; then it is tried again.
_REQUEST_SECONDS = 30
_CONNECT_SECONDS = 5
_TRIES = 4  # beside the first
_RETRY_SECONDS = 60  # no try begins later, so no request takes more than both together

# What may leave the process in a pickle: options that are no secret, without a service's prefix.
_SHOWN_OPTIONS = re.compile(
    r"(default_)?region|endpoint(_url)?|bucket(_name)?|container_name|(storage_)?account_name|"
    r"virtual_hosted_style_request|skip_signature|unsigned_payload|request_payer|s3_express|"
    r"use_emulator|use_fabric_endpoint|base_url|authority_host|client_id|tenant_id|"
    r"credential_provider|retry_config|client_options"
)
_HIDDEN_CLIENT_OPTIONS = frozenset(["default_headers", "proxy_url"])
_OF_CLOUDS = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_VARIABLE = "ZTENSOR_STORAGE"
_PREFIX = re.compile(r"^(aws|azure|google|gcs)_")
_OF_A_HUB = "hf://org/repo[@revision]/file, such as .../model.safetensors"
# Each part of such a path is written as a key as it is in a URL.
_PLAIN_URL = re.compile(
    r"(?P<base>https?://[^/?#@\s]+)/(?P<key>(?!\.\.?(/|$))[\w.~-]+(/(?!\.\.?(/|$))[\w.~-]+)*)",
    re.IGNORECASE | re.ASCII,
)
_AZURE_HOST = re.compile(r"(?P<container>[^@/]+)@(?P<account>[^./]+)\.(?P<rest>[^/]+)")


class Place(NamedTuple):
    """Where an object is.

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
            "what is open in a store is not pickled, as it has credentials; open it in the other "
            "process",
            file=self.name,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Remote(os.PathLike[str]):
    """A URL, and what opens its store.

    Attributes:
        url: the whole URL, a signature in its query too.
        storage: options of the store by obstore's names, a ready store of obstore, or None.
        cache: the folder that keeps what is read; "" for none, None for the environment's.
    """

    url: str
    storage: Any = dataclasses.field(default=None, repr=False)
    cache: str | None = None

    def __fspath__(self) -> str:
        """Return the URL."""
        return self.url

    def __repr__(self) -> str:
        """Return the URL without secrets."""
        return f"Remote({self.name!r})"

    def __str__(self) -> str:
        """Return the URL without secrets."""
        return self.name

    @property
    def name(self) -> str:
        """Return the URL without user, password and query."""
        return without_secrets(self.url)

    def beside(self, name: str) -> Remote:
        """Return the object that a relative name means beside this one.

        Args:
            name: parts with slashes, checked to stay beneath the folder of this one.

        Raises:
            UsageError: this one's URL is signed, and a signature is good for one object.
        """
        whole, mark, _ = self.url.partition("?")
        if mark:
            raise UsageError(
                "a signed URL opens one object, and this one names others; "
                "pass a list of their signed URLs, or credentials",
                file=self.name,
            )
        if _is_http(whole):
            name = urllib.parse.quote(name)
        return Remote(f"{whole.rpartition('/')[0]}/{name}", self.storage, self.cache)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without secrets: another process has them from its environment.

        Raises:
            UsageError: the URL is signed, or the store is an object of this process.
        """
        if self.url != self.name:
            raise UsageError(
                "a URL with a signature or a password is not pickled; open it in the other process",
                file=self.name,
            )
        if self.storage is not None and not _is_options(self.storage):
            raise UsageError(
                "a store is not pickled, as it has credentials; pass storage= as a dict, and "
                "credentials by the environment or as its credential_provider",
                file=self.name,
            )
        shown = None if self.storage is None else _shown(self.storage)
        return Remote, (self.url, shown, self.cache)


def remote(url: Path, storage: object = None, *, cache: Path | None = None) -> os.PathLike[str]:
    """Return a URL together with what opens its store: it is taken wherever a path is.

    Saving, `Writer`, `convert`, `merge`, `split` and `migrate` write to it. Without `storage` the
    plain text of the URL does the same.

    Args:
        url: `s3://bucket/model.zt`, `gs://`, `az://` or `abfs://`; also one that is only read.
        storage: options of the store by obstore's names, such as `endpoint`, `region`,
            `access_key_id`, `skip_signature` and `credential_provider`, or a store of obstore. By
            default the environment tells, as the clouds' own tools have it.
        cache: a folder that keeps what is read of it; see `ztensor.Reader`.

    Raises:
        ArgumentValueError: it is no URL.
        ArgumentTypeError: `storage` is no dict and no store, or `cache` is no path.
    """
    given: Remote = with_storage(url, {} if storage is None else storage, cache)
    return given


def remote_of(path: Any) -> Remote:
    """Return a URL, as text or as a path of another library, as a `Remote`."""
    return path if isinstance(path, Remote) else Remote(path_text(path))


def with_storage(path: Any, storage: Any, cache: Any = None) -> Any:
    """Return what a caller passed as a path, with `storage` and `cache` where they were given.

    Args:
        path: anything a reader takes; a list has a URL in each place.
        storage: as for `Remote`.
        cache: as for `Remote`.

    Raises:
        ArgumentValueError: either is given with something that is no URL.
        ArgumentTypeError: `storage` is no dict and no store, or `cache` is no path.
    """
    if storage is None and cache is None:
        return path
    if storage is not None and not _is_options(storage) and not _is_store(storage):
        raise ArgumentTypeError(
            "storage= is a dict of options, or a store of obstore",
            found=describe(type(storage).__name__),
        )
    if isinstance(path, (list, tuple)):
        return [with_storage(one, storage, cache) for one in path]
    folder = _folder(cache)
    if isinstance(path, Remote):
        return Remote(
            path.url,
            path.storage if storage is None else storage,
            path.cache if folder is None else folder,
        )
    text = path_text(path) if isinstance(path, (str, os.PathLike)) else ""
    if not is_url(text):
        does = "cache= keeps what is read of a URL"
        if storage is not None:
            does = "storage= says how the store of a URL is opened"
        raise ArgumentValueError(
            f"{does}, and this is none",
            found=describe(text or type(path).__name__, 200),
        )
    return Remote(text, storage, folder)


def _folder(cache: Any) -> str | None:
    """Return a folder's path as it means the same after a change of the working folder."""
    if cache is None:
        return None
    return "" if cache == "" else os.path.abspath(path_text(cache))


def _of_environment() -> dict[str, Any]:
    """Return the options that the variable gives, for the command and for calls without any."""
    pairs = [one.partition("=") for one in os.environ.get(_VARIABLE, "").split(",") if one]
    if not all(key and mark for key, mark, _ in pairs):
        raise ArgumentValueError(
            f"the variable {_VARIABLE} has options of a store", expected="KEY=VALUE,KEY=VALUE,..."
        )
    return {key.strip(): value for key, _, value in pairs}


def place_of(remote: Remote, *, is_folder: bool = False) -> Place:
    """Return the store and the key that a URL means.

    Args:
        remote: the URL.
        is_folder: whether a folder is meant, whose key may be empty; it has no slash at its end.

    Raises:
        ArgumentValueError: the URL has no bucket, or no key where an object is meant, or an option
            is none of the store's.
        MissingDependencyError: obstore is not installed.
    """
    place = _place_of(remote)
    if is_folder:
        return place._replace(key=place.key.rstrip("/"))
    if names_folder(remote.url) and not _is_http(remote.url):
        raise ArgumentValueError(
            "the URL names a folder, or a place as a whole, and here one object is meant",
            file=remote.name,
            expected=_OF_A_HUB if remote.url.lower().startswith("hf:") else "a key behind it",
        )
    return place


def has_folders(url: str) -> bool:
    """Return whether a URL is of a scheme whose folders are known here."""
    scheme = url.partition("://")[0].lower()
    return scheme in _KINDS or scheme == "file"


def names_folder(url: str) -> bool:
    """Return whether a URL can only be that of a folder: it ends in a slash, or has no key.

    One with a query is none, nor is one of a scheme from outside.

    Raises:
        ArgumentValueError: it begins as one of a hub, and names no repository.
    """
    if not has_folders(url):
        return False
    bucket, _, key = url.partition("://")[2].partition("/")
    if url.lower().startswith(("memory:", "file:")):
        return url.endswith("/")
    if url.lower().startswith("hf://"):
        return url.endswith("/") or not parse_hub_url(url).path
    return bucket != "" and "?" not in url and (not key or key.endswith("/"))


def _place_of(remote: Remote) -> Place:
    scheme = remote.url.partition("://")[0].lower()
    storage = remote.storage
    if storage is not None and _is_store(storage):
        bucket, key = _parts(remote)
        if scheme in ("memory", "file"):
            key = f"{bucket}/{key}".strip("/")
        elif _is_http(remote.url) and type(storage).__name__ == "HTTPStore":
            key = _beneath(remote, str(storage.url))
        return Place(storage, key, remote.name)
    options = {**(_of_environment() if scheme in _OF_CLOUDS else {}), **(storage or {})}
    try:
        return Place(*_KINDS[scheme](_library(), remote, options), remote.name)
    except _library().exceptions.BaseError as error:
        raise _refused(error, remote) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise ArgumentValueError(
            "these options are none of the store's",
            file=remote.name,
            found=describe(sorted(map(str, options))),
        ) from None


def _refused(error: Exception, remote: Remote) -> ArgumentValueError:
    """Return the error for a store that obstore did not make; values are not repeated."""
    text = ends_of(error)
    key = re.search(r"Configuration key: '([\w.-]{1,200})'", text)
    if key is not None:
        return ArgumentValueError(
            "the store knows no such option; storage= takes obstore's names",
            file=remote.name,
            found=describe(key[1]),
        )
    missing = re.search(r"([A-Z][\w ]{1,200} must be specified)", text)
    detail = f": {missing[1]}" if missing else ""
    return ArgumentValueError(
        f"the store cannot be opened with these options{detail}", file=remote.name
    )


def _library() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise MissingDependencyError(
            "URLs are read by the library obstore: pip install 'pyztensor[remote]'"
        ) from error
    return obstore


def _is_options(storage: Any) -> bool:
    return isinstance(storage, dict)


def is_option_store(storage: Any) -> bool:
    """Return whether a store is opened by options and the environment, and is not a ready one."""
    return storage is None or _is_options(storage)


def _is_store(storage: Any) -> bool:
    return type(storage).__module__.partition(".")[0] == "obstore"


def _shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are no secret."""
    shown = {
        k: v for k, v in options.items() if _SHOWN_OPTIONS.fullmatch(_PREFIX.sub("", k.lower()))
    }
    if isinstance(shown.get("client_options"), dict):
        client = shown["client_options"].items()
        shown["client_options"] = {k: v for k, v in client if k not in _HIDDEN_CLIENT_OPTIONS}
    return shown


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _parts(remote: Remote) -> tuple[str, str]:
    """Return bucket and key; of a URL of HTTP host and path."""
    bucket, _, key = remote.url.partition("://")[2].partition("/")
    return bucket, key


def _beneath(remote: Remote, base: str) -> str:
    """Return what of a URL is behind the one a ready store was made for."""
    if "?" in remote.url:  # it may choose the object
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
    """Take what is about requests from the options, and return it with our limits of time."""
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
    settings = _http_settings(options, plain=endpoint.lower().startswith("http://"))
    if endpoint and not _option(options, "endpoint", "endpoint_url"):
        options["endpoint"] = endpoint
    if not _option(options, "region", "default_region"):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options["region"] = region or "us-east-1"
    if _needs_profile(options):
        options["credential_provider"] = _profile()
    bucket = _require(bucket, remote, "a bucket")
    return store_of(library.store.S3Store, bucket, {**options, **settings}), key


def _needs_profile(options: dict[str, Any]) -> bool:
    """Return whether keys are to come from a profile, as the tools of AWS have them."""
    given = ("access_key_id", "skip_signature", "credential_provider", "token", "session_token")
    if any(_option(options, one) is not None for one in given):
        return False
    others = "ACCESS_KEY_ID SKIP_SIGNATURE WEB_IDENTITY_TOKEN_FILE CONTAINER_CREDENTIALS_FULL_URI"
    others += " CONTAINER_CREDENTIALS_RELATIVE_URI"
    if any(os.environ.get(f"AWS_{name}") for name in others.split()):
        return False
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return bool(os.environ.get("AWS_PROFILE")) or os.path.exists(os.path.expanduser(file))


def _profile() -> Callable[[], Any]:
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise MissingDependencyError(
            "a profile of AWS is read by boto3: pip install boto3, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        ) from error
    provider: Callable[[], Any] = Boto3CredentialProvider()
    return provider


def _option(options: Mapping[str, Any], *names: str) -> Any:
    """Return an option by any of its names, in any case and with a service's prefix or not."""
    found = {_PREFIX.sub("", key.lower()): value for key, value in options.items()}
    return next((found[name] for name in names if found.get(name) is not None), None)


def _gs(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    bucket, key = _parts(remote)
    settings = _http_settings(options, plain=False)
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
    """Return a store of a host, or of one object: as a key, a query would be escaped."""
    _require(_parts(remote)[0], remote, "a host")
    settings = _http_settings(options, plain=remote.url.lower().startswith("http://"))
    plain = _PLAIN_URL.fullmatch(remote.url)
    base, key = (plain["base"], plain["key"]) if plain else (remote.url, "")
    return store_of(library.store.HTTPStore, base, {**options, **settings}), key


def _hub(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    file = parse_hub_url(remote.url)
    who = headers(options.pop("token", None))
    client = dict(options.pop("client_options", None) or {})
    client["default_headers"] = {**who, **(client.get("default_headers") or {})}
    options["client_options"] = client
    settings = _http_settings(options, plain=file.base.lower().startswith("http://"))
    return store_of(library.store.HTTPStore, file.base, {**options, **settings}), file.path


def _memory(library: Any, remote: Remote, options: dict[str, Any]) -> tuple[Any, str]:
    raise ArgumentValueError(
        "what is in memory is in a store; pass it as storage=", file=remote.name
    )


_KINDS: dict[str, Callable[[Any, Remote, dict[str, Any]], tuple[Any, str]]] = {
    **dict.fromkeys(("s3", "s3a"), _s3),
    "gs": _gs,
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _azure),
    **dict.fromkeys(("http", "https"), _http),
    "hf": _hub,
    "memory": _memory,
}


def path_of_file_url(url: str) -> str:
    """Return the path on this machine that a `file://` URL means.

    Raises:
        ArgumentValueError: it names a file of another machine.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ArgumentValueError(
            "a file:// URL is of this machine", file=url, expected="file:///folder/name"
        )
    return urllib.parse.unquote(parts.path)
