"""Open a distributed checkpoint by its folder, root or URL, and read whole tensors."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor import Remote
from ztensor.distributed.chunks.assembling import Assembler
from ztensor.distributed.chunks.encoding import with_divided
from ztensor.distributed.chunks.table import Chunk
from ztensor.distributed.cleaning import has_parts
from ztensor.distributed.lazy_files import LazyFile, OpenFiles
from ztensor.distributed.nested import RootAttributes, attributes_of, named_apart
from ztensor.distributed.place import DIVIDED, ROOT, Place
from ztensor.distributed.root import Root, is_root, open_root, parse_root, value_arrays
from ztensor.distributed.rows import own_name
from ztensor.errors import (
    FormatError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    UsageError,
    counted,
    describe,
)
from ztensor.ext import (
    FileObjects,
    LaterObjects,
    Manifest,
    Shown,
    Source,
    TensorObject,
    is_remote,
    path_text,
    source_of,
)
from ztensor.limits import Limits, caps_of
from ztensor.options import FileOptions, require_options
from ztensor.typing import Path, Storage, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    Array = np.ndarray[Any, Any]


class DividedObjects(FileObjects):
    """The whole tensors of a distributed checkpoint; see `FileObjects`.

    Args:
        place: its folder or prefix.
        file: the open root as a plain file; closed with this.
        root: the root, if it has been parsed; its files are in `place`.
        verify: as for `FileObjects`, for chunks.
        limits: the caps in force.

    Attributes:
        place, file: the arguments.
        root: the root.
        assembler: reads tensors from their chunks.
        value_arrays: names in the root of arrays that are part of values, by their object names.

    Raises:
        FormatError: the root is damaged, or its chunks do not tile its tensors.
        SourceError: a part is missing, or has another length.
    """

    def __init__(
        self,
        place: Place,
        file: FileObjects,
        root: Root | None = None,
        *,
        verify: bool | None,
        limits: Limits,
    ) -> None:
        self.place = place
        self.file = file
        self.root: Root = parse_root(file) if root is None else root
        table = self.root.table
        if place.folder is not None:
            try:
                self.require_there()
            except SourceError as error:
                raise self.explained(error) from error.__cause__
        pool = OpenFiles()
        files = [
            LazyFile(
                place.shown(one.name),
                place.path(one.name),
                one.size,
                pool,
                functools.partial(place.open, one.name, one.size),
                self.explained,
            )
            for one in table.files
        ]
        source = OpenFiles.behind(file.prefetching, files)
        starts = [start for start, _ in source.parts]
        self.assembler = Assembler(table, source, limits, verify=verify, starts=starts[1:])
        tensors = self.assembler.objects(self._whole)
        arrays = value_arrays(file)
        called = named_apart(arrays, tensors)
        self.value_arrays = {name: arrays[own] for own, name in called.items()}
        # The source begins with the root, so offsets in the root are offsets in the source.
        beside = {name: file.object(own) for name, own in self.value_arrays.items()}
        manifest = Manifest(
            file.manifest.version,
            LaterObjects((*tensors, *beside), lambda name: beside.get(name) or tensors[name]),
            RootAttributes(self.root, called) if self.root.has_values else None,
        )
        self._starts, self._files = starts, files
        super().__init__(
            source,
            manifest,
            format=DIVIDED,
            encodings=with_divided(self.assembler),
            verify=verify,
            limits=limits,
        )

    def require_there(self) -> None:
        """Raise if a part is missing or has another length; the error lists its chunks.

        Opening a folder does this. A store is asked for a listing.

        Raises:
            SourceError: a part is missing, or has another length.
            UsageError: the place cannot be listed, such as on an HTTP server.
        """
        listed = self.place.parts() if self.place.is_remote else {}
        missing = "a file of the checkpoint is missing"
        for number, one in enumerate(self.root.files):
            path = self.place.shown(one.name)
            if self.place.is_remote:
                if one.name not in listed:
                    raise self._losing(number, SourceNotFoundError(missing, file=path))
                size = listed[one.name].nbytes
            else:
                try:
                    size = os.stat(path).st_size
                except OSError as error:
                    raise self._losing(number, SourceError.from_os(error, missing, path)) from error
            if size != one.size:
                raise self._losing(
                    number,
                    SourceError(
                        "a file of the checkpoint has another length than when it was saved",
                        reason=Reason.SOURCE_CHANGED,
                        file=path,
                        expected=f"{one.size} bytes",
                        found=str(size),
                    ),
                )

    def check(
        self, names: Iterable[str] | None = None, *, deep: bool = False, **how: Any
    ) -> VerifyReport:
        """Check every stored byte; see `FileObjects`."""
        from ztensor.distributed.verifying import verify_divided

        return verify_divided(self, names, **how)

    def explained(self, error: SourceError) -> SourceError:
        """Return the error of an unreadable file, or that the checkpoint was replaced."""
        source = self.file.source
        try:
            if source.remote is not None:
                source.require_unchanged(ask=True)
            elif source.path is not None and _is_replaced(source):
                return SourceError(
                    "the root was replaced or removed after it was opened; open it again",
                    reason=Reason.SOURCE_CHANGED,
                    file=self.file.name,
                )
        except SourceError as other:
            return other if other.reason is Reason.SOURCE_CHANGED else error
        return error

    def _losing(self, number: int, error: SourceError) -> SourceError:
        """Return an error with the lost chunks as the hint."""
        error.hint = self._lost(number)
        return error

    def _lost(self, number: int) -> str:
        """Return the first chunks of a part, for messages."""
        table = self.root.table
        rows = np.flatnonzero(table.file == number)
        chunks = [table.chunk(row) for row in rows[:3].tolist()]
        first = ", ".join(f"{describe(table.names[c.tensor])} at {list(c.offsets)}" for c in chunks)
        more = ", ..." if len(rows) > 3 else ""
        return f"it has {counted(len(rows), 'chunk')} of tensors: {first}{more}"

    def _whole(self, chunk: Chunk) -> TensorObject:
        """Return an object as the manifest of its file describes it."""
        start = self._starts[chunk.file + 1]
        source = self._files[chunk.file].opened()
        _, manifest = FileObjects.manifest_in(source, self.limits)
        name = self.root.names[chunk.tensor]
        stored = manifest.objects.get(own_name(name, chunk.number))
        if stored is None:
            raise FormatError(
                "the file lacks an object that the root names",
                reason=Reason.SHARD_FILE,
                file=source.name,
                object_name=name,
            )
        components = {
            role: one._replace(offset=one.offset + start) for role, one in stored.components.items()
        }
        return stored._replace(components=components)

    # --- The file ---------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the path of the root."""
        return self.file.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the root and of all files."""
        found = (self.place.path(one.name) for one in self.root.files)
        return (*self.file.paths, *(path for path in found if path is not None))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return self.file.nbytes + sum(one.size for one in self.root.files)

    def identity(self) -> object:
        """Return the identity of these bytes; that of the root is enough, as files never change."""
        return self.file.identity()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the root's path, so that workers open the files themselves."""
        self.require_open()
        reopen = functools.partial(open_objects, verify=self.verify, limits=self.limits)
        return reopen, (self.place.target(ROOT),)

    def arrays_at_once(self, names: Iterable[str]) -> dict[str, Array]:
        """Return tensors in several chunks; few requests bring all from a store."""
        return self.assembler.arrays(names) if self.place.is_remote else {}

    def read_box(
        self, name: str, offsets: Sequence[int], sizes: Sequence[int], destination: Array
    ) -> None:
        """Fill an array with a box of a dense tensor; see `DividedCheckpoint.read_box`."""
        self.require_open()
        number = self.root.table.tensor_of.get(name) if isinstance(name, str) else None
        if number is None:
            raise ObjectNotFoundError.named(name, self.names, self.name)
        with self.located(name):
            if self.root.table.kind_of(number).format != "dense":
                raise UsageError(
                    "only dense tensors are read by boxes", found=self.root.layouts[number]
                )
            self.assembler.read_box(number, offsets, sizes, destination)


