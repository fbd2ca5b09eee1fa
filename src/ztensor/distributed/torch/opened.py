"""The checkpoint that is read: one root, or one of each process where these did not talk.

Without collectives no process knows of the others', so each writes a checkpoint of its own into a
folder that is called as its number. There its boxes are tensors by themselves, and a value says
which part of which tensor each is. Here they are put together again.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import distributed as dist

from ztensor import Tensor
from ztensor.distributed import DividedCheckpoint, open_divided
from ztensor.distributed.chunks.boxes import find_misfit, overlap
from ztensor.distributed.chunks.table import Kind
from ztensor.distributed.place import Place
from ztensor.distributed.root import BOXES, PATHS, SAVE_ID, values_as
from ztensor.distributed.saves import Save
from ztensor.errors import FormatError, ManifestError, Reason, SourceNotFoundError, describe
from ztensor.ext import ALGORITHMS, Range, element_count
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
    """A checkpoint with one root.

    Args:
        checkpoint: it; closed with this.
        types: classes of its values.

    Attributes:
        name: the path of the root.
        save: which save it is of, and of how many processes at least, if it is one of a process.
        values: plain values by name.
        paths: where in a nested state each name belongs; None where nothing says.
        boxes: of a process that was alone; else None.
        save_id: of the writer; None where it gave none.
    """

    def __init__(self, checkpoint: DividedCheckpoint, types: Iterable[type]) -> None:
        self._checkpoint = checkpoint
        self._table = checkpoint.root.table
        self.name = checkpoint.objects.name
        self.save = Save(checkpoint.root.save_id, checkpoint.root.processes)
        try:
            self.values = dict(values_as(checkpoint.root, "torch", types))
        except BaseException:
            checkpoint.close()
            raise
        self.paths: Any = self.values.pop(PATHS, None)
        self.boxes: Any = self.values.pop(BOXES, None)
        save_id = self.values.pop(SAVE_ID, None)
        self.save_id = save_id if isinstance(save_id, str) else None

    @property
    def names(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return self._table.names

    @property
    def identity(self) -> str:
        """Return what tells this checkpoint from every other one: a digest of its root."""
        file = self._checkpoint.objects.file
        whole = Range(file.source, 0, file.source.size)
        return ALGORITHMS["sha256"].of(whole.pieces())

    def entry(self, name: str) -> Entry | None:
        """Return what a tensor is; None where there is none of that name."""
        number = self._table.tensor_of.get(name)
        if number is None:
            return None
        return Entry(self._table.kind_of(number), self._table.shapes[number])

    def read_box(
        self,
        name: str,
        offsets: Sequence[int],
        sizes: Sequence[int],
        destination: np.ndarray[Any, Any],
    ) -> None:
        """Fill an array with a box of a dense tensor; see `DividedCheckpoint.read_box`."""
        self._checkpoint.read_box(name, offsets, sizes, destination)

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor of any layout, in memory of its own.

        Raises:
            ZTensorError: it is damaged, or of an unknown layout.
        """
        file = self._checkpoint.objects
        with file.located(name):
            return file.tensor(name, copy=True)

    def close(self) -> None:
        """Give back the files."""
        self._checkpoint.close()


class _Box(NamedTuple):
    """A part of a tensor: the object `own` of one process, and where it begins."""

    part: Opened
    own: str
    offsets: Shape
    sizes: Shape


