"""What lies directly in a folder of a store, of a hub, or of a server that has no lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import FormatError, SourceNotFoundError, SourcePermissionError
from ztensor.io.source.beneath import parts_of
from ztensor.io.source.reference import Remote, is_option_store
from ztensor.remote.failures import asked
from ztensor.remote.hub import Tree, headers, parse_hub_url, tree_url
from ztensor.remote.prefixes import one_level
from ztensor.remote.upload import is_there
from ztensor.remote.urls import place_of
from ztensor.threads.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

_THREADS = 8


def folder_of(remote: Remote) -> Remote:
    """Return a folder's URL as it is written: with a slash at its end."""
    if remote.url.endswith("/"):
        return remote
    return Remote(f"{remote.url}/", remote.storage, remote.cache)


def has_lists(remote: Remote) -> bool:
    """Return whether the place of a URL says what it has: HTTP servers do not."""
    scheme = remote.url.partition("://")[0].lower()
    if is_option_store(remote.storage):
        return scheme not in ("http", "https")
    return type(remote.storage).__name__ != "HTTPStore"


def listed(folder: Remote) -> Tree:
    """Return what lies directly in a folder; names that no index may have are left out.

    Args:
        folder: as `folder_of` gives it, of a place that `has_lists`.

    Raises:
        SourceError: the place cannot be asked.
        UsageError: more is in the folder than can be looked through.
    """
    if folder.url.lower().startswith("hf://") and is_option_store(folder.storage):
        found = _of_hub(folder)
    else:
        found = _of_store(folder)
    return Tree(sorted(filter(_is_plain, found.files)), sorted(filter(_is_plain, found.folders)))


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
    path = file.path.strip("/")
    return tree(tree_url(folder.url), path, who, folder.name)


def _is_plain(name: str) -> bool:
    """Return whether a name may be that of a file beside an index, and reads so in a URL."""
    try:
        return parts_of(name) == (name,) and not set(name) & set("?#%")
    except FormatError:
        return False


def there(folder: Remote, names: Iterable[str]) -> list[str]:
    """Return which of some names a folder has, each asked for: what is forbidden is not there.

    Args:
        folder: as `folder_of` gives it.
        names: of files directly in it.

    Raises:
        SourceError: the server does not answer.
        UsageError: the URL is signed.
    """

    def look(name: str) -> bool:
        try:
            return is_there(folder.beside(name))
        except (SourceNotFoundError, SourcePermissionError):
            return False

    names = list(names)
    with Pool(_THREADS) as pool:
        return [
            name for name, is_found in zip(names, pool.map(look, names), strict=True) if is_found
        ]
