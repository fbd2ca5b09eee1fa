"""Save a dict as one file, or as shards with an index, atomically for readers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    SourceError,
    SourceNotFoundError,
    ZTensorError,
    describe,
)
from ztensor.io.contents import open_file
from ztensor.io.formats import FORMATS
from ztensor.io.reading.file import FileObjects
from ztensor.io.shards import naming
from ztensor.io.shards.finding import finder_of
from ztensor.io.shards.index import parse_index
from ztensor.io.source.beneath import names_in
from ztensor.io.source.paths import is_path
from ztensor.io.source.removal import OpenFolder, remove
from ztensor.io.source.rights import Rights, narrowest_of
from ztensor.io.source.sink import FileSink, Place
from ztensor.io.source.stores import source_of
from ztensor.io.tensor import no_mapping
from ztensor.io.writing.saving import save_all, save_as
from ztensor.limits import DEFAULT_LIMITS
from ztensor.options import parse_size, shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ztensor.accepted import Durable, Progress


class Earlier:
    """The index and shards of an earlier save of a model, on disk or in a store.

    `remove` deletes a shard only if its name is a shard's name of this model and it has the objects
    that the index names.

    Args:
        given: the path or store URL of the model's file, which the shards are named after.
        replaces_file: whether an existing file at `given` is part of the earlier save.

    Attributes:
        place: the place of the model's file.
        name: its name without the folder.
        index: the place of the index.
        index_data: the content of the index; None if there is none.
        shards: shard names to the names of their objects; empty if the index cannot be read. On
            disk also temporary shards of a killed save, with no objects.
        like: the narrowest access rights among the local files.

    Raises:
        SourceError: the index cannot be read.
    """

    def __init__(self, given: Any, *, replaces_file: bool = True) -> None:
        self.place = Place.of(given)
        self.name = os.path.basename(self.place.path)
        self.index = self.beside(self.name + naming.INDEX_SUFFIX)
        self.index_data = _data_of(self.index.remote or self.index.path)
        stem = os.path.splitext(self.name)[0]
        shards: dict[str, list[str]] = {}
        if self.place.remote is None:
            names = names_in(os.path.dirname(self.place.path) or os.curdir)
            for name in names:
                # With `.tmp`: a link of a shard that a killed process was about to rename.
                match = naming.WAITING.fullmatch(name.removesuffix(".tmp"))
                if match is not None and match["stem"] == stem:
                    shards[name] = []
        with contextlib.suppress(ZTensorError):
            for name, file in parse_index(self.index_data or b"")["weight_map"].items():
                match = naming.SHARD.fullmatch(file) or naming.WAITING.fullmatch(file)
                if match is not None and match["stem"] == stem:
                    shards.setdefault(file, []).append(name)
        self.shards = dict(sorted(shards.items()))
        whole = [self.place.path] if replaces_file else []
        self.like = narrowest_of([*(self.beside(file).path for file in self.shards), *whole])
        self._is_there = self.index_data is not None or any(map(os.path.lexists, whole))

    def beside(self, name: str) -> Place:
        """Return the place of a file in the same folder."""
        if self.place.remote is not None:
            return Place.of(self.place.remote.beside(name))
        return Place(os.path.join(os.path.dirname(self.place.path), name))

    def files(self) -> list[Place]:
        """Return the places of index and shards; they need not exist."""
        return [self.index, *map(self.beside, self.shards)]

    def place_of_whole(self, durable: Durable) -> tuple[Place, Durable]:
        """Return place and durability for a single file that replaces the earlier save."""
        is_flushed = durable == "auto" and self._is_there
        return self.place._replace(like=self.like), is_flushed or durable

    def remove(self) -> None:
        """Remove index and shards, after one file has replaced them.

        Raises:
            SourceError: a store refused; failures on disk are ignored.
        """
        if self.index_data is not None:
            _remove(self.index, _is_index)
        self.remove_shards(self.shards)

    def remove_shards(self, files: Iterable[str]) -> None:
        """Remove some of the shards, or files that no index names; see `remove`."""
        for file in files:
            _remove(self.beside(file), functools.partial(_has_objects, self.shards.get(file, ())))

    def sweep(self) -> None:
        """Remove temporaries of killed saves of such shards, under their last or other names."""
        if self.place.remote is None:
            stem = re.escape(os.path.splitext(self.name)[0])
            shards = rf"{stem}-\d{{5}}-of-\d{{5}}(\.[0-9a-f]{{8}})?\.[^.]+"
            folder = os.path.dirname(self.place.path) or os.curdir
            with contextlib.suppress(OSError), OpenFolder(folder) as inside:
                inside.sweep(shards)


def _data_of(index: Any) -> bytes | bytearray | None:
    """Return the content of an index (path, URL or file object); None if it does not exist.

    Raises:
        SourceError: the index cannot be read.
    """
    with (
        contextlib.suppress(SourceNotFoundError),
        contextlib.closing(source_of(index, mapped=False)) as source,
    ):
        return source.read(0, min(source.size, DEFAULT_LIMITS.index_bytes))
    return None


def _remove(place: Place, is_ours: Callable[[Any], bool]) -> None:
    with contextlib.nullcontext() if place.remote is not None else contextlib.suppress(OSError):
        remove(place.remote or place.path, is_ours)


def _is_index(given: Any) -> bool:
    with contextlib.suppress(ZTensorError):
        parse_index(_data_of(given) or b"")
        return True
    return False


def _has_objects(names: Iterable[str], given: Any) -> bool:
    """Return whether a file has these objects, or may be a damaged zTensor file."""
    try:
        with contextlib.closing(open_file(given, mmap=False)) as file:
            return all(map(file.manifest.objects.__contains__, names))
    except FormatError:
        return FileObjects.may_be_ours(given)
    except ZTensorError:
        return False


class ShardSet:
    """The shards of one save. Writing the index last makes the save atomic.

    If older shards exist, new ones get temporary names, and the index names these. Whenever the
    process ends, readers find the old index with its shards, or the new index with all of its own.
    Stores cannot rename, so the temporary names stay there. On disk the shards are then linked to
    their final names, and a second index names those.

    Args:
        given: the file that the shards are named after, such as `model.zt`; or a store URL.
        count: the number of shards.
        durable: as for `Writer`; "auto" flushes if an older save is replaced. Stores are durable.
        sources: access rights of the source files; the new index grants no more.
        replaces_file: whether a file at `given` belongs to the older save, and is removed last.

    Attributes:
        places: the place to write each shard to, with the access rights of the older save.
        durable: the durability to write them with.

    Raises:
        SourceError: the index of an older set cannot be read.
    """

    # For callers that write shards themselves.
    names = staticmethod(naming.shard_paths)
    planned = staticmethod(naming.plan_shards)
    match = staticmethod(naming.SHARD.fullmatch)
    is_index = staticmethod(naming.is_index)
    earlier = Earlier

    @staticmethod
    def is_meant(given: Any) -> bool:
        """Return whether an argument of `open` stands for several files."""
        return finder_of(given) is not None

    def __init__(
        self,
        given: Any,
        count: int,
        *,
        durable: Durable = "auto",
        sources: Iterable[Rights] = (),
        replaces_file: bool = True,
    ) -> None:
        self._earlier = earlier = Earlier(given, replaces_file=replaces_file)
        self._sources = tuple(sources)
        self._replaces_file = replaces_file
        self._made = contextlib.ExitStack()
        whole, self.durable = earlier.place_of_whole(durable)
        self._names = self._files = naming.shard_paths(earlier.name, count)
        if whole.remote is not None:
            is_taken = earlier.index_data is not None
        else:
            is_taken = any(os.path.lexists(earlier.beside(name).path) for name in self._names)
        if is_taken:
            suffix = f".{secrets.token_hex(4)}{os.path.splitext(self._names[0])[1]}"
            self._files = [os.path.splitext(name)[0] + suffix for name in self._names]
        self._index = earlier.index._replace(is_derived=True, like=earlier.like)
        undo = self._made.callback
        self.places = [
            earlier.beside(file)._replace(is_derived=True, like=earlier.like, undo=undo)
            for file in self._files
        ]

    def commit(
        self,
        shards: Iterable[Iterable[str]],
        total_size: int,
        digests: Sequence[str] | None = None,
    ) -> list[str]:
        """Write the index, remove the older save, and return the paths of the shards.

        Args:
            shards: the object names of each shard.
            total_size: bytes of all tensors.
            digests: the digest of each shard's file; None writes none.

        Raises:
            SourceError: the index could not be written: the new shards are removed, the older save
                is intact. Or the new set is in place, but the older one could not be removed.
        """
        homes = sorted((name, number) for number, names in enumerate(shards) for name in names)

        def index_of(files: Sequence[str]) -> bytes:
            metadata: dict[str, Any] = {"total_size": total_size}
            if digests:
                metadata["digests"] = dict(zip(files, digests, strict=True))
            weight_map = {name: files[number] for name, number in homes}
            text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2)
            return f"{text}\n".encode("ascii")

        earlier, live = self._earlier, self._files
        try:
            self._write_index(index_of(live))
        except BaseException:
            # If only the flush failed, the index may be in place, and its shards must stay.
            if not self._has_index(index_of(live)):
                self.abort()
            raise
        kept = {*live}
        if earlier.place.remote is None and live is not self._names:
            # Without hard links the temporary names stay; the set is complete either way.
            with contextlib.suppress(OSError):
                for place, name in zip(self.places, self._names, strict=True):
                    _link_over(place.path, earlier.beside(name).path)
                self._write_index(index_of(self._names))
                kept = set()
            if self._has_index(index_of(self._names)):
                live = self._names
            kept |= {*live}
        old = dict.fromkeys([*self._files, *earlier.shards])
        try:
            earlier.remove_shards(file for file in old if file not in kept)
            if self._replaces_file:
                remove(earlier.place.remote or earlier.place.path)
        except SourceError as error:
            error.hint = "the new set is in place; remove this file of the old set yourself"
            raise
        earlier.sweep()
        return [earlier.beside(file).path for file in live]

    def abort(self) -> None:
        """Remove the shards written so far. The older save is intact."""
        self._made.close()

    def _write_index(self, data: bytes) -> None:
        sink = self._index.sink(self.durable)
        try:
            if isinstance(sink, FileSink):
                for rights in self._sources:
                    sink.narrow(rights)
                if self.durable is True:  # the shards' names must be on disk before the index
                    sink.flush_folder("the names of the shards could not be flushed")
            sink.commit(data)
        finally:
            sink.abort()

    def _has_index(self, data: bytes) -> bool:
        """Return whether the index has this content; True if it cannot be read."""
        try:
            return _data_of(self._index.remote or self._index.path) == data
        except ZTensorError:
            return True


def _link_over(path: str, name: str) -> None:
    """Link a file to a second name, replacing a file of that name."""
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
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # as in `save_file`
    *,
    max_shard_size: int | str | None = None,
    durable: Durable = "auto",
    format: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, str]:
    """Save a dict as one file if it fits, else as shards with an index.

    Arrays over the same memory go to one shard. If a shard fails, the folder stays as it was. An
    earlier save (index and shards, or a file) is removed once the new one is in place.

    Args:
        tensors: as for `ztensor.io.writing.saving.save_all`.
        target: the file, such as `model.zt`; without `max_shard_size` also a file object.
        metadata: key-value pairs, the same in every shard.
        compression: as for `ztensor.numpy.save_file`.
        max_shard_size: the most bytes of a shard before compression. None writes one file, and
            removes nothing of an earlier save.
        durable: see `SaveOptions`.
        format: see `SaveOptions`.
        progress: see `SaveOptions`.
        options: of `save_all`.

    Returns:
        Names that share their bytes with another name, to that name.

    Raises:
        ArgumentValueError: `max_shard_size` is invalid.
        ArgumentTypeError: `target` is no path, and shards need one.
        ZTensorError: as `save_all`.
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
    if max_shard_size is None:
        if place is not None and place.remote is not None:
            length = sum(int(getattr(value, "nbytes", 0)) for value in tensors.values())
            place = place._replace(expected=length + length // 16)
        return save(tensors, place or target, progress=progress, durable=durable)
    if place is None:
        raise ArgumentTypeError(
            "shards need a path to be named after; drop max_shard_size to write one file",
            found=describe(target, 40),
        )
    limit = parse_size(max_shard_size)
    place.dry()  # raises if no file can be written there
    sizes = {name: int(getattr(tensors[name], "nbytes", 0)) for name in sorted(tensors, key=str)}
    objects = ((name, size, _memory(tensors, name)) for name, size in sizes.items())
    groups = [names for names, _ in naming.plan_shards(objects, limit)]
    if len(groups) == 1:
        earlier = Earlier(target)
        whole, durable = earlier.place_of_whole(durable)
        shared = save(tensors, whole, progress=progress, durable=durable)
        earlier.remove()
        return shared
    shards = ShardSet(target, len(groups), durable=durable)
    shared, done, total = {}, 0, sum(sizes.values())
    try:
        for names, place in zip(groups, shards.places, strict=True):
            part = {name: tensors[name] for name in names}
            report = shifted(progress, done, total)
            shared |= save(part, place, progress=report, durable=shards.durable)
            done += sum(sizes[name] for name in names)
    except BaseException:
        shards.abort()
        raise
    shards.commit(groups, total)
    return shared


def _memory(tensors: Mapping[str, Any], name: str) -> object:
    """Return a key that is equal for arrays over the same memory; None if it is unknown."""
    value = tensors[name]
    # Other mappings may create arrays on access: addresses of freed arrays mean nothing.
    if not isinstance(tensors, dict) or not isinstance(value, np.ndarray) or not value.size:
        return None
    return value.__array_interface__["data"][0], value.dtype, value.shape, value.strides
