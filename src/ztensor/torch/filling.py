"""`load_into`: fill tensors that are there, on each rank with its share of a file.

The tensors of a state are resolved to boxes: a plain tensor is one box, a `DTensor` or a
`ShardedTensor` has the boxes of its local elements. Each box is read from one object of the source,
or from several that a rule joins or cuts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import torch

import ztensor
from ztensor import Tensor
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotRepresentableError,
    ObjectNotFoundError,
    counted,
    describe,
)
from ztensor.ext import LAYOUTS, ObjectReader, Quantized, result_dtype
from ztensor.options import OpenOptions, require_options
from ztensor.torch.boxes import Box, Target, targets_of
from ztensor.torch.exchanging import Rows, agreed, batches_of, broadcast
from ztensor.torch.tying import tied
from ztensor.torch.values import array_to_torch, torch_dtype
from ztensor.typing import Readable

_BATCH_BYTES = 256 << 20  # read before anything is copied to its target


class Cut(NamedTuple):
    """A part of an object of the source, for a rule of `load_into`.

    Attributes:
        name: the object; each `*` and `{name}` stands for the text of the same capture in the
            rule's pattern.
        start: the first index along `dim`.
        stop: the index behind the last one.
        dim: the axis.
    """

    name: str
    start: int
    stop: int
    dim: int = 0


class Joined(NamedTuple):
    """Objects of the source, or parts of them, one behind the other; for a rule of `load_into`.

    Attributes:
        parts: names as in `Cut`, or `Cut`s along the same axis.
        dim: the axis.
    """

    parts: Sequence[str | Cut]
    dim: int = 0


Rule: TypeAlias = str | Cut | Joined


@dataclasses.dataclass(frozen=True)
class FillReport:
    """What `load_into` filled and read in this process.

    Attributes:
        tensors: how many tensors of the state have elements here that were filled.
        nbytes: bytes of these elements.
        nbytes_read: bytes of elements read from the source; those received from another rank do not
            count.
        missing: names of the state that the source lacks; with `strict` none.
        unexpected: names of the source that no tensor of the state was filled from.
    """

    tensors: int
    nbytes: int
    nbytes_read: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def load_into(
    source: Readable,
    state: torch.nn.Module | Mapping[str, object],
    *,
    rules: Mapping[str, Rule] | None = None,
    strict: bool = True,
    cast: bool = False,
    dequantize: bool = False,
    group: object = None,
    **options: Unpack[OpenOptions],
) -> FillReport:
    """Fill the tensors of a module or state dict from a file of any format.

    Each process reads only the elements that it has: of a `DTensor` or `ShardedTensor` its own
    shard, whatever the placements. Nothing is filled if names, shapes or types do not fit.

    Args:
        source: anything `ztensor.open` takes, or an open reader.
        state: a module, or names to tensors: plain ones on any device, `DTensor`s,
            `ShardedTensor`s. Other values are left as they are.
        rules: patterns of names of the state to where their elements are in the source: another
            name, a `Cut` of an object, or several `Joined`. `*` in a pattern matches any text,
            `{name}` text without a dot; the first pattern that matches counts. Other names are the
            same in the source.
        strict: False leaves tensors that the source lacks as they are.
        cast: True converts the elements to the types of the state's tensors: to floats, integers
            to wider ones. Otherwise a different type is an error.
        dequantize: True converts quantized objects to floats of the state's types. Each process
            then reads such an object as a whole.
        group: a process group whose ranks all call this with the same names: elements that several
            ranks have are then read by the first of them, and broadcast. Plain tensors are in all
            ranks of the group; a `DTensor` is replicated as its placements say, over its own mesh.
            Of a source behind a URL the ranks read rows, which are contiguous, and exchange them
            for columns. By default every rank reads what it has.
        options: see `ztensor.typing.OpenOptions`.

    Raises:
        ObjectNotFoundError: the source lacks a tensor of the state, and `strict` is true.
        NotRepresentableError: a type or layout differs.
        ArgumentValueError: a shape differs, or a rule does not fit its objects.
        UsageError: a tensor has no elements, as on the meta device; or another rank failed.
        FormatError: the source is damaged.
        SourceError: it cannot be read.
    """
    require_options("load_into", options, OpenOptions)
    if isinstance(state, torch.nn.Module):
        state = state.state_dict()
    groups = tied(state) if isinstance(state, Mapping) else []
    if not isinstance(rules, Mapping | None):
        raise ArgumentTypeError("rules must be a mapping from patterns", found=describe(rules, 40))
    targets = targets_of(state, group)
    filling = _Filling(targets, groups, rules or {}, cast=cast, dequantize=dequantize)
    with contextlib.ExitStack() as opened:

        def plan() -> bool:
            if isinstance(source, ObjectReader):
                return filling.plan(source, strict=strict)
            return filling.plan(opened.enter_context(open_reader(source, **options)), strict=strict)

        by_rows = all(agreed(group, plan)) and group is not None
        for batch in batches_of(filling.filled):
            moved = Rows.of_each(batch) if by_rows else {}
            agreed(group, functools.partial(filling.read, batch, moved))
            for target in batch if group is not None else ():
                if target.name in moved:
                    moved[target.name].exchange(target.value)
                for replicas in target.replicas if target.boxes else ():
                    broadcast(target.boxes[0].local, replicas)
    return filling.report()


class _Run(NamedTuple):
    """A part of an object of the source, along one axis.

    Attributes:
        name: the object.
        start: its first index.
        low: the first index of the tensor that it fills.
        high: the index behind the last one.
    """

    name: str
    start: int
    low: int
    high: int


class _Read(NamedTuple):
    """One slice of the source, and where its elements go."""

    name: str
    place: tuple[slice, ...]
    local: torch.Tensor


def _is_cut(found: torch.dtype, wanted: torch.dtype) -> bool:
    """Return whether a cast may change values by more than rounding them."""
    if wanted.is_complex or wanted.is_floating_point:
        return found.is_complex and not wanted.is_complex
    if found.is_complex or found.is_floating_point:
        return True
    old, new = (str(dtype).removeprefix("torch.") for dtype in (found, wanted))
    return not np.can_cast(old, new)


class _Filling:
    """Which slices of the source go where.

    Args:
        targets: the tensors of the state.
        groups: names of tensors that share memory: one of them in the source is enough.
        rules: as for `load_into`.
        cast: likewise.
        dequantize: likewise.

    Attributes:
        filled: the tensors that the source has.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        groups: Sequence[Sequence[str]],
        rules: Mapping[str, Rule],
        *,
        cast: bool,
        dequantize: bool,
    ) -> None:
        self._targets, self._cast, self._dequantize = targets, cast, dequantize
        self._groups = groups
        names = [target.name for target in targets]
        self._rules = [(ztensor.converting.Pattern(text), rule) for text, rule in rules.items()]
        for pattern, _ in self._rules:
            if all(pattern.match(name) is None for name in names):
                raise ArgumentValueError(
                    "a rule is for no tensor of the state", found=describe(pattern.text)
                )
        self._used: set[str] = set()
        self._names: list[str] = []  # of the source
        self._missing: list[str] = []
        self._nbytes_read = 0
        self._runs: dict[str, tuple[list[_Run], int]] = {}  # and the axis
        self.filled: list[Target] = []

    def plan(self, reader: ObjectReader, *, strict: bool) -> bool:
        """Check all names, shapes and types; return whether the source is behind a URL.

        Args:
            reader: the source.
            strict: as for `load_into`.
        """
        self._reader, self._names = reader, list(reader)
        absent: dict[str, list[str]] = {}
        for target in self._targets:
            parts, dim = self._rule_of(target.name)
            gone = [part.name for part in parts if part.name not in reader]
            if not gone:
                self.filled.append(target)
                self._runs[target.name] = self._runs_of(target, parts, dim), dim
            else:
                absent[target.name] = gone
        for group in self._groups:
            if any(name in self._runs for name in group):  # they share the memory that is filled
                absent = {name: gone for name, gone in absent.items() if name not in group}
        self._missing = list(absent)
        if absent and strict:
            raise ObjectNotFoundError(
                f"the source lacks {counted(len(self._missing), 'tensor')} of the state",
                file=reader.name,
                object_name=self._missing[0],
                found=", ".join(describe(n) for gone in absent.values() for n in gone)[:1000],
            )
        return any(file.source.prefers_long_reads for file in reader.objects.parts())

    def read(self, targets: Iterable[Target], moved: Mapping[str, Rows]) -> None:
        """Read what this process has to read of some targets, of some of them by rows."""
        reads: list[_Read] = []
        for target in targets:
            if any(map(torch.distributed.get_rank, target.replicas)):
                continue  # the first rank sends it
            rows = moved.get(target.name)
            runs, dim = self._runs[target.name]
            for box in target.boxes if rows is None else rows.boxes:
                reads += _in_box(box, runs, dim)
        self._read(reads)

    def report(self) -> FillReport:
        """Return what was filled and read."""
        locals_ = [box.local for target in self.filled for box in target.boxes]
        return FillReport(
            tensors=sum(bool(target.boxes) for target in self.filled),
            nbytes=sum(local.nbytes for local in locals_),
            nbytes_read=self._nbytes_read,
            missing=tuple(self._missing),
            unexpected=tuple(name for name in self._names if name not in self._used),
        )

    def _rule_of(self, name: str) -> tuple[list[Cut], int]:
        """Return the parts of the source that a tensor consists of, and the axis; stop -1: all."""
        for pattern, rule in self._rules:
            captures = pattern.match(name)
            if captures is not None:
                return _parts(rule, captures)
        return [Cut(name, 0, -1)], 0

    def _runs_of(self, target: Target, parts: Sequence[Cut], dim: int) -> list[_Run]:
        """Return where the elements of a tensor are, once its parts are checked.

        Raises:
            ArgumentValueError: the shapes do not fit.
            NotRepresentableError: a type or layout does not.
        """
        at, runs = 0, list[_Run]()
        for part in parts:
            shape = self._shape_of(target, part)
            start, stop = (part.start, part.stop) if part.stop >= 0 else (0, (*shape, 1)[dim])
            fits = len(shape) == len(target.shape) and (dim < len(shape) or not shape)
            others = [i for i in range(len(target.shape)) if i != dim]
            if not fits or any(shape[i] != target.shape[i] for i in others):
                raise self._misfit(target, part.name, shape)
            if not 0 <= start <= stop <= (*shape, 1)[dim]:
                raise ArgumentValueError(
                    "a Cut reaches beyond its object",
                    file=self._reader.name,
                    object_name=part.name,
                    expected=f"at most {(*shape, 1)[dim]:,} along axis {dim}",
                    found=f"{start:,} to {stop:,}",
                )
            runs.append(_Run(part.name, start, at, at + stop - start))
            at += stop - start
        if target.shape and at != target.shape[dim]:
            whole = [at if axis == dim else size for axis, size in enumerate(target.shape)]
            raise self._misfit(target, parts[0].name, whole)
        self._used.update(part.name for part in parts)
        return runs

    def _shape_of(self, target: Target, part: Cut) -> tuple[int, ...]:
        """Return the shape of an object, and check its type and layout."""
        entry = self._reader.objects.part(part.name).object(part.name)
        layout = LAYOUTS.get(entry.format)
        if isinstance(layout, Quantized) and self._dequantize:
            return entry.shape
        if entry.format != "dense":
            error = NotRepresentableError(
                "the object is not dense",
                file=self._reader.name,
                object_name=part.name,
                found=entry.format,
            )
            if isinstance(layout, Quantized):
                error.hint = "dequantize=True converts it to floats"
            raise error
        found = torch_dtype(result_dtype(entry.components["data"]))
        is_cut = _is_cut(found, target.dtype)
        if found != target.dtype and (is_cut or not self._cast):
            error = NotRepresentableError(
                "the source has another element type than the tensor",
                file=self._reader.name,
                object_name=part.name,
                expected=str(target.dtype),
                found=str(found),
            )
            error.hint = None if is_cut else "cast=True converts the elements"
            raise error
        return entry.shape

    def _misfit(self, target: Target, name: str, shape: Sequence[int]) -> ArgumentValueError:
        return ArgumentValueError(
            f"the source does not fit the tensor {describe(target.name)}",
            file=self._reader.name,
            object_name=name,
            expected=f"shape {list(target.shape)}",
            found=f"{list(shape)}",
        )

    def _read(self, reads: Iterable[_Read]) -> None:
        """Read slices in batches, and copy them to their targets."""
        batch: list[_Read] = []
        nbytes = 0
        for read in reads:
            if self._reader.objects.part(read.name).object(read.name).format != "dense":
                self._dequantized(read)
                continue
            batch.append(read)
            nbytes += read.local.nbytes
            if nbytes >= _BATCH_BYTES:
                self._copy(batch)
                batch, nbytes = [], 0
        self._copy(batch)

    def _copy(self, batch: Sequence[_Read]) -> None:
        arrays = self._reader.read_slices((read.name, read.place) for read in batch)
        for read, array in zip(batch, arrays, strict=True):
            self._nbytes_read += array.nbytes
            with torch.no_grad():
                read.local.copy_(array_to_torch(array))

    def _dequantized(self, read: _Read) -> None:
        tensor: Tensor = self._reader.read(read.name)
        self._nbytes_read += tensor.nbytes
        with torch.no_grad():
            read.local.copy_(array_to_torch(tensor.dequantize()[read.place]))


