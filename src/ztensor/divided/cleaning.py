"""What is removed from the folder of a checkpoint: files that no root names any more.

Only files are touched that are called as those of processes are and say of themselves that they
are such. One whose writer lives stays: it belongs to a save that is under way. A store does not
know whether a writer lives, so what is removed there on demand has to be a day old.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from typing import TYPE_CHECKING

from ztensor.boundary import public
from ztensor.container.framing import MAGIC_1
from ztensor.contents import open_file
from ztensor.divided.place import ATTRIBUTE, REQUESTS, Place
from ztensor.divided.root import is_root, open_root, parse_root
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    SourceError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.source import locking
from ztensor.source.upload import remove
from ztensor.threads import Pool, run_jobs, thread_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ztensor.source.urls import Remote
    from ztensor.typing import Path

# A file of a process, or a root, that has no name yet where the system gives none to nobody.
_MOST_LOOKED_INTO = 3
HOURS = 24.0  # no save takes as long
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
def compact(
    folder: Path, *, storage: object = None, older_than: float = HOURS, dry_run: bool = False
) -> list[str]:
    """Remove the files of a folder that its checkpoint does not name; return their names.

    Only files of processes are removed, and none whose writer lives: what saves left that died.

    Args:
        folder: the folder, or the URL of a prefix.
        storage: how the store of a URL is opened; see `ztensor.open`.
        older_than: hours; in a store, which cannot tell whether a writer lives, younger files
            stay. A folder on disk does not need it.
        dry_run: True removes nothing.

    Raises:
        UsageError: the folder has no root that tells which files are needed; or nothing is listed
            or removed at places of this scheme.
        FormatError: the root is damaged.
        SourceError: it cannot be read, or a file cannot be removed.
        ArgumentValueError: `older_than` is no number of hours from 0 on.
    """
    if not 0 <= older_than < math.inf:
        raise ArgumentValueError("hours are a number from 0 on", found=describe(older_than, 40))
    place = Place(folder, storage)
    with contextlib.closing(open_root(place)) as file:
        if not is_root(file):
            raise UsageError("the file is the root of no divided checkpoint", file=file.name)
        named = {one.name for one in parse_root(file).files}
    if place.folder is None:
        return _compact_store(place, named, older_than, dry_run=dry_run)
    if not dry_run:
        return clean_folder(place.folder, named)
    inside = place.folder
    return [name for name in unnamed(inside, named) if is_of_a_process(os.path.join(inside, name))]


def _clean_store(place: Place, named: Collection[str], before: Iterable[str]) -> list[str]:
    gone = [name for name in before if name not in named]
    for name in gone:
        remove(place.remote(name))
    return gone


def _compact_store(
    place: Place, named: Collection[str], older_than: float, *, dry_run: bool
) -> list[str]:
    """Remove what no root names and nobody can be about to name; return which files these were.

    A root that was written since `named` was read names files that are younger.
    """
    until = time.time() - 3600 * older_than
    there = place.parts().items()
    old = [name for name, file in there if name not in named and file.modified <= until]

    def is_ours(name: str) -> bool:
        return is_of_a_process(place.remote(name))

    with Pool(REQUESTS) as workers:
        gone = [name for name, ours in zip(old, workers.map(is_ours, old), strict=True) if ours]
        if not dry_run:
            list(workers.map(remove, map(place.remote, gone)))
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

    Links, and files whose writer lives, are left out.

    Raises:
        SourceError: the folder cannot be listed.
    """
    names = [name for name in Place(folder).parts() if name not in named]
    paths = {name: os.path.join(folder, name) for name in names}
    return [
        name
        for name, path in paths.items()
        if not os.path.islink(path) and not locking.is_locked(path)
    ]


def has_parts(folder: str) -> bool:
    """Return whether a folder, or a prefix of a store, has a file that a process wrote."""
    try:
        place = Place(folder)
        names = list(place.parts())[:_MOST_LOOKED_INTO]
        return any(is_of_a_process(place.target(name)) for name in names)
    except ZTensorError:
        return False


def is_of_a_process(path: str | Remote) -> bool:
    """Return whether a file is one of a process, or what a power cut left of one."""
    try:
        file = open_file(path, mmap=False)
    except FormatError:
        return isinstance(path, str) and _is_unfinished(path)
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
