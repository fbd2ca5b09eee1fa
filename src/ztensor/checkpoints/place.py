"""Where the steps of a run are: a folder, or what begins alike in a store."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ztensor.checkpoints.step import NAMES, SUFFIX, name_of, step_of
from ztensor.divided.cleaning import clean_folder
from ztensor.errors import FormatError, Reason, SourceError, SourceNotFoundError
from ztensor.source import locking
from ztensor.source.flushing import flush_file, flush_folder
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

    def writing(self, name: str, *, durable: bool) -> contextlib.AbstractContextManager[Any]:
        """Have a divided step written, and give where its files go; no other takes it for dead.

        Args:
            name: of the step.
            durable: whether all of it is on disk behind the context, whoever wrote it.

        Raises:
            SourceError: its folder cannot be made, or not be flushed.
        """
        ...

    def prepare(self, *, durable: bool) -> None:
        """Make the folder, on disk where that is asked for, and remove what killed saves left."""
        ...

    def clear(self, before: int) -> None:
        """Remove what killed saves and removals left of divided steps older than one that opens.

        Raises:
            SourceError: a file of them could not be removed.
        """
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

    @contextlib.contextmanager
    def writing(self, name: str, *, durable: bool) -> Iterator[str]:
        """Have a divided step written, and give its folder, which is made."""
        path = self.path(name)
        try:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(locking.folder_in_use(path))
                except OSError as error:
                    raise _cannot_make(error, path) from error
                yield path
                if durable:
                    self._flush(path)
        except BaseException:
            with contextlib.suppress(SourceError):  # the disk may be full: give the space back
                _remove_unfinished(path)
            raise

    def _flush(self, path: str) -> None:
        try:
            with os.scandir(path) as found:
                names = [one.path for one in found if one.is_file(follow_symlinks=False)]
            for name in names:
                flush_file(name)
            flush_folder(path)
            flush_folder(self.name)
        except OSError as error:
            raise SourceError.from_os(error, "cannot flush a step to disk", path) from error

    def prepare(self, *, durable: bool) -> None:
        """Make the folder, on disk where that is asked for, and remove what killed saves left."""
        missing, path = [], self.name
        while not os.path.isdir(path) and path not in missing:
            missing.append(path)
            path = os.path.dirname(path)
        try:
            os.makedirs(self.name, exist_ok=True)
            for path in missing if durable else ():
                flush_folder(os.path.dirname(path))
        except OSError as error:
            raise _cannot_make(error, self.name) from error
        sweep(self.name, NAMES)

    def clear(self, before: int) -> None:
        """Remove folders of older steps that have no root and that nobody writes."""
        try:
            with os.scandir(self.name) as found:
                names = [one.name for one in found if one.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise SourceError.from_os(error, "cannot list the steps of a run", self.name) from error
        for name in names:
            step = step_of(name)
            # A folder that is called as a file of a step is nobody's step.
            if step is not None and step < before and name == name_of(step):
                _remove_unfinished(self.path(name))

    def remove(self, entry: Entry) -> None:
        """Remove a step: of a folder the root first, so that it is none at once.

        A folder in which another manager saves stays; the rules are asked again at the next save.
        """
        path = self.path(entry.name)
        try:
            if not entry.is_divided:
                _unlink(path)
                return
            with locking.idle_folder(path) as is_idle:
                if is_idle is not False:
                    _remove_folder(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError.from_os(error, "cannot remove a step", path) from error


def _cannot_make(error: OSError, path: str) -> SourceError:
    return SourceError.from_os(error, "cannot make the folder of a run", path)


def _remove_unfinished(path: str) -> None:
    """Remove the folder of a step that has no root, where nobody writes it."""
    if os.path.lexists(os.path.join(path, ROOT)):
        return
    with locking.idle_folder(path) as is_idle:
        if is_idle:
            clean_folder(path, ())
            with contextlib.suppress(OSError):  # there is something that is not ours
                os.rmdir(path)


def _remove_folder(path: str) -> None:
    _unlink(os.path.join(path, ROOT))
    with os.scandir(path) as found:
        names = [one.path for one in found if one.is_file(follow_symlinks=False)]
    for name in names:
        _unlink(name)
    os.rmdir(path)


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

    @contextlib.contextmanager
    def writing(self, name: str, *, durable: bool) -> Iterator[Remote]:  # as Folder
        """Give the URL of a divided step; what a store took is durable."""
        yield self.path(name)

    def prepare(self, *, durable: bool) -> None:
        """Do nothing: stores have no folders, and show nothing that is not whole."""

    def clear(self, before: int) -> None:
        """Do nothing: a store cannot tell whether somebody writes."""

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
