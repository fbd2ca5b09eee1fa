"""The `Store` through which the core reaches object stores, HTTP servers and hubs."""

from __future__ import annotations

import contextlib
from typing import Any

from ztensor import Remote
from ztensor.ext import Store
from ztensor.remote.failures import asked
from ztensor.remote.hub import headers, list_folder
from ztensor.remote.prefixes import expanded, one_level
from ztensor.remote.source import RemoteSource
from ztensor.remote.upload import RemoteSink, copy, found_at, place_to_write
from ztensor.remote.urls import is_store, names_folder, place_of, scheme_of


class Places(Store):
    """Object stores, HTTP servers and model hubs, through obstore."""

    def open(self, remote: Remote, size: int | None = None) -> RemoteSource:
        """Open an object, by ranges; see `RemoteSource`."""
        return RemoteSource(remote, size)

    def names_folder(self, url: str) -> bool:
        """Return whether a URL ends in a slash, or has no key."""
        return names_folder(url)

    def look(self, remote: Remote) -> Store.Listed | None:
        """Return the entry of an object, by one request."""
        place = place_of(remote)
        found = found_at(place)
        return None if found is None else _listed(place.key, found)

    def expanded(self, url: str) -> list[str]:
        """Return the URLs that a pattern matches; servers and hubs have no patterns."""
        return expanded(url)

    def copy(self, source: Remote, target: Remote) -> bool:
        """Have a store copy an object; see `upload.copy`."""
        return copy(source, target)

    def listed(self, folder: Remote) -> list[Store.Listed] | None:
        """Return the entries directly in a folder; None for an HTTP server."""
        scheme = scheme_of(folder.url)
        if is_store(folder.storage):
            return None if type(folder.storage).__name__ == "HTTPStore" else _of_store(folder)
        if scheme == "hf":
            return _of_hub(folder)
        return None if scheme in ("http", "https") else _of_store(folder)

    def require_writable(self, remote: Remote) -> None:
        """Raise if the place is only read: a server or a hub."""
        place_to_write(remote)

    def sink(self, remote: Remote, **options: Any) -> RemoteSink:
        """Return the sink that uploads an object; see `RemoteSink`."""
        return RemoteSink(remote, **options)

    def remove(self, remote: Remote) -> None:
        """Remove an object: one request."""
        place = place_of(remote)
        with contextlib.suppress(FileNotFoundError):
            asked(
                lambda library: library.delete(place.store, place.key), "cannot remove", place.name
            )


PLACES = Places()


def _of_store(folder: Remote) -> list[Store.Listed]:
    place = place_of(folder, is_folder=True)
    start = f"{place.key}/" if place.key else ""

    def ask(library: Any) -> list[Store.Listed]:
        found = one_level(library, place.store, place.key, place.name)
        deeper = [
            Store.Listed(_last(path, start), is_folder=True) for path in found["common_prefixes"]
        ]
        return deeper + [_listed(_last(meta["path"], start), meta) for meta in found["objects"]]

    entries: list[Store.Listed] = asked(ask, "cannot list", place.name)
    return [entry for entry in entries if entry.name]


def _last(path: str, start: str) -> str:
    """Return the name of a path directly in a folder; "" for other paths."""
    return path[len(start) :].rstrip("/") if path.startswith(start) else ""


def _listed(name: str, meta: Any) -> Store.Listed:
    size, modified = int(meta["size"]), meta["last_modified"].timestamp()
    return Store.Listed(name, nbytes=size, modified=modified, version=meta.get("e_tag"))


def _of_hub(folder: Remote) -> list[Store.Listed]:
    options = dict(folder.storage or {})
    client = options.get("client_options") or {}
    sent = {**headers(options.get("token")), **(client.get("default_headers") or {})}
    entries: list[Store.Listed] = asked(
        lambda _: list_folder(folder.url, sent), "cannot list", folder.name
    )
    return entries