def _parts(rule: Any, captures: Mapping[str, str]) -> tuple[list[Cut], int]:
    """Return the parts of a rule, with the texts of a match in the place of its captures."""
    joined = rule if isinstance(rule, Joined) else Joined((rule,), getattr(rule, "dim", 0))
    parts = []
    for part in joined.parts:
        cut = Cut(part, 0, -1, joined.dim) if isinstance(part, str) else part
        if not isinstance(cut, Cut) or cut.dim != joined.dim or not joined.parts:
            raise ArgumentTypeError(
                "not a rule", expected="a name, a Cut, or Joined parts of one axis",
                found=describe(rule),
            )  # fmt: skip
        name = ztensor.converting.Pattern(cut.name).fill(captures)
        parts.append(cut._replace(name=name))
    if not parts:
        raise ArgumentTypeError("a rule has no parts", found=describe(rule))
    return parts, joined.dim


def _in_box(box: Box, runs: Sequence[_Run], dim: int) -> Iterator[_Read]:
    """Yield the slices for a box; the runs are along the axis `dim`."""
    sizes = box.local.shape
    index = [slice(at, at + size) for at, size in zip(box.offsets, sizes, strict=True)]
    if not index:
        yield from (_Read(name, (), box.local) for name, *_ in runs)
        return
    for name, start, low, high in runs:
        first, last = max(low, box.offsets[dim]), min(high, box.offsets[dim] + sizes[dim])
        if first < last:
            own = [*index]
            own[dim] = slice(start + first - low, start + last - low)
            local = box.local.narrow(dim, first - box.offsets[dim], last - first)
            yield _Read(name, tuple(own), local)
