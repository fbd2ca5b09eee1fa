"""`PartWriter`: what one process writes of a divided checkpoint, and what it says of it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ztensor.boundary import public
from ztensor.chunks.table import WHOLE_OBJECT, ChunkTable, Kind, TableFile
from ztensor.digest import ALGORITHMS, digest_of, parse_digest
from ztensor.divided.place import ATTRIBUTE, ROOT, Place, part_name
from ztensor.errors import (
    ArgumentValueError,
    ClosedError,
    NotRepresentableError,
    SourceError,
    UsageError,
    describe,
)
from ztensor.frameworks import adapter_of
from ztensor.layout import LAYOUTS
from ztensor.layout.elements import spell
from ztensor.limits import DEFAULT_LIMITS
from ztensor.reading.listing import find_manifest
from ztensor.sharded.naming import parse_size
from ztensor.source.base import Range
from ztensor.source.sink import FileSink
from ztensor.source.upload import RemoteSink, remove
from ztensor.source.urls import Remote
from ztensor.tensor import Tensor, shape_of
from ztensor.writing.creating import create

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from ztensor.model.manifest import TensorObject
    from ztensor.source.descriptor import Descriptor
    from ztensor.source.sink import Durable
    from ztensor.typing import Path, TensorLike
    from ztensor.writing.output import Output

    Array = np.ndarray[Any, Any]

# Behind the name of a tensor, before the number of its second and later objects in one file.
SEPARATOR = "\x1f"


@dataclasses.dataclass(frozen=True, eq=False)
class PartRecord:
    """What one process wrote: small, and pickled on its way to the one that commits.

    Attributes:
        process: its number.
        table: what it wrote, and where.
    """

    process: int
    table: ChunkTable

    def __repr__(self) -> str:
        """Return counts."""
        table = self.table
        return (
            f"<PartRecord of process {self.process}: {len(table)} chunks of {len(table.names)} "
            f"tensors in {len(table.files)} files>"
        )


@public
class PartWriter:
    """Writes the part of one process of a divided checkpoint.

    Its files get names that no file had before, so nothing that is there is touched. They count
    once `commit` names them. Keep the writer until then: while it lives, no clean-up of another
    save takes its files for those of a dead one.

    Args:
        folder: the folder, which must be there, or the URL of a prefix.
        process: the number of this process; of no matter to readers.
        compression: as for `ztensor.Writer`.
        checksum: as for `ztensor.Writer`: True or `"crc32c"`, `"sha256"`, or None.
        threads: as for `ztensor.Writer`.
        durable: True flushes to disk before `finish` returns; "auto" does so where the folder has
            a checkpoint already; False leaves it to the system.
        storage: how the store of a URL is opened; see `ztensor.open`.
        max_shard_size: most bytes of a file, such as `"5GB"`; more files then. No limit by default.

    Raises:
        SourceError: nothing can be written there.
        ArgumentValueError: an argument has an unknown value.
    """

    def __init__(
        self,
        folder: Path,
        *,
        process: int = 0,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        threads: int | None = None,
        durable: Durable = "auto",
        storage: object = None,
        max_shard_size: int | str | None = None,
    ) -> None:
        if type(process) is not int or process < 0:
            raise ArgumentValueError(
                "a process has a number from 0", found=describe(process), expected="0 or more"
            )
        self._place = Place(folder, storage)
        self.process = process
        self._options: dict[str, Any] = {
            "compression": compression,
            "checksum": checksum,
            "threads": threads,
        }
        self._durable = _is_durable(self._place, durable)
        self._most = None if max_shard_size is None else parse_size(max_shard_size)
        self._tensors = Tensors()
        self._rows: list[Row] = []
        self._files: list[TableFile] = []
        self._empty: dict[str, list[Any]] = {}  # of which there will be no object
        self._held: list[Descriptor | None] = []  # locks, for as long as this lives
        self._output: Output | None = None
        self._counts: dict[str, int] = {}
        self._written: list[Written] = []
        self.state = "open"
        self._begin()

    # --- Tensors ----------------------------------------------------------------------------

    def add(
        self,
        name: str,
        value: TensorLike,
        *,
        shape: Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write a chunk of a tensor, or a whole one.

        The data is stored before this returns and may be changed or dropped then.

        Args:
            name: the tensor's name; any text. It may come again with another box.
            value: an array, a `Tensor`, or a value of torch, JAX or SciPy.
            shape: the shape of the whole tensor where `value` is a box of it. Then it is dense.
            offsets: where the box begins along each axis.

        Raises:
            NotRepresentableError: no file can hold it, or a chunk has attributes or is not dense.
            ArgumentValueError: the box does not lie in the shape, or only one of both is given.
            UsageError: the whole tensor was written before.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        self._require_open()
        framework = None if type(value) is np.ndarray else adapter_of(value)
        given: Any = value if framework is None else framework.stored(value)
        if not isinstance(given, (np.ndarray, Tensor)):
            given = np.asarray(given)
        tensor = given if isinstance(given, Tensor) else None
        if tensor is not None and tensor.format == "dense" and not tensor.attributes:
            given, tensor = tensor.numpy(), None
        whole, offset = _box(name, tuple(given.shape), shape, offsets)
        if tensor is not None and shape is not None:
            raise NotRepresentableError(
                "only dense tensors without attributes are cut into chunks",
                object_name=name,
                found=f"layout {tensor.format}",
            )
        kind = Kind(*spell(given.dtype)) if tensor is None else _kind_of(tensor)
        number = self._tensors.number(name, whole, kind, is_whole=shape is None)
        if tensor is None and not given.size:
            if 0 in whole:
                self._empty[name] = [name, kind.dtype, kind.type or "", list(whole)]
            return  # no element: nothing has to lie anywhere
        self._roll(given.nbytes)
        output = self._require_open()
        count = self._counts.get(name, 0)
        attributes = {
            **({} if tensor is None else tensor.attributes),
            ATTRIBUTE: {"of": name, "shape": list(whole), "offsets": list(offset)},
        }
        own = f"{name}{SEPARATOR}{count}" if count else name
        output.write(own, given, attributes)
        self._counts[name] = count + 1
        sizes = tuple(given.shape)
        self._written.append(Written(own, number, count, offset, sizes, tensor is not None))

    def _roll(self, nbytes: int) -> None:
        """Go on in another file where this one would become too long."""
        output = self._require_open()
        if self._most is None or not output.objects:
            return
        if output.sink.position + nbytes > self._most:
            self._end_file()
            self._begin()

    # --- Files ------------------------------------------------------------------------------

    def _begin(self) -> None:
        name = part_name(self.process)
        target = self._place.target(name)
        sink: FileSink | RemoteSink
        if isinstance(target, Remote):
            sink = RemoteSink(target, is_new=True)
        else:
            sink = FileSink(target, durable=self._durable, is_new=True)
        self._output = create(
            sink, attributes={ATTRIBUTE: {"process": self.process}}, **self._options
        )
        self._name = name
        self._counts = {}
        self._written = []

    def _end_file(self) -> None:
        output = self._output
        if output is None:
            return
        if self._empty:
            own = {"process": self.process, "empty": list(self._empty.values())}
            output.attributes = {ATTRIBUTE: own}
        elif not output.objects:  # no file for nothing
            output.abort()
            self._output = None
            return
        if isinstance(output.sink, FileSink):
            self._held.append(output.sink.held())
        output.finish()
        self._output = None
        number = len(self._files)
        self._rows += [row_of(one, number, output.objects[one.own]) for one in self._written]
        source = self._place.open(self._name)
        try:
            frame = find_manifest(source, DEFAULT_LIMITS)
            whole = Range(source, frame.manifest_offset, frame.manifest_length)
            digest = digest_of(ALGORITHMS["sha256"], whole.pieces())
            self._files.append(TableFile(self._name, source.size, digest))
        finally:
            source.close()

    def finish(self) -> PartRecord:
        """Finish the files, flushed as `durable` asks, and return what `commit` needs of them.

        Raises:
            ClosedError: it was finished or aborted before.
            SourceError: a file could not be put in place.
        """
        self._require_open()
        try:
            self._end_file()
            record = PartRecord(self.process, table_of(self._tensors, self._rows, self._files))
        except BaseException:
            self.abort()
            raise
        self.state = "finished"
        return record

    def abort(self) -> None:
        """Remove what was written; may be called again, and after `finish` without effect."""
        if self.state != "open":
            return
        self.state = "aborted"
        if self._output is not None:
            self._output.abort()
            self._output = None
        remove_files(self._place, [file.name for file in self._files])
        self._held.clear()

    def _require_open(self) -> Output:
        if self.state != "open" or self._output is None:
            raise ClosedError(f"the writer is {self.state}", file=self._place.name)
        if self._output.state != "open":
            self.abort()
            raise ClosedError("the writer is aborted", file=self._place.name)
        return self._output

    def __enter__(self) -> Self:
        """Return the writer itself."""
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort what was not finished."""
        self.abort()

    def __repr__(self) -> str:
        """Return where it writes, and its state."""
        return (
            f"<PartWriter {describe(self._place.name, 200)} process {self.process}, {self.state}>"
        )


