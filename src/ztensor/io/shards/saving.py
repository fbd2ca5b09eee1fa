"""A dict as one file, or as shards and an index, put in place so that readers find a whole set."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentTypeError, SourceError, ZTensorError, describe
from ztensor.io.formats import FORMATS
from ztensor.io.shards.earlier import Earlier, data_of
from ztensor.io.shards.naming import SHARD, is_index, is_set, plan_shards, shard_paths
from ztensor.io.source.paths import is_path
from ztensor.io.source.removal import remove
from ztensor.io.source.rights import Rights
from ztensor.io.source.sink import FileSink, Place
from ztensor.io.source.targets import Nowhere
from ztensor.io.tensor import no_mapping
from ztensor.io.writing.saving import save_all, save_as
from ztensor.options import parse_size, shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ztensor.accepted import Durable, Progress


class ShardSet:
    """The shards of one save, put in place together: first the shards, then the index.

    Where older shards are, the new ones are written under other names, and the index names those:
    whatever ends the process, readers find the old index with its shards, or a new one with all of
    its own. A store has no renames, so the names stay. On disk the shards then get the names
    everyone expects, and an index that names these.

    Args:
        given: the file they are the shards of, such as `model.zt`; also a URL of a store.
        count: how many.
        durable: as for `Writer`; "auto" flushes where an older save is replaced. What a store has
            taken is durable.
        sources: the rights of the files whose objects these are; a new index grants no more.
        replaces_file: whether a file at `given` is older than the shards, and goes at the end.

    Attributes:
        places: how each shard is to be written: with the rights of those it replaces.
        durable: what to write them with.

    Raises:
        SourceError: the index of an older set cannot be read.
    """

    # What programs ask that write shards themselves.
    names = staticmethod(shard_paths)
    planned = staticmethod(plan_shards)
    match = staticmethod(SHARD.fullmatch)
    is_index = staticmethod(is_index)
    is_meant = staticmethod(is_set)
    earlier = Earlier

    def __init__(
        self,
        given: Any,
        count: int,
        *,
        durable: Durable = "auto",
        sources: Iterable[Rights] = (),
        replaces_file: bool = True,
    ) -> None:
        self._earlier = earlier = Earlier(given)
        self._sources = tuple(sources)
        self._replaces_file = replaces_file
        self._made = contextlib.ExitStack()
        self._like: Rights | None = None
        files = self._names = shard_paths(earlier.name, count)
        is_taken = earlier.index_data is not None
        if earlier.place.remote is None:
            whole = [earlier.place.path] if replaces_file else []
            self._like = earlier.narrowest(whole)
            if durable == "auto" and (is_taken or any(map(os.path.lexists, whole))):
                durable = True
            is_taken = any(os.path.lexists(earlier.beside(name).path) for name in self._names)
        if is_taken:
            extension = os.path.splitext(self._names[0])[1]
            suffix = f".{secrets.token_hex(4)}{extension}"
            files = [name.removesuffix(extension) + suffix for name in files]
        self._files = files
        self.durable: Durable = durable
        self.places = [
            self._of_set(earlier.beside(file))._replace(undo=self._made.callback) for file in files
        ]

    def _of_set(self, place: Place) -> Place:
        return place._replace(is_derived=True, like=self._like)

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
            SourceError: the index could not be written; the shards are gone, and what was there
                before still is. Or the set is in place, and what it replaces could not be removed.
        """
        homes = sorted((name, number) for number, names in enumerate(shards) for name in names)

        def index_for(files: Sequence[str]) -> bytes:
            metadata: dict[str, Any] = {"total_size": total_size}
            if digests:
                metadata["digests"] = dict(zip(files, digests, strict=True))
            weight_map = {name: files[number] for name, number in homes}
            text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2)
            return f"{text}\n".encode("ascii")

        try:
            self._write_index(index_for(self._files))
        except BaseException:
            # Where it may be in place, and only its flush failed, the shards stay: it names them.
            if not self._has_index(index_for(self._files)):
                self.abort()
            raise
        live, kept = self._files, {*self._files}
        if self._earlier.place.remote is None and self._files is not self._names:
            # A file system without hard links keeps the other names: the set is whole either way.
            with contextlib.suppress(OSError):
                for place, name in zip(self.places, self._names, strict=True):
                    _link_over(place.path, self._earlier.beside(name).path)
                self._write_index(index_for(self._names))
                kept = set()
            if self._has_index(index_for(self._names)):
                live = self._names
            kept.update(live)
        old = dict.fromkeys([*self._files, *self._earlier.shards])
        try:
            self._earlier.remove_shards(file for file in old if file not in kept)
            if self._replaces_file:
                remove(self._earlier.place.remote or self._earlier.place.path)
        except SourceError as error:
            error.hint = "the new set is in place; this one of the old stays, and can be removed"
            raise
        return [self._earlier.beside(file).path for file in live]

    def abort(self) -> None:
        """Remove the shards that were written; what was there before is untouched."""
        self._made.close()

    def _write_index(self, data: bytes) -> None:
        sink = self._of_set(self._earlier.index).sink(self.durable)
        try:
            if isinstance(sink, FileSink):
                for rights in self._sources:
                    sink.narrow(rights)
            sink.write(data)
            if isinstance(sink, FileSink) and self.durable is True:
                # No index before the names it trusts.
                sink.flush_folder("the names of the shards could not be flushed")
            sink.commit()
        finally:
            sink.abort()

    def _has_index(self, data: bytes) -> bool:
        """Return whether an index is in place; True where that cannot be told."""
        try:
            index = self._earlier.index
            return data_of(index.remote or index.path) == data
        except ZTensorError:
            return True


