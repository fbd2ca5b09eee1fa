"""What the core reaches of stores, servers and hubs: the `Store` behind their schemes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ztensor.ext import Store
from ztensor.remote.failures import asked
from ztensor.remote.hub import Tree, headers, parse_hub_url, tree_url
from ztensor.remote.identity import unsigned
from ztensor.remote.prefixes import one_level
from ztensor.remote.source import RemoteSource
from ztensor.remote.upload import RemoteSink, is_there, place_to_write
from ztensor.remote.urls import is_store, names_folder, place_of, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ztensor import Remote


class Places(Store):
    """Object stores, HTTP servers and model hubs, which one library reaches."""

    def open(self, remote: Remote, size: int | None = None) -> RemoteSource:
        """Open an object, by ranges; see `RemoteSource`."""
        return RemoteSource(remote, size)

    def unsigned(self, url: str) -> str:
        """Return a URL without the signature of a known scheme."""
        return unsigned(url)

    def names_folder(self, url: str) -> bool:
        """Return whether a URL ends in a slash, or has no key."""
        return names_folder(url)

    def is_there(self, remote: Remote) -> bool:
        """Return whether there is an object: one request."""
        return is_there(remote)

    def listed(self, folder: Remote) -> Tree | None:
        """Return what lies directly in a folder; an HTTP server does not say."""
        scheme = scheme_of(folder.url)
        if is_store(folder.storage):
            return None if type(folder.storage).__name__ == "HTTPStore" else _of_store(folder)
        if scheme == "hf":
            return _of_hub(folder)
        return None if scheme in ("http", "https") else _of_store(folder)

    def require_writable(self, remote: Remote) -> None:
        """Raise where no object can be written: on servers and hubs."""
        place_to_write(remote)

    def sink(self, remote: Remote, **options: Any) -> RemoteSink:
        """Return what uploads an object; see `RemoteSink`."""
        return RemoteSink(remote, **options)

    def remove(self, remote: Remote) -> None:
        """Remove an object: one request."""
        place = place_of(remote)
        with contextlib.suppress(FileNotFoundError):
            asked(
                lambda library: library.delete(place.store, place.key), "cannot remove", place.name
            )


PLACES = Places()


def _of_store(folder: Remote) -> Tree:
    place = place_of(folder, is_folder=True)

    def ask(library: Any) -> Any:
        return one_level(library, place.store, place.key, place.name)

    found = asked(ask, "cannot list", place.name)
    files = (one["path"] for one in found["objects"])
    return Tree(_last(files, place.key), _last(found["common_prefixes"], place.key))


def _last(paths: Iterable[str], folder: str) -> list[str]:
    """Return the names of what lies directly in a folder."""
    start = f"{folder}/" if folder else ""
    return [path[len(start) :].rstrip("/") for path in paths if path.startswith(start)]


def _of_hub(folder: Remote) -> Tree:
    from ztensor.remote.hub_tree import tree  # brings a client of HTTP

    file = parse_hub_url(folder.url)
    options = dict(folder.storage or {})
    client = options.get("client_options") or {}
    who = {**headers(options.get("token")), **(client.get("default_headers") or {})}
    return tree(tree_url(folder.url), file.path.strip("/"), who, folder.name)
