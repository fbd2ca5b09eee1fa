"""Several files as one: every name is asked of the file it is in."""

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


# What only says which part of a set a file is: GGUF's keys for it.
_OF_ONE_SHARD = frozenset({"split.no", "split.count", "split.tensors.count", "GGUF.types"})
_MADE_ANEW = frozenset({"total_size", "total_parameters", "digests"})


def open_set(source: Any, **options: Unpack[FileOptions]) -> ShardedObjects:
    """Return the objects of the files that a caller means; see `finder_of`.

    Raises:
        FormatError: the index is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read, or a shard is missing, or the folder has no model.
        ArgumentTypeError: `source` is nothing that can be opened.
        ArgumentValueError: a list is empty, or a folder has several models; the message names them.
    """
    find = finder_of(source, caps_of(options.get("limits")), is_missing=True)
    if find is None:
        raise SourceNotFoundError(
            "no set of files: no index, folder or list, nor is there an index of that name",
            file=without_secrets(path_text(source)),
        )
    return ShardedObjects(find(), **options)


class ShardedObjects:
    """The objects of several files, which has what `FileObjects` has of one.

    With an index, a file is opened when the first of its objects is asked for; files that come
    without one are opened at once, since only they tell what they hold. What the index does not
    name is not there. It may be used by several threads, and pickled.

    Args:
        files: which they are.
        options: of each file.

    Attributes:
        set: which files they are, and what the index says.
        homes: the file each object is in.
        is_closed: whether the files were given back.

    Raises:
        FormatError: a file without an index is damaged, or two have one name.
        LimitError: a safety cap is exceeded.
        SourceError: something cannot be read.
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
        # A file of a prefix may be a part of something else; folders were looked at.
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
                        "two files hold an object of that name, so they are not parts of one model",
                        reason=Reason.DUPLICATE_NAME,
                        file=file,
                        object_name=name,
                        found=f"also in {describe(self.homes[name], 300)}",
                    )
                    error.hint = f"name the one that is meant: {some_of(list(self.set.places))}"
                    raise error

    # --- The set ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return what messages call the set: the index, the folder, or the first file."""
        return self.set.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the files, and before them that of the index."""
        index = [] if self.set.source is None else [self.set.source.path]
        on_disk = filter(self._is_on_disk, self.set.places)
        return (*(path for path in index if path is not None), *on_disk)

    @property
    def names(self) -> Collection[str]:
        """Return all names, in the order of the index or the files."""
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
        """Return the key-value pairs of all files, which this opens; later ones win.

        Where files hold different trees (see `ztensor.save_tree`), none of them is that of all.
        In a set of GGUF files the first shard's metadata wins; keys that only others have are kept.
        """
        every = [file.attributes for file in self.parts()]
        if every and self.format != "zt":
            format = FORMATS.get(self.format)
            if format is not None and format.merges_attributes:
                return format.loaded().attributes_of_whole(every)
        return AttributeKind.merged(every)

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the files and the index say beyond objects and attributes; opens all files.

        Beside what each file's own objects do not give that is: objects of a file that the index
        does not name, attributes that files give different values for, and notes of the index but
        for those that `save_file` makes anew.
        """
        found = []
        whole = self.attributes
        for file, shard in zip(self.set.places, self.parts(), strict=True):
            place = os.path.basename(file)
            for one in shard.unrepresented:
                where = f"{place}: {one.where}" if one.where else place
                found.append(dataclasses.replace(one, where=where))
            for name in sorted(set(shard.names) - set(self._names[file])):
                nbytes = shard.object(name).stored_nbytes
                what = "object that the index does not name"
                found.append(Unrepresented(what, f"{place}: {name}", nbytes=nbytes))
            for key, value in shard.attributes.items():
                if key not in _OF_ONE_SHARD and repr(whole.get(key)) != repr(value):
                    found.append(Unrepresented("attribute of one shard", f"{place}: {key}"))
        notes = (key for key in self.set.metadata if key not in _MADE_ANEW)
        return (*found, *(Unrepresented("note of the index", key) for key in notes))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files, which this opens."""
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
        """Raise where the files were given back; see `FileObjects`."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def rights(self) -> set[Rights]:
        """Return the rights of all files, which this opens."""
        return {rights for part in self.parts() for rights in part.rights()}

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte; see `FileObjects`."""
        from ztensor.io.shards.verifying import verify_set

        return verify_set(self, names, **how)

    def identity(self) -> object:
        """Return what tells these files, which this opens, from others."""
        index = self.set.source and self.set.source.identity()
        return (index, *(part.identity() for part in self.parts()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by paths, so that workers open the files themselves."""
        self.require_open()
        return functools.partial(open_set, **self._how), (self.set.origin,)

    # --- Its files --------------------------------------------------------------------------

    def parts(self) -> Sequence[FileObjects]:
        """Return the objects of each file, which this opens."""
        return [self.file(file) for file in self.set.places]

    def part(self, name: str) -> FileObjects:
        """Return the objects of the file that one of them is in.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the file is damaged, or has no such object though the index says so.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        self.require_open()
        file = self.homes.get(name) if isinstance(name, str) else None
        if file is None:
            raise ObjectNotFoundError.named(name, self.names, self.name)
        return self.file(file)

    def file(self, file: str) -> FileObjects:
        """Return the objects of one of the set's files.

        Raises:
            ObjectNotFoundError: it is none of them.
            FormatError: the file is damaged, or lacks objects the index says it has.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
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
        """Return whether what an object is can be told without asking a network."""
        opened = self._opened.get(self.homes[name])
        return self._is_on_disk(self.homes[name]) if opened is None else opened.is_known(name)

    def _is_on_disk(self, file: str) -> bool:
        return isinstance(self.set.places[file], (str, Beneath))

    def by_file(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return some of the objects by the file each is in, for all files.

        Raises:
            ObjectNotFoundError: no object of one of the names.
        """
        found: dict[str, list[str]] = {file: [] for file in self.set.places}
        for name in names:
            if name not in self.homes:
                raise ObjectNotFoundError.named(name, self.names, self.name)
            found[self.homes[name]].append(name)
        return found

    def select(self, names: Iterable[str]) -> Self:
        """Return some of the objects, over the same open files."""
        part = self._over(self._opened)
        part.homes = {name: self.homes[name] for name in names}
        return part

    def changed_by(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> Self:
        """Return the same objects with each file's changed; see `FileObjects`."""
        names = self.by_file(self.homes)
        return self._over({file: change(self.file(file), some) for file, some in names.items()})

    def _over(self, opened: dict[str, FileObjects]) -> Self:
        """Return the same set over other objects of its files."""
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
            error.hint = error.hint or f"it is one of {files} of {self.name}"
            raise
        try:
            self._require_of_set(file, opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def _require_of_set(self, file: str, opened: FileObjects) -> None:
        """Raise where the set was replaced, or the index names objects that a file does not have.

        Shards of another save may have the same names.
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
                "the index names objects that their shard does not have; the two are not of one "
                "save: fetch both again",
                file=self.name,
                expected=f"{some_of(lost)} in {describe(os.path.basename(file), 200)}",
                found=counted(len(opened.names), "other") if opened.names else "nothing",
            )
            error.in_python = "a list of their paths opens the shards without the index"
            raise error


# What a reader reads from: one file, or a set of files. Readers, loads, slices, `verify`,
# conversions and exports work on these and seldom ask which it is.
Objects: TypeAlias = FileObjects | ShardedObjects
