"""`PartWriter`: write the files of one process of a distributed checkpoint."""

from __future__ import annotations

import dataclasses
import operator
import os
import secrets
import weakref
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor import Remote, Tensor, Writer
from ztensor.distributed.chunks.boxes import is_within
from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable, Kind, TableFile
from ztensor.distributed.cleaning import remove_parts
from ztensor.distributed.columns import listed_kinds
from ztensor.distributed.place import ATTRIBUTE, ROOT, Place, is_own, part_name
from ztensor.distributed.rows import (
    Tensors,
    columns_of_file,
    content_of,
    kind_of,
    own_name,
    stored_as,
    table_of,
)
from ztensor.distributed.since import Older
from ztensor.errors import (
    ArgumentValueError,
    ClosedError,
    NotRepresentableError,
    counted,
    describe,
)
from ztensor.ext import ALGORITHMS, FRAMEWORKS, Blocks, FileObjects, FileSink, Range, Sink, spell
from ztensor.limits import DEFAULT_LIMITS
from ztensor.options import PartOptions, parse_size, require_options
from ztensor.typing import Durable, Path, Storage, TensorLike

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    Array = np.ndarray[Any, Any]


# The last writer of each folder and process, for as long as it lives.
_LAST: weakref.WeakValueDictionary[tuple[str, int], PartWriter] = weakref.WeakValueDictionary()
# The value of `checksum=` for digests by which equal chunks are recognized.
STRONG = "xxh3-128"
_MOST_ID_BYTES = 200


@dataclasses.dataclass(frozen=True, eq=False)
class PartRecord:
    """Describes the part of one process: small, to be pickled and sent to the committing process.

    Attributes:
        process: number of the process.
        table: its tensors, chunks and files.
        save_id: id of its save, or None.
        processes: number of processes of that save, or None.
    """

    process: int
    table: ChunkTable
    save_id: str | None = None
    processes: int | None = None

    def __repr__(self) -> str:
        """Return counts."""
        table = self.table
        return (
            f"<PartRecord of process {self.process}: {counted(len(table), 'chunk')} of "
            f"{counted(len(table.names), 'tensor')} in {counted(len(table.files), 'file')}>"
        )