def root_of(file: FileObjects) -> Root | None:
    """Return the root of an open checkpoint, or of a file that is a root; None for other files.

    Raises:
        ZTensorError: as `read_root` raises.
    """
    if isinstance(file, DividedObjects):
        return file.root
    return parse_root(file) if is_root(file) else None


def tree_attribute(file: FileObjects) -> object:
    """Return the tree attribute of a checkpoint that has no values; None for other files."""
    return attributes_of(file.root, {})["tree"] if isinstance(file, DividedObjects) else None


def _is_replaced(source: Source) -> bool:
    """Return whether the path of an open file now leads to another file.

    Raises:
        SourceError: there is no file.
    """
    with contextlib.closing(source_of(source.path, mapped=False)) as now:
        return now.identity() != source.identity()


def open_objects(
    folder: Any, *, storage: Storage | None = None, **how: Unpack[FileOptions]
) -> DividedObjects:
    """Return the whole tensors of a distributed checkpoint; see `open_divided`."""
    place = Place(folder, storage)
    objects = divided_of(place, **how)
    if objects is None:
        raise UsageError("the file is not the root of a distributed checkpoint", file=place.name)
    return objects


def divided_of(place: Place, **how: Unpack[FileOptions]) -> DividedObjects | None:
    """Return the tensors of a checkpoint; None if the file is not a root.

    Raises:
        ZTensorError: as `open_divided` raises.
    """
    verify, caps = how.get("verify"), caps_of(how.get("limits"))
    file = open_root(place, verify=verify, limits=caps)
    try:
        if is_root(file):
            return DividedObjects(place, file, verify=verify, limits=caps)
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def open_given(
    given: Any, *, is_missing: bool, **how: Unpack[FileOptions]
) -> DividedObjects | None:
    """Return the tensors of a distributed checkpoint if the argument names one, else None.

    It does if it is a root, or a folder with a root; in a store a root, a URL that ends with "/",
    or the URL of a missing object.

    Args:
        given: the caller's argument.
        is_missing: whether there is no file.
        how: as for `open_divided`.

    Raises:
        SourceError: it is a folder with files of processes, and its root is missing.
        ZTensorError: what `open_divided` raises.
    """
    path = path_text(given, local=True)
    if not isinstance(given, Remote) and not is_remote(path):
        return _in_folder(path, **how)
    url, is_signed, _ = path.partition("?")  # a signed URL opens only one object
    is_prefix = not is_signed and (is_missing or url.endswith("/"))
    if is_prefix or (not is_missing and url.rpartition("/")[2] == ROOT):
        with contextlib.suppress(SourceNotFoundError, SourcePermissionError):
            return divided_of(Place(given), **how)
    return None


