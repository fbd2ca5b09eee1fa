"""Which new file each source gets, and that none takes the place of another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ztensor import Remote
from ztensor.errors import UsageError, describe, without_secrets
from ztensor.ext import is_remote, path_text

if TYPE_CHECKING:
    from collections.abc import Iterable


class Naming:
    """Gives each source the path of its new file, and none to two.

    Args:
        folder: where new files go.
        suffix: of new files.
        sources: files that are not replaced.
        storage: how the store of the folder is opened, where it is a URL.
    """

    def __init__(self, folder: str, suffix: str, sources: Iterable[Any], storage: Any) -> None:
        self._folder, self._suffix = folder.rstrip("/"), suffix
        self._storage = storage if is_remote(folder) else None
        self._given = {
            path_of(one): one for one in sources if isinstance(one, (str, bytes, os.PathLike))
        }
        self._made: dict[str, Any] = {}

    def __call__(self, source: Any) -> tuple[Any, Any]:
        """Return what is sent for a source: it, and where it goes.

        Raises:
            UsageError: another has that path.
        """
        name = without_secrets(path_text(source))
        path = f"{self._folder}/{_stem(name)}{self._suffix}"
        place = path_of(path)
        if place in self._made:
            other = describe(without_secrets(path_text(self._made[place])), 200)
            raise UsageError(f"{other} has the same new file", file=str(source), found=path)
        if place in self._given:
            raise UsageError("the new file would replace a source", file=str(source), found=path)
        self._made[place] = source
        return source, path if self._storage is None else Remote(path, self._storage)


def path_of(path: Any) -> str:
    """Return what tells a place from others, however it is spelled."""
    text = path_text(path, absolute=True)
    return text if is_remote(text) else os.path.normcase(os.path.realpath(text))


def _stem(path: str) -> str:
    """Return what a model is called: a file's name without its suffix, a folder's dots and all.

    An index is called as the model it is of.
    """
    name = os.path.basename(path.rstrip("/" + os.sep))
    if os.path.isdir(path):
        return name
    return os.path.splitext(name.removesuffix(".index.json"))[0]
