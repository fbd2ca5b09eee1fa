"""Options that functions share: the name, type and text of each, once.

A function takes them as `**options: Unpack[SaveOptions]`. The default of an option is in the
function that acts on it.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ztensor.arguments import require_choice as require_choice
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ObjectNotFoundError,
    describe,
    near_names,
)
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor

    import numpy.typing as npt

    from ztensor.accepted import Durable, Path, Progress, Resolver, Storage
    from ztensor.limits import Limits

# --- Writing ----------------------------------------------------------------------------------


class WriteOptions(TypedDict, total=False):
    """The bytes of a zTensor file. For every function that writes one.

    Attributes:
        version: `"1.2.0"` (default), `"1.1.0"`, `"0.1.0"` or `"2.1"`; `"2"` and `"2.0"` are
            `"2.1"`.
        checksum: the digest of each component: `"crc32c"`, `"sha256"`, of 2.1 also `"xxh3"`. True
            (default) is the version's own: crc32c, of 2.1 xxh3. None stores no digests.
        chunk_rows: rows (indices of the first axis) of compressed tensors that are decoded
            together, up to 16 MiB: more make smaller files, fewer make reading rows cheaper. None
            (default) is as many as 64 KiB hold.
        alignment: of 2.1: blobs begin at multiples of it, a power of two from 4096 to 65536
            (default). Less suits many small tensors.
        canonical: of 2.1: True writes the canonical form: equal tensors and attributes give equal
            bytes. Data is raw, equal bytes are stored once, digests are xxh3. Objects are then
            written in the order of their names' bytes, and not streamed.
    """

    version: str
    checksum: str | bool | None
    chunk_rows: int | None
    alignment: int | None
    canonical: bool


class SaveOptions(WriteOptions, total=False):
    """Adds how files are put in place. For `save_file`, `save_model`, `save_tree` and their like.

    Attributes:
        durable: True flushes to disk before the call returns; `"auto"` (default) does so if an
            existing file is replaced; False leaves it to the system.
        deduplicate: `"memory"` (default) stores arrays over the same memory (tied weights) once,
            under all their names; `"content"` also arrays with equal bytes; False stores each.
            Trees record shared arrays themselves: their default is False.
        max_shard_size: most bytes of tensors in a file, such as 500_000_000 or `"5GB"`. Larger
            models go to `model-00001-of-00003.zt` and so on, with `model.zt.index.json`; the set
            is replaced atomically. `"content"` then compares within each file. None (default)
            writes one file.
        format: the format to write, for any suffix: `"zt"`, `"safetensors"`, `"npz"`, `"npy"`,
            `"gguf"` or `"hdf5"`. None (default) takes the format of the suffix.
        progress: called with the bytes of tensors written so far and of all of them.
    """

    durable: Durable
    deduplicate: Literal["memory", "content", False]
    max_shard_size: int | str | None
    format: str | None
    progress: Progress | None


class ModelOptions(SaveOptions, total=False):
    """Adds named parameters of `save_file`. For `save_model` and `save_pretrained`.

    Attributes:
        compression: False (default) stores raw; True compresses with zstd level 3; an integer is
            the level. Components that zstd makes no smaller are stored raw. `"planes"` stores dense
            tensors by significance of their bytes: bfloat16 takes two thirds, float32 four fifths,
            and reading is faster than with zstd. Such tensors are not mapped, and releases up
            to 1.2.3 and 2.1.2 refuse them. For versions 1.2 and 2.1; other objects are stored raw.
    """

    compression: bool | int | str


class RewriteOptions(WriteOptions, total=False):
    """How finished files are rewritten. For `migrate` and `convert`.

    By default `migrate` keeps the version of the file. `checksum` is for components that have no
    digest or are stored anew: an old digest is kept, if the version has such digests.

    Attributes:
        compression: None (default) keeps encodings, and stores components raw if only another
            format has their encoding; False stores all raw; True or a zstd level compresses all;
            `"planes"` as in `ModelOptions`.
        durable: as in `SaveOptions`.
        dry_run: True does everything except writing; nothing is read back.
        threads: how many decode, compress and compare, as in `LoadOptions`.
        progress: called with the bytes done so far and those to do in all.
    """

    compression: bool | int | str | None
    durable: Durable
    dry_run: bool
    threads: int | None
    progress: Progress | None


class ConvertOptions(RewriteOptions, total=False):
    """Adds the format and the content of the new file. For `convert`.

    Attributes:
        to: its format: `"zt"`, `"safetensors"`, `"npz"`, `"npy"` (one array), `"gguf"` or
            `"hdf5"`; by default the format of the suffix of `path`.
        include: patterns with `*`, `?` and `[...]`: only objects with a matching name.
        exclude: patterns: no objects with a matching name.
        max_shard_size: most bytes of tensors in a file, as a number or text such as "5GB"; larger
            models become shards with an index, as `save_file` writes them: `.zt` or
            `.safetensors` only. An older set or file of this name is removed.
        strict: True refuses any loss, and then puts nothing in place.
        check: True reads the new file back before it is put in place, and compares every object
            that was not reported as lost.
        dtype: `"float32"`, `"float16"` or `"bfloat16"`: the new type of floats of 16 bits and more,
            also of values of sparse tensors; other objects are unchanged. The report has the
            largest error of each object. A finite element that would become infinite is refused.
        dequantize: True converts quantized objects (`quantized_group` and the blocks of GGUF) to
            dense floats, of `dtype` or float32. `strict` does not refuse these two changes, and
            `check` compares with the new elements.
        quantize: `"int4"`, or `"int4 g64"`, with the length of a group, else 128: dense floats of
            two dimensions and more become codes of 2 to 8 bits, in groups along the last axis.
            `include` and `exclude` then choose which; all other objects are written unchanged.
            For `.zt` files; one object at a time is held in memory completely.
        overwrite: False refuses to replace an old file, as the command does.
    """

    to: str | None
    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    max_shard_size: int | str | None
    strict: bool
    check: bool
    dtype: npt.DTypeLike | None
    dequantize: bool
    quantize: str | None
    overwrite: bool


class ObjectOptions(TypedDict, total=False):
    """How one object is stored. For `Writer.write` and its like.

    Attributes:
        attributes: key-value pairs of the object; a tensor's own by default.
        compress: as the writer's `compression`, for this object; None takes the writer's.
        checksum: as the writer's, for this object; False or `"none"` for no digest.
        chunk_rows: as the writer's, for this object; None takes the writer's.
    """

    attributes: Mapping[str, object] | None
    compress: bool | int | str | None
    checksum: str | bool | None
    chunk_rows: int | None


class PartOptions(TypedDict, total=False):
    """How each process writes its part of a distributed checkpoint.

    For `PartWriter`, `save_sharded` and `StorageWriter`.

    Attributes:
        compression: as in `ModelOptions`.
        checksum: True (default) or `"crc32c"`, `"sha256"`, or None. `"xxh3-128"` is crc32c, with
            additional hashes for later saves with `since`.
        threads: how many compress and hash, as in `LoadOptions`.
        durable: as in `SaveOptions`; `"auto"` flushes if the folder has a checkpoint already.
        storage: as in `OpenOptions`.
        max_shard_size: most bytes of a file, such as `"5GB"`; more files then. No limit by default.
        since: an older checkpoint. A chunk with the same position and bytes is not written: its
            file is added to this folder by a link, or by a copy in the store, so the older
            checkpoint may be removed. Chunks are compared by xxh3-128, which a checkpoint has if it
            was saved with `since` or `checksum="xxh3-128"`.
    """

    compression: bool | int | str
    checksum: str | bool | None
    threads: int | None
    durable: Durable
    storage: Storage | None
    max_shard_size: int | str | None
    since: Path | None


class EditOptions(TypedDict, total=False):
    """How a finished file is changed. For `Editor`, and each change as a function.

    Attributes:
        atomic: True changes a copy and renames it over the file: readers never see a torn end, at
            the cost of the copy (little if the file system shares blocks).
        compression: for new objects, as in `ModelOptions`.
        checksum: for new objects, as in `WriteOptions`; True (default) takes the algorithm of the
            old ones if they have only one.
        chunk_rows: for new objects, as in `WriteOptions`.
        durable: False leaves flushing to the system: safe against a killed process, not a power
            cut. Otherwise everything is on disk when the call returns.
        lock: False takes no lock; only for file systems without locks, if no other process writes.
        timeout: seconds to wait for another writer; 0 by default.
        dry_run: True does everything except writing: errors are raised, the new length of the file
            is returned, and the file is unchanged.
        progress: called with the bytes copied so far and in all, if `atomic` or an older container
            requires a copy of the file before the first change.
    """

    atomic: bool
    compression: bool | int | str
    checksum: str | bool | None
    chunk_rows: int | None
    durable: Durable
    lock: bool
    timeout: float
    dry_run: bool
    progress: Progress | None


class RemoveOptions(EditOptions, total=False):
    """Options of `remove_tensors`: for `Editor`, or with an output for `Writer`.

    Attributes:
        version: as in `WriteOptions`.
        alignment: as in `WriteOptions`.
        canonical: as in `WriteOptions`.
        threads: as for `Writer`.
    """

    version: str
    alignment: int | None
    canonical: bool
    threads: int | None


# --- Reading ----------------------------------------------------------------------------------


class FileOptions(TypedDict, total=False):
    """How a file is read, on disk or in a store.

    Attributes:
        verify: None (default) checks digests of copied data, True also of a view before it is first
            returned, False none.
        mmap: False reads instead of mapping: every array has its own memory, which no change of
            the file can affect.
        limits: safety caps; `ztensor.Limits()` by default.
        recover: True opens a torn file at its last committed state, and logs a warning; the file is
            not changed.
        resolver: finds the shards that a file of 2.x names: a function of a value with `name`,
            `size` and `digest`. It returns a path, a URL, bytes or an open file, which is checked
            like any shard; or None for the usual places: `<stem>-<name>.zt` beside the file,
            `blobs/<algorithm>/<hex>` there, and on disk any file there of this size and digest.
            `ztensor.io.ShardFolder` is one for another folder.
    """

    verify: bool | None
    mmap: bool
    limits: Limits | None
    recover: bool
    resolver: Resolver | None


class OpenOptions(FileOptions, total=False):
    """Adds access to stores. For every function with the sources of `ztensor.open`.

    Attributes:
        storage: how the store of a URL is opened: a dict of options by obstore's names, such as
            `endpoint`, `region`, `skip_signature` and `credential_provider`, or a store of obstore.
            By default environment variables apply, as for the clouds' own tools.
        storage_options: the same by the names that fsspec's libraries and pandas use, instead of
            `storage`: `key`, `secret`, `anon`, `client_kwargs` of s3fs, `token` of gcsfs,
            `account_key` of adlfs, `headers` of HTTP. Functions without it take a `ztensor.Remote`.
        cache: a folder that keeps complete files of URLs, for the next reader of the same version.
            By default the folder of the variable `ZTENSOR_CACHE`, if it is set; `""` for no cache.
    """

    storage: Storage | None
    storage_options: Mapping[str, object] | None
    cache: Path | None


class LoadOptions(OpenOptions, total=False):
    """Adds how all of a file is loaded. For `load_file`, `load_model` and their like.

    Attributes:
        only: a pattern, or several, with `*`, `?` and `[...]`, such as `"layers.0.*"`: loads the
            objects with a matching name. By default all.
        dequantize: True returns float32 tensors in the place of quantized ones
            (`quantized_group` and the blocks of GGUF). By default they are `ztensor.Tensor`.
        threads: how many read or decompress; by default as many as there are cores, four at most,
            or the value of `ZTENSOR_NUM_THREADS`. Shards are loaded one after the other.
        progress: called after each file with the bytes of the files loaded so far and of all.
    """

    only: str | Iterable[str] | None
    dequantize: bool
    threads: int | None
    progress: Progress | None


class TreeOptions(LoadOptions, total=False):
    """Adds which values of a tree are loaded, and as what. For `load_tree` of each framework.

    Attributes:
        copy: True (default) gives memory of its own, each tensor checked against its digest. False
            gives views of the file if the data is raw, unchecked: nothing is read until it is
            touched, writing copies the page and never reaches the file, and the file must not be
            changed in place meanwhile.
        only: in trees, patterns of keys joined by dots, such as `"model.*"`: loads the matching
            values and their content. Other values are missing in dicts, and None in lists, tuples
            and fields.
        into: a live tree: the result has its classes, and must have its keys, lengths, shapes and
            element types. Fields of dataclasses that hold no data are taken from it.
        types: namedtuples, dataclasses and enums, found by their qualified names. An instance of
            another type, if it is not in `into`, becomes a `Record`.
    """

    copy: bool
    into: Any
    types: Iterable[type]


class FleetOptions(TypedDict, total=False):
    """How many files are processed. For the functions of `ztensor.fleet`.

    Attributes:
        executor: any `concurrent.futures.Executor`, which is not shut down. None (default) works in
            this thread, one file for each requested result.
        workers: files that the executor processes at a time, if it has no such attribute: at most
            four times as many are submitted in advance.
        on_error: `"collect"` (default) returns a file's error in the place of its report; `"raise"`
            raises the first error, and cancels pending files.
        storage: as in `OpenOptions`, for URLs; it is sent to the workers.
        progress: called with the count of finished files and of all; if the sources have no length,
            of submitted files.
    """

    executor: Executor | None
    workers: int | None
    on_error: Literal["collect", "raise"]
    storage: Storage | None
    progress: Progress | None


# --- Functions over options --------------------------------------------------------------------

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)


# Values of options of zTensor files that ask for nothing: no other format has digests or encodings.
_NOTHING: dict[str, tuple[object, ...]] = {
    "compression": (False, None, "none", "raw"),
    "chunk_rows": (None,),
    "checksum": (True, "crc32c", "none", None, False),
    "version": ("1.2.0",),
    "alignment": (None,),
    "canonical": (False,),
}


def require_nothing_of_zt(kind: str, options: Mapping[str, object]) -> None:
    """Raise if an option that only zTensor files have is set for a file of another format.

    Raises:
        ArgumentValueError: it is set.
    """
    for name in _NOTHING.keys() & options if kind != "zt" else ():
        value = options[name]
        if (type(value), value) not in [(type(other), other) for other in _NOTHING[name]]:
            raise ArgumentValueError(
                f"{name} is an option of zTensor files, not of {kind} files",
                expected=f"a path that ends with .zt, or no {name}",
                found=describe(value),
            )


def parse_size(size: int | str) -> int:
    """Return the bytes of a size such as "5GB" or "500MiB".

    Raises:
        ArgumentValueError: it is not a size, or not positive.
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    if isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        number, unit, is_binary = match.groups()
        amount = float(number) * (1024 if is_binary else 1000) ** " KMGT".index(unit.upper() or " ")
        if 1 <= amount < 1 << 64:
            return int(amount)
    raise ArgumentValueError(
        "not a size", expected="a number of bytes, or text such as '5GB'", found=describe(size)
    )


