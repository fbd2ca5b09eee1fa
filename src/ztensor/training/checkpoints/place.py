"""The folder, or the prefix of a store, that has the steps of a run."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ztensor import Remote
from ztensor.distributed.cleaning import clear_checkpoint
from ztensor.errors import (
    FormatError,
    Reason,
    SourceError,
    SourceNotFoundError,
    UsageError,
    system_call,
)
from ztensor.ext import FileObjects, OpenFolder, Pool, Store, path_text, remove
from ztensor.ext import Place as Target
from ztensor.training.checkpoints.folder_lock import folder_in_use, idle_folder
from ztensor.training.checkpoints.owning import is_step_file, is_step_root
from ztensor.training.checkpoints.step import (
    NAMES,
    SUFFIX,
    name_of,
    not_a_step,
    step_of,
    why_not_a_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


REQUESTS = 16  # to a store at once
_LISTING, _MAKING = "cannot list the steps of a run", "cannot make the folder of a run"
# The root of a step that is a folder; it is written last.
ROOT = "checkpoint.zt"


class Entry(NamedTuple):
    """A file or folder with the name of a step, whatever its contents.

    Attributes:
        step: its number.
        name: the name.
        nbytes: length of the file, or of the root in the folder.
        modified: seconds since 1970.
        stamp: identity of the file, None if unknown.
        is_link: True for a link. Such a step is read, but never removed.
    """

    step: int
    name: str
    nbytes: int
    modified: float
    stamp: object
    is_link: bool = False

    @property
    def is_divided(self) -> bool:
        """Return whether it is a folder with a root."""
        return not self.name.endswith(SUFFIX)

    @property
    def file(self) -> str:
        """Return the name of the file to open."""
        return f"{self.name}/{ROOT}" if self.is_divided else self.name


@contextlib.contextmanager
def judged(place: StepPlace, entry: Entry) -> Iterator[None]:
    """Classify errors in reading a step: the step is gone, damaged, or not a step.

    Raises:
        FileNotFoundError: the step was removed meanwhile.
        FormatError: it is damaged, or lacks a part; or the file is not a step, see
            `why_not_a_step`.
    """
    try:
        yield
    except SourceNotFoundError as error:
        if not entry.is_divided or all(one.name != entry.name for one in place.entries()):
            raise
        missing = FormatError(error.message, reason=Reason.SHARD_FILE, file=error.file)
        missing.hint = error.hint
        raise missing from error
    except FormatError as error:
        if why_not_a_step(error) is not None or FileObjects.may_be_ours(place.path(entry.file)):
            raise
        name = error.file or entry.file
        not_step = not_a_step("the file is not a step of a run", error.found, name)
        raise not_step from why_not_a_step(not_step)


def place_of(where: Any, storage: Any) -> StepPlace:
    """Return the place of a run.

    Args:
        where: a folder, or a URL of a store.
        storage: as for `ztensor.Remote`.

    Raises:
        ArgumentTypeError: it is not a path.
        ArgumentValueError: `storage` is given with a folder.
    """
    place = Target.of(where if storage is None else Remote(where, storage))
    return Folder(place.path) if place.remote is None else Prefix(place.remote)


def _by_step(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in order; if a step exists twice, its file."""
    found: dict[int, Entry] = {}
    for entry in sorted(entries, key=lambda one: (one.step, one.name)):
        found[entry.step] = entry  # "step-1.zt" comes after "step-1"
    return list(found.values())


