"""Several files as one: every name is asked of the file it is in."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any, Self

from ztensor.arguments import require_choice
from ztensor.errors import (
    ClosedError,
    FormatError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    ZTensorError,
    describe,
)
from ztensor.io.attributes import kinds_of, merged_attributes
from ztensor.io.contents import open_file
from ztensor.io.reading.opened import not_found
from ztensor.io.shards.finding import find_set
from ztensor.io.shards.index import FileSet, broken_index, some_of, state_of
from ztensor.limits import caps_of
from ztensor.locks import Lock
from ztensor.showing import counted
from ztensor.spec.model.account import Unrepresented

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Unpack

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.rights import Rights
    from ztensor.options import FileOptions


# What only says which part of a set a file is: GGUF's keys for it.
_OF_ONE_SHARD = frozenset({"split.no", "split.count", "split.tensors.count", "GGUF.types"})
_MADE_ANEW = frozenset({"total_size", "total_parameters", "digests"})


class ShardedObjects:
    """The objects of several files; see `Objects`.

    With an index, a file is opened when the first of its objects is asked for; files that come
    without one are opened at once, since only they tell what they hold. What the index does not
    name is not there. It may be used by several threads, and pickled.

    Args:
        source: an index, a folder, or a list of paths; see `find_set`.
        options: of each file.

    Attributes:
        set: which files they are, and what the index says.
        homes: the file each object is in.
        is_closed: whether the files were given back.

    Raises:
        FormatError: the index is damaged, a file without an index is, or two have one name.
        LimitError: a safety cap is exceeded.
        SourceError: something cannot be read, or a shard is missing.
        ArgumentTypeError: `source` is nothing that can be opened.
    """

    is_set = True

    def __init__(self, source: Any, **options: Unpack[FileOptions]) -> None:
        require_choice("verify", options.get("verify"), (None, True, False))
        caps = caps_of(options.get("limits"))
        self._how = options
        self.is_closed = False
        self._lock = Lock()
        self._opened: dict[str, FileObjects] = {}
        self.set: FileSet = find_set(source, caps)
        self._state = state_of(self.set.index)
        self.homes: dict[str, str] = dict(self.set.weight_map or {})
        self._names: dict[str, list[str]] = {file: [] for file in self.set.files}
        for name, file in self.homes.items():
            self._names[file].append(name)
        if self.set.weight_map is None:
            try:
                self._open_all()
            except BaseException:
                self.close()
                raise

    def _open_all(self) -> None:
        for file in self.set.files:
            if self.set.is_prefix:
                self._require_no_part(file)
            names = list(self.file(file).names)
            for name in names:
                if self.homes.setdefault(name, file) != file:
                    error = FormatError(
                        "two files hold an object of that name, so they are not parts of one model",
                        reason=Reason.DUPLICATE_NAME,
                        file=file,
                        object_name=name,
                        found=f"also in {describe(self.homes[name], 300)}",
                    )
                    error.hint = f"name the one that is meant: {some_of(self.set.files)}"
                    raise error
            self._names[file] = names

    def _require_no_part(self, file: str) -> None:
        """Raise where a file of a prefix is a part of something else: folders were looked at.

        Raises:
            SourceNotFoundError: so it is, and the file is missing that tells what belongs together.
        """
        opened = self.file(file)  # of another format attributes may have to be read first
        for _, kind, value in kinds_of(opened.manifest.attributes if opened.format == "zt" else {}):
            kind.require_whole(value, self.set.name)

    # --- The set ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return what messages call the set: the index, the folder, or the first file."""
        return self.set.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the files, and before them that of the index."""
        has_index = self.set.index is not None and self.set.source is None
        files = [file for file in self.set.files if file not in self.set.remotes]
        return (*((self.set.index,) if has_index else ()), *files)

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
        every = [self.file(file).attributes for file in self.set.files]
        if every and self.format != "zt":
            from ztensor.io.formats import FORMATS  # files of ours need none of it

            format = FORMATS.get(self.format)
            if format is not None and format.merges_attributes:
                return format.loaded().attributes_of_whole(every)
        return merged_attributes(every)

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the files and the index say beyond objects and attributes; opens all files.

        Beside what each file's own objects do not give that is: objects of a file that the index
        does not name, attributes that files give different values for, and notes of the index but
        for those that `save_file` makes anew.
        """
        found = []
        whole = self.attributes
        for file in self.set.files:
            place, shard = os.path.basename(file), self.file(file)
            named = self._names[file]
            unnamed = sorted(set(shard.names) - set(named))
            found += [
                dataclasses.replace(one, where=f"{place}: {one.where}" if one.where else place)
                for one in shard.unrepresented
            ]
            found += [
                Unrepresented(
                    "object that the index does not name",
                    f"{place}: {name}",
                    nbytes=shard.object(name).stored_nbytes,
                )
                for name in unnamed
            ]
            found += [
                Unrepresented("attribute of one shard", f"{place}: {key}")
                for key, value in shard.attributes.items()
                if key not in _OF_ONE_SHARD and repr(whole.get(key)) != repr(value)
            ]
        found += [
            Unrepresented("note of the index", key)
            for key in self.set.metadata
            if key not in _MADE_ANEW
        ]
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files, which this opens."""
        return sum(self.file(file).nbytes for file in self.set.files)

    def close(self) -> None:
        """Close all files; see `Objects`."""
        self.is_closed = True
        if self.set.source is not None:
            self.set.source.close()
        with self._lock:
            for opened in self._opened.values():
                opened.close()

    def require_open(self) -> None:
        """Raise where the files were given back; see `Objects`."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def rights(self) -> set[Rights]:
        """Return the rights of all files, which this opens."""
        return {rights for part in self.parts() for rights in part.rights()}

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte; see `Objects`."""
        from ztensor.io.shards.verifying import verify_set

        return verify_set(self, names, **how)

    def identity(self) -> object:
        """Return what tells these files from others: their places and times."""
        return (self._state, *map(state_of, self.set.files))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by paths, so that workers open the files themselves."""
        self.require_open()
        source: Any = self.set.index or list(map(self.set.place, self.set.files))
        if self.set.source is not None:
            source = self.set.source.remote
        elif self.set.index is None and self.set.roots is not None:
            first = self.set.files[0]  # a folder, or the first shard of GGUF
            source = first if self.set.name == first else os.path.dirname(first)
        return functools.partial(type(self), **self._how), (source,)

    # --- Its files --------------------------------------------------------------------------

    def parts(self) -> Sequence[FileObjects]:
        """Return the objects of each file, which this opens."""
        return [self.file(file) for file in self.set.files]

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
            raise not_found(name, self.names, self.name)
        return self.file(file)

    def file(self, file: str) -> FileObjects:
        """Return the objects of one of the set's files.

        Raises:
            ObjectNotFoundError: it is none of them.
            FormatError: the file is damaged, or lacks objects the index says it has.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        opened = self._opened.get(file)
        if opened is None:
            if file not in self._names:
                raise ObjectNotFoundError(
                    "no such file in the set", file=self.name, found=describe(file, 300)
                )
            with self._lock:
                self.require_open()
                opened = self._opened.get(file)
                if opened is None:
                    opened = self._opened[file] = self._open(file)
        return opened

    def is_known(self, name: str) -> bool:
        """Return whether what an object is can be told without asking a network."""
        file = self.homes[name]
        opened = self._opened.get(file)
        return file not in self.set.remotes if opened is None else opened.is_known(name)

    def names_in(self, file: str) -> list[str]:
        """Return the objects of the set that are in one of its files."""
        return self._names[file]

    def select(self, names: Iterable[str]) -> Self:
        """Return some of the objects, over the same open files."""
        part = self._over(self._opened)
        part.homes = {name: self.homes[name] for name in names}
        return part

    def mapped(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> Self:
        """Return the same objects with each file's changed; see `Objects`."""
        names: dict[str, list[str]] = {file: [] for file in self.set.files}
        for name, file in self.homes.items():
            names[file].append(name)
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
        if not self.set.files:
            raise FormatError("the index names no file", reason=Reason.SHARD_INDEX, file=self.name)
        return self.file(self.set.files[0])

    def _open(self, file: str) -> FileObjects:
        try:
            opened = open_file(self.set.place(file), **self._how)
        except ZTensorError as error:
            files = counted(len(self.set.files), "file")
            error.hint = error.hint or f"it is one of {files} of {self.name}"
            raise
        try:
            self._require_same_index()
            self._require_named(file, opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def _require_named(self, file: str, opened: FileObjects) -> None:
        """Raise where the index names objects of a file that it does not have."""
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

    def _require_same_index(self) -> None:
        """Raise where the set was replaced: its shards may have the names of the old ones."""
        if self.set.source is not None:
            self.set.source.require_current()
        elif state_of(self.set.index) != self._state:
            raise SourceError(
                "the index was replaced after it was opened; open it again",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )
