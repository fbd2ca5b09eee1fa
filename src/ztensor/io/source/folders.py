"""What lies directly in a folder of a store, of a hub, or of a server that has no lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import FormatError, SourceNotFoundError, SourcePermissionError
from ztensor.io.source.beneath import parts_of
from ztensor.io.source.reference import Remote
from ztensor.io.source.schemes import store_of
from ztensor.threads.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

_THREADS = 8


def folder_of(remote: Remote) -> Remote:
    """Return a folder's URL as it is written: with a slash at its end."""
    if remote.url.endswith("/"):
        return remote
    return Remote(f"{remote.url}/", remote.storage, remote.cache)


def listed(folder: Remote) -> tuple[list[str], list[str]] | None:
    """Return what lies directly in a folder; names that no index may have are left out.

    Args:
        folder: as `folder_of` gives it.

    Returns:
        The names of its files and of its folders, without a slash; None where the place does not
        say what it has, as HTTP servers do not.

    Raises:
        SourceError: the place cannot be asked.
        UsageError: more is in the folder than can be looked through.
    """
    found = store_of(folder.url).listed(folder)
    if found is None:
        return None
    files, folders = found
    return sorted(filter(_is_plain, files)), sorted(filter(_is_plain, folders))


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
    store = store_of(folder.url)

    def look(name: str) -> bool:
        try:
            return store.is_there(folder.beside(name))
        except (SourceNotFoundError, SourcePermissionError):
            return False

    names = list(names)
    with Pool(_THREADS) as pool:
        return [
            name for name, is_found in zip(names, pool.map(look, names), strict=True) if is_found
        ]
