"""The files of a checkpoint, beside its root: in a folder, in a store, or nowhere."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, NoReturn, Protocol

from ztensor import Remote
from ztensor.distributed.lazy_files import OpenFiles
from ztensor.errors import Reason, SourceNotFoundError, UnsupportedError, describe
from ztensor.ext import Beneath, Pool, Source, source_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


REQUESTS = 16  # at a time: a checkpoint may have as many files as there were processes

Parts = tuple[str, ...]


class Beside(Protocol):
    """What finds the files of a checkpoint.

    Attributes:
        lengths: of the files that are there, by name; empty where nobody lists them.
    """

    lengths: Mapping[str, int]

    def files(
        self, wanted: Sequence[Parts], needed: Sequence[int]
    ) -> list[tuple[int | None, Source]]:
        """Return how long some files are, None where one is not there, and what opens each.

        Args:
            wanted: their relative paths, as `Beneath.parts_of` gives them.
            needed: of each, how long it has to be at least by what the root says.
        """
        ...


class OnDisk:
    """Files in the folder of one of them; see `Beside`.

    Args:
        path: of the root, or of any of them.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.lengths: Mapping[str, int] = _files_in(os.path.dirname(path))

    def files(
        self, wanted: Sequence[Parts], needed: Sequence[int]
    ) -> list[tuple[int | None, Source]]:
        """Return how long files are, and what opens each."""
        pool = OpenFiles()
        found: list[tuple[int | None, Source]] = []
        for parts, least in zip(wanted, needed, strict=True):
            path = os.path.join(os.path.dirname(self._path), *parts)
            try:
                length: int | None = os.stat(path).st_size
            except (OSError, ValueError):
                length = None
            opened = functools.partial(_opened, self._path, parts)
            size = least if length is None else length
            found.append((length, pool.file(path, path, size, opened)))
        return found


def _opened(root: str, parts: tuple[str, ...]) -> Source:
    return Beneath.beside(root, parts).open(mapped=False)


class InStore:
    """Files of a store; see `Beside`.

    Args:
        root: the root, or any object beside it; or their folder, with a slash at its end.
        lengths: of files whose length is known: the store is asked for those of others.
    """

    def __init__(self, root: Remote, lengths: Mapping[str, int] | None = None) -> None:
        self._root = root
        self.lengths = lengths or {}

    def files(
        self, wanted: Sequence[Parts], needed: Sequence[int]
    ) -> list[tuple[int | None, Source]]:
        """Return how long files are, and what opens each; several are asked for at a time.

        Raises:
            SourceError: the store does not answer.
        """
        pool = OpenFiles()
        places = [self._root.beside("/".join(parts)) for parts in wanted]
        with Pool(REQUESTS) as workers:
            lengths = list(workers.map(self._length, wanted, places))
        return [
            (
                length,
                pool.file(
                    place.name,
                    None,
                    least if length is None else length,
                    functools.partial(source_of, place, mapped=False),
                ),
            )
            for place, length, least in zip(places, lengths, needed, strict=True)
        ]

    def _length(self, parts: Parts, place: Remote) -> int | None:
        known = self.lengths.get("/".join(parts))
        if known is not None:
            return known
        try:
            return source_of(place, mapped=False).size
        except SourceNotFoundError:
            return None  # who reads what is in it is told


class Nowhere:
    """What there is beside bytes that have no path; see `Beside`."""

    lengths: Mapping[str, int] = {}

    def files(
        self, wanted: Sequence[Parts], needed: Sequence[int]
    ) -> list[tuple[int | None, Source]]:
        """Return files of the lengths they have to have, none of which can be opened."""
        pool = OpenFiles()
        return [
            (least, pool.file(name, None, least, functools.partial(_refuse, name)))
            for name, least in zip(map("/".join, wanted), needed, strict=True)
        ]


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        "its tensors lie in other files, which only a path leads to: open the folder",
        reason=Reason.SHARD_FILE,
        found=f"the file {describe(name, 200)}",
    )


def _files_in(folder: str) -> dict[str, int]:
    """Return the names and lengths of the files in a folder; empty where it cannot be listed."""
    found: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
    except OSError:
        pass
    return found