def keeps(
    include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> Callable[[str], bool]:
    """Return a predicate: a name matches a pattern of `include`, and no pattern of `exclude`.

    Args:
        include: patterns with `*`, `?` and `[...]`; `*` also matches dots and slashes. None admits
            all names, an empty iterable no name.
        exclude: patterns; None or an empty iterable excludes no name.

    Raises:
        ArgumentTypeError: a pattern is not text.
    """
    included = None if include is None else [_compiled(pattern) for pattern in include]
    excluded = [_compiled(pattern) for pattern in exclude or ()]

    def keep(name: str) -> bool:
        if included is not None and not any(pattern.match(name) for pattern in included):
            return False
        return not any(pattern.match(name) for pattern in excluded)

    return keep


def _compiled(pattern: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):  # an iterator's values are first seen here
        raise ArgumentTypeError(
            "a pattern of names must be text",
            expected="a str, such as 'model.*'",
            found=type(pattern).__name__,
        )
    return re.compile(fnmatch.translate(pattern))


def only_named(names: Iterable[str], only: str | Iterable[str], file: str) -> list[str]:
    """Return the names that match a pattern of `only`.

    Raises:
        ObjectNotFoundError: no name matches.
    """
    patterns = [only] if isinstance(only, str) else list(only)
    matching = list(filter(keeps(patterns), names))
    if not matching:
        wanted = ", ".join(describe(pattern) for pattern in patterns) or "of no pattern"
        raise ObjectNotFoundError(f"no object has a name like {wanted}", file=file)
    return matching


def opening(options: LoadOptions) -> OpenOptions:
    """Return the options of a load that `ztensor.open` takes."""
    known = OpenOptions.__optional_keys__
    chosen: Any = {name: value for name, value in options.items() if name in known}
    return chosen  # type: ignore[no-any-return]


def for_load_files(
    options: LoadOptions, objects: Any, dequantize: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return the options of a load that `load_files` takes.

    Args:
        options: the caller's options.
        objects: the objects to load from.
        dequantize: converts a quantized tensor to floats, for the option of this name.

    Raises:
        ObjectNotFoundError: no name matches `only`.
    """
    only = options.get("only")
    return {
        "threads": options.get("threads"),
        "progress": options.get("progress"),
        "names": None if only is None else only_named(objects.names, only, objects.name),
        "dequantize": dequantize if options.get("dequantize") else None,
    }


def shifted(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Return a progress function for one part of the work; it reports to the caller's.

    Args:
        progress: the caller's function.
        done: work of the parts before.
        total: work of all parts.
    """
    if progress is None:
        return None
    return lambda part, _: progress(min(done + part, total), total)


def summed(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function for counts of work, from any thread; it reports their sum to the caller's.

    Args:
        progress: the caller's function.
        total: work in all; the sum is reported up to it.
    """
    done, lock = 0, Lock()

    def add(count: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += count
                progress(min(done, total), total)

    return add


def require_bytes(data: object) -> None:
    """Raise if the argument of `load` is a path, not bytes.

    Raises:
        ArgumentTypeError: it is a path.
    """
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        raise ArgumentTypeError("load takes bytes; load_file takes a path", found=describe(data))


def require_options(function: str, options: Mapping[str, object], kind: Any) -> None:
    """Raise Python's error for an unknown keyword argument, with a similar name as a hint.

    Args:
        function: name of the called function.
        options: its keyword arguments.
        kind: the typed dict of its options.

    Raises:
        ArgumentTypeError: a name is not in the typed dict.
    """
    known = kind.__optional_keys__
    if options.keys() <= known:
        return
    name = next(name for name in options if name not in known)
    error = ArgumentTypeError(f"{function}() got an unexpected keyword argument {name!r}")
    near, _ = near_names(name, sorted(known))
    if near:
        error.hint = f"did you mean {' or '.join(map(repr, near))}?"
    raise error
