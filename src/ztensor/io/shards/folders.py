"""A folder as the choice of its model sees it: names of files, and what opens one of them.

Both kinds have `name` and `path()` for messages, `names` of the files directly in it, in order,
`place()`, which opens one of them, and `origin`, which finds the folder again. Of as many files as
`most_looked_into` the first bytes are read.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeAlias, Union

from ztensor.errors import SourceError, SourceNotFoundError, SourcePermissionError
from ztensor.io.formats import is_read_suffix
from ztensor.io.shards.naming import INDEX_SUFFIX
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.folders import folder_of, listed, there
from ztensor.io.source.paths import absolute_path
from ztensor.io.source.urls import Remote

if TYPE_CHECKING:
    from collections.abc import Sequence


Folder: TypeAlias = Union["LocalFolder", "RemoteFolder"]

# Names under which model hubs keep the one model of a folder, whatever else is beside it.
SAFETENSORS = ("model.safetensors", "diffusion_pytorch_model.safetensors")
OTHERS = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin", "tf_model.h5")
# What is looked for where a server does not say what it has.
_SHARDED = ("model.zt", *SAFETENSORS, *OTHERS[:2])
_USUAL = (
    *(name + INDEX_SUFFIX for name in _SHARDED),
    *("model.zt", *SAFETENSORS, "adapter_model.safetensors", *OTHERS),
)


class LocalFolder:
    """A folder on disk.

    Args:
        path: the folder.

    Raises:
        SourceError: it cannot be listed.
    """

    most_looked_into = 100
    _most_deep = 3

    def __init__(self, path: str) -> None:
        self.name = path
        self.origin = absolute_path(path)
        # Where its files may be, links followed.
        self._roots = Beneath.roots_of(path)
        try:
            with os.scandir(path) as entries:
                self.names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError as error:
            raise SourceError.from_os(error, "cannot list the folder", path) from error

    def place(self, name: str) -> Beneath:
        """Return what opens one of its files."""
        return Beneath(os.path.join(self.origin, name), self._roots)

    def path(self, name: str) -> str:
        """Return the path of a file or folder in it."""
        return os.path.join(self.name, name)

    def models_beneath(self) -> list[str]:
        """Return the folders beneath it that have files of formats that are read."""
        found: list[str] = []
        waiting = [("", 0)]
        visited = 0
        while waiting and visited < self.most_looked_into:
            within, depth = waiting.pop(0)
            visited += 1
            with contextlib.suppress(OSError), os.scandir(self.path(within)) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
                if within and any(is_read_suffix(one.name) and one.is_file() for one in here):
                    found.append(within)
                elif depth < self._most_deep:
                    waiting += [
                        (os.path.join(within, entry.name), depth + 1)
                        for entry in here
                        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                    ]
        return found


class RemoteFolder:
    """A folder of a store, a hub or an HTTP server.

    Of a server without lists, and of a store that forbids them, only the usual names of models are
    known: each is asked for.

    Args:
        remote: the folder, with a slash at its end or not.

    Raises:
        SourceNotFoundError: nothing is in it, or none of the names that are looked for.
        SourcePermissionError: it may not be listed, and has none of these names.
        SourceError: the place cannot be asked.
    """

    most_looked_into = 16  # of two requests each

    def __init__(self, remote: Remote) -> None:
        self.remote = self.origin = folder_of(remote)
        self.name = self.remote.name
        denied: SourcePermissionError | None = None
        try:
            tree = listed(self.remote)
        except SourcePermissionError as error:
            tree, denied = None, error
        self.names, self._folders = tree or (sorted(there(self.remote, _USUAL)), [])
        if self.names or self._folders:
            return
        if denied is not None:
            raise denied
        missing = SourceNotFoundError("there is nothing in this folder", file=self.name)
        if tree is None:
            missing = SourceNotFoundError(
                "this server does not say what a folder has, and none of the usual names of "
                "models is in it",
                file=self.name,
                expected=", ".join(_USUAL),
            )
            missing.hint = "name a file, or the index of a sharded model"
        raise missing

    def place(self, name: str) -> Remote:
        """Return what opens one of its files."""
        return self.remote.beside(name)

    def path(self, name: str) -> str:
        """Return the URL of a file or folder in it."""
        return self.remote.beside(name).name

    def models_beneath(self) -> Sequence[str]:
        """Return the folders directly in it; what they have is not looked at."""
        return self._folders
