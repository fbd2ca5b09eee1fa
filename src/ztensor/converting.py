"""Anything readable to anything writable: other formats, other versions, other encodings.

`convert` makes a new file; `migrate` rewrites a zTensor file, in its place or beside it, and lets
the result take that place only once it was read back and compared. Both go through one temporary
that replaces the target as a whole. Bytes are copied as they are stored wherever that is possible,
piece by piece wherever it is not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor.analysis.identity import tensor_hashes
from ztensor.boundary import public
from ztensor.casting import Casts, Change, cast_target
from ztensor.container import EMITTERS, LATEST
from ztensor.encoding import ENCODINGS
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.foreign import exporter
from ztensor.model.account import UNREAD
from ztensor.model.formats import (
    format_by_suffix,
    require_ours,
    require_written,
    written_formats,
)
from ztensor.model.manifest import CheckedObjects
from ztensor.model.showing import counted, short_repr
from ztensor.opening import Reader, only_ours_change
from ztensor.opening import open as open_file
from ztensor.reading.ahead import Ahead
from ztensor.reading.names import keeps
from ztensor.reading.reader import ManifestReader
from ztensor.reading.verify import unchecked_names
from ztensor.sharded import ShardedReader, ShardSet, index_path, parse_size, shard_paths
from ztensor.sharded.naming import shifted
from ztensor.sharded.planning import plan_objects
from ztensor.sharded.saving import place_of_whole, remove_shards, sha256_of, shards_there
from ztensor.source.appending import AppendSink
from ztensor.source.gathering import FROM_FILE_WRITE_BYTES
from ztensor.source.paths import path_text
from ztensor.source.sink import FileSink, Place, StreamSink
from ztensor.source.targets import Nowhere, require_free
from ztensor.wire import cbor
from ztensor.writing.blob import level_of
from ztensor.writing.frames import require_chunk_rows
from ztensor.writing.output import create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized

    import numpy.typing as npt

    from ztensor.container import Emitter
    from ztensor.model.account import Unrepresented
    from ztensor.model.manifest import TensorObject
    from ztensor.source.sink import Durable

    Path = str | os.PathLike[str]
    Progress = Callable[[int, int], None]
    from ztensor.typing import Readable

_R = TypeVar("_R", bound=ManifestReader)
DIVIDED = ("zt", "safetensors")  # the formats whose shards the hub's index is for


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Something the new file cannot say.

    Attributes:
        object_name: the object, or None where it is the file's own.
        sentence: what is lost, and how the object was written, if at all.
    """

    object_name: str | None
    sentence: str

    def __str__(self) -> str:
        """Return both on one line."""
        if self.object_name is None:
            return self.sentence
        return f"{describe(self.object_name)}: {self.sentence}"


@dataclasses.dataclass(frozen=True, slots=True)
class ConversionReport:
    """What a conversion did.

    Attributes:
        path: the new file.
        format: its format, such as `zt` or `safetensors`.
        version: its version where the format is `zt`, else empty.
        inputs: the files that were read; those without a path are not named.
        objects: how many objects of the source the new file has, in whole or in part.
        source_nbytes: bytes of the files that were read.
        nbytes: bytes of the new file; after a dry run what it would have.
        lost: what the new file cannot say.
        is_checked: whether it was read back and compared before it was put in place.
        unchecked: objects whose bytes came without a digest or another checksum: whether they are
            what was once saved nobody can tell, though the new file has digests of them.
        files: what was written: the new file, or the shards of a set and last their index, which
            `path` is then.
        unrepresented: what the source says beside objects and attributes; each is lost, too.
        changed: objects whose elements are others because `dtype` or `dequantize` asked for it.
    """

    path: str
    format: str
    version: str
    inputs: tuple[str, ...]
    objects: int
    source_nbytes: int
    nbytes: int
    lost: tuple[Loss, ...]
    is_checked: bool
    unchecked: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unrepresented: tuple[Unrepresented, ...] = ()
    changed: tuple[Change, ...] = ()

    @property
    def is_lossless(self) -> bool:
        """Return whether the new file says everything that was chosen, with the same elements."""
        return not self.lost and not self.changed

    def __repr__(self) -> str:
        """Return what was written, and how much was lost on the way."""
        facts = [
            f"{describe(self.path, 200)} is {self.format} {self.version}".rstrip(),
            counted(self.objects, "object"),
            f"{self.nbytes:,} bytes",
            f"{counted(len(self.lost), 'thing')} lost" if self.lost else "nothing lost",
        ]
        if self.changed:
            facts.append(f"{counted(len(self.changed), 'object')} made {self.changed[0].now}")
        return short_repr("ConversionReport", facts, ".lost" if self.lost else "")


