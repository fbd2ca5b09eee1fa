"""The public `open` and its readers.

A local file whose name does not stand for several files is opened directly. Otherwise openers are
asked first, then `io/shards` looks for a set of files.
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

# Openers of several files that are one checkpoint, by the name of the main file. They are asked for
# that file, for folders, and for a URL without an object; plugins for any other argument that is
# not a readable file. An opener takes the argument of `open`, `is_missing` (the file does not
# exist) and `FileOptions`, and returns None for anything it does not know.
OPENERS: Registry[str, Callable[..., Objects | None]] = Registry(
    {"checkpoint.zt": "ztensor.distributed.opened:open_given"},
    group="ztensor.openers",
    kind=Callable,
)
# Raised for an unknown format, a missing file, and a folder without a model or with several.
_NOTHING = NotZTensorError, SourceNotFoundError, SourceNotRegularError, ArgumentValueError
# Ends of names that stand for several files: an index, the first shard of GGUF.
_LEADING = (".json", ".gguf", *OPENERS.lines)


class Reader(ObjectReader):
    """A file of zTensor or another known format: a mapping from object names to arrays.

    Opening reads only the manifest; data is mapped or read on access. A reader is thread-safe, and
    can be pickled if its source can be opened again. Arrays stay valid after it is closed.

    Args:
        path: a path, a URL (`s3://`, `gs://`, `az://`, `https://`), a bytes-like object, or a
            seekable binary file object.
        options: see `ztensor.typing.OpenOptions`.

    Raises:
        FormatError: the file is damaged or has an unknown format.
        UnsupportedVersionError: this release does not read its version.
        LimitError: a safety cap is exceeded.
        SourceError: the file cannot be read; also a `FileNotFoundError` or `PermissionError`.
        ArgumentTypeError: `path` has a type that cannot be opened.
    """

    def __init__(self, path: Openable, **options: Unpack[OpenOptions]) -> None:
        _require_known("Reader", options)
        super().__init__(objects_of(path, is_one=True, **options))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, or by value for bytes; the other process opens the file itself.

        Raises:
            ClosedError: the reader is closed.
            UsageError: the source is an open file object.
        """
        self.objects.require_open()
        return reader_over, (self.objects,)

    def reader_of(self, name: str) -> Reader:
        """Return the reader of an object's file: this one."""
        return self

    def verify(
        self,
        names: Iterable[str] | None = None,
        *,
        deep: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every stored byte and return a report; damage does not raise.

        In a set, the path of a problem begins with the file. Digests of whole files in an index, as
        `split` writes them, are compared as well, unless `names` is given.

        Args:
            names: the objects to check; None checks all.
            deep: True also compares the digests of the whole shards of a 2.x file, read once more.
            threads: number of threads; None uses the cores, at most four.
            progress: called with the stored bytes read so far and in all.

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
        """Return objects as JAX values: a `jax.Array`, or `BCOO` or `BCSR` for sparse objects.

        On the CPU they share unchecked memory with the arrays of this reader if possible: write to
        neither. Whole copies are checked against their digests.

        Args:
            name: one name, or several for a dict.
            device: a `jax.Device` or a name such as `"cpu"`; None uses JAX's default.
            sharding: a `Sharding`, a mapping from names to shardings, or a function of a name and
                its `jax.ShapeDtypeStruct`; each device then reads only its part of a dense object.

        Raises:
            NotRepresentableError: JAX cannot hold an object as it is; see `ztensor.jax.load_file`.
            UsageError: JAX has no value for the layout; the message names the right call.
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

        On the CPU, raw data is an unchecked view of the file, as with `read_numpy`. For other
        devices data is read and checked against its digest while earlier data is transferred. Data
        that torch cannot view is copied and checked, too.

        Args:
            name: one name, or several for a dict.
            device: a name such as `"cuda"`, a number, or a `torch.device`. On `"meta"` tensors have
                only shape and type, and nothing is read.
            copy: True always returns new memory, checked against its digest.

        Raises:
            UsageError: torch has no such layout; the message names the right call.
            MissingDependencyError: PyTorch is not installed.
            ObjectNotFoundError: no object of that name.
            ArgumentValueError: torch does not know the device.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here or to torch, or there is no such
                device.
            LimitError: a safety cap is exceeded, or the device's memory.
            SourceError: the bytes could not be read.
        """
        from ztensor.io.frameworks import FRAMEWORKS  # not for arrays of NumPy

        return FRAMEWORKS["torch"].read(self, name, device=device, copy=copy)


class ShardedReader(Reader):
    """A set of files as one mapping; `ztensor.open` returns it for a set.

    With an index, a file is opened when the first of its objects is read, and only objects of the
    index exist. Without an index all files are opened immediately. Thread-safe and picklable.

    Args:
        source: an index, a folder, or a list of paths; see `finder_of`.
        options: see `ztensor.typing.OpenOptions`; for the index and each file.

    Attributes:
        objects: internal; see `ztensor.Reader`.

    Raises:
        FormatError: the index or (without an index) a file is damaged, or two files have one
            object name.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read, or a shard is missing.
        ArgumentTypeError: `source` has a type that cannot be opened.
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
        """Return the name of the set, and its numbers of objects and files."""
        objects = self.objects
        state = " (closed)" if objects.is_closed else ""
        return (
            f"<ztensor.io.ShardedReader {describe(objects.name)}, "
            f"{counted(len(objects.names), 'object')} in "
            f"{counted(len(objects.set.places), 'file')}{state}>"
        )

    def reader_of(self, name: str) -> Reader:
        """Return the reader of an object's file; it is closed with this one.

        Raises:
            ObjectNotFoundError: no object of that name.
            FormatError: the file is damaged, or lacks objects that the index names.
            SourceError: the file cannot be read, or the set was replaced since it was opened.
        """
        return reader_over(self.objects.part(name))

    def shard(self, file: str) -> Reader:
        """Return the reader of one of `files`; it is closed with this one.

        Raises:
            ObjectNotFoundError: the set has no such file.
            FormatError: the file is damaged, or lacks objects that the index names.
            SourceError: the file cannot be read, or the set was replaced since it was opened.
        """
        return reader_over(self.objects.file(file))


def reader_over(objects: Objects) -> Reader:
    """Return a reader over opened objects, which it will close."""
    kind = ShardedReader if objects.is_set else Reader
    reader = kind.__new__(kind)
    reader.objects = objects
    return reader


def open(  # the name of released versions
    path: Openable, mode: Literal["r"] = "r", **options: Unpack[OpenOptions]
) -> Reader:
    """Open a zTensor file of any version; see `Reader` for arguments and errors.

    A distributed checkpoint, by its folder or its root `checkpoint.zt`, is opened as one file with
    whole tensors: see `ztensor.distributed`.

    A set of files is opened as one mapping, see `ztensor.io.ShardedReader`: by its index
    (`model.zt.index.json`), another folder, a list of paths, the path of a model that exists only
    as shards with an index, or the first shard of a GGUF model (`model-00001-of-00003.gguf`); on
    disk or by URL (`s3://bucket/model/`, `hf://org/repo`).

    `mode` may be written out, but can only be `"r"`; `ztensor.Writer` writes files.
    """
    if options:
        _require_known("open", options)
    if mode not in ("r", "rb"):
        _refuse_mode(mode)
    return reader_over(objects_of(path, **options))


def _require_known(function: str, options: Mapping[str, object]) -> None:
    """Require options that `OpenOptions` has."""
    from ztensor.options import OpenOptions, require_options  # most calls have no options

    require_options(function, options, OpenOptions)


def _refuse_mode(mode: object) -> None:
    """Raise the error for a mode other than reading; it names the calls that write."""
    if not isinstance(mode, str):
        raise ArgumentTypeError("open takes a mode", expected="'r'", found=describe(mode, 40))
    error = ArgumentValueError("open only reads", expected="mode 'r'", found=describe(mode, 40))
    error.hint = (
        "ztensor.Writer(path) writes a file object by object, save_file of ztensor.numpy, "
        "ztensor.torch and ztensor.jax a whole dict; ztensor.Editor(path) adds, "
        "replaces and removes objects of a file"
    )
    raise error


# --- Finding files and openers ----------------------------------------------------------------


def objects_of(
    given: Any,
    *,
    is_one: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
    storage_options: Mapping[str, object] | None = None,
    **how: Unpack[FileOptions],
) -> Objects:
    """Return the objects of a file, of a set of files, or of an opener.

    Args:
        given: the argument of `open`.
        is_one: True accepts no set of files.
        storage: see `ztensor.typing.OpenOptions`.
        cache: see `ztensor.typing.OpenOptions`.
        storage_options: see `ztensor.typing.OpenOptions`.
        how: options for each file.
    """
    given = with_storage(given, storage, cache, storage_options)
    try:
        return open_file(given, **how) if _is_one_file(given) else _located(given, is_one, how)
    except _NOTHING as error:
        is_missing = isinstance(error, SourceNotFoundError)
        for name in [*OPENERS][len(OPENERS.lines) :] + OPENERS.installed():
            try:
                opened = OPENERS[name](given, is_missing=is_missing, **how)
            except UnsupportedError as broken:
                if broken.reason is not Reason.BROKEN_PLUGIN:
                    raise
                error.hint = "; ".join(filter(None, (error.hint, broken.message)))
            else:
                if opened is not None:
                    return opened
        raise


def _is_one_file(given: Any) -> bool:
    """Return whether the argument is a local file that stands only for itself, or not a path."""
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        return isinstance(path, str) and not path.endswith(_LEADING) and os.path.isfile(path)
    return not isinstance(given, (list, tuple))


def _located(given: Any, is_one: bool, how: FileOptions) -> Objects:  # noqa: FBT001  # one caller
    may_be_several = isinstance(given, (str, os.PathLike)) and _may_be_several(given)
    opened = _by_opener(given, how) if may_be_several else None
    if opened is not None:
        return opened
    if is_one:
        return open_file(given, **how)
    from ztensor.io.shards.finding import finder_of  # a local file does not need it

    caps = caps_of(how.get("limits"))
    find = finder_of(given, caps)
    if find is None:
        try:
            return open_file(given, **how)
        except SourceNotFoundError:  # a URL may name a folder, or a model with an index
            is_url = isinstance(given, Remote) or is_remote(path_text(given))
            opened = _by_opener(given, how, is_missing=True) if is_url else None
            if opened is not None:
                return opened
            find = finder_of(given, caps, is_missing=True) if is_url else None
            if find is None:
                raise
    from ztensor.io.shards.objects import ShardedObjects

    return ShardedObjects(find(), **how)


def _may_be_several(given: Any) -> bool:
    """Return whether openers are asked first: for folders, and names of openers' main files."""
    path = path_text(given, local=True)
    names = {os.path.basename(path), path.partition("?")[0].rpartition("/")[2]}
    return not names.isdisjoint(("", *OPENERS.lines)) or os.path.isdir(path)


def _by_opener(given: Any, how: FileOptions, *, is_missing: bool = False) -> Objects | None:
    """Return the objects of the first built-in opener that knows the argument, or None."""
    for name, opener in OPENERS.usable(plugins=False):
        opened = opener(given, is_missing=is_missing, **how) if name in OPENERS.lines else None
        if opened is not None:
            return opened
    return None


def set_of(
    given: Any,
    *,
    storage: Storage | None = None,
    cache: Path | None = None,
    storage_options: Mapping[str, object] | None = None,
    **how: Unpack[FileOptions],
) -> ShardedObjects:
    """Return the objects of a set of files; see `ztensor.io.ShardedReader`."""
    from ztensor.io.shards.objects import open_set

    return open_set(with_storage(given, storage, cache, storage_options), **how)
