"""Shards and their index in a store: uploaded first, then named by the index, which goes last."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

from ztensor.errors import SourceError, SourceNotFoundError, ZTensorError
from ztensor.io.shards.index import index_bytes
from ztensor.io.shards.naming import INDEX_SUFFIX, shard_paths
from ztensor.io.shards.owning import remove_index, remove_shard, shards_named
from ztensor.io.source.base import read_bytes
from ztensor.io.source.removal import Made, remove_object
from ztensor.io.source.sink import Place
from ztensor.io.source.stores import store_of
from ztensor.io.source.table import source_of
from ztensor.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ztensor.accepted import Durable
    from ztensor.io.source.urls import Remote


class RemoteShardSet:
    """The shards of one save in a store; `ShardSet` is the same for a folder.

    A store has no renames, so a shard never takes the place of one that an index names: where
    there is an index, the new shards have other names. Readers find the old set or the new one.

    Args:
        remote: the file they are the shards of, such as `s3://bucket/model.zt`.
        count: how many.
        durable: as for `ShardSet`; what a store has taken is durable.
        replaces_file: whether an object at `remote` is older than the shards, and goes at the end.
        is_new: nothing is replaced.

    Attributes:
        paths: the URL of each shard.
        durable: as given.

    Raises:
        SourceError: the index of an older set cannot be read.
    """

    def __init__(
        self,
        remote: Remote,
        count: int,
        *,
        durable: Durable = "auto",
        replaces_file: bool = True,
        is_new: bool = False,
    ) -> None:
        self._remote = remote
        self._replaces_file = replaces_file
        self._is_new = is_new
        self.durable: Durable = durable
        index = _index_of(remote)
        self._old = {} if index is None else _shards_of(remote, index)
        self._made = Made()
        self.paths = shard_paths(remote.url, count)
        if index is not None:
            extension = os.path.splitext(self.paths[0])[1]
            suffix = f".{secrets.token_hex(4)}{extension}"
            self.paths = [path.removesuffix(extension) + suffix for path in self.paths]

    def place(self, path: str) -> Place:
        """Return how a shard is to be written."""
        return Place(path, is_derived=True, remote=self._beside(path), made=self._made)

    def commit(
        self,
        shards: Iterable[Iterable[str]],
        total_size: int,
        digests: Sequence[str] | None = None,
    ) -> list[str]:
        """Write the index, which makes the set what a reader finds; return where the shards are.

        Args:
            shards: the names in each shard.
            total_size: bytes of all tensors.
            digests: of each shard's file, where they are wanted.

        Raises:
            SourceError: the index could not be written, and the shards are gone; or the set is in
                place, and what it replaces could not be removed.
        """
        files = [path.rpartition("/")[2] for path in self.paths]
        weight_map = {
            name: files[number] for number, names in enumerate(shards) for name in sorted(names)
        }
        data = index_bytes(weight_map, files, total_size, digests or None)
        try:
            index = index_beside(self._remote)
            sink = store_of(index.url).sink(index, is_new=self._is_new)
            sink.write(data)
            sink.commit()
        except BaseException:
            # Where nobody knows whether it is in place the shards stay: it may name them.
            with contextlib.suppress(ZTensorError):
                if _index_of(self._remote) != data:
                    self.abort()
            raise
        try:
            for file, names in self._old.items():
                if file not in files:
                    remove_shard(self._remote.beside(file), names)
            if self._replaces_file:
                remove_object(self._remote, None)
        except SourceError as error:
            error.hint = "the new set is in place; this one of the old stays, and can be removed"
            raise
        return list(self.paths)

    def abort(self) -> None:
        """Remove the shards that were written; what was there before is untouched."""
        self._made.take_back()

    def _beside(self, path: str) -> Remote:
        return self._remote.beside(path.rpartition("/")[2])


def index_beside(remote: Remote) -> Remote:
    """Return where the index of an object's shards is."""
    return remote.beside(remote.url.rpartition("/")[2] + INDEX_SUFFIX)


def shards_in_store(remote: Remote) -> list[Remote]:
    """Return the index and the shards of an earlier save of an object, as the index names them."""
    index = _index_of(remote)
    if index is None:
        return []
    return [index_beside(remote), *map(remote.beside, _shards_of(remote, index))]


def remove_shards_in_store(remote: Remote) -> None:
    """Remove the index, and then the shards, of an earlier save of what now is one object.

    Raises:
        SourceError: one could not be removed.
    """
    index = _index_of(remote)
    if index is not None:
        remove_index(index_beside(remote))
        for file, names in _shards_of(remote, index).items():
            remove_shard(remote.beside(file), names)


def _index_of(remote: Remote) -> bytes | bytearray | None:
    """Return the index of an object's shards, None where there is none."""
    try:
        source = source_of(index_beside(remote), mapped=False)
    except SourceNotFoundError:
        return None
    with contextlib.closing(source):
        size = min(source.size, DEFAULT_LIMITS.index_bytes)
        return read_bytes(source, 0, size)


def _shards_of(remote: Remote, index: bytes | bytearray) -> dict[str, list[str]]:
    """Return the shards an index names that are called as those of an object are."""
    return shards_named(index, os.path.splitext(remote.url.rpartition("/")[2])[0])