def _in_folder(path: str, **how: Unpack[FileOptions]) -> DividedObjects | None:
    is_folder = os.path.isdir(path)
    if not is_folder and os.path.basename(path) != ROOT:
        return None
    place = Place(path)
    folder = place.folder or path
    if os.path.isfile(os.path.join(folder, ROOT)):
        return divided_of(place, **how)
    if is_folder and has_parts(folder):
        error = SourceNotFoundError(
            "the root of the distributed checkpoint is missing", file=os.path.join(folder, ROOT)
        )
        error.hint = f"`ztensor repair {describe(folder, 200)}` makes it of the other files"
        raise error
    return None


class DividedCheckpoint(Shown):
    """An open distributed checkpoint: whole tensors, and boxes of them; see `open_divided`.

    Attributes:
        objects: the whole tensors; see `ztensor.Reader.objects`.
        root: the root: names, shapes, types, files, values, the table of chunks.
    """

    def __init__(self, objects: DividedObjects) -> None:
        self.objects = objects
        self.root = objects.root

    def read_box(
        self, name: str, offsets: Sequence[int], sizes: Sequence[int], destination: Array
    ) -> None:
        """Fill an array with a box of a dense tensor, which may overlap any chunks.

        Chunks entirely inside the box are compared with their digests while they are read. Other
        chunks are read in part, and checked only with `verify=True`.

        Args:
            name: the tensor's name.
            offsets: first element of the box along each axis.
            sizes: lengths of the box.
            destination: an array of shape `sizes`, of any strides, of the tensor's element type,
                or of unsigned integers of its width. Nothing is copied twice.

        Raises:
            ObjectNotFoundError: no tensor of that name.
            UsageError: it is not dense.
            ArgumentValueError: the box is outside the tensor, or the array has another shape or is
                read-only.
            ArgumentTypeError: the array has another element type.
            FormatError: stored bytes are damaged.
            SourceError: the bytes could not be read.
        """
        self.objects.read_box(name, offsets, sizes, destination)

    def close(self) -> None:
        """Close the files. May be called again."""
        self.objects.close()

    def __enter__(self) -> Self:
        """Return the checkpoint itself."""
        self.objects.require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return its place, and counts."""
        table = self.root.table
        state = " (closed)" if self.objects.is_closed else ""
        return (
            f"<DividedCheckpoint {describe(self.objects.place.name, 200)}, "
            f"{counted(len(table.names), 'tensor')} in {counted(len(table), 'chunk')} in "
            f"{counted(len(table.files), 'file')}{state}>"
        )


def open_divided(
    folder: Path, *, storage: Storage | None = None, **options: Unpack[FileOptions]
) -> DividedCheckpoint:
    """Open a distributed checkpoint; `ztensor.open` gives a reader of the same tensors.

    Args:
        folder: the folder or the URL of the prefix, or the root in it.
        storage: see `ztensor.typing.OpenOptions`.
        options: see `ztensor.typing.FileOptions`. `verify` is of chunks: None checks those that are
            read as a whole, True all that are touched. `mmap`, `recover` and `resolver`
            are of no matter: tensors of many files are read, and a root is never torn, nor of 2.x.

    Raises:
        UsageError: the folder has a file of that name that is not a root.
        FormatError: the root is damaged, or its chunks do not tile its tensors.
        UnsupportedVersionError: a newer release wrote it.
        LimitError: a safety cap is exceeded.
        SourceError: the root or a file that it names cannot be read, or is not there.
    """
    require_options("open_divided", options, FileOptions)
    return DividedCheckpoint(open_objects(folder, storage=storage, **options))