class Apart:
    """The checkpoints of processes that did not talk, as one; see `Opened` for what it has.

    Args:
        parts: of each process.
        rank: whose values and replicas are taken where several have them.
    """

    def __init__(self, parts: list[Opened], rank: int) -> None:
        self._parts = parts
        own = parts[rank : rank + 1]
        self.name, self.save_id = parts[0].name, parts[0].save_id
        self.values: dict[str, Any] = {}
        paths: dict[str, Any] = {}
        self._boxes: dict[str, dict[tuple[Shape, Shape], _Box]] = {}
        self._entries: dict[str, Entry] = {}
        for part in (*reversed(parts), *own):  # the last one counts
            self.values.update(part.values)
            paths.update(part.paths or {})
            for name, of, shape, offsets in _boxes_of(part):
                entry = part.entry(name)
                if entry is None:
                    raise _broken(part, name, "the root lacks a tensor that it tells of")
                found = self._entries.setdefault(of, Entry(entry.kind, shape))
                if found != Entry(entry.kind, shape):
                    raise _broken(part, of, "the processes disagree about a tensor")
                box = _Box(part, name, offsets, entry.shape)
                self._boxes.setdefault(of, {})[offsets, entry.shape] = box
        self.paths = paths or None
        for name, entry in self._entries.items():
            self._require_filled(name, entry.shape)
        _require_one_save(parts)

    def _require_filled(self, name: str, shape: Shape) -> None:
        boxes: Any = np.array(list(self._boxes[name]), np.int64).reshape(-1, 2, len(shape))
        tensors, whole = np.zeros(len(boxes), np.intp), np.array([shape], np.int64)
        misfit = find_misfit(boxes[:, 0], boxes[:, 1], tensors, whole)
        if misfit is not None:
            error = _broken(
                self._parts[0], name, "the boxes of all processes do not make up a tensor"
            )
            error.expected = f"{describe(element_count(shape))} elements, each once"
            error.found = (
                f"the one at {misfit.element} in {len(misfit.boxes)} of {len(boxes)} boxes of "
                f"{len(self._parts)} processes"
            )
            error.hint = "the folder of a process may be missing: it died, or is not yet done"
            raise error

    @property
    def names(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return self._entries

    @property
    def identity(self) -> str:
        """Return what tells this checkpoint from every other one."""
        return " ".join(part.identity for part in self._parts)

    def entry(self, name: str) -> Entry | None:
        """Return what a tensor is; None where there is none of that name."""
        return self._entries.get(name)

    def read_box(
        self,
        name: str,
        offsets: Sequence[int],
        sizes: Sequence[int],
        destination: np.ndarray[Any, Any],
    ) -> None:
        """Fill an array with a box of a dense tensor; see `DividedCheckpoint.read_box`."""
        for box in self._boxes[name].values():
            common = overlap(box.offsets, box.sizes, offsets, sizes)
            if not common.is_empty:
                start = tuple(one.start for one in common.source)
                box.part.read_box(box.own, start, common.sizes, destination[common.in_target])

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor of any layout, in memory of its own."""
        box = next(iter(self._boxes[name].values()))
        return box.part.tensor(box.own)

    def close(self) -> None:
        """Give back the files."""
        for part in self._parts:
            part.close()


def _boxes_of(part: Opened) -> Iterable[tuple[str, str, Shape, Shape]]:
    """Return the objects of a process that was alone: tensor, whole shape, and where each begins.

    Raises:
        FormatError: what is said of them is malformed.
    """
    if not isinstance(part.boxes, dict):
        raise ManifestError(
            "a process that was alone does not tell its boxes", reason=Reason.FIELD_VALUE
        )
    for own, told in part.boxes.items():
        if type(told) is not tuple or len(told) != 3 or not isinstance(told[0], str):
            raise _broken(part, str(own), "a box is malformed")
        name, shape, offsets = told
        entry = part.entry(own)
        sizes = () if entry is None else entry.shape
        if not all(
            type(one) is tuple and len(one) == len(sizes) and all(type(n) is int for n in one)
            for one in (shape, offsets)
        ) or any(
            start < 0 or start + size > length
            for start, size, length in zip(offsets, sizes, shape, strict=True)
        ):
            raise _broken(part, name, "a box does not lie in its tensor")
        yield own, name, shape, offsets


def _broken(part: Opened, name: str, message: str) -> FormatError:
    return FormatError(message, reason=Reason.SHARD_INDEX, file=part.name, object_name=name)


def _require_one_save(parts: list[Opened]) -> None:
    """Raise where what processes saved that did not talk is not of one save, or not all of it.

    Raises:
        FormatError: so it is.
    """
    first = parts[0].save.id
    for part in parts:
        if part.save.id != first:
            error = FormatError(
                "the processes saved at different times", reason=Reason.SHARD_INDEX, file=part.name
            )
            error.expected, error.found = describe(first, 80), describe(part.save.id, 80)
            error.hint = "each folder by itself can be read"
            raise error
    most = max(part.save.processes or 0 for part in parts)
    if most > len(parts):
        error = FormatError("a process did not save", reason=Reason.SHARD_INDEX, file=parts[0].name)
        error.expected, error.found = f"at least {most} processes", str(len(parts))
        error.hint = "the folder of a process may be missing: it died, or is not yet done"
        raise error


def folder_of(path: Any, storage: Storage | None, rank: int) -> Any:
    """Return where a process writes that is alone: the folder of its number beneath one."""
    return Place(path, storage).target(f"{rank:05d}")


def opened_at(path: Any, types: Iterable[type], **options: Any) -> Opened | Apart:
    """Open a checkpoint; see `open_divided` for the options.

    Raises:
        ZTensorError: it cannot be opened.
    """
    try:
        return Opened(open_divided(path, **options), types)
    except SourceNotFoundError:
        parts: list[Opened] = []
        try:
            for rank in itertools.count():
                home = folder_of(path, options["storage"], rank)
                if not Place(home, options["storage"]).has_root():
                    break
                parts.append(Opened(open_divided(home, **options), types))
            if parts:
                return Apart(parts, dist.get_rank() if dist.is_initialized() else 0)
        except BaseException:
            for part in parts:
                part.close()
            raise
        raise
