"""The options that functions share: each has its name, its type and its text here, once.

A function takes them as `**options: Unpack[SaveOptions]`. Defaults are where an option is acted on.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor

    import numpy.typing as npt

    from ztensor.accepted import Durable, Path, Progress, Storage
    from ztensor.limits import Limits

# --- Writing ----------------------------------------------------------------------------------


class WriteOptions(TypedDict, total=False):
    """What the bytes of a zTensor file are. For every function that writes one.

    Attributes:
        version: `"1.2.0"` (default), `"1.1.0"`, `"0.1.0"` or `"2.1"`; `"2"` and `"2.0"` are
            `"2.1"`.
        checksum: the digest of each component: `"crc32c"`, `"sha256"`, of 2.1 also `"xxh3"`. True
            (default) is the version's own: crc32c, of 2.1 xxh3. None stores no digests.
        chunk_rows: of compressed tensors, how many rows (indices of the first axis) are decoded
            together, up to 16 MiB: more make smaller files, fewer make reading rows cheaper. None
            (default) is as many as 64 KiB hold.
        alignment: of 2.1: what blobs begin at multiples of, a power of two from 4096 to 65536
            (default). Less suits many small tensors.
        canonical: of 2.1: True writes the canonical form, in which the same tensors and attributes
            give the same bytes: raw, equal bytes once, xxh3. Objects are then written in the order
            of their names' bytes, and not streamed.
    """

    version: str
    checksum: str | bool | None
    chunk_rows: int | None
    alignment: int | None
    canonical: bool


class SaveOptions(WriteOptions, total=False):
    """And how files are put in place. For `save_file`, `save_model`, `save_tree` and their like.

    Attributes:
        durable: True flushes to disk before the call returns; `"auto"` (default) does so where an
            existing file is replaced; False leaves it to the system.
        deduplicate: `"memory"` (default) stores arrays over the same memory (tied weights) once,
            under all their names; `"content"` also those whose bytes are equal; False stores each.
            Trees know what they share: their default is False.
        max_shard_size: most bytes of tensors in a file, such as 500_000_000 or `"5GB"`. What is
            larger goes to `model-00001-of-00003.zt` and so on, with `model.zt.index.json`, which
            is replaced as a whole too; `"content"` then looks within each file. None (default)
            writes one file.
        format: the format to write, whatever the suffix: `"zt"`, `"safetensors"`, `"npz"`,
            `"npy"`, `"gguf"` or `"hdf5"`. None (default) is what the suffix says.
        progress: called with the bytes of tensors written so far and of all of them.
    """

    durable: Durable
    deduplicate: Literal["memory", "content", False]
    max_shard_size: int | str | None
    format: str | None
    progress: Progress | None


class ModelOptions(SaveOptions, total=False):
    """And what `save_file` has by name beside them. For `save_model` and `save_pretrained`.

    Attributes:
        compression: False (default) stores raw; True compresses with zstd level 3; an integer is
            the level. Components that zstd makes no smaller are stored raw.
    """

    compression: bool | int | str


class RewriteOptions(WriteOptions, total=False):
    """How finished files are written anew. For `migrate` and `convert`.

    By default `migrate` keeps the version of the file. `checksum` is of components that come
    without a digest or are stored anew: a digest that is there stays, where the version has such
    digests.

    Attributes:
        compression: None (default) keeps how components are stored, and stores raw what only
            another format knows to decode; False stores all raw; True or a zstd level compresses
            all.
        durable: as in `SaveOptions`.
        dry_run: True takes every step but writing; nothing is read back.
        threads: how many decode, compress and compare, as in `LoadOptions`.
        progress: called with the bytes done so far and those to do in all.
    """

    compression: bool | int | str | None
    durable: Durable
    dry_run: bool
    threads: int | None
    progress: Progress | None


class ConvertOptions(RewriteOptions, total=False):
    """And what is written of them. For `convert`.

    Attributes:
        to: its format: `"zt"`, `"safetensors"`, `"npz"`, `"npy"` (one array), `"gguf"` or
            `"hdf5"`; by default what the suffix of `path` says.
        include: patterns with `*`, `?` and `[...]`; only objects whose name matches one.
        exclude: likewise; no objects whose name matches one.
        max_shard_size: most bytes of tensors in a file, as a number or text such as "5GB"; what is
            larger becomes shards with an index, as `save_file` writes them: `.zt` or
            `.safetensors` only. What an earlier set or file of that name left goes then.
        strict: True refuses, and puts nothing in place, where something would be lost.
        check: True reads the new file back before it is put in place, and compares every object
            that was not reported as lost.
        dtype: `"float32"`, `"float16"` or `"bfloat16"`: floats of 16 bits and more, values of
            sparse tensors too, become that; all else is left alone. The report says of each object
            how far its elements are off; one that is finite and would become infinite is refused.
        dequantize: True makes dense floats, of `dtype` or float32, of quantized objects: those of
            `quantized_group` and the blocks of GGUF. What these two ask for is no loss that
            `strict` refuses, and `check` compares with the elements as they have to be.
        quantize: `"int4"`, or `"int4 g64"`, with the length of a group, else 128: dense floats of
            two dimensions and more become codes of 2 to 8 bits, in groups along the last axis.
            `include` and `exclude` then choose which; all other objects are written as they are.
            For `.zt` files; an object is in memory as a whole.
        overwrite: False refuses to replace a file that is there, as the command does.
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
    """How each process writes its part of a divided checkpoint.

    For `PartWriter`, `save_sharded` and `StorageWriter`.

    Attributes:
        compression: as in `ModelOptions`.
        checksum: True (default) or `"crc32c"`, `"sha256"`, or None. `"xxh3-128"` is crc32c, and
            beside it what later saves with `since` need.
        threads: how many compress and hash, as in `LoadOptions`.
        durable: as in `SaveOptions`; `"auto"` flushes where the folder has a checkpoint already.
        storage: as in `OpenOptions`.
        max_shard_size: most bytes of a file, such as `"5GB"`; more files then. No limit by default.
        since: an older checkpoint. A chunk of the same place and the same bytes is not written: the
            file that has it becomes one of this folder's, too, by a link, or a copy in the store.
            So the older checkpoint may be removed. Bytes are the same where their xxh3-128 is,
            which the older one has if it was saved with `since` or `checksum="xxh3-128"`.
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
        atomic: True changes a copy and renames it over the file: readers never meet a torn end,
            at the cost of the copy (little where the file system shares blocks).
        compression: for new objects, as in `ModelOptions`.
        checksum: for new objects, as in `WriteOptions`; True (default) is that of the old ones
            where they have one kind.
        chunk_rows: for new objects, as in `WriteOptions`.
        durable: False leaves flushing to the system: safe against a killed process, not a power
            cut. Otherwise everything is on disk when the call returns.
        lock: False takes no lock; only for file systems without locks, if no other process writes.
        timeout: seconds to wait for another writer; 0 by default.
        dry_run: True takes every step but writing: what would fail fails, the length that the file
            would have is returned, and the file stays as it is.
        progress: called with the bytes copied so far and those to copy, where `atomic` or an
            older container asks for a copy of the file before the first change.
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
    """Options of `remove_tensors`: of `Editor`, or with an output those of `Writer`.

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
    """How a file is read, wherever it is.

    Attributes:
        verify: None (default) checks digests of what is copied, True also of a view before it is
            first handed out, False of nothing.
        mmap: False reads instead of mapping: every array has its own memory, which no change of
            the file can affect.
        limits: safety caps; `ztensor.Limits()` by default.
        recover: True opens a torn file at its last committed state, and logs a warning that says
            so; the file is not changed.
    """

    verify: bool | None
    mmap: bool
    limits: Limits | None
    recover: bool