class PartWriter:
    """Writes the part of one process of a distributed checkpoint.

    Its files get unused names, so no existing file is touched. They become part of the checkpoint
    when `commit` names them. Keep the writer until then: as long as it lives, and no newer one is
    made for this folder and process, clean-ups of other saves leave its files alone.

    Args:
        folder: the folder, which must be there, or the URL of a prefix.
        process: the number of this process; readers ignore it.
        save_id: a text or number that all processes of this save pass, and no other save into this
            folder: a random one that a process makes and sends to the others, or the step with the
            number of the attempt. `commit` and `repair` compare it.
        processes: number of processes of this save; they count from 0. Each then leaves a file, so
            that `commit` and `repair` notice if one is missing. With 1, no id is needed.
        options: see `ztensor.typing.PartOptions`.

    Raises:
        SourceError: the folder cannot be written, or `since` cannot be read.
        FormatError: `since` is damaged.
        ArgumentValueError: an argument has an unknown value.
    """

    def __init__(
        self,
        folder: Path,
        *,
        process: int = 0,
        save_id: str | int | None = None,
        processes: int | None = None,
        **options: Unpack[PartOptions],
    ) -> None:
        require_options("PartWriter", options, PartOptions)
        if type(process) is not int or process < 0:
            raise ArgumentValueError(
                "a process has a number from 0", found=describe(process), expected="0 or more"
            )
        if processes is not None and (type(processes) is not int or processes <= process):
            raise ArgumentValueError(
                "processes must be an integer above the number of each process",
                expected=f"more than {process}",
                found=describe(processes, 40),
            )
        self.save_id = secrets.token_hex(16) if processes == 1 and save_id is None else None
        if save_id is not None:
            self.save_id = require_save_id(save_id)
        self.processes = processes
        self.process = process
        self._prepare(folder, **options)
        self._tensors = Tensors()
        self._rows: list[Chunk] = []
        self._files: list[TableFile] = []
        self._empty: set[int] = set()  # tensors without elements, which have no object
        self._token = secrets.token_hex(8)  # a process may try again with the same id
        self._held: list[object] = []  # locks, held as long as this lives
        self._output: Writer | None = None
        self._sink: Sink
        self._counts: dict[str, int] = {}
        # Chunks of the current file whose offsets are not known yet; then by offset.
        self._written: list[Chunk] = []
        self._places: dict[tuple[int, tuple[int, ...]], Chunk] = {}
        self.state = "open"
        self._begin()
        self._release_older()

    def _prepare(
        self,
        folder: Path,
        *,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        threads: int | None = None,
        durable: Durable = "auto",
        storage: Storage | None = None,
        max_shard_size: int | str | None = None,
        since: Path | None = None,
    ) -> None:
        """Check the folder, and set the options; see `PartOptions`."""
        self._place = Place(folder, storage)
        self._place.require_no_link()
        self._older = None if since is None else Older(since, self._place, storage)
        self._is_strong = since is not None or checksum == STRONG
        self._options: dict[str, Any] = {
            "compression": compression,
            "checksum": True if checksum == STRONG else checksum,
            "threads": threads,
        }
        self._durable = _is_durable(self._place, durable)
        self._most = None if max_shard_size is None else parse_size(max_shard_size)

    def _release_older(self) -> None:
        """Release the files of an earlier save of this process that was never committed."""
        key = self._place.name, self.process
        older = _LAST.get(key)
        if older is not None and older.state == "finished":
            older._held.clear()
        _LAST[key] = self

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
            shape: shape of the whole tensor if `value` is a box of it. It is dense then.
            offsets: first element of the box along each axis.

        Raises:
            NotRepresentableError: no file can hold it, or a chunk has attributes or is not dense.
            ArgumentValueError: the box is outside the shape, or only one of both is given.
            UsageError: the whole tensor was written before.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        self._require_open()
        framework = None if type(value) is np.ndarray else FRAMEWORKS.adapter_of(value)
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
        kind = Kind(*spell(given.dtype)) if tensor is None else kind_of(tensor)
        number = self._tensors.number(name, whole, kind, is_whole=shape is None)
        if tensor is None and not given.size:
            if 0 in whole:
                self._empty.add(number)
            return  # no elements, so no bytes
        content = None
        if self._is_strong and tensor is None:
            content = content_of(Blocks.of(given))
            if self._older is not None:
                place = name, whole, offset, tuple(given.shape), kind
                if self._older.has(number, place, content, self._algorithm):
                    return
        self._roll(given.nbytes)
        output = self._require_open()
        count = self._next(name)
        output.write(own_name(name, count), given)
        word, sizes = "raw" if tensor is None else WHOLE_OBJECT, tuple(given.shape)
        self._note(Chunk(-1, number, 0, count, word, offset, sizes, 0, 0, None, content))

    def share(
        self,
        name: str,
        of: str,
        *,
        at: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> bool:
        """Write a chunk with the bytes of an earlier chunk, without writing them again.

        Args:
            name: the tensor's name.
            of: the tensor of the earlier chunk, which is equal in type, layout, shape and elements.
            at: offsets of the earlier chunk; by default those of the tensor's first element.
            shape: as for `add`, like `offsets`.
            offsets: first element of the box along each axis.

        Returns:
            Whether it was written; not where that chunk is in another file, or has no element.

        Raises:
            ArgumentValueError: the box is outside the shape, or only one of both is given.
            UsageError: the whole tensor was written before.
        """
        output = self._require_open()
        known = self._tensors.numbers.get(of)
        if known is None:
            return False
        begin = (0,) * len(self._tensors.shapes[known]) if at is None else tuple(at)
        like = self._places.get((known, begin))
        if like is None:
            return False
        whole, offset = _box(name, like.sizes, shape, offsets)
        kind = self._tensors.kinds[known]
        number = self._tensors.number(name, whole, kind, is_whole=shape is None)
        count = self._next(name)
        output.share(own_name(name, count), self._name_of(like))
        self._note(like._replace(tensor=number, number=count, offsets=offset))
        return True

    def _note(self, chunk: Chunk) -> None:
        self._written.append(chunk)
        self._places[chunk.tensor, chunk.offsets] = chunk

    def _next(self, name: str) -> int:
        """Return the number of the next object of a tensor in this file."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return count

    def _name_of(self, chunk: Chunk) -> str:
        return own_name(self._tensors.names[chunk.tensor], chunk.number)

    @property
    def _algorithm(self) -> str:
        checksum = self._options["checksum"]
        if checksum is True:
            return next(iter(ALGORITHMS))
        return checksum if checksum in ALGORITHMS else ""

    def _copy(self, objects: FileObjects, chunk: Chunk) -> None:
        """Copy a stored chunk from an older file that is hardly needed otherwise."""
        name = self._tensors.names[chunk.tensor]
        self._roll(chunk.length)
        count = self._next(name)
        self._require_open().copy(own_name(name, count), objects, self._name_of(chunk))
        self._written.append(chunk._replace(number=count))

    def _roll(self, nbytes: int) -> None:
        """Begin another file if this one would become too long."""
        output = self._require_open()
        if self._most is None or not output.draft.objects:
            return
        if self._sink.position + nbytes > self._most:
            self._end_file()
            self._begin()

    # --- Files ------------------------------------------------------------------------------

    def _begin(self) -> None:
        name = part_name(self.process)
        self._sink = self._place.sink(name, is_new=True, durable=self._durable)
        self._output = Writer(self._sink, **self._options)
        self._name = name
        self._counts = {}
        self._written = []
        self._places = {}

    def _end_file(self, *, is_last: bool = False) -> None:
        output = self._output
        if output is None:
            return
        number = len(self._files)
        has_older = self._older is not None and bool(self._older.files)
        is_needed = bool(number or self._empty or has_older or self.processes)
        if not (output.draft.objects or is_needed):  # without chunks, no file
            output.abort()
            self._output = None
            return
        self._describe(output, number, is_last=is_last, has_older=has_older)
        if isinstance(self._sink, FileSink):
            self._held.append(self._sink.held())
        output.finish()
        self._output = None
        there = output.draft.objects
        self._rows += [stored_as(one, number, there[self._name_of(one)]) for one in self._written]
        source = self._place.open(self._name)
        try:
            frame = FileObjects.frame_in(source, DEFAULT_LIMITS)
            whole = Range(source, frame.manifest_offset, frame.manifest_length)
            digest = ALGORITHMS["sha256"].of(whole.pieces())
            self._files.append(TableFile(self._name, source.size, digest))
        finally:
            source.close()

    def _describe(self, output: Writer, number: int, *, is_last: bool, has_older: bool) -> None:
        """Write which chunks a file has, and its save and process.

        Raises:
            SourceError: the columns could not be written.
        """
        attributes = {
            "process": self.process,
            "processes": self.processes,
            "save": self.save_id,
            "part": self._token,
            "number": number,
            "files": number + 1 if is_last else None,
            "older": has_older or None,
        }
        prefix, kinds, columns = columns_of_file(self._tensors, self._written, self._empty)
        self._empty = set()
        for name, column in columns.items():
            output.write(f"{prefix}{name}", column, compress=True)
        output.draft.attributes = {
            ATTRIBUTE: {
                **{key: value for key, value in attributes.items() if value is not None},
                "table": prefix,
                "kinds": listed_kinds(kinds),
            }
        }

    def finish(self) -> PartRecord:
        """Finish the files, flushed as `durable` asks, and return the record for `commit`.

        Raises:
            ClosedError: it was finished or aborted before.
            SourceError: a file could not be put in place.
        """
        self._require_open()
        try:
            if self._older is not None:
                self._older.copy_little(self._copy)
            self._end_file(is_last=True)
            if self._older is not None:
                self._rows += self._older.rows(len(self._files))
                self._files += self._older.files
            table = table_of(self._tensors, self._rows, self._files)
            record = PartRecord(self.process, table, self.save_id, self.processes)
        except BaseException:
            self.abort()
            raise
        self.state = "finished"
        return record

    def abort(self) -> None:
        """Remove the files; does nothing if called again, or after `finish`."""
        if self.state != "open":
            return
        self.state = "aborted"
        if self._output is not None:
            self._output.abort()
            self._output = None
        own = [file.name for file in self._files if is_own(file.name, self.process)]
        linked = [] if self._older is None else self._older.linked
        remove_parts(self._place, [*own, *linked])
        self._held.clear()

    def _require_open(self) -> Writer:
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

    def __exit__(self, *exception: object) -> None:
        """Abort unless the part is finished."""
        self.abort()

    def __repr__(self) -> str:
        """Return its place and state."""
        return (
            f"<PartWriter {describe(self._place.name, 200)} process {self.process}, {self.state}>"
        )


def require_save_id(save_id: object) -> str:
    """Return the id of a save as text.

    Raises:
        ArgumentValueError: it is not a text or an integer, or it is empty or too long.
    """
    is_id = isinstance(save_id, str) or type(save_id) is int
    text = str(save_id) if is_id else ""
    if not 0 < len(text.encode("utf-8", "replace")) <= _MOST_ID_BYTES:
        raise ArgumentValueError(
            "save_id must be a text or an integer",
            expected=f"1 to {_MOST_ID_BYTES} bytes",
            found=describe(save_id, 80),
        )
    return text


def _box(
    name: str,
    sizes: tuple[int, ...],
    shape: Sequence[int] | None,
    offsets: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of the whole tensor, and the offsets of the box.

    Raises:
        ArgumentValueError: the box is outside the shape, or only one of both is given.
    """
    if shape is None and offsets is None:
        return sizes, (0,) * len(sizes)
    if shape is None or offsets is None:
        raise ArgumentValueError("shape and offsets are given both, or neither", object_name=name)
    whole, begin = tuple(map(operator.index, shape)), tuple(map(operator.index, offsets))
    if not is_within(begin, sizes, whole):
        raise ArgumentValueError(
            "the box is outside the tensor",
            object_name=name,
            expected=f"within shape {describe(whole)}",
            found=f"{describe(begin)} of sizes {describe(sizes)}",
        )
    return whole, begin


def _is_durable(place: Place, durable: Durable) -> Durable:
    """Return whether files are flushed; with "auto", if a checkpoint exists already."""
    if durable != "auto":
        return durable
    target = place.target(ROOT)
    return False if isinstance(target, Remote) else os.path.lexists(target)


def let_go(folder: str) -> None:
    """Release the finished files of this process in a folder after its save has failed.

    Args:
        folder: as `Place` names it.
    """
    for (name, _), writer in list(_LAST.items()):
        if name == folder and writer.state == "finished":
            writer._held.clear()
