"""Several files as one mapping: every name is asked of the reader of the file it is in."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Any, Self, overload

from ztensor.boundary import public
from ztensor.digest import digest_of, parse_digest
from ztensor.errors import (
    FormatError,
    LimitError,
    ManifestError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    UnsupportedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.model.account import Unrepresented
from ztensor.model.problem import Problem
from ztensor.opening import Reader, source_of
from ztensor.sharded.finding import find_set
from ztensor.sharded.index import broken_index, some_of, state_of
from ztensor.sharded.naming import shifted
from ztensor.source.base import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ztensor.layout.base import Array
    from ztensor.model.manifest import Component, TensorObject
    from ztensor.reading.component import StoredComponent
    from ztensor.reading.reader import Location, ManifestReader
    from ztensor.reading.slices import TensorSlice
    from ztensor.reading.verify import VerifyReport
    from ztensor.sharded.naming import Progress
    from ztensor.source.beneath import Beneath
    from ztensor.source.rights import Rights
    from ztensor.tensor import Tensor
    from ztensor.typing import Openable, TorchDevice, TorchTensor


# What only says which part of a set a file is: GGUF's keys for it.
_OF_ONE_SHARD = frozenset({"split.no", "split.count", "split.tensors.count", "GGUF.types"})
_MADE_ANEW = frozenset({"total_size", "total_parameters", "digests"})


@public
class ShardedReader(Reader):
    """Several files, open for reading as one mapping; `ztensor.open` gives it for a set.

    With an index, a file is opened when the first of its objects is asked for; files that come
    without one are opened at once, since only they tell what they hold. What the index does not
    name is not there. It may be used by several threads, and pickled.

    Args:
        source: an index, a folder, or a list of paths; see `find_set`.
        verify: as for `Reader`.
        mmap: as for `Reader`.
        limits: as for `Reader`.
        recover: as for `Reader`, for each file.

    Raises:
        FormatError: the index is damaged, a file without an index is, or two have one name.
        LimitError: a safety cap is exceeded.
        SourceError: something cannot be read, or a shard is missing.
        ArgumentTypeError: `source` is nothing that can be opened.
    """

    def __init__(
        self,
        source: Openable,
        *,
        verify: bool | None = None,
        mmap: bool = True,
        limits: Limits | None = None,
        recover: bool = False,
    ) -> None:
        self._how: dict[str, Any] = {
            "verify": verify, "mmap": mmap, "limits": limits, "recover": recover,
        }  # fmt: skip
        self._is_closed = False
        self._sums = ()  # each file's reader has its own
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._set = find_set(source, DEFAULT_LIMITS if limits is None else limits)
        self._state = state_of(self._set.index)
        self._home: dict[str, str] = dict(self._set.weight_map or {})  # name to file
        self._names: dict[str, list[str]] = {file: [] for file in self._set.files}
        for name, file in self._home.items():
            self._names[file].append(name)
        if self._set.weight_map is None:
            try:
                self._open_all()
            except BaseException:
                self.close()
                raise

    def _open_all(self) -> None:
        for file in self._set.files:
            names = self.shard(file).keys()
            for name in names:
                if self._home.setdefault(name, file) != file:
                    error = FormatError(
                        "two files hold an object of that name, so they are not parts of one model",
                        reason=Reason.DUPLICATE_NAME,
                        file=file,
                        object_name=name,
                        found=f"also in {describe(self._home[name], 300)}",
                    )
                    error.hint = f"name the one that is meant: {some_of(self._set.files)}"
                    raise error
            self._names[file] = names

    # --- The set ----------------------------------------------------------------------------

    @property
    def files(self) -> list[str]:
        """Return the paths of the files, in order."""
        return list(self._set.files)

    @property
    def index_metadata(self) -> dict[str, Any]:
        """Return the `metadata` of the index, such as `total_size`; empty without an index."""
        return dict(self._set.metadata)

    @property
    def name(self) -> str:
        """Return what messages call the set: the index, the folder, or the first file."""
        return self._set.name

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

        Of GGUF the first file tells of the model, and what others say beside it is kept.
        """
        every = [self.shard(file).attributes for file in self._set.files]
        if every and self.format == "gguf":
            from ztensor.foreign.gguf import attributes_of_whole

            return attributes_of_whole(every)
        return {key: value for attributes in every for key, value in attributes.items()}

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the files and the index say beyond objects and attributes; opens all files.

        Beside what each file's own reader does not give that is: objects of a file that the index
        does not name, attributes that files give different values for, and notes of the index but
        for those that `save_file` makes anew.
        """
        found = []
        whole = self.attributes
        for file in self._set.files:
            place, shard = os.path.basename(file), self.shard(file)
            named = self._names[file]
            unnamed = [] if len(named) == len(shard) else sorted(set(shard) - set(named))
            found += [
                dataclasses.replace(one, where=f"{place}: {one.where}" if one.where else place)
                for one in shard.unrepresented
            ]
            found += [
                Unrepresented(
                    "object that the index does not name",
                    f"{place}: {name}",
                    nbytes=shard.metadata(name).stored_nbytes,
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
            for key in self._set.metadata
            if key not in _MADE_ANEW
        ]
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files, which this opens."""
        return sum(self.shard(file).nbytes for file in self._set.files)

    def close(self) -> None:
        """Close all files; arrays that are views of them stay valid. May be called again."""
        self._is_closed = True
        with self._lock:
            for reader in self._readers.values():
                reader.close()

    def __repr__(self) -> str:
        """Return which set it is, and how many objects and files it has."""
        state = " (closed)" if self._is_closed else ""
        return (
            f"<ztensor.ShardedReader {describe(self.name)}, "
            f"{len(self._home)} objects in {len(self._set.files)} files{state}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by paths, so that workers open the files themselves."""
        self._require_open()
        source: Any = self._set.index or list(self._set.files)
        if self._set.index is None and self._set.roots is not None:
            first = self._set.files[0]  # a folder, or the first shard of GGUF
            source = first if self._set.name == first else os.path.dirname(first)
        return _reopen, (source, self._how)

    def reader_of(self, name: str) -> Reader:
        """Return the reader of the file an object is in; it is closed with this one.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the file is damaged, or has no such object though the index says so.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        self._require_open()
        file = self._home.get(name) if isinstance(name, str) else None
        if file is None:
            raise self._not_found(name)
        return self.shard(file)

    def _identity(self) -> object:
        return (self._state, *map(state_of, self._set.files))

    @property
    def _first(self) -> Reader:
        self._require_open()
        if not self._set.files:
            raise FormatError("the index names no file", reason=Reason.SHARD_INDEX, file=self.name)
        return self.shard(self._set.files[0])

    def shard(self, file: str) -> Reader:
        """Return the reader of one of `files`; it is closed with this one.

        Raises:
            ObjectNotFoundError: it is none of them.
            FormatError: the file is damaged, or lacks objects the index says it has.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        if file not in self._names:
            raise ObjectNotFoundError(
                "no such file in the set", file=self.name, found=describe(file, 300)
            )
        reader = self._readers.get(file)
        if reader is None:
            with self._lock:
                self._require_open()
                reader = self._readers.get(file)
                if reader is None:
                    reader = self._readers[file] = self._open_shard(file)
        return reader

    def _open_shard(self, file: str) -> Reader:
        try:
            reader = Reader(self._set.place(file), **self._how)
        except ZTensorError as error:
            error.hint = error.hint or f"it is one of {len(self._set.files)} files of {self.name}"
            raise
        try:
            self._require_same_index()
            self._require_named(file, reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def _require_named(self, file: str, reader: Reader) -> None:
        """Raise where the index names objects of a file that it does not have."""
        lost = [name for name in self._names[file] if name not in reader]
        if lost:
            error = broken_index(
                "the index names objects that their shard does not have; the two are not of one "
                "save: fetch both again",
                file=self.name,
                expected=f"{some_of(lost)} in {describe(os.path.basename(file), 200)}",
                found=f"{len(reader)} others" if len(reader) else "nothing",
            )
            error.in_python = "a list of their paths opens the shards without the index"
            raise error

    def _require_same_index(self) -> None:
        """Raise where the set was replaced: its shards may have the names of the old ones."""
        if state_of(self._set.index) != self._state:
            raise SourceError(
                "the index was replaced after it was opened; open it again",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    # --- The mapping, and what each file's reader does --------------------------------------

    def keys(self) -> list[str]:  # type: ignore[override]  # a list is what the 1.2 API gives
        """Return all names, in the order of the index or the files."""
        return list(self._home)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names, in the order of the index or the files."""
        return iter(self._home)

    def __len__(self) -> int:
        """Return how many objects there are in all files."""
        return len(self._home)

    def __contains__(self, name: object) -> bool:
        """Return whether there is an object of that name; nothing is read."""
        return isinstance(name, str) and name in self._home

    def get_slice(self, name: str) -> TensorSlice:
        """Return a lazy dense object; see `Reader.get_slice`."""
        return self.reader_of(name).get_slice(name)

    def location(self, name: str, component: str = "data") -> Location:
        """Return where a component's stored bytes lie: the path is that of the shard."""
        return self.reader_of(name).location(name, component)

    def _source_rights(self) -> set[Rights]:
        """Return the rights of all files, which this opens; see `Reader._source_rights`."""
        return {rights for file in self._set.files for rights in self.shard(file)._source_rights()}

    def _stored_object(self, name: str) -> TensorObject | None:
        """Return an object whose stored bytes can be copied; see `Reader._stored_object`."""
        return self.reader_of(name)._stored_object(name)

    def _portable_object(self, name: str) -> TensorObject:
        """Return an object as 1.2 has it once decoded; see `Reader._portable_object`."""
        return self.reader_of(name)._portable_object(name)

    def _select(self, names: Iterable[str]) -> Self:
        """Return a reader of some of the objects, over the same open files."""
        part = self._with_readers(self._readers)
        part._home = {name: self._home[name] for name in names}
        return part

    def _with_readers(self, readers: dict[str, Reader]) -> Self:
        """Return a reader of the same set that asks other readers of its files."""
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        part._readers = readers
        return part

    def _stored(self, component: Component) -> StoredComponent:
        """Raise: a component is one of a file; ask `reader_of` for that file's reader."""
        raise UsageError(
            "a component belongs to one file of the set; reader_of(name) gives its reader",
            file=self.name,
        )

    def decoded_chunks(self, name: str, role: str = "data") -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order; see `Reader.decoded_chunks`."""
        return self.reader_of(name).decoded_chunks(name, role)

    def _portable_chunks(self, name: str, role: str) -> Iterator[memoryview]:
        """Yield a component's bytes as 1.2 has them; see `Reader._portable_chunks`."""
        return self.reader_of(name)._portable_chunks(name, role)

    @overload
    def read_torch(
        self, name: str, *, device: TorchDevice = "cpu", copy: bool = False
    ) -> TorchTensor: ...
    @overload
    def read_torch(
        self, name: Iterable[str], *, device: TorchDevice = "cpu", copy: bool = False
    ) -> dict[str, TorchTensor]: ...
    def read_torch(
        self, name: str | Iterable[str], *, device: TorchDevice = "cpu", copy: bool = False
    ) -> TorchTensor | dict[str, TorchTensor]:
        """Return objects as torch tensors, those of one file at a time; see `Reader.read_torch`."""
        if isinstance(name, str):
            return self.reader_of(name).read_torch(name, device=device, copy=copy)
        names = list(self._several(name))
        wanted: dict[Reader, list[str]] = {}
        for one in names:
            wanted.setdefault(self.reader_of(one), []).append(one)
        found: dict[str, TorchTensor] = {}
        for reader, some in wanted.items():
            found.update(reader.read_torch(some, device=device, copy=copy))
        return {one: found[one] for one in names}

    def _object(self, name: str) -> TensorObject:
        return self.reader_of(name)._object(name)

    def _dense(self, name: str, tensor_object: TensorObject, *, copy: bool) -> Array:
        return self.reader_of(name)._dense(name, tensor_object, copy=copy)

    def _tensor(self, name: str, tensor_object: TensorObject, *, copy: bool) -> Tensor:
        return self.reader_of(name)._tensor(name, tensor_object, copy=copy)

    def _fill(self, name: str, tensor_object: TensorObject, target: Any) -> None:
        self.reader_of(name)._fill(name, tensor_object, target)

    def verify(
        self,
        names: Iterable[str] | None = None,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Check every stored byte of all files and return what is wrong; damage does not raise.

        The path of a problem begins with the file. Where the index has digests of whole files,
        as `split` writes them, those are checked as well, unless `names` are given.

        Args:
            names: objects to check; all of them by default.
            threads: how many to use; see `Reader.verify`.
            progress: called with the stored bytes read so far and the bytes to read in all.

        Raises:
            ObjectNotFoundError: a name is not in the set.
            SourceError: the bytes could not be read.
        """
        from ztensor.reading.verify import VerifyReport

        self._require_open()
        chosen: dict[str, list[str]] = {file: [] for file in self._set.files}
        for name in self._home if names is None else [names] if isinstance(names, str) else names:
            if name not in self._home:
                raise self._not_found(name)
            chosen[self._home[name]].append(name)
        problems: list[Problem] = []
        unsupported: list[Problem] = []
        unchecked: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for file, wanted in chosen.items():
            if not wanted and names is not None:
                continue
            try:
                found = self.shard(file).metadata(wanted)
                sizes[file] = sum(one.stored_nbytes for one in found)
            except (FormatError, UnsupportedError, LimitError) as error:
                damaged = isinstance(error, FormatError)
                (problems if damaged else unsupported).extend(_problems_of(error, file))
        digests = self._digests() if names is None else {}
        total = sum(sizes.values()) + sum(self.shard(f).nbytes for f in digests if f in sizes)
        counts = dict.fromkeys(("checked", "undigested", "objects", "nbytes"), 0)
        done = 0
        for file, size in sizes.items():
            report = self.shard(file).verify(
                chosen[file], threads=threads, progress=shifted(progress, done, total)
            )
            done += size
            problems.extend(problem.under(file) for problem in report.problems)
            unsupported.extend(problem.under(file) for problem in report.unsupported)
            for key in counts:
                counts[key] += getattr(report, key)
            if file not in digests:  # else one of the whole file covers all that is in it
                unchecked.update(report.unchecked)
            else:
                problems.extend(_check_file(self._set.place(file), digests[file]))
                done += self.shard(file).nbytes
                if progress is not None:
                    progress(done, total)
        return VerifyReport(tuple(problems), tuple(unsupported), unchecked=unchecked, **counts)

    def _digests(self) -> dict[str, str]:
        """Return the digests of whole files that the index has."""
        texts = self._set.metadata.get("digests")
        if not isinstance(texts, dict) or self._set.index is None:
            return {}
        folder = os.path.dirname(self._set.index)
        return {
            file: texts[name]
            for file in self._set.files
            if isinstance(texts.get(name := os.path.relpath(file, folder)), str)
        }


def _reopen(source: Any, how: dict[str, Any]) -> ShardedReader:
    return ShardedReader(source, **how)


def _problems_of(error: ZTensorError, file: str) -> list[Problem]:
    """Return why a file cannot be opened, as problems of the set."""
    if isinstance(error, ManifestError) and error.problems:
        return [problem.under(file) for problem in error.problems]
    return [Problem(error.reason or Reason.SHARD_INDEX, error.message, (file,), error.section)]


def _check_file(place: Beneath | str, text: str) -> list[Problem]:
    """Return what is wrong where a file's bytes are not those of the digest in the index."""
    file = os.fspath(place)
    try:
        digest = parse_digest(text)
    except FormatError as error:
        return _problems_of(error, file)
    if digest.known is None:
        return []
    with contextlib.closing(source_of(place, mapped=False)) as source:
        actual = digest_of(digest.known, Range(source, 0, source.size).pieces(8 << 20))
    if parse_digest(actual) == digest:
        return []
    message = f"the file is not the one the index was written for: its {digest.algorithm} differs"
    return [Problem(Reason.DIGEST_MISMATCH, message, (file,))]


def load_files(
    reader: ManifestReader,
    load: Callable[..., dict[str, Any]],
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Load all objects of one file or of a set, file after file.

    Args:
        reader: what `ztensor.open` gave.
        load: loads all objects of one file, as `ztensor.reading.loading.load_all` does.
        progress: called after each file with the bytes loaded so far and of all of them.
        options: passed on to `load`.

    Returns:
        Names to what `load` made of them, in the order of the reader.

    Raises:
        ZTensorError: what opening a file or `load` raises.
    """
    files = [reader]
    if isinstance(reader, ShardedReader):
        files = [reader.shard(file) for file in reader.files]
    total, done = sum(file.nbytes for file in files), 0
    result: dict[str, Any] = {}
    for file in files:
        result.update(load(file, **options))
        done += file.nbytes
        if progress is not None:
            progress(done, total)
    return result if len(files) == 1 else {name: result[name] for name in reader}
