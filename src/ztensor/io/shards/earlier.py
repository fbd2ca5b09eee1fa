"""What an earlier save of a model left, on disk or in a store: an index, and the shards it names.

A file goes only where it is what its index says of it: of its shards, those that are called as
shards of this model are, and have the objects that the index says they have.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import FormatError, SourceNotFoundError, ZTensorError
from ztensor.io.contents import open_file
from ztensor.io.reading.file import FileObjects
from ztensor.io.shards.index import parse_index
from ztensor.io.shards.naming import INDEX_SUFFIX, SHARD, WAITING
from ztensor.io.source.beneath import names_in
from ztensor.io.source.removal import remove
from ztensor.io.source.rights import Rights, narrowest_of
from ztensor.io.source.sink import Place
from ztensor.io.source.table import source_of
from ztensor.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ztensor.accepted import Durable


class Earlier:
    """What an earlier save of a model left.

    Args:
        given: the file that the model is saved as, or that its shards are named after: a path, or a
            URL of a store.

    Attributes:
        place: where the file is.
        name: its name without its folder.
        index: where the index of its shards is, if there is one.
        index_data: what is there; None for no index.
        shards: the names of its shards, and the objects in each; an index that cannot be read names
            none. On disk also of those that a killed save left under the names that shards wait
            with, in which no index names objects.

    Raises:
        SourceError: the index cannot be read.
    """

    def __init__(self, given: Any) -> None:
        self.place = Place.of(given)
        self.name = os.path.basename(self.place.path)
        self.index = self.beside(self.name + INDEX_SUFFIX)
        self.index_data = data_of(self.index.remote or self.index.path)
        self.shards = dict(sorted(self._shards().items()))

    def beside(self, name: str) -> Place:
        """Return the file of that name in the same folder."""
        if self.place.remote is not None:
            return Place.of(self.place.remote.beside(name))
        return Place(os.path.join(os.path.dirname(self.place.path), name))

    def _shards(self) -> dict[str, list[str]]:
        stem = os.path.splitext(self.name)[0]
        shards: dict[str, list[str]] = {}
        if self.place.remote is None:
            names = names_in(os.path.dirname(self.place.path) or os.curdir)
            waiting = filter(None, map(WAITING.fullmatch, names))
            shards.update((match[0], []) for match in waiting if match["stem"] == stem)
        with contextlib.suppress(ZTensorError):
            for name, file in parse_index(self.index_data or b"")["weight_map"].items():
                match = SHARD.fullmatch(file) or WAITING.fullmatch(file)
                if match is not None and match["stem"] == stem:
                    shards.setdefault(file, []).append(name)
        return shards

    def files(self) -> list[Place]:
        """Return the index and the shards, whether they exist or not."""
        return [self.index, *map(self.beside, self.shards)]

    def place_of_whole(self, durable: Durable) -> tuple[Place, Durable]:
        """Return how a file is to be written that may take the place of shards, which go next."""
        if self.place.remote is None and durable == "auto" and self.index_data is not None:
            durable = True
        return self.place._replace(like=self.narrowest()), durable

    def narrowest(self, more: Iterable[str] = ()) -> Rights | None:
        """Return the rights of the shard on disk, or of some more files, that grants the fewest."""
        return narrowest_of([*(self.beside(file).path for file in self.shards), *more])

    def remove(self) -> None:
        """Remove the index and the shards; the model now is one file.

        Raises:
            SourceError: one could not be removed from a store; on disk it stays.
        """
        if self.index_data is not None:
            _remove(self.index, _is_index)
        self.remove_shards(self.shards)

    def remove_shards(self, files: Iterable[str]) -> None:
        """Remove some of the shards, or other files that no index names; as `remove`."""
        for file in files:
            _remove(self.beside(file), functools.partial(_has_objects, self.shards.get(file, ())))


def data_of(index: Any) -> bytes | bytearray | None:
    """Return an index, which is a path, a URL or a file object; None where there is none.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        source = source_of(index, mapped=False)
    except SourceNotFoundError:
        return None
    with contextlib.closing(source):
        return source.read(0, min(source.size, DEFAULT_LIMITS.index_bytes))


def _remove(place: Place, is_ours: Callable[[Any], bool]) -> None:
    with contextlib.nullcontext() if place.remote is not None else contextlib.suppress(OSError):
        remove(place.remote or place.path, is_ours)


def _is_index(given: Any) -> bool:
    with contextlib.suppress(ZTensorError):
        parse_index(data_of(given) or b"")
        return True
    return False


def _has_objects(names: Collection[str], given: Any) -> bool:
    """Return whether a file has objects, or may be one of ours that is damaged."""
    try:
        with contextlib.closing(open_file(given, mmap=False)) as file:
            objects = file.manifest.objects
            return all(name in objects for name in names)
    except FormatError:
        return FileObjects.may_be_ours(given)
    except ZTensorError:
        return False