class OpenOptions(FileOptions, total=False):
    """And how a store is asked. For every function that opens what `ztensor.open` takes.

    Attributes:
        storage: how the store of a URL is opened: a dict of options by obstore's names, such as
            `endpoint`, `region`, `skip_signature` and `credential_provider`, or a store of obstore.
            By default the environment says, as for the clouds' own tools.
        cache: a folder that keeps the files that are read of URLs, whole, for the next reader of
            the same version. By default that of the variable `ZTENSOR_CACHE`, if it is set; `""`
            for none.
    """

    storage: Storage | None
    cache: Path | None


class LoadOptions(OpenOptions, total=False):
    """And how all of a file is loaded. For `load_file`, `load_model` and their like.

    Attributes:
        only: a pattern, or several, with `*`, `?` and `[...]`, such as `"layers.0.*"`: loads the
            objects whose names match one. By default all.
        dequantize: True gives float32 tensors in the place of quantized ones: those of
            `quantized_group` and the blocks of GGUF. By default they are `ztensor.Tensor`.
        threads: how many read or decompress; by default as many as there are cores, four at most,
            or what `ZTENSOR_NUM_THREADS` says. Shards are loaded one after the other.
        progress: called after each file with the bytes of the files loaded so far and of all.
    """

    only: str | Iterable[str] | None
    dequantize: bool
    threads: int | None
    progress: Progress | None


