"""What is removed from the folder of a checkpoint: files that no root names any more.

Only files are touched that are called as those of processes are and say of themselves that they
are such. One whose writer lives stays: it belongs to a save that is under way.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING

from ztensor.boundary import public
from ztensor.container.framing import MAGIC_1
from ztensor.contents import open_file
from ztensor.divided.place import ATTRIBUTE, Place, is_part_name
from ztensor.divided.root import is_root, open_root, parse_root
from ztensor.errors import FormatError, SourceError, UsageError, ZTensorError
from ztensor.source import locking
from ztensor.source.upload import remove
from ztensor.threads import run_jobs, thread_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ztensor.typing import Path

# A file of a process, or a root, that has no name yet where the system gives none to nobody.
_MOST_LOOKED_INTO = 3
_TEMPORARY = re.compile(r"\.(\d{5,}-[0-9a-f]{8}|checkpoint)\.zt\.[0-9a-f]{16}\.tmp")


def clean(place: Place, named: Collection[str], before: Iterable[str] = ()) -> list[str]:
    """Remove what no root names any more; return which files that were.

    Args:
        place: the folder or prefix.
        named: the files that the root names.
        before: those that the root of before named, in a store, where nothing is listed.

    Raises:
        SourceError: a file could not be removed; the checkpoint is as it should be.
    """
    try:
        if place.folder is None:
            return _clean_store(place, named, before)
        return clean_folder(place.folder, named)
    except SourceError as error:
        error.hint = error.hint or "the new checkpoint is in place; this file is no part of it"
        raise


@public
def compact(folder: Path, *, storage: object = None, dry_run: bool = False) -> list[str]:
    """Remove the files of a folder that its checkpoint does not name; return their names.

    Only files of processes are removed, and none whose writer lives: what saves left that died.

    Args:
        folder: the folder.
        storage: how the store of a URL is opened; see `ztensor.open`.
        dry_run: True removes nothing.

    Raises:
        UsageError: it is in a store, which cannot tell whether a writer lives; or the folder has
            no root that tells which files are needed.
        FormatError: the root is damaged.
        SourceError: it cannot be read, or a file cannot be removed.
    """
    place = Place(folder, storage)
    if place.folder is None:
        error = UsageError(
            "a store cannot tell which files belong to a save that is under way; the next save "
            "removes those of the one before",
            file=place.name,
        )
        error.hint = (
            "while nobody saves, delete files such as 00000-3f9a61c2.zt that "
            "ztensor.divided.read_root(...).files does not name"
        )
        raise error
    with contextlib.closing(open_root(place)) as file:
        if not is_root(file):
            raise UsageError("the file is the root of no divided checkpoint", file=file.name)
        named = {one.name for one in parse_root(file).files}
    if not dry_run:
        return clean_folder(place.folder, named)
    inside = place.folder
    return [name for name in unnamed(inside, named) if is_of_a_process(os.path.join(inside, name))]


def _clean_store(place: Place, named: Collection[str], before: Iterable[str]) -> list[str]:
    gone = [name for name in before if name not in named]
    for name in gone:
        target = place.target(name)
        if not isinstance(target, str):
            remove(target)
    return gone


def clean_folder(folder: str, named: Collection[str]) -> list[str]:
    """Remove the files of a folder that no root names and nobody writes; return which these were.

    Args:
        folder: the folder.
        named: the files that the root names.

    Raises:
        SourceError: one could not be removed.
    """
    gone: list[str] = []

    def remove_one(name: str) -> None:
        path = os.path.join(folder, name)
        if not is_of_a_process(path):
            return
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError.from_os(error, "cannot remove", path) from error
        gone.append(name)

    # The system gives the memory back that it keeps of a file, which takes as long as a copy.
    run_jobs([functools.partial(remove_one, one) for one in unnamed(folder, named)], thread_count())
    gone.sort()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for name in [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            locking.remove_if_dead(os.path.join(folder, name))
    return gone


def unnamed(folder: str, named: Collection[str]) -> list[str]:
    """Return the files of a folder that are called as those of processes and that no root names.

    Files whose writer lives are left out.

    Raises:
        SourceError: the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                entry.name
                for entry in entries
                if is_part_name(entry.name)
                and entry.name not in named
                and entry.is_file(follow_symlinks=False)
            )
    except OSError as error:
        raise SourceError.from_os(error, "cannot list the folder", folder) from error
    return [name for name in found if not locking.is_locked(os.path.join(folder, name))]


def has_parts(folder: str) -> bool:
    """Return whether a folder has a file that a process wrote of a divided checkpoint."""
    try:
        names = sorted(filter(is_part_name, os.listdir(folder)))
    except OSError:
        return False
    return any(is_of_a_process(os.path.join(folder, name)) for name in names[:_MOST_LOOKED_INTO])


def is_of_a_process(path: str) -> bool:
    """Return whether a file is one of a process, or what a power cut left of one."""
    try:
        file = open_file(path, mmap=False)
    except FormatError:
        return _is_unfinished(path)
    except ZTensorError:
        return False  # who knows what it is
    try:
        return ATTRIBUTE in (file.manifest.attributes or {})
    finally:
        file.close()


def _is_unfinished(path: str) -> bool:
    """Return whether a file is as a power cut leaves one: it begins as ours do, or with zeros."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(MAGIC_1))
    except OSError:
        return False
    return head == MAGIC_1[: len(head)] or not any(head)