def _link_over(path: str, name: str) -> None:
    """Give a file a second name that may be taken."""
    temporary = f"{path}.tmp"
    os.link(path, temporary)
    try:
        os.replace(temporary, name)
    except BaseException:
        remove(temporary, os.lstat(path))
        raise


def save_files(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # as `save_file` has it
    *,
    max_shard_size: int | str | None = None,
    durable: Durable = "auto",
    format: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, str]:
    """Save a dict as one file where it fits, and as shards with an index where it does not.

    Arrays over the same memory come into one shard. A shard that fails takes all with it: the
    folder then has what it had. What an earlier save left (an index and its shards, or the file)
    goes when the new one is in place.

    Args:
        tensors: as for `ztensor.io.writing.saving.save_all`.
        target: the file, `model.zt`; without `max_shard_size` also a file object.
        metadata: key-value pairs, the same in every shard.
        compression: as for `ztensor.numpy.save_file`.
        max_shard_size: counts bytes before compression. None removes nothing of an earlier save.
        durable: as in `SaveOptions`, like the next two.
        format: likewise.
        progress: likewise.
        options: of `save_all`.

    Returns:
        Names that were stored without bytes of their own, and whose bytes they have.

    Raises:
        ArgumentValueError: the size is no size.
        ArgumentTypeError: there is no path to name shards after.
        ZTensorError: what `save_all` raises.
        SourceError: the index could not be written.
    """
    place = Place.of(target) if is_path(target) else None
    kind = FORMATS.written_as("" if place is None else place.path, format)
    write: Callable[..., dict[str, str]] = save_all
    if kind != "zt":
        write = functools.partial(save_as, kind)
    save = functools.partial(write, metadata=metadata, compression=compression, **options)
    if not hasattr(tensors, "items"):
        raise no_mapping(tensors, "arrays")
    if max_shard_size is not None:
        if place is None:
            raise ArgumentTypeError(
                "shards need a path to be named after; drop max_shard_size to write one file",
                found=describe(target, 40),
            )
        limit = parse_size(max_shard_size)
        return _save_within(save, tensors, target, limit, progress, durable)
    if place is not None and place.remote is not None:
        length = sum(int(getattr(value, "nbytes", 0)) for value in tensors.values())
        place = place._replace(expected=length + length // 16)
    return save(tensors, place or target, progress=progress, durable=durable)


def _save_within(
    save: Callable[..., dict[str, str]],
    tensors: Mapping[str, Any],
    target: Any,
    limit: int,
    progress: Progress | None,
    durable: Durable,
) -> dict[str, str]:
    """Save a dict as one file, or as several of at most `limit` bytes and an index."""
    Nowhere(target)  # raises where no file can be
    sizes = {name: int(getattr(tensors[name], "nbytes", 0)) for name in sorted(tensors, key=str)}
    groups = plan_shards(
        ((name, size, _memory(tensors, name)) for name, size in sizes.items()), limit
    )
    if len(groups) == 1:
        earlier = Earlier(target)
        whole, durable = earlier.place_of_whole(durable)
        shared = save(tensors, whole, progress=progress, durable=durable)
        earlier.remove()
        return shared
    shards = ShardSet(target, len(groups), durable=durable)
    shared, done, total = {}, 0, sum(sizes.values())
    try:
        for (names, _), place in zip(groups, shards.places, strict=True):
            part = {name: tensors[name] for name in names}
            report = shifted(progress, done, total)
            shared |= save(part, place, progress=report, durable=shards.durable)
            done += sum(sizes[name] for name in names)
    except BaseException:
        shards.abort()
        raise
    shards.commit([names for names, _ in groups], total)
    return shared


def _memory(tensors: Mapping[str, Any], name: str) -> object:
    """Return what is equal for arrays over the same memory; None where that cannot be told."""
    value = tensors[name]
    # Another mapping may make its arrays when asked: the address of one that is gone says nothing.
    if not isinstance(tensors, dict):
        return None
    if isinstance(value, np.ndarray) and value.size:
        return value.__array_interface__["data"][0], value.dtype, value.shape, value.strides
    return None