@public
def convert(
    source: Readable,
    path: Path,
    *,
    to: str | None = None,
    version: str = LATEST,
    compression: bool | int | str | None = None,
    chunk_rows: int | None = None,
    checksum: str | bool | None = "crc32c",
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    max_shard_size: int | str | None = None,
    strict: bool = False,
    check: bool = False,
    durable: Durable = "auto",
    dry_run: bool = False,
    threads: int | None = None,
    dtype: npt.DTypeLike | None = None,
    dequantize: bool = False,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> ConversionReport:
    """Write what a file of any known format holds as a file of another, or of another version.

    The new file appears as a whole or not at all; an error leaves what was there before. Files
    larger than memory are no problem: of an object only a few MiB at a time are held, and 32 MiB
    where its elements have to be put in another order; as a whole only those of a deflated member
    in such an order, and numbers that ONNX packs in other ways than as plain bytes.

    Args:
        source: whatever `ztensor.open` takes, also a set of shards, or an open reader.
        path: the new file; it replaces one that is there, unless `overwrite` is False.
        to: its format: `"zt"`, `"safetensors"`, `"npz"`, `"npy"` (one array), `"gguf"` or
            `"hdf5"`; by default what the suffix of `path` says.
        version: of a `.zt` file: `"1.2.0"`, `"1.1.0"` or `"0.1.0"`.
        compression: of a `.zt` file: None keeps how components are stored, and stores raw what
            only another format knows to decode; False stores all raw; True or a zstd level
            compresses all.
        chunk_rows: of a `.zt` file that is compressed anew: rows that are decoded together, as for
            `ztensor.Writer`.
        checksum: of a `.zt` file: digest of components that come without one or are stored anew;
            a digest that is there stays.
        include: patterns with `*`, `?` and `[...]`; only objects whose name matches one.
        exclude: likewise; no objects whose name matches one.
        max_shard_size: most bytes of tensors in a file, as a number or text such as "5GB"; what is
            larger becomes shards with an index, as `save_file` writes them: `.zt` or
            `.safetensors` only. What an earlier set or file of that name left goes then.
        strict: True refuses, and puts nothing in place, where something would be lost.
        check: True reads the new file back before it is put in place, and compares every object
            that was not reported as lost.
        durable: as for `ztensor.Writer`.
        dry_run: True takes every step but writing; nothing is read back.
        threads: how many decode, compress and compare; see `ztensor.Writer`.
        dtype: `"float32"`, `"float16"` or `"bfloat16"`: floats of 16 bits and more, values of
            sparse tensors too, become that; all else is left alone. The report says of each object
            how far its elements are off; one that is finite and would become infinite is refused.
        dequantize: True makes dense floats, of `dtype` or float32, of quantized objects: those of
            `quantized_group` and the blocks of GGUF. What these two ask for is no loss that
            `strict` refuses, and `check` compares with the elements as they have to be.
        overwrite: False refuses to replace a file that is there, as the command does.
        progress: called with the bytes done so far and those to do in all.

    Returns:
        What was written, and what was lost on the way.

    Raises:
        ArgumentValueError: an argument has an unknown value, the suffix says no format, or no
            name matches.
        UsageError: there is a file and `overwrite` is False; source and target are one file, see
            `migrate`; or a format of one array is to hold several.
        NotRepresentableError: something would be lost, and `strict` is set; or all would be; or
            an element is too large for `dtype`.
        MissingDependencyError: the library of a format is not installed.
        FormatError: the source is damaged, or what was written does not read back as its source.
        UnsupportedError: the source holds what this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read or written.
    """
    target = path_text(path)
    kind = format_of(target, to)
    if version not in EMITTERS:
        raise ArgumentValueError(
            "unknown version", expected=f"one of {', '.join(EMITTERS)}", found=describe(version)
        )
    _require_compressed(kind, compression, chunk_rows)
    for there in (target, *(shards_there(target) if max_shard_size is not None else ())):
        require_free(there, overwrite=overwrite)
    casts = Casts(cast_target(dtype), dequantize=dequantize)
    with _Opened(source) as reader:
        inputs = files_of(reader)
        _require_other(inputs, target)
        part = casts.over(_part(reader, matching(reader, include, exclude)))
        how = How(
            version,
            compression,
            chunk_rows,
            checksum,
            strict,
            check,
            durable,
            dry_run,
            threads,
            progress,
        )
        if max_shard_size is None:
            return _told(casts, _write(part, Place(target), kind, inputs, how))
        limit = parse_size(max_shard_size)
        require_divided(kind)
        groups = plan_objects(part, part, limit, kind)
        for old in (*shards_there(target), *shard_paths(target, len(groups))):
            _require_other(inputs, old)
        if len(groups) > 1:
            return _told(casts, write_set(part, target, kind, groups, inputs, how))
        place, flush = place_of_whole(target, durable)
        how = dataclasses.replace(how, durable=flush)
        report = _write(part, place, kind, inputs, how)
        if not dry_run:
            remove_shards(target)
        return _told(casts, report)


@public
def migrate(
    path: Path,
    output: Path | None = None,
    *,
    version: str | None = None,
    compression: bool | int | str | None = None,
    chunk_rows: int | None = None,
    checksum: str | bool | None = "crc32c",
    strict: bool = True,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    threads: int | None = None,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> ConversionReport:
    """Rewrite a zTensor file in another version or encoding, and prove that nothing was lost.

    The new file is read back and compared with the old one, in names, shapes, types, element bytes
    and attributes, before it is put in place as a whole.

    Args:
        path: the file; with an `output` also the index of a set of shards, or a file of another
            format.
        output: the new file; None replaces the old one.
        version: `"1.2.0"`, `"1.1.0"` or `"0.1.0"`; None keeps the file's own, where it is written.
        compression: None keeps how components are stored, False stores all raw, True or a zstd
            level compresses all.
        chunk_rows: of what is compressed anew: rows that are decoded together, as for
            `ztensor.Writer`.
        checksum: digest of components that come without one or are stored anew.
        strict: False writes what the version can say and reports the rest; only with an `output`.
        durable: as for `ztensor.Writer`.
        lock: as for `ztensor.Editor`, where the old file is replaced.
        timeout: as for `ztensor.Editor`.
        dry_run: True takes every step but writing; nothing is read back.
        threads: how many decode, compress and compare.
        overwrite: False refuses to replace an `output` that is there.
        progress: called with the bytes done so far and those to do in all.

    Raises:
        NotRepresentableError: the version cannot say something, and `strict` is set.
        UsageError: there is an `output` and `overwrite` is False; the file is of another format
            and to be replaced, or `strict` is False without an `output`, or `output` is one of
            several files that are read.
        FormatError: the file is damaged.
        SourceError: it cannot be read or written; it is then as it was.
        ArgumentValueError: an argument has an unknown value.
    """
    source = path_text(path)
    target = source if output is None else path_text(output)
    if version is not None and version not in EMITTERS:
        raise ArgumentValueError(
            "unknown version", expected=f"one of {', '.join(EMITTERS)}", found=describe(version)
        )
    _require_compressed("zt", compression, chunk_rows)
    in_place = output is None or _is_same(source, target)
    if not in_place:
        require_ours(target)
        require_free(target, overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        locked = None
        if in_place and os.path.isfile(source):  # other writers wait, or are told
            locked = AppendSink(source, lock=lock, timeout=timeout)
            stack.enter_context(contextlib.closing(locked))
        reader = stack.enter_context(open_file(path))
        inputs = files_of(reader)
        if reader.format != "zt" and in_place:
            raise only_ours_change(source, reader.format)
        if isinstance(reader, ShardedReader) and (
            in_place or any(_is_same(one, target) for one in inputs)
        ):
            raise UsageError(
                "a set of files is rewritten as a new file: say which by `--output` (output= in "
                "Python)",
                file=source,
            )
        if in_place and not strict:
            raise UsageError(
                "what would be lost would be gone; give another file to write to", file=source
            )
        return _write(
            reader,
            Place(target),
            "zt",
            inputs,
            How(
                _version_of(reader) if version is None else version,
                compression,
                chunk_rows,
                checksum,
                strict,
                check=True,
                durable=durable,
                dry_run=dry_run,
                threads=threads,
                progress=progress,
            ),
            last=None if locked is None else locked.require_in_place,
        )


def _told(casts: Casts, report: ConversionReport) -> ConversionReport:
    return dataclasses.replace(report, changed=casts.changes)


def _require_other(inputs: Iterable[str], target: str) -> None:
    """Raise where a file that is read would be written over."""
    if any(_is_same(one, target) for one in inputs):
        error = UsageError("source and target are one file; choose another name", file=target)
        error.hint = "`ztensor migrate` (in Python ztensor.migrate) rewrites a .zt in its place"
        raise error


def require_divided(kind: str) -> None:
    """Raise where files of a format are not divided into shards with an index.

    Raises:
        ArgumentValueError: so it is.
    """
    if kind not in DIVIDED:
        raise ArgumentValueError(
            "files of this format are not divided into shards",
            expected=f"one of {', '.join(DIVIDED)}",
            found=describe(kind),
        )


def _require_compressed(
    kind: str,
    compression: bool | int | str | None,  # noqa: FBT001  # as callers pass it
    chunk_rows: int | None,
) -> None:
    """Raise where nothing is compressed whose rows could be decoded together."""
    if require_chunk_rows(chunk_rows) is None:
        return
    if kind != "zt" or compression is None or level_of(compression) is None:
        raise ArgumentValueError(
            "chunk_rows goes with a zTensor file that is compressed",
            expected="compression: 'zstd' or a level, and a .zt file to write",
            found=f"chunk_rows {chunk_rows}, compression {describe(compression)}, format {kind}",
        )


def format_of(path: str, to: str | None = None) -> str:
    """Return the format a file is to be written in.

    Raises:
        ArgumentValueError: `to` is none that is written, or the suffix says none.
    """
    if to is not None:
        return require_written(to)
    kind = format_by_suffix(path)
    if kind is not None:
        return kind
    written = written_formats()
    known = ", ".join(suffix for suffixes in written.values() for suffix in suffixes)
    raise ArgumentValueError(
        f"the suffix {describe(os.path.splitext(path)[1].lower())} is of no format that is written",
        file=path,
        expected=f"one of {known}, or `--to` (to= in Python) with one of {', '.join(written)}",
    )


def matching(
    names: Iterable[str],
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> list[str]:
    """Return the names that match a pattern of `include`, if given, and none of `exclude`.

    Raises:
        ArgumentValueError: there are names, and none of them is left.
    """
    keep = keeps(None if include is None else _listed(include), _listed(exclude))
    everyone = list(names)
    chosen = [name for name in everyone if keep(name)]
    if everyone and not chosen:
        raise ArgumentValueError(
            "no object is left to write",
            expected=f"patterns that leave some of {len(everyone)} names, such as "
            f"{', '.join(describe(name) for name in everyone[:3])}",
            found=f"include {_shown(include)}, exclude {_shown(exclude)}",
        )
    return chosen


def _listed(patterns: str | Iterable[str] | None) -> list[str]:
    listed = [patterns] if isinstance(patterns, str) else list(patterns or ())
    for pattern in listed:
        if not isinstance(pattern, str):
            raise ArgumentTypeError("a pattern is text", found=describe(pattern))
    return listed


def _shown(patterns: str | Iterable[str] | None) -> str:
    return ", ".join(map(describe, _listed(patterns))) or "nothing"


# --- The source -----------------------------------------------------------------------------


class _Opened:
    """Whatever a caller passed, open; what he opened himself stays open."""

    def __init__(self, source: Any) -> None:
        self._is_his = isinstance(source, ManifestReader)
        self.reader: Reader = source if self._is_his else open_file(source)

    def __enter__(self) -> Reader:
        return self.reader

    def __exit__(self, *exception: object) -> None:
        if not self._is_his:
            self.reader.close()


def files_of(reader: Reader) -> tuple[str, ...]:
    """Return the paths of what is read, the index of a set first."""
    if isinstance(reader, ShardedReader):
        index = (reader.name,) if reader.name.endswith(".json") else ()
        return (*index, *reader.files)
    path = reader._source.path
    return () if path is None else (path,)


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _part(reader: Reader, names: Sequence[str]) -> Reader:
    """Return a reader of some of the objects, over the same files."""
    return reader if len(names) == len(reader) else reader._select(names)


def _version_of(reader: Reader) -> str:
    """Return the version a file has, or the latest where that cannot say what it says."""
    versions = {reader.version}
    if isinstance(reader, ShardedReader):
        versions = {reader.shard(file).version for file in reader.files}
    version = max(versions)
    if version not in EMITTERS:
        return LATEST
    emitter = EMITTERS[version]()
    lost = _sayable(emitter.check_attributes, reader.attributes, None)[1]
    return LATEST if lost or _plan(reader, emitter)[1] else version


# --- The target -----------------------------------------------------------------------------


class _Target(FileSink):
    """A file that is looked at before it takes its place, and says how much is written.

    Args:
        place: the target.
        durable: as for `FileSink`.
        look: called with a path of the finished bytes before they are put in place; what it
            raises leaves the target as it was.
        written: called with the bytes written so far.
    """

    write_bytes = FROM_FILE_WRITE_BYTES

    def __init__(
        self,
        place: Place,
        *,
        durable: Durable,
        look: Callable[[str], None],
        written: Callable[[int], None],
    ) -> None:
        super().__init__(place.path, durable=durable, is_derived=place.is_derived, like=place.like)
        self._look = look
        self._written = written

    def _write_some(self, data: memoryview) -> int:
        count = super()._write_some(data)
        self._written(self.position)
        return count

    def commit(self) -> None:
        """Let the bytes be looked at, and put them in place."""
        descriptor = self._in_use()
        try:
            self._flush()
            # Where it has no name yet it will get one through /proc: see `FileSink`.
            self._look(self._temporary or f"/proc/self/fd/{self._descriptor}")
        except BaseException:
            self.abort()
            raise
        finally:
            del descriptor
        super().commit()


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """The arguments `convert` and `migrate` share; see there.

    Attributes:
        makes_folder: whether the folder is made where it is missing, by who calls.
    """

    version: str = LATEST
    compression: bool | int | str | None = None
    chunk_rows: int | None = None
    checksum: str | bool | None = "crc32c"
    strict: bool = False
    check: bool = False
    durable: Durable = "auto"
    dry_run: bool = False
    threads: int | None = None
    progress: Progress | None = None
    makes_folder: bool = False


def _write(
    reader: Reader,
    place: Place,
    kind: str,
    inputs: tuple[str, ...],
    how: How,
    last: Callable[[], None] | None = None,
) -> ConversionReport:
    source_nbytes = reader.nbytes
    lost = _lost_of_file(reader, kind, how)
    _check_sums(reader)
    count, nbytes = _write_one(reader, place, kind, how, lost, last)
    path = place.path
    return _report(reader, path, kind, inputs, how, count, source_nbytes, nbytes, lost, (path,))


def write_set(
    reader: Reader,
    target: str,
    kind: str,
    groups: Sequence[tuple[Sequence[str], int]],
    inputs: tuple[str, ...],
    how: How,
    *,
    replaces_file: bool = True,
) -> ConversionReport:
    """Write objects as shards of a format and the index that tells where each is.

    Args:
        reader: an open reader of what is written.
        target: the file they are the shards of.
        kind: the format.
        groups: the names in each shard, and their bytes.
        inputs: the files that are read.
        how: as for `convert`.
        replaces_file: whether a file at `target` is older, and goes at the end.
    """
    source_nbytes = reader.nbytes
    lost = _lost_of_file(reader, kind, how)
    index = index_path(target)
    _check_sums(reader)
    shards = ShardSet(
        target,
        len(groups),
        durable=how.durable,
        sources=reader._source_rights(),
        replaces_file=replaces_file,
    )
    work = _work_of(reader, how)
    count = nbytes = done = total_size = 0
    written: list[list[str]] = []
    try:
        for (names, _), path in zip(groups, shards.paths, strict=True):
            part = _part(reader, names)
            own = dataclasses.replace(
                how, durable=shards.durable, progress=shifted(how.progress, done, work)
            )
            objects, length = _write_one(part, shards.place(path), kind, own, lost, is_shard=True)
            done += _work_of(part, how)
            count, nbytes = count + objects, nbytes + length
            if not how.dry_run:
                with Reader(path, mmap=False) as shard:
                    written.append(list(shard))
                    total_size += sum(shard.metadata(name).nbytes for name in shard)
        digests = [] if how.dry_run else [sha256_of(path) for path in shards.paths]
        if any(names for names, _ in groups):
            _require_some(reader, range(count), lost, index)
        _require_unlike(written, index)
    except BaseException:
        shards.abort()
        raise
    files = [*shard_paths(target, len(groups)), index]
    if not how.dry_run:
        files = [*shards.commit(written, total_size, digests), index]
        nbytes += os.path.getsize(index)
    lost[:] = dict.fromkeys(lost)  # what is the file's own is lost in each shard
    return _report(
        reader, index, kind, inputs, how, count, source_nbytes, nbytes, lost, tuple(files)
    )


def _require_unlike(groups: Iterable[Iterable[str]], index: str) -> None:
    """Raise where two shards hold a tensor of one name: a component's can be another object's."""
    seen: set[str] = set()
    for name in (name for names in groups for name in names):
        if name in seen:
            raise NotRepresentableError(
                "two shards would hold a tensor of that name", file=index, object_name=name
            )
        seen.add(name)


def _report(
    reader: Reader,
    path: str,
    kind: str,
    inputs: tuple[str, ...],
    how: How,
    count: int,
    source_nbytes: int,
    nbytes: int,
    lost: Sequence[Loss],
    files: tuple[str, ...],
) -> ConversionReport:
    return ConversionReport(
        path,
        kind,
        how.version if kind == "zt" else "",
        inputs,
        count,
        source_nbytes,
        nbytes,
        tuple(lost),
        _is_checked(how),
        tuple(unchecked_names(reader)),
        files,
        tuple(_unrepresented(reader)),
    )


def _is_checked(how: How) -> bool:
    return how.check and not how.dry_run


def _work_of(reader: Reader, how: How) -> int:
    """Return the bytes to be done: written once, then two files are hashed."""
    stored = sum(found.stored_nbytes for found in reader.metadata(list(reader)))
    return stored * (3 if _is_checked(how) else 1)


def _unrepresented(reader: Reader) -> list[Unrepresented]:
    """Return what a file says beside its objects; of those that are listed only each is a loss."""
    return [
        one
        for one in reader.unrepresented
        if not (one.kind.startswith(UNREAD) and one.where in reader)
    ]


def _lost_of_file(reader: Reader, kind: str, how: How) -> list[Loss]:
    return [
        *(Loss(None, f"left out: {one}") for one in _unrepresented(reader)),
        *_unknown_fields(reader, kind, how.version),
    ]


def _check_sums(reader: Reader) -> None:
    for one in _files_read(reader):
        for checksum in one._sums:  # no single object's, so nothing that is copied compares them
            checksum.check()


def _write_one(
    reader: Reader,
    place: Place,
    kind: str,
    how: How,
    lost: list[Loss],
    last: Callable[[], None] | None = None,
    *,
    is_shard: bool = False,
) -> tuple[int, int]:
    """Write one file, add to `lost` what it cannot say, and return how many objects and bytes."""
    target = place.path
    check = _is_checked(how)
    stored = sum(found.stored_nbytes for found in reader.metadata(list(reader)))
    total = _work_of(reader, how)
    attributes: dict[str, Any] | None = None  # what the new file has to have, where that is plain

    def written(count: int) -> None:
        if how.progress is not None:
            how.progress(min(count, stored), total)

    def look(temporary: str) -> None:
        if how.strict:
            _require_lossless(lost, target)
        if check:
            compared = shifted(how.progress, stored, total)
            _require_equal(reader, temporary, target, attributes, lost, how.threads, compared)
        if last is not None:
            last()

    sink: FileSink | StreamSink
    if how.dry_run:
        sink = StreamSink(Nowhere(target, makes_folder=how.makes_folder))
    else:
        sink = _Target(place, durable=how.durable, look=look, written=written)
    try:
        if isinstance(sink, FileSink):
            for rights in reader._source_rights():
                sink.narrow(rights)
        if kind == "zt":
            emitter = EMITTERS[how.version]()
            attributes, unsaid = _sayable(emitter.check_attributes, reader.attributes, None)
            chosen, of_objects = _plan(reader, emitter)
            lost += [*unsaid, *of_objects]
            if how.strict:  # before the work, not after it
                _require_lossless(lost, target)
            if not is_shard:
                _require_some(reader, chosen, lost, target)
            _copy(chosen, sink, attributes, _extra_of(reader, how.version), how)
            count = len(chosen)
        else:
            if how.strict:  # before the work: what is lost already
                _require_lossless(lost, target)
            count = exporter(kind).export(
                reader,
                sink,
                lose=lambda name, sentence: lost.append(Loss(name, sentence)),
                progress=lambda done, whole: written(done * stored // max(whole, 1)),
                threads=how.threads,
            )
            if how.strict:
                _require_lossless(lost, target)
            sink.commit()
    except BaseException:
        sink.abort()
        raise
    return count, sink.position


def _copy(
    chosen: Mapping[str, ManifestReader],
    sink: FileSink | StreamSink,
    attributes: Mapping[str, object],
    extra: Mapping[str, object] | None,
    how: How,
) -> None:
    with (
        create(
            sink,
            version=how.version,
            checksum=how.checksum,
            attributes=attributes or None,
            threads=how.threads,
            chunk_rows=how.chunk_rows,
        ) as writer,
        Ahead(
            _decoded(chosen, is_kept=how.compression is None), how.threads, is_portable=True
        ) as ahead,
    ):
        writer.extra = extra
        writer.copier.chunks = ahead.chunks
        if how.compression is None:
            writer.copier.expect((reader, name) for name, reader in chosen.items())
        for name, reader in chosen.items():
            try:
                writer.copy(name, reader, compress=how.compression)
            except UnsupportedError as error:
                error.hint = error.hint or "exclude the object to write the others"
                raise
        writer.finish()


def _decoded(
    chosen: Mapping[str, ManifestReader], *, is_kept: bool
) -> Iterator[tuple[ManifestReader, str, str]]:
    """Yield what a writer decodes of the objects it copies, in its order."""
    seen: set[tuple[ManifestReader, int, int]] = set()
    for name, reader in chosen.items():
        home = reader.reader_of(name)
        if is_kept and home._stored_object(name) is not None:
            continue
        for role, component in home._object(name).components.items():
            place = home, component.offset, component.length
            if component.encoding not in ENCODINGS or place not in seen:
                seen.add(place)
                yield home, name, role


def _extra_of(reader: Reader, version: str) -> Mapping[str, object] | None:
    """Return the fields of a file's root that no version names, where the new one has a root."""
    if isinstance(reader, ShardedReader) or version == "0.1.0" or reader.format != "zt":
        return None
    return reader._manifest.extra


def _files_read(reader: Reader) -> list[Reader]:
    """Return the readers of single files that one reads through."""
    if isinstance(reader, ShardedReader):
        return [reader.shard(file) for file in reader.files]
    return [reader]


def _unknown_fields(reader: Reader, kind: str, version: str) -> Iterator[Loss]:
    """Yield the fields that no version names and that the new file will not have."""
    keeps_any = kind == "zt" and version != "0.1.0"
    for file in _files_read(reader):
        manifest = file._manifest
        if not keeps_any or file is not reader:
            for key in manifest.extra or ():
                yield Loss(None, f"left out: field {describe(key)} of the manifest's root")
        if keeps_any:
            continue
        objects = manifest.objects
        for name, value in (
            objects.others if isinstance(objects, CheckedObjects) else objects
        ).items():
            fields = list(value.extra or ())
            for role, component in value.components.items():
                fields += [f"{role}.{key}" for key in component.extra or ()]
            if fields and name in reader:
                yield Loss(name, f"left out: fields {', '.join(map(describe, fields))}")


# --- What is lost, and whether the rest came through ----------------------------------------


def _plan(reader: Reader, emitter: Emitter) -> tuple[dict[str, ManifestReader], list[Loss]]:
    """Return where each object that a version can say is copied from, and what it cannot say."""
    chosen: dict[str, ManifestReader] = {}
    lost: list[Loss] = []
    for name in reader:
        try:
            found = reader._stored_object(name) or reader._portable_object(name)
        except UnsupportedError as error:
            if reader.format == "zt":
                raise
            kind = "" if error.found is None else f", {error.found}"
            lost.append(Loss(name, f"left out: {error.message}{kind}"))
            continue
        try:
            name.encode("utf-8")
            emitter.check_object(found)
        except UnicodeEncodeError:
            lost.append(Loss(name, "left out: the name holds a lone surrogate"))
            continue
        except NotRepresentableError:
            bare = dataclasses.replace(found, attributes=None)
            try:
                emitter.check_object(bare)
            except NotRepresentableError as error:
                lost.append(Loss(name, f"left out: {error.message}"))
                continue
            home = reader.reader_of(name)
            check = functools.partial(_check_with, emitter, bare)
            kept, unsaid = _sayable(check, found.attributes or {}, name)
            lost.extend(unsaid)
            tensor_object = dataclasses.replace(home._object(name), attributes=kept or None)
            chosen[name] = home._with_objects({name: tensor_object})
        else:
            chosen[name] = reader
    return chosen, lost


def _check_with(
    emitter: Emitter, tensor_object: TensorObject, attributes: Mapping[str, object]
) -> None:
    emitter.check_object(dataclasses.replace(tensor_object, attributes=attributes))


def _sayable(
    check: Callable[[Mapping[str, object]], None],
    attributes: Mapping[str, object],
    name: str | None,
) -> tuple[dict[str, Any], list[Loss]]:
    """Return the attributes a version can say, and those it cannot."""
    kept: dict[str, Any] = {}
    lost = []
    for key, value in attributes.items():
        try:
            check({key: value})
        except NotRepresentableError as error:
            lost.append(Loss(name, f"attribute {describe(key)} left out: {error.message}"))
        else:
            kept[key] = value
    return kept, lost


def _require_lossless(lost: Sequence[Loss], target: str) -> None:
    if not lost:
        return
    first = lost[0]
    more = f"; and {len(lost) - 1} more" if len(lost) > 1 else ""
    raise NotRepresentableError(
        f"the new file cannot say everything: {first.sentence}{more}",
        file=target,
        object_name=first.object_name,
    )


def _require_some(reader: Reader, chosen: Sized, lost: Sequence[Loss], target: str) -> None:
    if len(reader) and not chosen:
        raise NotRepresentableError(
            f"the new file can hold none of {len(reader)} objects; the first is "
            f"{next(loss for loss in lost if loss.object_name is not None).sentence}",
            file=target,
        )


def _require_equal(
    reader: Reader,
    place: str,
    target: str,
    attributes: Mapping[str, object] | None,
    lost: Sequence[Loss],
    threads: int | None,
    progress: Progress | None,
) -> None:
    """Raise where finished bytes do not hold what they were made of, but for what is lost.

    Raises:
        FormatError: they do not.
    """
    affected = {loss.object_name for loss in lost}
    names = [name for name in reader if name not in affected]
    ours = attributes is not None
    half = None if progress is None else _halves(progress)
    before = tensor_hashes(
        reader, names, attributes=ours, threads=threads, progress=half and half(0)
    )
    try:
        with Reader(place) as result:
            missing = [name for name in names if name not in result]
            after = (
                {}
                if missing
                else tensor_hashes(
                    result, names, attributes=ours, threads=threads, progress=half and half(1)
                )
            )
            same = not ours or cbor.encode(result.attributes) == cbor.encode(dict(attributes or {}))
    except ZTensorError as error:
        error.file = target  # not the temporary's name
        raise
    wrong = missing or [name for name in names if before[name] != after[name]]
    if wrong or not same:
        raise FormatError(
            "what was written does not read back as its source; nothing was put in place",
            reason=Reason.DIGEST_MISMATCH,
            file=target,
            object_name=wrong[0] if wrong else None,
            found=f"{len(wrong)} objects differ" if wrong else "other attributes",
        )


def _halves(progress: Progress) -> Callable[[int], Progress]:
    """Return what makes a progress call for the first and for the second half of the work."""
    return lambda part: lambda done, total: progress(done if part == 0 else total + done, 2 * total)
