"""A dict as shards and an index, put in place so that the folder always holds a whole set."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentTypeError, SourceError, ZTensorError, describe
from ztensor.io.formats import written_as
from ztensor.io.shards.in_store import RemoteShardSet, remove_shards_in_store
from ztensor.io.shards.index import index_bytes, read_data, state_of
from ztensor.io.shards.naming import (
    WAITING,
    index_path,
    parse_size,
    plan_shards,
    shard_paths,
    shifted,
)
from ztensor.io.shards.owning import remove_index, remove_shard, shards_named
from ztensor.io.source.base import Range
from ztensor.io.source.beneath import names_in
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import is_path, path_text
from ztensor.io.source.removal import Made, remove_file, stamp_of
from ztensor.io.source.rights import Rights, narrowest_of
from ztensor.io.source.sink import FileSink, Place
from ztensor.io.source.stores import remote_of
from ztensor.io.source.targets import Nowhere
from ztensor.io.writing.saving import save_all
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.digest import ALGORITHMS, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ztensor.accepted import Durable
    from ztensor.io.shards.naming import Progress


class ShardSet:
    """The shards of one save, put in place together: first they, then the index.

    Where older shards have their names, the new ones are written under others, the index names
    these, and only then they get the names everyone expects, and an index that says so. So
    whatever ends the process, the folder has the old index with its shards, or a new one with all
    of its.

    Args:
        path: the file they are the shards of, such as `model.zt`.
        count: how many.
        durable: as for `Writer`; "auto" flushes where an older save is replaced.
        sources: the rights of the files whose objects these are; a new index grants no more.
        replaces_file: whether a file at `path` is older than the shards, and goes at the end.

    Attributes:
        paths: where each shard is to be written.
        durable: what to write them with.
    """

    def __init__(
        self,
        path: str,
        count: int,
        *,
        durable: Durable = "auto",
        sources: Iterable[Rights] = (),
        replaces_file: bool = True,
    ) -> None:
        self._sources = tuple(sources)
        self._path = path
        self._index = index_path(path)
        self._replaces_file = replaces_file
        self._old = _old_shards(path)
        self._made = Made()
        replaced = [*self._old, *((path,) if replaces_file else ())]
        self._like = narrowest_of(replaced)
        self._names = shard_paths(path, count)
        self.paths = self._names
        if any(map(os.path.lexists, self._names)):
            extension = os.path.splitext(self._names[0])[1]
            suffix = f".{secrets.token_hex(4)}{extension}"
            self.paths = [name.removesuffix(extension) + suffix for name in self._names]
        replaces = os.path.lexists(self._index) or (replaces_file and os.path.lexists(path))
        self.durable: Durable = True if durable == "auto" and replaces else durable

    def place(self, path: str) -> Place:
        """Return how a shard is to be written: with the rights of those it replaces."""
        return Place(path, is_derived=True, like=self._like, made=self._made)

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
                before still is. Or the set is in place, and the file it replaces could not be
                removed.
        """
        numbers = {name: number for number, names in enumerate(shards) for name in names}

        def write(paths: Sequence[str]) -> None:
            files = [os.path.basename(path) for path in paths]
            weight_map = {name: files[number] for name, number in sorted(numbers.items())}
            data = index_bytes(weight_map, files, total_size, digests)
            sink = FileSink(self._index, durable=self.durable, is_derived=True, like=self._like)
            for rights in self._sources:
                sink.narrow(rights)
            try:
                sink.write(data)
                if self.durable is True:  # no index before the names it trusts
                    sink.flush_folder("the names of the shards could not be flushed")
                sink.commit()
            except BaseException:
                sink.abort()
                raise

        before = state_of(self._index)
        try:
            write(self.paths)
        except BaseException:
            if state_of(self._index) == before:  # else it is in place, and only its flush failed
                self.abort()
            raise
        live, keep = self.paths, {*self.paths}
        if self.paths is not self._names:
            before = state_of(self._index)
            # A file system without hard links keeps the other names: the set is whole either way.
            with contextlib.suppress(OSError):
                for path, name in zip(self.paths, self._names, strict=True):
                    _link_over(path, name)
                write(self._names)
                keep = set()
            if state_of(self._index) != before:
                live = self._names
            keep.update(live)
        old = {**_waiting(self._path), **self._old}
        _remove({path: names for path, names in old.items() if path not in keep})
        try:
            if self._replaces_file and os.path.lexists(self._path):
                remove_file(self._path, stamp_of(self._path))
        except OSError as error:
            raise SourceError.from_os(
                error, "the shards are in place, but the file they replace stays", self._path
            ) from error
        return list(live)

    def abort(self) -> None:
        """Remove the shards that were written; what was there before is untouched."""
        self._made.take_back()


def _link_over(path: str, name: str) -> None:
    """Give a file a second name that may be taken."""
    temporary = f"{path}.tmp"
    os.link(path, temporary)
    try:
        os.replace(temporary, name)
    except BaseException:
        remove_file(temporary, stamp_of(path))
        raise


def _old_shards(path: str) -> dict[str, list[str]]:
    """Return the shards of an earlier save, as its index names them, and the names in each."""
    folder, name = os.path.split(path)
    try:
        data = read_data(index_path(path), DEFAULT_LIMITS)
    except (ZTensorError, OSError):
        return {}  # none, or none that can be told
    shards = shards_named(data, os.path.splitext(name)[0])
    return {os.path.join(folder, file): names for file, names in shards.items()}