class Folder:
    """A folder, which is made when the first step is saved.

    Attributes:
        name: its path.
    """

    def __init__(self, path: str) -> None:
        self.name = path_text(path, absolute=True)

    def entries(self) -> list[Entry]:
        """Return all entries with names of steps, by number.

        While another process saves a step and removes one, a listing may lack both.

        Raises:
            SourceError: they cannot be listed.
        """
        return self._scanned() or self._scanned()

    def _scanned(self) -> list[Entry]:
        with (
            contextlib.suppress(FileNotFoundError),
            system_call(_LISTING, self.name),
            os.scandir(self.name) as found,
        ):
            return _by_step(entry for one in found if (entry := self._entry(one)) is not None)
        return []

    def _entry(self, found: os.DirEntry[str]) -> Entry | None:
        step = step_of(found.name)
        if step is None:
            return None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone, or not a folder
            is_file = found.name.endswith(SUFFIX)
            status = found.stat() if is_file else os.stat(os.path.join(found.path, ROOT))
            if is_file and not found.is_file():
                return None
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            is_led = OpenFolder.is_link(found.stat(follow_symlinks=False))
            return Entry(step, found.name, status.st_size, status.st_mtime, stamp, is_led)
        return None

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.name, name)

    @contextlib.contextmanager
    def writing(self, name: str, *, durable: bool) -> Iterator[str]:
        """Yield the folder of a distributed step to write; no other manager removes it meanwhile.

        Args:
            name: name of the step.
            durable: True flushes all its files when the context ends.

        Raises:
            SourceError: its folder cannot be made or flushed.
        """
        path = self.path(name)
        try:
            with contextlib.ExitStack() as stack:
                with system_call(_MAKING, path):
                    stack.enter_context(folder_in_use(path))
                yield path
                if durable:
                    self._flush(path)
        except BaseException:
            with contextlib.suppress(SourceError):  # the disk may be full: free the space
                self._remove_unfinished(name)
            raise

    def _flush(self, path: str) -> None:
        with system_call("cannot flush a step to disk", path):
            with os.scandir(path) as found:
                names = [one.name for one in found if one.is_file(follow_symlinks=False)]
            with OpenFolder(path) as folder, OpenFolder(self.name) as run:
                folder.flush(names)
                run.flush()

    def prepare(self, *, durable: bool) -> None:
        """Make the folder, flushed if asked, and remove files that killed saves left."""
        missing, path = [], self.name
        while not os.path.isdir(path) and path not in missing:
            missing.append(path)
            path = os.path.dirname(path)
        with system_call(_MAKING, self.name):
            os.makedirs(self.name, exist_ok=True)
            for path in missing if durable else ():
                with OpenFolder(os.path.dirname(path)) as folder:
                    folder.flush()
        with contextlib.suppress(OSError), OpenFolder(self.name) as run:
            run.sweep(NAMES)

    def clear(self, before: int) -> None:
        """Remove folders of older steps that have no root and no writer.

        Raises:
            SourceError: a file of them could not be removed.
        """
        with system_call(_LISTING, self.name), os.scandir(self.name) as found:
            names = [one.name for one in found if one.is_dir(follow_symlinks=False)]
        for name in names:
            step = step_of(name)
            # A folder with the name of a step's file is not a step.
            if step is not None and step < before and name == name_of(step):
                self._remove_unfinished(name)

    def _remove_unfinished(self, name: str) -> None:
        """Remove the parts of a folder without root, unless a process is writing it."""
        path = self.path(name)
        with (
            contextlib.suppress(FileNotFoundError),
            system_call("cannot remove the files of a dead save", path),
            OpenFolder(self.name) as run,
            idle_folder(path) as is_idle,
        ):
            with OpenFolder(name, within=run) as folder:
                if not is_idle or ROOT in folder.names():
                    return
                clear_checkpoint(folder)
            run.remove_folder(name)

    def require_no_link(self, step: int) -> None:
        """Raise if a step would be written through a link.

        Raises:
            UsageError: one of its names is a link.
        """
        for name in (name_of(step), file_name(step)):
            path = self.path(name)
            with contextlib.suppress(OSError):  # no such file, or saving will raise
                if OpenFolder.is_link(os.lstat(path)):
                    raise UsageError("the name of a step is a link; remove the link", file=path)

    def remove(self, entry: Entry) -> bool:
        """Remove a step; if it is a folder, the root first, so that it stops being a step at once.

        Files that are not the step's stay, and its folder with them. A folder in which another
        manager saves stays; the rules are asked again at the next save.

        Returns:
            False if it is a link, or not the step of its name.

        Raises:
            SourceError: it could not be removed.
        """
        path = self.path(entry.name)
        if entry.is_link:
            return False
        with (
            contextlib.suppress(FileNotFoundError),
            system_call("cannot remove a step", path),
            OpenFolder(self.name) as run,
        ):
            if not entry.is_divided:
                is_own = functools.partial(is_step_file, step=entry.step)
                return run.remove(entry.name, is_own) or not os.path.lexists(path)
            with idle_folder(path) as is_idle:
                return is_idle is not False and _remove_folder(run, entry)
        return True


def _remove_folder(run: OpenFolder, entry: Entry) -> bool:
    """Remove a distributed step; return whether its root is gone."""
    named: list[str] = []
    is_own = functools.partial(is_step_root, step=entry.step, named=named)
    with OpenFolder(entry.name, within=run) as folder:
        if not folder.remove(ROOT, is_own):
            return ROOT not in folder.names()
        clear_checkpoint(folder, named)
    run.remove_folder(entry.name)
    return True


class Prefix:
    """The prefix of a store.

    Attributes:
        name: the URL without secrets.
    """

    def __init__(self, remote: Remote) -> None:
        url = remote.url if remote.url.endswith("/") else f"{remote.url}/"
        self._remote = Remote(url, remote.storage, remote.cache)
        self.name = self._remote.name

    def entries(self) -> list[Entry]:
        """Return all objects with names of steps, and all subfolders of steps that have a root."""
        store = Store.of(self._remote.url)
        store.require_writable(self._remote.beside("-"))  # stores that write can list
        found = [one for one in store.listed(self._remote) or () if step_of(one.name) is not None]
        files = [
            (one.name, one) for one in found if not one.is_folder and one.name.endswith(SUFFIX)
        ]
        names = [one.name for one in found if one.is_folder and not one.name.endswith(SUFFIX)]
        with Pool(REQUESTS) as workers:
            roots = workers.map(lambda name: store.look(self.path(f"{name}/{ROOT}")), names)
            folders = [(name, root) for name, root in zip(names, roots, strict=True) if root]
        return _by_step(
            Entry(
                step_of(name) or 0,
                name,
                one.nbytes,
                one.modified,
                None if one.version is None else (one.version, one.nbytes),
            )
            for name, one in (*files, *folders)
        )

    def path(self, name: str) -> Remote:
        """Return the URL of a file."""
        return self._remote.beside(name)

    @contextlib.contextmanager
    def writing(self, name: str, *, durable: bool) -> Iterator[Remote]:  # as Folder
        """Yield the URL of a distributed step; objects in a store are always durable."""
        yield self.path(name)

    def prepare(self, *, durable: bool) -> None:
        """Do nothing: stores have no folders, and write objects atomically."""

    def clear(self, before: int) -> None:
        """Do nothing: a store does not know whether a process is writing."""

    def require_no_link(self, step: int) -> None:
        """Do nothing: stores have no links."""

    def remove(self, entry: Entry) -> bool:
        """Remove a step; of several objects the root first, so that it stops being a step."""
        path = self.path(entry.file)
        try:
            if not entry.is_divided:
                return remove(path, functools.partial(is_step_file, step=entry.step))
            if not remove(path, functools.partial(is_step_root, step=entry.step, named=[])):
                return False
        except SourceNotFoundError:
            return True
        clear_checkpoint(path)
        return True


StepPlace: TypeAlias = Folder | Prefix


def file_name(step: int) -> str:
    """Return the name of the file of a step."""
    return name_of(step) + SUFFIX
