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
from ztensor.io.contents import may_be_of_ours, open_file
from ztensor.io.shards.index import parse_index
from ztensor.io.shards.naming import INDEX_SUFFIX, SHARD, WAITING
from ztensor.io.source.base import read_bytes
from ztensor.io.source.beneath import names_in
from ztensor.io.source.paths import path_text
from ztensor.io.source.removal import remove
from ztensor.io.source.rights import narrowest_of
from ztensor.io.source.sink import Place
from ztensor.io.source.stores import remote_of
from ztensor.io.source.table import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ztensor.accepted import Durable

    Target = str | Remote


def target_of(given: Any) -> Target:
    """Return where a caller saves a model: a path, or a URL with what opens its store."""
    return remote_of(given) or path_text(given)


def base_of(target: Target) -> str:
    """Return the file's name without its folder."""
    if isinstance(target, Remote):
        return target.url.rpartition("/")[2]
    return os.path.basename(target)


def beside(target: Target, name: str) -> Target:
    """Return the file of that name in the same folder."""
    if isinstance(target, Remote):
        return target.beside(name)
    return os.path.join(os.path.dirname(target), name)


def index_of(target: Target) -> Target:
    """Return where the index of a model's shards is."""
    return beside(target, base_of(target) + INDEX_SUFFIX)


def index_data(target: Target) -> bytes | bytearray | None:
    """Return the index of a model's shards, None where there is none.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        source = source_of(index_of(target), mapped=False)
    except SourceNotFoundError:
        return None
    with contextlib.closing(source):
        return read_bytes(source, 0, min(source.size, DEFAULT_LIMITS.index_bytes))


def shards_in(target: Target, index: bytes | bytearray | None) -> dict[str, list[str]]:
    """Return the shards of an earlier save, and the objects in each.

    Args:
        target: the model.
        index: its index; one that cannot be read names no shards.

    Returns:
        The names of files; on disk also of those that a killed save left under the names that
        shards wait with, in which no index names objects.
    """
    stem = os.path.splitext(base_of(target))[0]
    shards: dict[str, list[str]] = {}

    def is_shard(file: str) -> bool:
        match = SHARD.fullmatch(file) or WAITING.fullmatch(file)
        return match is not None and match["stem"] == stem

    if isinstance(target, str):
        names = names_in(os.path.dirname(target) or os.curdir)
        shards.update((name, []) for name in filter(WAITING.fullmatch, names) if is_shard(name))
    with contextlib.suppress(ZTensorError):
        for name, file in parse_index(index or b"")["weight_map"].items():
            if is_shard(file):
                shards.setdefault(file, []).append(name)
    return dict(sorted(shards.items()))


def earlier_files(given: Any) -> list[Target]:
    """Return the index and the shards of an earlier save, whether they exist or not."""
    target = target_of(given)
    shards = shards_in(target, index_data(target))
    return [index_of(target), *(beside(target, file) for file in shards)]


def place_of_whole(given: Any, durable: Durable) -> tuple[Place, Durable]:
    """Return how a file is to be written that may take the place of shards, which go next."""
    target = target_of(given)
    if isinstance(target, Remote):
        return Place(target.url, remote=target), durable
    index = index_data(target)
    shards = (os.fspath(beside(target, file)) for file in shards_in(target, index))
    if durable == "auto" and index is not None:
        durable = True
    return Place(target, like=narrowest_of(shards)), durable


def remove_set(given: Any) -> None:
    """Remove the index and the shards of an earlier save of a model, which now is one file.

    Raises:
        SourceError: one could not be removed from a store; on disk it stays.
    """
    target = target_of(given)
    index = index_data(target)
    shards = shards_in(target, index)
    if index is not None:
        _remove(index_of(target), _is_index)
    remove_shards(target, shards)


def remove_shards(target: Target, shards: Mapping[str, Collection[str]]) -> None:
    """Remove shards of an earlier save; as `remove_set`."""
    for file, names in shards.items():
        _remove(beside(target, file), functools.partial(_has_objects, names))


def _remove(place: Target, is_ours: Callable[[Any], bool]) -> None:
    with contextlib.nullcontext() if isinstance(place, Remote) else contextlib.suppress(OSError):
        remove(place, is_ours)


def _is_index(given: Any) -> bool:
    with (
        contextlib.suppress(ZTensorError),
        contextlib.closing(source_of(given, mapped=False)) as source,
    ):
        parse_index(read_bytes(source, 0, min(source.size, DEFAULT_LIMITS.index_bytes)))
        return True
    return False


def _has_objects(names: Collection[str], given: Any) -> bool:
    """Return whether a file has objects, or may be one of ours that is damaged."""
    try:
        with contextlib.closing(open_file(given, mmap=False)) as file:
            objects = file.manifest.objects
            return all(name in objects for name in names)
    except FormatError:
        return may_be_of_ours(given)
    except ZTensorError:
        return False