class Written(NamedTuple):
    """An object of the file that is being written.

    Attributes:
        own: its name in the file.
        tensor: the number of the tensor.
        number: which of the tensor's objects in this file it is.
        offsets: where the box begins.
        sizes: how long it is.
        is_whole: only the file tells what it is made of.
    """

    own: str
    tensor: int
    number: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    is_whole: bool


class Row(NamedTuple):
    """A row of the table to be."""

    tensor: int
    file: int
    number: int
    encoding: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    at: int
    length: int
    digest: str | None


class Tensors:
    """The tensors a process writes, each with its shape and kind."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.shapes: list[tuple[int, ...]] = []
        self.kinds: list[Kind] = []
        self._whole: set[str] = set()

    def number(self, name: str, shape: tuple[int, ...], kind: Kind, *, is_whole: bool) -> int:
        """Return the number of a tensor; its first chunk tells what it is.

        Raises:
            UsageError: another chunk of it said otherwise, or it was written as a whole.
        """
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.shapes)
            self.shapes.append(shape)
            self.kinds.append(kind)
            if is_whole:
                self._whole.add(name)
            return number
        if is_whole or name in self._whole:
            raise UsageError("the whole tensor was written before", object_name=name)
        if self.shapes[number] != shape or self.kinds[number] != kind:
            raise UsageError(
                "the chunks of a tensor differ in shape or type",
                object_name=name,
                expected=f"{self.kinds[number]} of shape {self.shapes[number]}",
                found=f"{kind} of shape {shape}",
            )
        return number


def _kind_of(tensor: Tensor) -> Kind:
    """Return the kind of a tensor: its layout, and the types of its main component."""
    layout = LAYOUTS.get(tensor.format)
    role = next(iter(tensor.components)) if layout is None else layout.main_role
    storage, logical = spell(tensor.components[role].dtype)
    return Kind(storage, logical, tensor.format)


def kind_of_object(found: TensorObject) -> Kind:
    """Return the kind of an object of a file: its layout, and the types of its main component."""
    layout = LAYOUTS.get(found.format)
    main = None if layout is None else found.components.get(layout.main_role)
    one = main or next(iter(found.components.values()))
    return Kind(one.dtype, one.type, found.format)


def row_of(written: Written, file: int, found: TensorObject) -> Row:
    """Return the row of an object that was written."""
    one = found.components.get("data")
    is_whole = written.is_whole or one is None
    return Row(
        written.tensor,
        file,
        written.number,
        WHOLE_OBJECT if is_whole or one is None else one.encoding,
        written.offsets,
        written.sizes,
        0 if is_whole or one is None else one.offset,
        found.stored_nbytes,
        None if is_whole or one is None else one.digest,
    )


def table_of(tensors: Tensors, rows: Sequence[Row], files: Sequence[TableFile]) -> ChunkTable:
    """Return rows as columns, in the order of the tensors."""
    rows = sorted(rows, key=lambda row: row.tensor)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tensors.kinds))}
    encodings = {
        word: n for n, word in enumerate(dict.fromkeys(["raw", *(r.encoding for r in rows)]))
    }
    texts = [row.digest for row in rows if row.encoding != WHOLE_OBJECT]
    algorithm = next((parse_digest(text).algorithm for text in texts if text), "")
    digest = None
    if algorithm:
        width = ALGORITHMS[algorithm].digits // 2
        empty = bytes(width)
        digest = np.frombuffer(
            b"".join(
                empty if row.digest is None else bytes.fromhex(parse_digest(row.digest).expected)
                for row in rows
            ),
            np.uint8,
        ).reshape(len(rows), width)

    def column(values: Iterable[int]) -> Array:
        return np.fromiter(values, np.int64)

    return ChunkTable(
        names=list(tensors.numbers),
        kinds=list(kinds),
        kind=column(kinds[kind] for kind in tensors.kinds),
        shapes=list(tensors.shapes),
        files=list(files),
        encodings=list(encodings),
        tensor=column(row.tensor for row in rows),
        file=column(row.file for row in rows),
        number=column(row.number for row in rows),
        encoding=column(encodings[row.encoding] for row in rows),
        offsets=column(itertools.chain.from_iterable(row.offsets for row in rows)),
        sizes=column(itertools.chain.from_iterable(row.sizes for row in rows)),
        at=column(row.at for row in rows),
        length=column(row.length for row in rows),
        digest=digest,
        algorithm=algorithm,
    )


def _box(
    name: str,
    sizes: tuple[int, ...],
    shape: Sequence[int] | None,
    offsets: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of the whole tensor, and where the box begins.

    Raises:
        ArgumentValueError: the box does not lie in the shape, or only one of both is given.
    """
    if shape is None and offsets is None:
        return sizes, (0,) * len(sizes)
    if shape is None or offsets is None:
        raise ArgumentValueError("shape and offsets are given both, or neither", object_name=name)
    whole, begin = shape_of(shape), shape_of(offsets)
    if (
        len(whole) != len(sizes)
        or len(begin) != len(sizes)
        or any(
            start + size > length for start, size, length in zip(begin, sizes, whole, strict=True)
        )
    ):
        raise ArgumentValueError(
            "the box does not lie in the tensor",
            object_name=name,
            expected=f"within shape {describe(whole)}",
            found=f"{describe(begin)} of sizes {describe(sizes)}",
        )
    return whole, begin


def _is_durable(place: Place, durable: Durable) -> Durable:
    """Return whether files are flushed: with "auto", where a checkpoint is there already."""
    if durable != "auto":
        return durable
    target = place.target(ROOT)
    return False if isinstance(target, Remote) else os.path.lexists(target)


def remove_files(place: Place, names: Iterable[str]) -> None:
    """Remove files of a place, whether they are there or not.

    Raises:
        SourceError: one could not be removed.
    """
    for name in names:
        target = place.target(name)
        if isinstance(target, Remote):
            remove(target)
            continue
        try:
            os.unlink(target)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SourceError.from_os(error, "cannot remove", target) from error