class TreeOptions(LoadOptions, total=False):
    """And what of a tree is loaded. For `load_tree` of each framework.

    Attributes:
        copy: True (default) gives memory of its own, each tensor checked against its digest. False
            gives views of the file where the data is raw, unchecked: nothing is read until it is
            touched, writing copies the page and never reaches the file, and the file must not be
            changed in place meanwhile.
        only: of a tree the patterns are of keys joined by dots, such as `"model.*"`: loads the
            values that match one, and whatever is in them. What is left out is missing in dicts,
            and None in lists, tuples and fields.
        into: a live tree: the result has its classes, and must have its keys, lengths, shapes and
            element types. Fields of dataclasses that are no data are taken from it.
        types: namedtuples, dataclasses and enums, found by their qualified names. One that is not
            among them, and not in `into`, comes as a `Record`.
    """

    copy: bool
    into: Any
    types: Iterable[type]


class FleetOptions(TypedDict, total=False):
    """How many files are gone through. For the functions of `ztensor.fleet`.

    Attributes:
        executor: what does the work: any `concurrent.futures.Executor`. None (default) does it
            here, one file for each result that is asked for. It is not shut down.
        workers: how many files the executor does at a time, where it does not say: it gets at most
            four times as many files ahead.
        on_error: `"collect"` (default) gives a file's error in the place of its report; `"raise"`
            raises the first, and drops what has not begun.
        storage: as in `OpenOptions`, for URLs; it is sent to the workers.
        progress: called with the files that are done and those there are; where the sources have no
            length, with those that were begun.
    """

    executor: Executor | None
    workers: int | None
    on_error: Literal["collect", "raise"]
    storage: Storage | None
    progress: Progress | None


# --- What functions do with them --------------------------------------------------------------

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)


def parse_size(size: int | str) -> int:
    """Return how many bytes "5GB" or "500MiB" are.

    Raises:
        ArgumentValueError: it is no size, or not positive.
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
    """Return a name filter: a name matches one of `include` and none of `exclude`.

    Args:
        include: patterns with `*`, `?` and `[...]`; `*` matches dots and slashes too. None lets
            all names in, no pattern none.
        exclude: likewise; None and no pattern leave none out.

    Raises:
        ArgumentTypeError: a pattern is no text.
    """
    included = None if include is None else [_compiled(pattern) for pattern in include]
    excluded = [_compiled(pattern) for pattern in exclude or ()]

    def keep(name: str) -> bool:
        if included is not None and not any(pattern.match(name) for pattern in included):
            return False
        return not any(pattern.match(name) for pattern in excluded)

    return keep


def _compiled(pattern: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):  # also what an iterator gives, which nobody saw before
        raise ArgumentTypeError(
            "a pattern of names is no text",
            expected="a str, such as 'model.*'",
            found=type(pattern).__name__,
        )
    return re.compile(fnmatch.translate(pattern))


def only_named(names: Iterable[str], only: str | Iterable[str], file: str) -> list[str]:
    """Return the names that a caller asks for by patterns.

    Raises:
        ObjectNotFoundError: there are none.
    """
    patterns = [only] if isinstance(only, str) else list(only)
    found = list(filter(keeps(patterns), names))
    if not found:
        asked = ", ".join(describe(pattern) for pattern in patterns) or "of no pattern"
        raise ObjectNotFoundError(f"no object has a name like {asked}", file=file)
    return found


def opening(options: LoadOptions) -> OpenOptions:
    """Return those options of a load that are for `ztensor.open`."""
    known = OpenOptions.__optional_keys__
    chosen: Any = {name: value for name, value in options.items() if name in known}
    return chosen  # type: ignore[no-any-return]


def for_load_files(
    options: LoadOptions, objects: Any, dequantize: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return those options of a load that are for `load_files`.

    Args:
        options: the caller's.
        objects: what is loaded of.
        dequantize: makes floats of a quantized tensor, where that is asked for.

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
    """Return the `progress` of one part of the work, which reports on the whole.

    Args:
        progress: the caller's.
        done: what the parts before have done.
        total: what there is to do in all.
    """
    if progress is None:
        return None
    return lambda part, _: progress(min(done + part, total), total)


def require_bytes(data: object) -> None:
    """Raise where a caller of `load` gave the path of a file in place of its bytes.

    Raises:
        ArgumentTypeError: it is a path.
    """
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        raise ArgumentTypeError("load takes bytes; load_file takes a path", found=describe(data))


def require_options(function: str, options: Mapping[str, object], kind: Any) -> None:
    """Raise what Python raises for a name that is no parameter, with the name that comes near.

    Args:
        function: what was called.
        options: what it was given by name.
        kind: the typed dict of its options.

    Raises:
        ArgumentTypeError: a name is none of the typed dict's.
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