def _waiting(path: str) -> dict[str, list[str]]:
    """Return shards a killed save left under the names they wait with; no index names objects."""
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    matches = filter(None, map(WAITING.fullmatch, sorted(names_in(folder or os.curdir))))
    return {os.path.join(folder, one[0]): [] for one in matches if one["stem"] == stem}


def _remove(shards: Mapping[str, Collection[str]]) -> None:
    for path, names in shards.items():
        with contextlib.suppress(OSError):
            remove_shard(path, names)


def place_of_whole(given: Any, durable: Durable) -> tuple[Place, Durable]:
    """Return how a file is to be written that may take the place of shards, which go next."""
    path, remote = path_text(given), remote_of(given)
    if remote is not None:
        return Place(path, remote=remote), durable
    if durable == "auto" and os.path.lexists(index_path(path)):
        durable = True
    return Place(path, like=narrowest_of(_old_shards(path))), durable


def shards_there(path: str) -> list[str]:
    """Return the index and the shards of an earlier save of a file, whether they exist or not."""
    return [index_path(path), *_old_shards(path), *_waiting(path)]


def remove_shards(given: Any) -> None:
    """Remove the index and the shards of an earlier save of a file, which now is one file."""
    remote = remote_of(given)
    if remote is None:
        path = path_text(given)
        old = {**_waiting(path), **_old_shards(path)}
        with contextlib.suppress(OSError):
            remove_index(index_path(path))
        _remove(old)
    else:
        remove_shards_in_store(remote)


def sha256_of(path: str) -> str:
    """Return the digest of a whole file, as an index notes it."""
    with contextlib.closing(FileSource(path)) as source:
        return digest_of(ALGORITHMS["sha256"], Range(source, 0, source.size).pieces(8 << 20))


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
    kind = written_as(path_text(target) if is_path(target) else "", format)
    save: Callable[..., dict[str, str]] = functools.partial(
        _save_one,
        kind,
        metadata=metadata,
        compression=compression,
        **options,
    )
    if max_shard_size is None or not hasattr(tensors, "items"):
        if is_path(target) and hasattr(tensors, "items") and (remote := remote_of(target)):
            length = sum(int(getattr(value, "nbytes", 0)) for value in tensors.values())
            target = Place(remote.url, remote=remote, expected=length + length // 16)
        return save(tensors, target, progress=progress, durable=durable)
    limit = parse_size(max_shard_size)
    if not isinstance(target, (str, os.PathLike)):
        raise ArgumentTypeError(
            "shards need a path to be named after; drop max_shard_size to write one file",
            found=describe(target, 40),
        )
    Nowhere(target)  # raises where no file can be
    sizes = {name: int(getattr(tensors[name], "nbytes", 0)) for name in sorted(tensors, key=str)}
    groups = plan_shards(
        ((name, size, _memory(tensors, name)) for name, size in sizes.items()), limit
    )
    if len(groups) > 1:
        return _save_shards(
            save, tensors, target, [names for names, _ in groups], progress, durable
        )
    whole, durable = place_of_whole(target, durable)
    shared = save(tensors, whole, progress=progress, durable=durable)
    remove_shards(target)
    return shared


def _save_one(
    kind: str,
    tensors: Mapping[str, Any],
    place: Any,
    *,
    metadata: Mapping[str, object] | None,
    progress: Progress | None,
    deduplicate: str | bool = "memory",
    **options: Any,
) -> dict[str, str]:
    """Save a dict as one file of a format."""
    if kind == "zt":
        return save_all(tensors, place, metadata, progress, deduplicate, **options)
    from ztensor.io.writing.exporting import save_as

    save_as(kind, tensors, place, metadata, progress, **options)
    return {}


def _save_shards(
    save: Callable[..., dict[str, str]],
    tensors: Mapping[str, Any],
    target: Any,
    groups: Sequence[Sequence[str]],
    progress: Progress | None,
    durable: Durable,
) -> dict[str, str]:
    """Save a dict as several files and an index; see `save_files`."""
    remote = remote_of(target)
    shards: ShardSet | RemoteShardSet
    if remote is None:
        shards = ShardSet(path_text(target), len(groups), durable=durable)
    else:
        shards = RemoteShardSet(remote, len(groups), durable=durable)
    sizes = [sum(int(getattr(tensors[name], "nbytes", 0)) for name in names) for names in groups]
    shared: dict[str, str] = {}
    try:
        for number, (names, place) in enumerate(zip(groups, shards.paths, strict=True)):
            part = {name: tensors[name] for name in names}
            report = shifted(progress, sum(sizes[:number]), sum(sizes))
            shared |= save(part, shards.place(place), progress=report, durable=shards.durable)
    except BaseException:
        shards.abort()
        raise
    shards.commit(groups, sum(sizes))
    return shared


def _memory(tensors: Mapping[str, Any], name: str) -> object:
    """Return what is equal for arrays over the same memory; None where that cannot be told."""
    value = tensors[name]
    # Another mapping may make its arrays when asked: the address of one that is gone says nothing.
    if not isinstance(tensors, dict):
        return None
    if isinstance(value, np.ndarray):
        if value.size:
            return value.__array_interface__["data"][0], value.dtype, value.shape, value.strides
    elif callable(getattr(value, "data_ptr", None)) and value.nbytes:
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
    return None
