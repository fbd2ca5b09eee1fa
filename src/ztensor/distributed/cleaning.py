"""Remove files of a checkpoint's folder that its root does not name.

A file is removed only if it has the name of a part and its attributes say that it is one. It stays
while its writer lives, since its save may be under way. A store does not know that, so `compact`
removes only files from it that are a day old.
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


_MOST_LOOKED_INTO = 3  # files
HOURS = 24.0  # longer than any save takes
_WRITTEN = r"(\d{5,}-[0-9a-f]{8}|checkpoint)\.zt"  # names of the files of a checkpoint


def clean(place: Place, named: Collection[str], before: Iterable[str] = ()) -> None:
    """Remove parts that the new root does not name.

    Args:
        place: the folder or prefix.
        named: the files that the root names.
        before: the files of the replaced root; only these are removed from a store.

    Raises:
        SourceError: a file could not be removed; the new checkpoint is in place.
    """
    try:
        if place.folder is None:
            _remove_objects(place, [name for name in before if name not in named])
        else:
            with _opened(place.folder) as inside:
                clean_folder(inside, named)
    except SourceError as error:
        error.hint = error.hint or "the new checkpoint is in place and does not need this file"
        raise


def compact(
    folder: Path,
    *,
    storage: Storage | None = None,
    older_than: float = HOURS,
    dry_run: bool = False,
) -> list[str]:
    """Remove the parts of a folder that its root does not name; return their names.

    Such parts are left by saves that died. Parts of living writers stay, and so do other files.

    Args:
        folder: the folder, or the URL of a prefix.
        storage: see `ztensor.typing.OpenOptions`.
        older_than: hours. Younger files stay in a store, which does not know whether a writer
            lives; a folder on disk does not need it.
        dry_run: True removes nothing.

    Raises:
        UsageError: the folder has no root, or URLs of this scheme do not list or remove files.
        FormatError: the root is damaged.
        SourceError: the root cannot be read, or a file cannot be removed.
        ArgumentValueError: `older_than` is negative or not a number.
    """
    if not 0 <= older_than < math.inf:
        raise ArgumentValueError("older_than must be 0 or more hours", found=describe(older_than))
    place = Place(folder, storage)
    with contextlib.closing(open_root(place)) as file:
        if not is_root(file):
            raise UsageError("the file is not the root of a distributed checkpoint", file=file.name)
        named = {one.name for one in parse_root(file).files}
    if place.folder is not None:
        with _opened(place.folder) as inside:
            return clean_folder(inside, named, dry_run=dry_run)
    # No commit is about to name these: a root written since then names younger files.
    until = time.time() - 3600 * older_than
    parts = place.parts().items()
    old = [name for name, file in parts if name not in named and file.modified <= until]
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
    """Remove parts that the root does not name and no writer holds; return their names.

    Args:
        inside: the folder.
        named: the files that the root names.
        released: files of a removed root; these go although their writer lives.
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
    """Remove parts from an open folder; return their names in order."""
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

    # Removing a file frees its page cache, which takes as long as a copy.
    run_jobs([functools.partial(remove_one, one) for one in names], thread_count())
    return sorted(gone)


def _remove_objects(place: Place, names: Iterable[str], *, dry_run: bool = False) -> list[str]:
    """Remove parts from a store; return their names in order."""

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
    """Remove parts, whether their writers live or not.

    Raises:
        SourceError: a part could not be removed.
    """
    if place.folder is None:
        _remove_objects(place, names)
    elif os.path.isdir(place.folder):
        with _opened(place.folder) as inside:
            _remove_in(inside, filter(is_part_name, names), names)


def clear_checkpoint(where: OpenFolder | Remote, released: Collection[str] = ()) -> None:
    """Remove the parts of a checkpoint whose root is gone.

    Args:
        where: its folder, in which parts of living writers stay; or the URL of its root.
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
    """Return whether a folder, or a prefix of a store, has a part."""
    try:
        place = Place(folder)
        names = list(place.parts())[:_MOST_LOOKED_INTO]
        return any(is_of_a_process(place.target(name)) for name in names)
    except ZTensorError:
        return False


def is_of_a_process(given: str | Remote | BinaryIO) -> bool:
    """Return whether a file is a part, also if it is damaged or cut off."""
    try:
        file = open_file(given, mmap=False)
    except FormatError:
        return FileObjects.may_be_ours(given)
    except ZTensorError:
        return False  # of another or newer format
    try:
        return ATTRIBUTE in (file.manifest.attributes or {})
    finally:
        file.close()
