"""A URL with what opens its store, as callers name objects of stores and servers.

Nothing here opens anything, so that a program which reads files on disk loads no more than this of
what is remote. Credentials are never part of what messages, names or pickles show: they come from
the environment, as the clouds' own tools have it, from a credential provider, or from `storage=`.
Signatures in a query stay in the URL and are cut wherever it is shown.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UsageError,
    describe,
    without_secrets,
)
from ztensor.io.source.paths import is_url, path_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.accepted import Path, Storage


# What may leave the process in a pickle: options that are no secret, without a service's prefix.
_SHOWN_OPTIONS = (
    r"(default_)?region|endpoint(_url)?|bucket(_name)?|container_name|(storage_)?account_name|"
    r"virtual_hosted_style_request|skip_signature|unsigned_payload|request_payer|s3_express|"
    r"use_emulator|use_fabric_endpoint|base_url|authority_host|client_id|tenant_id|"
    r"credential_provider|retry_config|client_options"
)
_HIDDEN_CLIENT_OPTIONS = frozenset(["default_headers", "proxy_url"])
# A service's own, before the name of an option.
_PREFIX = re.compile(r"^(aws|azure|google|gcs)_")


@dataclasses.dataclass(init=False, repr=False, unsafe_hash=True)
class Remote(os.PathLike[str]):
    """A URL together with what opens its store: it is taken wherever a path is.

    Saving, `Writer`, `convert`, `merge` and `split` write to it. Without `storage` and `cache` the
    plain text of the URL does the same.

    Attributes:
        url: `s3://bucket/model.zt`, `gs://`, `az://` or `abfs://`; also one that is only read. A
            signature in its query is kept. Of another `Remote` also what is not given with it.
        storage: options of the store by obstore's names, such as `endpoint`, `region`,
            `access_key_id`, `skip_signature` and `credential_provider`, or a store of obstore. By
            default the environment tells, as the clouds' own tools have it.
        cache: a folder that keeps what is read of it, see `ztensor.Reader`; "" for none, None for
            the environment's.

    Raises:
        ArgumentValueError: it is no URL.
        ArgumentTypeError: `storage` is no dict and no store, or `cache` is no path.
    """

    __slots__ = ("cache", "storage", "url")

    url: str
    storage: Any
    cache: Path | None

    def __init__(
        self, url: Path, storage: Storage | None = None, cache: Path | None = None
    ) -> None:
        if isinstance(url, Remote):
            storage = url.storage if storage is None else storage
            cache = url.cache if cache is None else cache
        is_store = type(storage).__module__.partition(".")[0] == "obstore"
        if not is_store and not is_option_store(storage):
            raise ArgumentTypeError(
                "storage= is a dict of options, or a store of obstore",
                found=describe(type(storage).__name__),
            )
        text = path_text(url) if isinstance(url, (str, os.PathLike)) else ""
        if not is_url(text):
            raise ArgumentValueError(
                "storage= and cache= say how what a URL names is read, and this is none",
                found=describe(text or type(url).__name__, 200),
            )
        self.url = text
        self.storage = storage
        # The folder means the same after a change of folder.
        self.cache = os.path.abspath(path_text(cache)) if cache else cache

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
        if is_http(whole):
            import urllib.parse  # not for files on disk

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
        if not is_option_store(self.storage):
            raise UsageError(
                "a store is not pickled, as it has credentials; pass storage= as a dict, and "
                "credentials by the environment or as its credential_provider",
                file=self.name,
            )
        shown = None if self.storage is None else _shown(self.storage)
        return Remote, (self.url, shown, self.cache)


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
    if isinstance(path, (list, tuple)):
        return [with_storage(one, storage, cache) for one in path]
    return Remote(path, storage, cache)


def is_option_store(storage: Any) -> bool:
    """Return whether a store is opened by options and the environment, and is not a ready one."""
    return storage is None or isinstance(storage, dict)


def _shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are no secret."""
    shown = {
        k: v for k, v in options.items() if re.fullmatch(_SHOWN_OPTIONS, _PREFIX.sub("", k.lower()))
    }
    if isinstance(shown.get("client_options"), dict):
        client = shown["client_options"].items()
        shown["client_options"] = {k: v for k, v in client if k not in _HIDDEN_CLIENT_OPTIONS}
    return shown


def is_http(url: str) -> bool:
    """Return whether a URL is of a server, and of no store."""
    return url.lower().startswith(("http://", "https://"))
