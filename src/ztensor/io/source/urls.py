"""A URL with the options of its store.

This module opens nothing: a program that reads files on disk loads no more of `remote` than this.
Messages, names and pickles never contain credentials: these come from the environment, as for the
clouds' own tools, from a credential provider, or from `storage=`. Signatures in a query stay in the
URL and are cut where it is shown.
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
from ztensor.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.accepted import Path, Storage


# Other names for options: a function of them and the URL returns them by the store's names.
SPELLINGS: Registry[str, Callable[[Any, str], dict[str, Any]]] = Registry(
    {"fsspec": "ztensor.remote.fsspec_options:translated"}
)
# Options that are not secret and so may be pickled, without the prefix of a service.
_SHOWN_OPTIONS = (
    r"(default_)?region|endpoint(_url)?|bucket(_name)?|container_name|(storage_)?account_name|"
    r"virtual_hosted_style_request|skip_signature|unsigned_payload|request_payer|s3_express|"
    r"use_emulator|use_fabric_endpoint|base_url|authority_host|client_id|tenant_id|"
    r"credential_provider|profile|retry_config|client_options"
)
_HIDDEN_CLIENT_OPTIONS = frozenset(["default_headers", "proxy_url"])
# The prefix of a service before the name of an option.
_PREFIX = re.compile(r"^(aws|azure|google|gcs)_")


@dataclasses.dataclass(init=False, repr=False, unsafe_hash=True)
class Remote(os.PathLike[str]):
    """A URL together with the options of its store, accepted wherever a path is.

    Saving, `Writer`, `convert`, `merge` and `split` write to it. Without `storage` and `cache` the
    plain text of the URL does the same.

    Attributes:
        url: `s3://bucket/model.zt`, `gs://`, `az://` or `abfs://`; also one that is only read. A
            signature in its query is kept. For a `Remote`: its URL, and its storage and cache
            unless given here.
        storage: options of the store by obstore's names, such as `endpoint`, `region`,
            `access_key_id`, `skip_signature` and `credential_provider`, or a store of obstore. By
            default they come from the environment, as for the clouds' own tools.
        cache: a folder that keeps the bytes that were read, see `ztensor.Reader`; "" turns it off,
            None takes the folder from the environment.
        storage_options: the options by the names of fsspec; the attribute `storage` gets them by
            the names of obstore. See `ztensor.typing.OpenOptions`.

    Raises:
        ArgumentValueError: it is not a URL, or an option is unknown; `storage` and
            `storage_options` are both given.
        ArgumentTypeError: `storage` is neither a dict nor a store, or `cache` is not a path.
    """

    __slots__ = ("cache", "storage", "url")

    url: str
    storage: Any
    cache: Path | None

    def __init__(
        self,
        url: Path,
        storage: Storage | None = None,
        cache: Path | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        if storage is not None and storage_options is not None:
            raise ArgumentValueError("pass storage= or storage_options=, not both")
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
                "storage=, storage_options= and cache= need a URL",
                found=describe(text or type(url).__name__, 200),
            )
        self.url = text
        if storage_options is not None:
            storage = SPELLINGS["fsspec"](storage_options, text)
        self.storage = storage
        # Absolute, so that it does not depend on the working folder.
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
        """Return the object of a relative name in the folder of this one.

        Args:
            name: parts with slashes, checked to stay inside that folder.

        Raises:
            UsageError: this URL is signed, and a signature is valid for one object.
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
        """Pickle without secrets; another process has its own in its environment.

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


def with_storage(path: Any, storage: Any, cache: Any = None, storage_options: Any = None) -> Any:
    """Return a caller's path as a `Remote`, if an option of stores is given.

    Args:
        path: anything that a reader takes; of a list each item.
        storage: as for `Remote`.
        cache: as for `Remote`.
        storage_options: as for `Remote`.

    Raises:
        ArgumentValueError: one is given, and the path is not a URL; see `Remote`.
        ArgumentTypeError: `storage` is neither a dict nor a store, or `cache` is not a path.
    """
    if storage is None and cache is None and storage_options is None:
        return path
    if isinstance(path, (list, tuple)):
        return [with_storage(item, storage, cache, storage_options) for item in path]
    return Remote(path, storage, cache, storage_options=storage_options)


def is_option_store(storage: Any) -> bool:
    """Return whether a store is given by options (or by the environment), not as an object."""
    return storage is None or isinstance(storage, dict)


def _shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not secret."""
    shown = {
        k: v for k, v in options.items() if re.fullmatch(_SHOWN_OPTIONS, _PREFIX.sub("", k.lower()))
    }
    if isinstance(shown.get("client_options"), dict):
        client = shown["client_options"].items()
        shown["client_options"] = {k: v for k, v in client if k not in _HIDDEN_CLIENT_OPTIONS}
    return shown


def is_http(url: str) -> bool:
    """Return whether a URL is of an HTTP server."""
    return url.lower().startswith(("http://", "https://"))
