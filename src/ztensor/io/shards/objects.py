"""The objects of a set of files: each request goes to the file of the object."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ztensor.arguments import require_choice
from ztensor.errors import (
    ClosedError,
    FormatError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    SourceNotFoundError,
    ZTensorError,
    describe,
    without_secrets,
)
from ztensor.io.attributes import AttributeKind, kinds_of
from ztensor.io.contents import open_file
from ztensor.io.formats import FORMATS
from ztensor.io.losses import Unrepresented
from ztensor.io.reading.file import FileObjects
from ztensor.io.shards.finding import finder_of
from ztensor.io.shards.index import FileSet, broken_index, some_of
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.paths import path_text
from ztensor.io.source.stores import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import caps_of
from ztensor.locks import Lock
from ztensor.options import FileOptions
from ztensor.showing import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Unpack

    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.rights import Rights


# GGUF keys that only describe the position of a file in its set.
_OF_ONE_SHARD = frozenset({"split.no", "split.count", "split.tensors.count", "GGUF.types"})
_WRITTEN_BY_SAVE = frozenset({"total_size", "total_parameters", "digests"})


def open_set(source: Any, **options: Unpack[FileOptions]) -> ShardedObjects:
    """Return the objects of a set of files; see `finder_of`.

    Raises:
        FormatError: the index is damaged, or leads out of its folder.
        LimitError: the index is longer or deeper than the caps allow.
        SourceError: the index cannot be read, a shard is missing, or the folder has no model.
        ArgumentTypeError: `source` cannot be opened.
        ArgumentValueError: a list is empty, or a folder has several models; the message names them.
    """
    find = finder_of(source, caps_of(options.get("limits")), is_missing=True)
    if find is None:
        raise SourceNotFoundError(
            "not a set of files: expected an index, a folder or a list of files",
            file=without_secrets(path_text(source)),
        )
    return ShardedObjects(find(), **options)


class ShardedObjects:
    """The objects of several files, with the interface of `FileObjects`.

    With an index, a file is opened for the first request of one of its objects, and only objects of
    the index exist. Without an index all files are opened immediately. Thread-safe and picklable.

    Args:
        files: the files, and the content of the index.
        options: how to open each file.

    Attributes:
        set: the files, and the content of the index.
        homes: object names to file names.
        is_closed: whether `close` was called.

    Raises:
        FormatError: a file is damaged or two files have one object name (without an index).
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read.
    """

    is_set = True

    def __init__(self, files: FileSet, **options: Unpack[FileOptions]) -> None:
        require_choice("verify", options.get("verify"), (None, True, False))
        self._how = options
        self.is_closed = False
        self._lock = Lock()
        self._opened: dict[str, FileObjects] = {}
        self.set = files
        self.homes: dict[str, str] = dict(files.weight_map or {})
        self._names = self.by_file(self.homes)
        if files.weight_map is None:
            try:
                self._open_all()
            except BaseException:
                self.close()
                raise

    def _open_all(self) -> None:
        # Files of a store's prefix may be parts of a checkpoint; folders were examined before.
        is_prefix = isinstance(self.set.origin, Remote) and self.name.endswith("/")
        for file in self.set.places:
            opened = self.file(file)
            if is_prefix and opened.format == "zt":
                for _, kind, value in kinds_of(opened.manifest.attributes):
                    kind.require_whole(value, self.name)
            self._names[file] = list(opened.names)
            for name in opened.names:
                if self.homes.setdefault(name, file) != file:
                    error = FormatError(
                        "two files have an object of that name: they are not one model",
                        reason=Reason.DUPLICATE_NAME,
                        file=file,
                        object_name=name,
                        found=f"also in {describe(self.homes[name], 300)}",
                    )
                    error.hint = f"open one of them: {some_of(list(self.set.places))}"
                    raise error

    # --- The set ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the name for messages: the index, the folder, or the first file."""
        return self.set.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the local paths: the index, then the files."""
        index = [] if self.set.source is None else [self.set.source.path]
        on_disk = filter(self._is_on_disk, self.set.places)
        return (*(path for path in index if path is not None), *on_disk)

    @property
    def names(self) -> Collection[str]:
        """Return the names of all objects, in the order of the index or the files."""
        return self.homes.keys()

    @property
    def format(self) -> str:
        """Return the name of the container format of the first file."""
        return self._first.format

    @property
    def version(self) -> str:
        """Return the version text of the first file."""
        return self._first.version

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the merged key-value pairs of all files, which this opens; later files win.

        Different trees (see `ztensor.save_tree`) are left out. In a set of GGUF files the first
        shard wins, and keys of the others are added.
        """
        every = [file.attributes for file in self.parts()]
        if every and self.format != "zt":
            format = FORMATS.get(self.format)
            if format is not None and format.merges_attributes:
                return format.loaded().attributes_of_whole(every)
        return AttributeKind.merged(every)

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return the loss report of all files, which this opens, and of the index.

        It includes objects that the index does not name, attributes with different values in
        different files, and notes of the index that `save_file` does not write.
        """
        dropped = []
        merged = self.attributes
        for file, shard in zip(self.set.places, self.parts(), strict=True):
            place = os.path.basename(file)
            for entry in shard.unrepresented:
                where = f"{place}: {entry.where}" if entry.where else place
                dropped.append(dataclasses.replace(entry, where=where))
            for name in sorted(set(shard.names) - set(self._names[file])):
                nbytes = shard.object(name).stored_nbytes
                kind = "object that the index does not name"
                dropped.append(Unrepresented(kind, f"{place}: {name}", nbytes=nbytes))
            for key, value in shard.attributes.items():
                if key not in _OF_ONE_SHARD and repr(merged.get(key)) != repr(value):
                    dropped.append(Unrepresented("attribute of one shard", f"{place}: {key}"))
        notes = (key for key in self.set.metadata if key not in _WRITTEN_BY_SAVE)
        return (*dropped, *(Unrepresented("note of the index", key) for key in notes))

    @property
    def nbytes(self) -> int:
        """Return the total length of all files, which this opens."""
        return sum(file.nbytes for file in self.parts())

    def close(self) -> None:
        """Close all files; see `FileObjects`."""
        self.is_closed = True
        if self.set.source is not None:
            self.set.source.close()
        with self._lock:
            for opened in self._opened.values():
                opened.close()

    def require_open(self) -> None:
        """Raise `ClosedError` if the set was closed."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def rights(self) -> set[Rights]:
        """Return the access rights of all files, which this opens."""
        return {rights for part in self.parts() for rights in part.rights()}

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte; see `FileObjects`."""
        from ztensor.io.shards.verifying import verify_set

        return verify_set(self, names, **how)

    def identity(self) -> object:
        """Return a key of the content of index and files, which this opens."""
        index = self.set.source and self.set.source.identity()
        return (index, *(part.identity() for part in self.parts()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by paths; the other process opens the files itself."""
        self.require_open()
        return functools.partial(open_set, **self._how), (self.set.origin,)

    # --- Files ------------------------------------------------------------------------------

    def parts(self) -> Sequence[FileObjects]:
        """Return the objects of each file, which this opens."""
        return [self.file(file) for file in self.set.places]

    def part(self, name: str) -> FileObjects:
        """Return the file of an object.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the file is damaged, or lacks objects that the index names.
            SourceError: the file cannot be read, or the set was replaced since it was opened.
        """
        self.require_open()
        file = self.homes.get(name) if isinstance(name, str) else None
        if file is None:
            raise ObjectNotFoundError.named(name, self.names, self.name)
        return self.file(file)

    def file(self, file: str) -> FileObjects:
        """Return the objects of one of the set's files.

        Raises:
            ObjectNotFoundError: the set has no such file.
            FormatError: the file is damaged, or lacks objects that the index names.
            SourceError: the file cannot be read, or the set was replaced since it was opened.
        """
        if file not in self.set.places:
            raise ObjectNotFoundError(
                "no such file in the set", file=self.name, found=describe(file, 300)
            )
        opened = self._opened.get(file)
        if opened is None:
            with self._lock:
                self.require_open()
                opened = self._opened.get(file)
                if opened is None:
                    opened = self._opened[file] = self._open(file)
        return opened

    def is_known(self, name: str) -> bool:
        """Return whether the object's metadata needs no network request."""
        opened = self._opened.get(self.homes[name])
        return self._is_on_disk(self.homes[name]) if opened is None else opened.is_known(name)

    def _is_on_disk(self, file: str) -> bool:
        return isinstance(self.set.places[file], (str, Beneath))

    def by_file(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Group names by file. Every file of the set is a key.

        Raises:
            ObjectNotFoundError: no object of one of the names.
        """
        grouped: dict[str, list[str]] = {file: [] for file in self.set.places}
        for name in names:
            if name not in self.homes:
                raise ObjectNotFoundError.named(name, self.names, self.name)
            grouped[self.homes[name]].append(name)
        return grouped

    def select(self, names: Iterable[str]) -> Self:
        """Return a subset of the objects over the same open files."""
        part = self._over(self._opened)
        part.homes = {name: self.homes[name] for name in names}
        return part

    def changed_by(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> Self:
        """Return the objects with a change applied to each file; see `FileObjects`."""
        names = self.by_file(self.homes)
        return self._over({file: change(self.file(file), some) for file, some in names.items()})

    def _over(self, opened: dict[str, FileObjects]) -> Self:
        """Return the set with other `FileObjects` for its files."""
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        part._opened = opened
        return part

    @property
    def _first(self) -> FileObjects:
        self.require_open()
        for file in self.set.places:
            return self.file(file)
        raise FormatError("the index names no file", reason=Reason.SHARD_INDEX, file=self.name)

    def _open(self, file: str) -> FileObjects:
        try:
            opened = open_file(self.set.places[file], **self._how)
        except ZTensorError as error:
            files = counted(len(self.set.places), "file")
            error.hint = error.hint or f"the file is one of {files} of {self.name}"
            raise
        try:
            self._require_of_set(file, opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def _require_of_set(self, file: str, opened: FileObjects) -> None:
        """Require that a file belongs to the opened index: another save may use the same names.

        Raises:
            SourceError: the index was replaced.
            FormatError: the file lacks objects that the index names.
        """
        index = self.set.source
        if index is not None and index.path is None:
            index.require_unchanged(ask=True)
        elif index and source_of(index.path, mapped=False).identity() != index.identity():
            raise SourceError(
                "the index was replaced after it was opened; open it again",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )
        lost = [name for name in self._names[file] if name not in opened.names]
        if lost:
            error = broken_index(
                "the shard lacks objects of the index: they are from different saves; fetch both "
                "again",
                file=self.name,
                expected=f"{some_of(lost)} in {describe(os.path.basename(file), 200)}",
                found=counted(len(opened.names), "other") if opened.names else "nothing",
            )
            error.in_python = "a list of their paths opens the shards without the index"
            raise error


# The objects of one file or of a set. Readers, loads, slices, `verify`, conversions and exports
# work on either.
Objects: TypeAlias = FileObjects | ShardedObjects
