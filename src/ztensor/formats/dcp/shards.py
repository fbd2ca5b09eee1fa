"""Make the table of a folder of safetensors shards: `DCP_SHARDING_INFO` has the offsets of chunks.

torch's `HuggingFaceStorageWriter` writes them with `save_distributed=True`, and no index. The shape
of a tensor is the extent of its chunks, so that a missing shard of the last processes shows only if
it leaves a gap between other chunks.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.table import Kind
from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import (
    Component,
    Pool,
    Projection,
    Source,
    Tally,
    TensorObject,
    foreign_bytes,
)
from ztensor.formats import safetensors
from ztensor.formats.dcp.beside import REQUESTS, Beside
from ztensor.formats.dcp.checkpoint import Checkpoint
from ztensor.formats.dcp.folders import SHARD
from ztensor.formats.dcp.table import File, Form, Place, Table, chunk_table
from ztensor.formats.pt.values import ElementType
from ztensor.limits import Budget, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


INFORMATION = "DCP_SHARDING_INFO"
# Attributes that describe the shard, not the model.
_OWN_KEYS = frozenset((INFORMATION, "DCP_VERSION", "format"))
_CHUNK_COST = 600  # bytes of memory
_MOST = 1 << 63

_Chunk = tuple[tuple[int, ...], tuple[int, ...], Place]


def project_shards(source: Source, limits: Limits) -> Projection:
    """Return the contents of a folder of shards, on disk or in a store.

    Raises:
        FormatError: a header or its information is damaged, or shards disagree about a tensor.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read.
    """
    beside = Beside(source.remote or os.path.join(source.name, "-"))
    names = sorted(filter(SHARD.fullmatch, beside.lengths or source.files or ()))
    shards = _Shards(Budget(limits, 0))
    with Pool(REQUESTS) as workers:
        for start in range(0, len(names), REQUESTS):
            batch = names[start : start + REQUESTS]
            opened = list(workers.map(lambda name: beside.open((name,)), batch))
            for name, file in zip(batch, opened, strict=True):
                with contextlib.closing(file), foreign_bytes("the file", file.name, is_ours=False):
                    shards.read(name, file)
    if source.remote is not None:
        beside.lengths = dict(shards.files)
    checkpoint = Checkpoint(source, beside, shards.table(), shards.left, limits)
    return checkpoint.projection(shards.attributes)


class _Shards:
    """The tensors and attributes of the shards that have been read.

    Args:
        budget: the cost that listing may have.

    Attributes:
        files: names and lengths of the shards.
        attributes: attributes of all shards.
        left: the loss report.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.left = Tally()
        self.attributes: dict[str, object] = {}
        self.files: list[tuple[str, int]] = []
        self._chunks: dict[str, tuple[ElementType, list[_Chunk]]] = {}

    def read(self, name: str, file: Source) -> None:
        """Read the header of a shard.

        Raises:
            FormatError: the header is damaged, or disagrees with an earlier shard.
            LimitError: a safety cap is exceeded.
            SourceError: the shard cannot be read.
        """
        self._budget.lengthen(file.size)
        contents = safetensors.project(file, Budget(self._budget.limits, file.size))
        attributes = contents.manifest.attributes or {}
        information = _parsed(attributes.get(INFORMATION), self._budget)
        for key, value in attributes.items():
            if key not in _OWN_KEYS and self.attributes.setdefault(key, value) != value:
                self.left.add("attribute of one shard", f"{name}: {key}")
        number = len(self.files)
        self.files.append((name, file.size))
        for tensor_name, tensor in contents.manifest.objects.items():
            self._budget.charge_bytes(_CHUNK_COST + len(tensor_name))
            self._add(tensor_name, number, tensor, information)

    def _add(
        self, name: str, file: int, tensor: TensorObject, information: Mapping[str, Any]
    ) -> None:
        component = tensor.components["data"]
        element = _element(component)
        sizes = tensor.shape
        offsets = _offsets(information.get(name), len(sizes), name)
        if element.per_element > 1 and sizes:
            if sizes[-1] % element.per_element:
                raise FormatError(
                    "a chunk ends within a byte",
                    reason=Reason.FIELD_VALUE,
                    object_name=name,
                    found=describe(sizes),
                )
            sizes = (*sizes[:-1], sizes[-1] // element.per_element)
        known, chunks = self._chunks.setdefault(name, (element, []))
        if known != element or (chunks and len(chunks[0][0]) != len(sizes)):
            raise FormatError(
                "two shards disagree about the type or rank of a tensor",
                reason=Reason.FIELD_VALUE,
                object_name=name,
                expected=describe(known.type or known.dtype),
                found=describe(element.type or element.dtype),
            )
        place = Place(file, component.offset, component.length, Form.ELEMENTS)
        chunks.append((offsets, sizes, place))

    def table(self) -> Table:
        """Return the table of all shards."""
        files = [File((name,), size, size) for name, size in self.files]
        tensors, counts = {}, []
        rows: list[_Chunk] = []
        for name, (element, every) in self._chunks.items():
            axes = range(len(every[0][0]))
            shape = tuple(max(one[0][axis] + one[1][axis] for one in every) for axis in axes)
            held = [chunk for chunk in every if math.prod(chunk[1])]
            tensors[name] = element, shape
            counts.append(len(held))
            rows += held
        offsets, sizes = (
            np.array([number for chunk in rows for number in chunk[side]], np.int64)
            for side in (0, 1)
        )
        places = np.array([chunk[2] for chunk in rows], np.int64).reshape(-1, 4)
        elements = [element for element, _ in tensors.values()]
        chunks = chunk_table(files, tensors, np.array(counts, np.int64), offsets, sizes, places)
        return Table(files, elements, chunks, {})


def _element(component: Component) -> ElementType:
    """Return the element type of a component; its width is 0 if it is unknown."""
    width, per_element = Kind(component.dtype, component.type).unit or (0, 1)
    return ElementType(component.dtype, component.type, width, per_element)


def _parsed(text: object, budget: Budget) -> Mapping[str, Any]:
    """Return the sharding information of a shard, empty if it has none."""
    if text is None:
        return {}
    information: object = None
    if isinstance(text, str):
        with budget.lent(4 * len(text)):
            data = text.encode("utf-8", "surrogatepass")
        budget.charge_bytes(len(data))
        budget.charge_json(data)
        with contextlib.suppress(ValueError):
            information = json.loads(text)
    if not isinstance(information, dict):
        raise FormatError(
            f"{INFORMATION} is not a JSON object", reason=Reason.FIELD_VALUE, found=describe(text)
        )
    return information


def _offsets(information: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return the offsets of a chunk; zeros if the shard has no information about it."""
    if information is None:
        return (0,) * rank
    offsets = information.get("saved_offsets") if isinstance(information, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != rank
        or not all(type(one) is int and 0 <= one < _MOST for one in offsets)
    ):
        raise FormatError(
            f"{INFORMATION} has no offsets of a chunk",
            reason=Reason.FIELD_VALUE,
            object_name=name,
            expected=f"saved_offsets: {rank} integers from 0 on",
            found=describe(offsets),
        )
    return tuple(offsets)
