"""Where the steps of a run are: a folder, or what begins alike in a store."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ztensor.checkpoints.step import NAMES, SUFFIX, name_of, step_of
from ztensor.errors import FormatError, Reason, SourceError, SourceNotFoundError
from ztensor.source.paths import path_text
from ztensor.source.prefixes import listed
from ztensor.source.sink import sweep
from ztensor.source.table import remote_of
from ztensor.source.upload import remove as remove_object
from ztensor.source.urls import Remote, with_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# In a folder that is a step: what makes it one, and is written last.
ROOT = "checkpoint.zt"


class Entry(NamedTuple):
    """A name that is a step's, whatever is under it.

    Attributes:
        step: its number.
        name: the name.
        nbytes: its length; of a folder that of its root.
        modified: seconds since 1970.
        stamp: another value once something else has the name; None where that cannot be told.
    """

    step: int
    name: str
    nbytes: int
    modified: float
    stamp: object

    @property
    def is_divided(self) -> bool:
        """Return whether it is a folder, whose root makes it a step."""
        return not self.name.endswith(SUFFIX)

    @property
    def file(self) -> str:
        """Return the name of what is opened."""
        return f"{self.name}/{ROOT}" if self.is_divided else self.name


@contextlib.contextmanager
def whole_or_damaged(place: StepPlace, entry: Entry) -> Iterator[None]:
    """Have a file that a step lacks be damage, where the step itself is still there.

    Raises:
        FileNotFoundError: the step was removed meanwhile.
        FormatError: a file is missing that the root of the step names.
    """
    try:
        yield
    except SourceNotFoundError as error:
        if not entry.is_divided or all(one.name != entry.name for one in place.entries()):
            raise
        found = FormatError(error.message, reason=Reason.SHARD_FILE, file=error.file)
        found.hint = error.hint
        raise found from error


class StepPlace(Protocol):
    """Where steps are."""

    @property
    def name(self) -> str:
        """Return the folder or the URL, for messages."""
        ...

    def entries(self) -> list[Entry]:
        """Return all names that are steps', by number.

        Raises:
            SourceError: they cannot be listed.
        """
        ...

    def path(self, name: str) -> Any:
        """Return what opens or writes the file of a name."""
        ...

    def folder(self, name: str) -> Any:
        """Return where the files of a divided step go, which are made in it."""
        ...

    def prepare(self) -> None:
        """Make the folder, and remove what killed saves left."""
        ...

    def remove(self, entry: Entry) -> None:
        """Remove a step; nothing happens where it is gone.

        Raises:
            SourceError: it could not be.
        """
        ...


def place_of(where: Any, storage: Any) -> StepPlace:
    """Return the place of a run.

    Args:
        where: a folder, or a URL of a store.
        storage: as for `ztensor.remote`.

    Raises:
        ArgumentTypeError: it is no path.
        ArgumentValueError: `storage` is given with a folder.
    """
    given = with_storage(where, storage)
    remote = remote_of(given)
    return Folder(path_text(given)) if remote is None else Prefix(remote)


def _by_step(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in order; where a step is there twice, its file."""
    found: dict[int, Entry] = {}
    for entry in sorted(entries, key=lambda one: (one.step, one.name)):
        found[entry.step] = entry  # "step-1.zt" is behind "step-1"
    return list(found.values())


class Folder:
    """A folder, which is made when the first step is saved.

    Attributes:
        name: its path.
    """

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)

    def entries(self) -> list[Entry]:
        """Return all names that are steps'.

        While another process saves one and removes one, a listing may have neither.
        """
        return self._scanned() or self._scanned()

    def _scanned(self) -> list[Entry]:
        try:
            with os.scandir(self.name) as found:
                return _by_step(entry for one in found if (entry := self._entry(one)) is not None)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SourceError.from_os(error, "cannot list the steps of a run", self.name) from error

    def _entry(self, found: os.DirEntry[str]) -> Entry | None:
        step = step_of(found.name)
        if step is None:
            return None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone, or no folder
            is_file = found.name.endswith(SUFFIX)
            status = found.stat() if is_file else os.stat(os.path.join(found.path, ROOT))
            if is_file and not found.is_file():
                return None
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            return Entry(step, found.name, status.st_size, status.st_mtime, stamp)
        return None

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.name, name)

    def folder(self, name: str) -> str:
        """Return the folder of a divided step, which is made."""
        path = self.path(name)
        _make(path)
        return path

    def prepare(self) -> None:
        """Make the folder, and remove what killed saves left."""
        _make(self.name)
        sweep(self.name, NAMES)

    def remove(self, entry: Entry) -> None:
        """Remove a step: of a folder the root first, so that it is none at once."""
        path = self.path(entry.name)
        try:
            if not entry.is_divided:
                _unlink(path)
                return
            _unlink(os.path.join(path, ROOT))
            with os.scandir(path) as found:
                names = [one.path for one in found if one.is_file(follow_symlinks=False)]
            for name in names:
                _unlink(name)
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError.from_os(error, "cannot remove a step", path) from error


def _make(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SourceError.from_os(error, "cannot make the folder of a run", path) from error


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class Prefix:
    """A part of a store: the objects whose keys begin alike.

    Attributes:
        name: the URL without secrets.
    """

    def __init__(self, remote: Remote) -> None:
        url = remote.url if remote.url.endswith("/") else f"{remote.url}/"
        self._remote = Remote(url, remote.storage, remote.cache)
        self.name = self._remote.name

    def entries(self) -> list[Entry]:
        """Return all names that are steps'."""
        found = []
        for one in listed(self._remote):
            step = step_of(one.name)
            if step is not None and (one.nbytes >= 0) == one.name.endswith(SUFFIX):
                stamp = None if one.version is None else (one.version, one.nbytes)
                found.append(Entry(step, one.name, max(one.nbytes, 0), one.modified, stamp))
        return _by_step(found)

    def path(self, name: str) -> Remote:
        """Return the URL of a file."""
        return self._remote.beside(name)

    def folder(self, name: str) -> Remote:
        """Return the URL of a divided step."""
        return self.path(name)

    def prepare(self) -> None:
        """Do nothing: stores have no folders, and show nothing that is not whole."""

    def remove(self, entry: Entry) -> None:
        """Remove a step: of several objects the root first, so that it is none at once."""
        remove_object(self.path(entry.file))
        if not entry.is_divided:
            return
        for one in listed(self.path(f"{entry.name}/")):
            if one.nbytes >= 0:
                remove_object(self.path(f"{entry.name}/{one.name}"))


def file_name(step: int) -> str:
    """Return the name of the file of a step."""
    return name_of(step) + SUFFIX
