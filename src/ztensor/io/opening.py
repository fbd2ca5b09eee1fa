"""What users open files with: `open`, and the readers it gives.

A file on disk whose name leads to no others is opened at once. For anything else the openers are
asked, then whether it is a set of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from ztensor import Remote
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotZTensorError,
    Reason,
    SourceNotFoundError,
    SourceNotRegularError,
    UnsupportedError,
    describe,
)
from ztensor.io.contents import open_file
from ztensor.io.reading.reader import ObjectReader
from ztensor.io.source.paths import path_text
from ztensor.io.source.stores import is_remote
from ztensor.io.source.urls import with_storage
from ztensor.limits import caps_of
from ztensor.registry import Registry
from ztensor.showing import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from ztensor.accepted import (
        JaxArray,
        JaxDevice,
        JaxSharding,
        Openable,
        Path,
        Storage,
        TorchDevice,
        TorchTensor,
    )
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.shards.objects import Objects, ShardedObjects
    from ztensor.options import FileOptions, OpenOptions

# What opens several files that are one thing, by the name of the file that leads to the others.
# Asked for that file, for folders, and for a URL at which there is no object; plugins are asked for
# whatever else is no file that can be read. One takes what the caller passed, `is_missing`, which
# says that there is no such file, and `FileOptions`; it returns None for what it does not know.
OPENERS: Registry[str, Callable[..., Objects | None]] = Registry(
    {"checkpoint.zt": "ztensor.distributed.opened:open_given"},
    group="ztensor.openers",
    kind=Callable,
)
# For a file of no known format, for no file, and for a folder with no model or with several.
_NOTHING = NotZTensorError, SourceNotFoundError, SourceNotRegularError, ArgumentValueError
# How files are called that lead to others: an index, the first shard of GGUF.
_LEADING = (".json", ".gguf", *OPENERS.lines)


class Reader(ObjectReader):
    """A zTensor file, or one of a known other format: a mapping from object names to arrays.

    Opening reads only the manifest; data is mapped or read when it is used. Several threads may
    use a reader, and it can be pickled if its source can be opened again. Arrays stay valid after
    the reader is closed.

    Args:
        path: a path, a URL (`s3://`, `gs://`, `az://`, `https://`), a bytes-like object, or a
            seekable binary file object.
        options: see `ztensor.typing.OpenOptions`.

    Raises:
        FormatError: the file is damaged or no zTensor file.
        UnsupportedVersionError: it is of a version this release does not read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
        ArgumentTypeError: `path` is nothing that can be opened.
    """

    def __init__(self, path: Openable, **options: Unpack[OpenOptions]) -> None:
        _require_known("Reader", options)
        super().__init__(objects_of(path, is_one=True, **options))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, or by value for bytes, so that workers open the file themselves.

        Raises:
            ClosedError: the reader is closed.
            UsageError: the source is an open file object, which another process cannot have.
        """
        self.objects.require_open()
        return reader_over, (self.objects,)

    def reader_of(self, name: str) -> Reader:
        """Return the reader of the file an object is in: this one."""
        return self

    def verify(
        self,
        names: Iterable[str] | None = None,
        *,
        deep: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every stored byte and return what is wrong; damage does not raise.

        In several files the path of a problem begins with the file. Where an index has digests of
        whole files, as `split` writes them, those are checked as well, unless `names` are given.

        Args:
            names: objects to check; all of them by default.
            deep: True reads the shards of a 2.x file once more, for the digests of whole files.
            threads: how many to use; as many as there are cores, four at most, by default.
            progress: called with the stored bytes read so far and the bytes to read in all.

        Raises:
            ObjectNotFoundError: a name is not in the file.
            SourceError: the bytes could not be read.
        """
        return self.objects.check(names, deep=deep, threads=threads, progress=progress)

    @overload
    def read_jax(
        self,
        name: str,
        *,
        device: JaxDevice | None = None,
        sharding: JaxSharding | None = None,
    ) -> JaxArray | Any: ...
    @overload
    def read_jax(
        self,
        name: Iterable[str],
        *,
        device: JaxDevice | None = None,
        sharding: JaxSharding | None = None,
    ) -> dict[str, JaxArray | Any]: ...
    def read_jax(
        self,
        name: str | Iterable[str],
        *,
        device: JaxDevice | None = None,
        sharding: JaxSharding | None = None,
    ) -> JaxArray | Any | dict[str, JaxArray | Any]:
        """Return objects as JAX values: a `jax.Array`, or `BCOO` or `BCSR` where they are sparse.

        In the CPU's memory they share that of the arrays this reader gives where they can,
        unchecked: write to neither. What JAX copies whole is checked against its digest.

        Args:
            name: one name, or several for a dict.
            device: a `jax.Device` or a name such as `"cpu"`; JAX's default by default.
            sharding: a `Sharding`, a mapping from names to them, or a function of a name and its
                `jax.ShapeDtypeStruct`; each device then reads only its part of a dense object.

        Raises:
            NotRepresentableError: JAX cannot hold an object as it is; see `ztensor.jax.load_file`.
            UsageError: JAX has no value for the layout; the message says what to call.
            MissingDependencyError: JAX is not installed.
            ObjectNotFoundError: no object of that name.
            ArgumentValueError: no such device, or the sharding does not fit an object's shape.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        from ztensor.io.frameworks import FRAMEWORKS  # not for arrays of NumPy

        return FRAMEWORKS["jax"].read(self, name, device=device, sharding=sharding)

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
        """Return objects as torch tensors: dense ones of their shape, sparse ones sparse.

        On the CPU, raw data is a view of the file, unchecked, as with `read_numpy`. For other
        devices it is read, and checked against its digest, while what was read before is on its
        way. What torch cannot have as a view is copied and checked, too.

        Args:
            name: one name, or several for a dict.
            device: a name such as `"cuda"`, a number, or a `torch.device`. On `"meta"` tensors have
                shape and type, and nothing is read.
            copy: True always gives new memory, checked against its digest.

        Raises:
            UsageError: torch has no such layout; the message says what to call.
            MissingDependencyError: PyTorch is not installed.
            ObjectNotFoundError: no object of that name.
            ArgumentValueError: torch knows no device of that name.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here or to torch, or there is no such
                device.
            LimitError: a safety cap is exceeded, or the device's memory.
            SourceError: the bytes could not be read.
        """
        from ztensor.io.frameworks import FRAMEWORKS  # not for arrays of NumPy

        return FRAMEWORKS["torch"].read(self, name, device=device, copy=copy)


class ShardedReader(Reader):
    """Several files, open for reading as one mapping; `ztensor.open` gives it for a set.

    With an index, a file is opened when the first of its objects is read, and only objects that the
    index names can be read. Without an index all files are opened at once. Several threads may use
    the reader, and it can be pickled.

    Args:
        source: an index, a folder, or a list of paths; see `finder_of`.
        options: see `ztensor.typing.OpenOptions`; for the index and each file.

    Attributes:
        objects: what it reads through; see `ztensor.Reader`.

    Raises:
        FormatError: the index is damaged, a file without an index is, or two have one name.
        LimitError: a safety cap is exceeded.
        SourceError: something cannot be read, or a shard is missing.
        ArgumentTypeError: `source` is nothing that can be opened.
    """

    objects: ShardedObjects

    def __init__(self, source: Openable, **options: Unpack[OpenOptions]) -> None:
        _require_known("ShardedReader", options)
        ObjectReader.__init__(self, set_of(source, **options))

    @property
    def files(self) -> list[str]:
        """Return the paths of the files, in order."""
        return list(self.objects.set.places)

    @property
    def index_metadata(self) -> dict[str, Any]:
        """Return the `metadata` of the index, such as `total_size`; empty without an index."""
        return dict(self.objects.set.metadata)

    def __repr__(self) -> str:
        """Return which set it is, and how many objects and files it has."""
        objects = self.objects
        state = " (closed)" if objects.is_closed else ""
        return (
            f"<ztensor.io.ShardedReader {describe(objects.name)}, "
            f"{counted(len(objects.names), 'object')} in "
            f"{counted(len(objects.set.places), 'file')}{state}>"
        )

    def reader_of(self, name: str) -> Reader:
        """Return the reader of the file an object is in; it is closed with this one.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the file is damaged, or has no such object though the index says so.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        return reader_over(self.objects.part(name))

    def shard(self, file: str) -> Reader:
        """Return the reader of one of `files`; it is closed with this one.

        Raises:
            ObjectNotFoundError: it is none of them.
            FormatError: the file is damaged, or lacks objects the index says it has.
            SourceError: it cannot be read, or the set was saved anew since it was opened.
        """
        return reader_over(self.objects.file(file))


def reader_over(objects: Objects) -> Reader:
    """Return a reader of objects that were opened before, or chosen from others; it closes them."""
    kind = ShardedReader if objects.is_set else Reader
    reader = kind.__new__(kind)
    reader.objects = objects
    return reader


def open(  # the name released libraries and users know
    path: Openable, mode: Literal["r"] = "r", **options: Unpack[OpenOptions]
) -> Reader:
    """Open a zTensor file of any version; see `Reader` for arguments and errors.

    A divided checkpoint, its folder or the root `checkpoint.zt` in it, is opened as one file that
    has the whole tensors: see `ztensor.distributed`.

    An index (`model.zt.index.json`), another folder, a list of paths, the path of a file that is
    there only as shards beside its index, and the first shard of a GGUF model
    (`model-00001-of-00003.gguf`) are opened as one, on disk or by their URLs (`s3://bucket/model/`,
    `hf://org/repo`): see `ztensor.io.ShardedReader`.

    `mode` can only be `"r"`, for those who write it out; `ztensor.Writer` writes files.
    """
    if options:
        _require_known("open", options)
    if mode not in ("r", "rb"):
        _refuse_mode(mode)
    return reader_over(objects_of(path, **options))


def _require_known(function: str, options: Mapping[str, object]) -> None:
    """Raise where a caller gave an option that `OpenOptions` does not have."""
    from ztensor.options import OpenOptions, require_options  # most are opened without any

    require_options(function, options, OpenOptions)


def _refuse_mode(mode: object) -> None:
    """Raise the error of a mode that does not read, which says what writes."""
    if not isinstance(mode, str):
        raise ArgumentTypeError("open takes a mode", expected="'r'", found=describe(mode, 40))
    error = ArgumentValueError("open only reads", expected="mode 'r'", found=describe(mode, 40))
    error.hint = (
        "ztensor.Writer(path) writes a file object by object, save_file of ztensor.numpy, "
        "ztensor.torch and ztensor.jax a whole dict; ztensor.Editor(path) adds, "
        "replaces and removes objects of a file"
    )
    raise error


# --- What the caller gave ---------------------------------------------------------------------


def objects_of(
    given: Any,
    *,
    is_one: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
    **how: Unpack[FileOptions],
) -> Objects:
    """Return the objects of a file, of a set of files, or of what an opener knows.

    Args:
        given: what the caller passed.
        is_one: True takes no set of files.
        storage: see `ztensor.typing.OpenOptions`.
        cache: likewise.
        how: how a file is read.
    """
    if storage is not None or cache is not None:
        given = with_storage(given, storage, cache)
    try:
        return open_file(given, **how) if _is_one_file(given) else _found(given, is_one, how)
    except _NOTHING as error:
        is_missing = isinstance(error, SourceNotFoundError)
        for name in [*OPENERS][len(OPENERS.lines) :] + OPENERS.installed():
            try:
                found = OPENERS[name](given, is_missing=is_missing, **how)
            except UnsupportedError as broken:
                if broken.reason is not Reason.BROKEN_PLUGIN:
                    raise
                error.hint = "; ".join(filter(None, (error.hint, broken.message)))
            else:
                if found is not None:
                    return found
        raise


def _is_one_file(given: Any) -> bool:
    """Return whether this is a file on disk whose name leads to no others, or no place at all."""
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        return isinstance(path, str) and not path.endswith(_LEADING) and os.path.isfile(path)
    return not isinstance(given, (list, tuple))


def _found(given: Any, is_one: bool, how: FileOptions) -> Objects:  # noqa: FBT001  # one caller
    leads_to_several = isinstance(given, (str, os.PathLike)) and _leads_to_several(given)
    found = _by_opener(given, how) if leads_to_several else None
    if found is not None:
        return found
    if is_one:
        return open_file(given, **how)
    from ztensor.io.shards.finding import finder_of  # a file on disk needs none of it

    caps = caps_of(how.get("limits"))
    find = finder_of(given, caps)
    if find is None:
        try:
            return open_file(given, **how)
        except SourceNotFoundError:  # a URL may be that of a folder, or of shards beside an index
            is_url = isinstance(given, Remote) or is_remote(path_text(given))
            found = _by_opener(given, how, is_missing=True) if is_url else None
            if found is not None:
                return found
            find = finder_of(given, caps, is_missing=True) if is_url else None
            if find is None:
                raise
    from ztensor.io.shards.objects import ShardedObjects

    return ShardedObjects(find(), **how)


def _leads_to_several(given: Any) -> bool:
    """Return whether openers are asked before a file: for a folder, or what is called as theirs."""
    path = path_text(given, local=True)
    names = {os.path.basename(path), path.partition("?")[0].rpartition("/")[2]}
    return not names.isdisjoint(("", *OPENERS.lines)) or os.path.isdir(path)


def _by_opener(given: Any, how: FileOptions, *, is_missing: bool = False) -> Objects | None:
    """Return what the first opener of ours gives that knows a place; None where none does."""
    for name, opener in OPENERS.usable(plugins=False):
        found = opener(given, is_missing=is_missing, **how) if name in OPENERS.lines else None
        if found is not None:
            return found
    return None


def set_of(
    given: Any,
    *,
    storage: Storage | None = None,
    cache: Path | None = None,
    **how: Unpack[FileOptions],
) -> ShardedObjects:
    """Return the objects of a set of files; see `ztensor.io.ShardedReader`."""
    from ztensor.io.shards.objects import open_set

    return open_set(with_storage(given, storage, cache), **how)
