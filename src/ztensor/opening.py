"""Path, bytes or file object to Reader; the one file that knows every table."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Any, NoReturn, overload

from ztensor.boundary import public
from ztensor.container.framing import MAGIC_1, MAGIC_2
from ztensor.errors import (
    ArgumentTypeError,
    ContainerError,
    FormatError,
    NotZTensorError,
    Reason,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.reading.listing import read_manifest
from ztensor.reading.reader import ManifestReader
from ztensor.source import locking
from ztensor.source.base import read_bytes
from ztensor.source.beneath import Beneath
from ztensor.source.local import FileObjectSource, FileSource
from ztensor.source.memory import MemorySource
from ztensor.source.paths import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.container import Frame
    from ztensor.model.manifest import Manifest
    from ztensor.reading.verify import VerifyReport
    from ztensor.source.base import Source
    from ztensor.typing import JaxArray, JaxDevice, JaxSharding, Openable, TorchDevice, TorchTensor

_RETRY_SECONDS = 0.1
# Of the file that tells where the objects of a sharded model are, behind the model's own name.
INDEX_SUFFIX = ".index.json"
_INDEX = re.compile(r"index(\.[^./\\]+)?\.json\Z")  # of a variant it is `.index.fp16.json`
# Shards of GGUF have no index: whoever names the first means all of them.
FIRST_OF_GGUF = re.compile(r"-00001-of-(?!0000[01])\d{5}\.gguf\Z")


@public
class Reader(ManifestReader):
    """A zTensor file, or one of a known other format: a mapping from object names to arrays.

    Only the manifest is read when a file is opened; data is mapped or read when it is asked for.
    A reader may be used by several threads, and pickled where its source can be reopened. Arrays
    outlive it.

    Args:
        path: a path, a bytes-like object, or a seekable binary file object.
        verify: None checks digests on copying reads, True also before a view is first handed
            out, False never.
        recover: True opens a torn file at its last committed state, and logs a warning that says
            so; the file is not changed.
        mmap: False reads instead of mapping: every array is then memory of its own, which no
            change of the file can reach.
        limits: safety caps; `ztensor.Limits()` by default.

    Raises:
        FormatError: the file is damaged or no zTensor file.
        UnsupportedVersionError: it is of a version this release does not read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
        ArgumentTypeError: `path` is nothing that can be opened.
    """

    def __init__(
        self,
        path: Openable,
        *,
        verify: bool | None = None,
        mmap: bool = True,
        limits: Limits | None = None,
        recover: bool = False,
    ) -> None:
        self._how = {"verify": verify, "mmap": mmap, "limits": limits, "recover": recover}
        caps = DEFAULT_LIMITS if limits is None else limits
        until = None
        while True:
            opened = source_of(path, mapped=mmap)
            try:
                frame, manifest, how = _contents(opened, caps)
                if not (isinstance(opened, FileSource) and opened.is_touched()):
                    break
                # The last write of a commit came between opening the file and reading what it
                # says: what was opened is its new state, but looks like one changed since.
                until = time.monotonic() + _RETRY_SECONDS if until is None else until
                if time.monotonic() > until:
                    break
                opened.close()
            except FormatError as error:
                # A commit being written right now is a torn end for a moment.
                until = time.monotonic() + _RETRY_SECONDS if until is None else until
                if time.monotonic() > until or not _is_being_written(opened):
                    frame, manifest = _recovered(opened, error, caps, recover=recover)
                    how = {}
                    break
                opened.close()
                time.sleep(_RETRY_SECONDS / 20)
            except BaseException:
                opened.close()
                raise
        if frame is not None:
            self._frame = frame
        super().__init__(opened, manifest, verify=verify, limits=caps, **how)

    def reader_of(self, name: str) -> Reader:
        """Return the reader of the file an object is in: this one, where there is one file."""
        return self

    def verify(
        self,
        names: Iterable[str] | None = None,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every stored byte and return what is wrong; damage does not raise.

        Args:
            names: objects to check; all of them by default.
            threads: how many to use; as many as there are cores, four at most, by default.
            progress: called with the stored bytes read so far and the bytes to read in all.

        Raises:
            ObjectNotFoundError: a name is not in the file.
            SourceError: the bytes could not be read.
        """
        from ztensor.reading.verify import verify_reader

        self._require_open()
        return verify_reader(self, names, threads=threads, progress=progress)

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

        In the CPU's memory they share that of the arrays this reader gives where they can: write
        to neither.

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
        from ztensor.jax import read

        return read(self, name, device=device, sharding=sharding)

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

        On the CPU, raw data is a view of the file, as with `read_numpy`. For other devices it is
        read, and checked against its digest, while what was read before is on its way.

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
        from ztensor.torch import read_torch

        return read_torch(self, name, device=device, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, or by value for bytes, so that workers open the file themselves.

        Raises:
            UsageError: the source is an open file object, which another process cannot have.
        """
        self._require_open()
        source: Any = self._source.path
        if source is None:
            if not isinstance(self._source, MemorySource):
                raise UsageError(
                    "a reader over a file object cannot be pickled; open it by path",
                    file=self.name,
                )
            source = bytes(self._source.view() or b"")
        return _reopen, (source, self._how)


def _reopen(source: Any, how: dict[str, Any]) -> Reader:
    return Reader(source, **how)


@public
def open(  # the name released libraries and users know
    path: Openable,
    *,
    verify: bool | None = None,
    mmap: bool = True,
    limits: Limits | None = None,
    recover: bool = False,
) -> Reader:
    """Open a zTensor file of any version; see `Reader` for arguments and errors.

    An index (`model.zt.index.json`), a folder, a list of paths, the path of a file that is there
    only as shards beside its index, and the first shard of a GGUF model
    (`model-00001-of-00003.gguf`) are opened as one: see `ztensor.ShardedReader`.
    """
    kind: type[Reader] = Reader
    if is_set(path):
        from ztensor.sharded import ShardedReader

        kind = ShardedReader
    return kind(path, verify=verify, mmap=mmap, limits=limits, recover=recover)


def is_set(source: Any) -> bool:
    """Return whether a caller means several files."""
    if isinstance(source, (list, tuple)):
        return True
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = path_text(source)
    if is_index(path) or FIRST_OF_GGUF.search(path):
        return True
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return os.path.exists(path + INDEX_SUFFIX)


def is_index(path: str) -> bool:
    """Return whether a path is called as the index of a sharded model is."""
    return _INDEX.search(path) is not None


def _contents(source: Source, limits: Limits) -> tuple[Frame | None, Manifest, dict[str, Any]]:
    """Return what a file holds, and how the reader has to take it where the format is another."""
    try:
        return *read_manifest(source, limits), {}
    except NotZTensorError as error:
        # Only then is another format thought of. Its traceback leads to this frame: a circle.
        not_ours = error.with_traceback(None)
    from ztensor.foreign import project

    try:
        projection = project(source, limits)
    except ZTensorError as error:
        error.locate(file=source.name).forget_sections()
        raise
    if projection is None:
        if not_ours.reason is Reason.NOT_ZTENSOR:
            raise _of_no_format(source) from not_ours
        raise not_ours
    how = {
        "format": projection.format,
        "encodings": projection.encodings,
        "account": projection.account,
        "sums": projection.sums,
    }
    return None, projection.manifest, how


def _of_no_format(source: Source) -> NotZTensorError:
    """Return the error for a file whose bytes are of no format that is read."""
    from ztensor.foreign import FORMATS
    from ztensor.foreign.lookalikes import lookalike

    known = ", ".join(("zTensor", *FORMATS))
    head = bytes(read_bytes(source, 0, min(512, source.size)))
    kind = lookalike(head)
    if kind is not None:
        error = NotZTensorError(f"this is {kind.name}", file=source.name)
        error.hint = kind.advice or f"the formats that are read are {known}"
        return error
    return NotZTensorError(
        "of no format that is read here",
        file=source.name,
        expected=f"the first bytes of one of {known}",
        found=describe(head[:16]),
    )


def refuse_not_ours(source: Source, error: FormatError) -> NoReturn:
    """Raise what tells a caller who would change a file that it is none of ours.

    Args:
        source: the file.
        error: what reading it as one of ours raised; raised again where there is no more to say.

    Raises:
        UsageError: it is a file of another format.
        FormatError: it is of none that is known.
        SourceError: it cannot be read.
    """
    from ztensor.foreign import recognised

    other = recognised(source)
    if other is not None:
        raise only_ours_change(source.name, other) from error
    head = bytes(read_bytes(source, 0, min(4, source.size)))
    if head and head not in (MAGIC_1[:4], MAGIC_2[:4]):
        raise _of_no_format(source) from error
    raise error


def only_ours_change(name: str, kind: str) -> UsageError:
    """Return the error of a caller who would change a file of another format, or a set of files."""
    error = UsageError("only a zTensor file can be changed", file=name, found=kind)
    error.hint = f"`ztensor convert {describe(name, 200)} OUT.zt` makes one of it"
    return error


def _is_being_written(source: Source) -> bool:
    """Return whether a writer is at work on the file, or was since it was opened."""
    if source.path is None:
        return False
    return locking.is_locked(source.path) or (isinstance(source, FileSource) and source.is_stale())


def _recovered(
    source: Source, error: FormatError, limits: Limits, *, recover: bool
) -> tuple[Frame, Manifest]:
    """Return the last committed state where that is wanted and there is one; else raise `error`."""
    import traceback

    from ztensor.reading.recovery import describe_torn, search  # seldom needed

    # What the error's frames hold is all that was read; now it is read a second time.
    traceback.clear_frames(error.__traceback__)
    state = None
    try:
        if recover:
            with contextlib.suppress(ContainerError):  # of a kind whose states cannot be found
                state, _ = search(source, limits=limits)
        else:
            error.hint = describe_torn(source, error, limits) or error.hint
    finally:
        if state is None:
            source.close()
    if state is None:
        try:
            raise error
        finally:
            del error  # whose traceback leads to this frame: a circle
    import logging

    logging.getLogger("ztensor").warning(
        "%s is damaged behind byte %d; the last committed state, %d objects, was opened",
        describe(source.name, 200),
        state.end,
        len(state.manifest.objects),
    )
    return state.frame, state.manifest


def source_of(source: Any, *, mapped: bool) -> Source:
    """Return where the bytes of what a caller passed come from.

    Raises:
        ArgumentTypeError: it is nothing that can be opened.
        ArgumentValueError: no file can have that path.
        SourceError: it cannot be read.
    """
    if isinstance(source, Beneath):
        return source.open(mapped=mapped)
    if isinstance(source, (str, os.PathLike)):
        return FileSource(path_text(source), mapped=mapped)
    try:  # before asking for read(), which an mmap has as well
        return MemorySource(source)
    except (TypeError, BufferError, ValueError) as error:
        no_buffer = error
    if hasattr(source, "read") and hasattr(source, "seek"):
        return FileObjectSource(source)
    raise ArgumentTypeError(
        "cannot open this object",
        expected="a path, a contiguous bytes-like object, or a seekable binary file object",
        found=describe(source, 40),
    ) from no_buffer
