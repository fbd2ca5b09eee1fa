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
import time
from typing import TYPE_CHECKING, BinaryIO

from ztensor import Remote
from ztensor.distributed.place import ATTRIBUTE, REQUESTS, Place, is_part_name
from ztensor.distributed.root import is_root, open_root, parse_root
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    SourceError,
    UsageError,
    ZTensorError,
    describe,
    system_call,
)
from ztensor.ext import (
    FileObjects,
    OpenFolder,
    Pool,
    locking,
    open_file,
    remove,
    run_jobs,
    thread_count,
)
from ztensor.typing import Path, Storage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


# A file of a process, or a root, that has no name yet where the system gives none to nobody.
_MOST_LOOKED_INTO = 3
HOURS = 24.0  # no save takes as long
_WRITTEN = r"(\d{5,}-[0-9a-f]{8}|checkpoint)\.zt"  # what files of a checkpoint are called


def clean(place: Place, named: Collection[str], before: Iterable[str] = ()) -> None:
    """Remove what no root names any more.

    Args:
        place: the folder or prefix.
        named: the files that the root names.
        before: those that the root of before named, in a store, where nothing is listed.

    Raises:
        SourceError: a file could not be removed; the checkpoint is as it should be.
    """
    try:
        if place.folder is None:
            _remove_objects(place, [name for name in before if name not in named])
        else:
            with _opened(place.folder) as inside:
                clean_folder(inside, named)
    except SourceError as error:
        error.hint = error.hint or "the new checkpoint is in place; this file is no part of it"
        raise


def compact(
    folder: Path,
    *,
    storage: Storage | None = None,
    older_than: float = HOURS,
    dry_run: bool = False,
) -> list[str]:
    """Remove the files of a folder that its checkpoint does not name; return their names.

    Only files of processes are removed, and none whose writer lives: what saves left that died.

    Args:
        folder: the folder, or the URL of a prefix.
        storage: see `ztensor.typing.OpenOptions`.
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
    if place.folder is not None:
        with _opened(place.folder) as inside:
            return clean_folder(inside, named, dry_run=dry_run)
    # What nobody can be about to name; a root written since then names files that are younger.
    until = time.time() - 3600 * older_than
    there = place.parts().items()
    old = [name for name, file in there if name not in named and file.modified <= until]
    return _remove_objects(place, old, dry_run=dry_run)


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[OpenFolder]:
    with system_call("cannot list the folder", folder), OpenFolder(folder) as inside:
        yield inside


def clean_folder(
    inside: OpenFolder,
    named: Collection[str],
    released: Collection[str] = (),
    *,
    dry_run: bool = False,
) -> list[str]:
    """Remove the files of a folder that no root names and nobody writes; return which these were.

    Args:
        inside: the folder.
        named: the files that the root names.
        released: files that go although their writer lives: those of a root that was removed.
        dry_run: True removes nothing.

    Raises:
        OSError: the folder cannot be listed.
        SourceError: a file could not be removed.
    """
    names = inside.names()
    parts = [name for name in names if is_part_name(name) and name not in named]
    gone = _remove_in(inside, parts, released, dry_run=dry_run)
    if not dry_run:
        inside.sweep(_WRITTEN)
    return gone


def _remove_in(
    inside: OpenFolder, names: Iterable[str], released: Collection[str], *, dry_run: bool = False
) -> list[str]:
    """Remove files of processes from an open folder; return which these were, in order."""
    gone: list[str] = []

    def remove_one(name: str) -> None:
        def is_ours(file: BinaryIO) -> bool:
            is_free = name in released or not locking.is_held(file.fileno())
            if is_free and is_of_a_process(file):
                gone.append(name)
                return not dry_run
            return False

        with system_call("cannot remove", os.path.join(inside.path, name)):
            inside.remove(name, is_ours)

    # The system gives the memory back that it keeps of a file, which takes as long as a copy.
    run_jobs([functools.partial(remove_one, one) for one in names], thread_count())
    return sorted(gone)


def _remove_objects(place: Place, names: Iterable[str], *, dry_run: bool = False) -> list[str]:
    """Remove files of processes from a store; return which these were, in order."""

    def remove_one(name: str) -> bool:
        if dry_run:
            return is_of_a_process(place.remote(name))
        return remove(place.remote(name), is_of_a_process)

    parts = sorted(filter(is_part_name, names))
    with Pool(REQUESTS) as workers:
        return [
            name
            for name, is_gone in zip(parts, workers.map(remove_one, parts), strict=True)
            if is_gone
        ]


def remove_parts(place: Place, names: Collection[str]) -> None:
    """Remove files of processes, whether their writers live or not.

    Raises:
        SourceError: one could not be removed.
    """
    if place.folder is None:
        _remove_objects(place, names)
    elif os.path.isdir(place.folder):
        with _opened(place.folder) as inside:
            _remove_in(inside, filter(is_part_name, names), names)


def clear_checkpoint(where: OpenFolder | Remote, released: Collection[str] = ()) -> None:
    """Remove what is left of a checkpoint whose root is gone.

    Args:
        where: its folder, in which only what nobody writes goes; or its root's URL.
        released: as for `clean_folder`.

    Raises:
        OSError: the folder cannot be listed.
        SourceError: a file could not be removed.
    """
    if isinstance(where, Remote):
        place = Place(where)
        _remove_objects(place, place.parts())
    else:
        clean_folder(where, (), released)


def has_parts(folder: str) -> bool:
    """Return whether a folder, or a prefix of a store, has a file that a process wrote."""
    try:
        place = Place(folder)
        names = list(place.parts())[:_MOST_LOOKED_INTO]
        return any(is_of_a_process(place.target(name)) for name in names)
    except ZTensorError:
        return False


def is_of_a_process(given: str | Remote | BinaryIO) -> bool:
    """Return whether a file is one of a process, also a damaged one, or what a power cut left."""
    try:
        file = open_file(given, mmap=False)
    except FormatError:
        return FileObjects.may_be_ours(given)
    except ZTensorError:
        return False  # who knows what it is
    try:
        return ATTRIBUTE in (file.manifest.attributes or {})
    finally:
        file.close()
