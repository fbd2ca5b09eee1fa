"""Open a checkpoint: one root, or a root of each process that saved without collectives.

Without collectives each process writes a checkpoint of its own, into a folder named by its number.
Its boxes are tensors there, and a value says which box of which tensor each is. This module joins
their chunks into one table.
"""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import distributed as dist

from ztensor import Tensor
from ztensor.distributed.chunks.boxes import is_within
from ztensor.distributed.chunks.table import Chunk, ChunkTable, Kind
from ztensor.distributed.opened import DividedObjects, open_objects
from ztensor.distributed.place import Place
from ztensor.distributed.root import BOXES, PATHS, SAVE_ID, Root, values_as
from ztensor.distributed.rows import Tensors, table_of
from ztensor.errors import (
    FormatError,
    ManifestError,
    Reason,
    SourceNotFoundError,
    UsageError,
    describe,
)
from ztensor.ext import ALGORITHMS, Range
from ztensor.limits import Limits, caps_of
from ztensor.typing import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Shape = tuple[int, ...]


class Entry(NamedTuple):
    """A tensor of a checkpoint.

    Attributes:
        kind: its type and layout.
        shape: in elements.
    """

    kind: Kind
    shape: Shape


class Opened:
    """An open checkpoint.

    Args:
        objects: its tensors; closed with this.
        values: plain values by name, and those that the writer adds.
        parts: checkpoints of processes without collectives; closed with this.

    Attributes:
        root: the root.
        name: path of the root.
        values: plain values by name.
        paths: path of each name in the nested state, or None.
        boxes: boxes of a process that saved without collectives, else None.
        save_id: save id of the writer, or None.
    """

    def __init__(
        self, objects: DividedObjects, values: dict[str, Any], parts: Sequence[Opened] = ()
    ) -> None:
        self.objects = objects
        self.root = objects.root
        self._parts = parts
        self.name = objects.name
        self.values = values
        self.paths: Any = values.pop(PATHS, None)
        self.boxes: Any = values.pop(BOXES, None)
        save_id = values.pop(SAVE_ID, None)
        self.save_id = save_id if isinstance(save_id, str) else None

    @property
    def names(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return self.root.names

    @property
    def identity(self) -> str:
        """Return a digest of each root, by which this checkpoint is recognized."""
        if self._parts:
            return " ".join(part.identity for part in self._parts)
        source = self.objects.file.source
        return ALGORITHMS["sha256"].of(Range(source, 0, source.size).pieces())

    def entry(self, name: str) -> Entry | None:
        """Return kind and shape of a tensor, None if there is none of that name."""
        table = self.root.table
        number = table.tensor_of.get(name)
        return None if number is None else Entry(table.kind_of(number), table.shapes[number])

    def read_box(
        self,
        name: str,
        offsets: Sequence[int],
        sizes: Sequence[int],
        destination: np.ndarray[Any, Any],
    ) -> None:
        """Fill an array with a box of a dense tensor; see `DividedCheckpoint.read_box`."""
        self.objects.read_box(name, offsets, sizes, destination)

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor of any layout, in memory of its own.

        Raises:
            ZTensorError: it is damaged, or of an unknown layout.
        """
        with self.objects.located(name):
            return self.objects.tensor(name, copy=True)

    def close(self) -> None:
        """Close the files."""
        for one in (self, *self._parts):
            one.objects.close()


def _joined(place: Place, parts: list[Opened], rank: int, **how: Any) -> Opened:
    """Join the checkpoints of processes that saved without collectives.

    Args:
        place: the folder of their folders.
        parts: checkpoint of each process.
        rank: the process whose values and replicas win if several have them.
        how: options of `DividedObjects`.

    Raises:
        FormatError: they are not from one save, or do not tile its tensors.
    """
    order = [*reversed(range(len(parts))), *range(len(parts))[rank : rank + 1]]  # the last counts
    values: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for part in (parts[number] for number in order):
        values.update(part.values)
        paths.update(part.paths or {})
    values |= {PATHS: paths or None, SAVE_ID: parts[0].save_id}
    root = Root(_joined_table(parts, order), parts[0].root.writer)
    _require_one_save(parts)
    return Opened(DividedObjects(place, parts[0].objects.file, root, **how), values, parts)


def _joined_table(parts: list[Opened], order: Iterable[int]) -> ChunkTable:
    """Return the table of all chunks, with the whole tensors."""
    files = [(number, file) for number, part in enumerate(parts) for file in part.root.table.files]
    places = {one: at for at, one in enumerate(files)}
    tensors = Tensors()
    chunks: dict[tuple[str, Shape, Shape], list[Chunk]] = {}  # each box once
    for number in order:
        part, table = parts[number], parts[number].root.table
        for own, of, shape, offsets in _boxes_of(part):
            tensor = table.tensor_of[own]
            try:
                place = tensors.number(of, shape, table.kind_of(tensor), is_whole=False)
            except UsageError as error:
                raise _broken(part, of, "the processes disagree about a tensor") from error
            chunks[of, offsets, table.shapes[tensor]] = [
                chunk._replace(
                    tensor=place,
                    file=places[number, table.files[chunk.file]],
                    offsets=tuple(map(operator.add, offsets, chunk.offsets)),
                )
                for chunk in map(table.chunk, table.rows(tensor))
            ]
    if len({part.root.table.algorithm for part in parts if len(part.root.table)}) > 1:
        raise _broken(parts[0], None, "the processes wrote different digests")
    named = [file._replace(name=f"{number:05d}/{file.name}") for number, file in files]
    joined = table_of(tensors, list(itertools.chain.from_iterable(chunks.values())), named)
    try:
        joined.require_valid()
    except FormatError as error:
        error.hint = "the folder of a process may be missing: it died, or is not yet done"
        raise error.locate(file=parts[0].name) from None
    return joined


def _boxes_of(part: Opened) -> Iterable[tuple[str, str, Shape, Shape]]:
    """Yield the objects of a process without collectives: name, tensor, whole shape, offsets.

    Raises:
        FormatError: their description is malformed.
    """
    if not isinstance(part.boxes, dict):
        raise ManifestError(
            "a process that saved on its own lists no boxes", reason=Reason.FIELD_VALUE
        )
    for own, box in part.boxes.items():
        if type(box) is not tuple or len(box) != 3 or not isinstance(box[0], str):
            raise _broken(part, str(own), "a box is malformed")
        name, shape, offsets = box
        entry = part.entry(own)
        if entry is None:
            raise _broken(part, own, "the root lacks a tensor that its boxes name")
        are_boxes = all(
            type(one) is tuple and all(type(n) is int for n in one) for one in (shape, offsets)
        )
        if not are_boxes or not is_within(offsets, entry.shape, shape):
            raise _broken(part, name, "a box is outside its tensor")
        yield own, name, shape, offsets


def _broken(part: Opened, name: str | None, message: str) -> FormatError:
    return FormatError(message, reason=Reason.SHARD_INDEX, file=part.name, object_name=name)


def _require_one_save(parts: list[Opened]) -> None:
    """Raise unless processes without collectives saved all parts of one save.

    Raises:
        FormatError: they did not.
    """
    first = parts[0].root.save_id
    for part in parts:
        if part.root.save_id != first:
            error = FormatError(
                "the processes saved at different times", reason=Reason.SHARD_INDEX, file=part.name
            )
            error.expected, error.found = describe(first, 80), describe(part.root.save_id, 80)
            error.hint = "each folder by itself can be read"
            raise error
    most = max(part.root.processes or 0 for part in parts)
    if most > len(parts):
        error = FormatError("a process did not save", reason=Reason.SHARD_INDEX, file=parts[0].name)
        error.expected, error.found = f"at least {most} processes", str(len(parts))
        error.hint = "the folder of a process may be missing: it died, or is not yet done"
        raise error


def folder_of(path: Any, storage: Storage | None, rank: int) -> Any:
    """Return the subfolder of a process that saves without collectives."""
    return Place(path, storage).target(f"{rank:05d}")


def opened_at(
    path: Any, types: Iterable[type], *, storage: Storage | None, limits: Limits | None, **how: Any
) -> Opened:
    """Open a checkpoint; see `open_divided` for the options.

    Raises:
        ZTensorError: it cannot be opened.
    """

    def opened(home: Any) -> Opened:
        objects = open_objects(home, storage=storage, limits=limits, **how)
        try:
            return Opened(objects, dict(values_as(objects.root, "torch", types)))
        except BaseException:
            objects.close()
            raise

    try:
        return opened(path)
    except SourceNotFoundError:
        parts: list[Opened] = []
        try:
            for number in itertools.count():
                home = folder_of(path, storage, number)
                if not Place(home, storage).has_root():
                    break
                parts.append(opened(home))
            if parts:
                rank = dist.get_rank() if dist.is_initialized() else 0
                return _joined(Place(path, storage), parts, rank, limits=caps_of(limits), **how)
        except BaseException:
            for part in parts:
                part.close()
            raise
        raise
