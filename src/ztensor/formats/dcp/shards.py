"""Folders of safetensors files of many processes: `DCP_SHARDING_INFO` says where a part begins.

torch's `HuggingFaceStorageWriter` writes them with `save_distributed=True`, and no index: the shape
of a tensor is what the parts that are there reach to. If the files of the last processes are
missing, only a gap between other parts shows it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
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
# What the writer says of itself.
_OWN_KEYS = frozenset((INFORMATION, "DCP_VERSION", "format"))
_CHUNK_COST = 600  # bytes of memory
_MOST = 1 << 63

_Chunk = tuple[tuple[int, ...], tuple[int, ...], Place]


def project_shards(source: Source, limits: Limits) -> Projection:
    """Return what a folder of such files holds, on disk or in a store.

    Raises:
        FormatError: a header or its information is damaged, or files say different things of one
            tensor.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read.
    """
    beside = Beside(source.remote or os.path.join(source.name, "-"))
    names = sorted(filter(SHARD.fullmatch, beside.lengths or source.files or ()))
    shards = _Shards(Budget(limits, 0))
    with Pool(REQUESTS) as workers:  # some of their headers are asked for at a time
        for start in range(0, len(names), REQUESTS):
            some = names[start : start + REQUESTS]
            opened = list(workers.map(lambda name: beside.open((name,)), some))
            for name, file in zip(some, opened, strict=True):
                with contextlib.closing(file), foreign_bytes("the file", file.name, is_ours=False):
                    shards.read(name, file)
    if source.remote is not None:
        beside.lengths = dict(shards.files)
    checkpoint = Checkpoint(source, beside, shards.table(), shards.left, limits)
    return checkpoint.projection(shards.attributes)


class _Shards:
    """What the files that were read say.

    Args:
        budget: what listing may cost.

    Attributes:
        files: their names and lengths.
        attributes: of all of them.
        left: what of them is not given.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.left = Tally()
        self.attributes: dict[str, object] = {}
        self.files: list[tuple[str, int]] = []
        self._chunks: dict[str, tuple[ElementType, list[_Chunk]]] = {}

    def read(self, name: str, file: Source) -> None:
        """Read a file's header.

        Raises:
            FormatError: it is damaged, or says other things of a tensor than a file before.
            LimitError: a safety cap is exceeded.
            SourceError: it cannot be read.
        """
        self._budget.lengthen(file.size)
        found = safetensors.project(file, Budget(self._budget.limits, file.size))
        attributes = found.manifest.attributes or {}
        information = _parsed(attributes.get(INFORMATION), self._budget)
        for key, value in attributes.items():
            if key not in _OWN_KEYS and self.attributes.setdefault(key, value) != value:
                self.left.add("attribute of one shard", f"{name}: {key}")
        number = len(self.files)
        self.files.append((name, file.size))
        for one, tensor in found.manifest.objects.items():
            self._budget.charge_bytes(_CHUNK_COST + len(one))
            self._add(one, number, tensor, information)

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
                    "a part ends within a byte",
                    reason=Reason.FIELD_VALUE,
                    object_name=name,
                    found=describe(sizes),
                )
            sizes = (*sizes[:-1], sizes[-1] // element.per_element)
        known, chunks = self._chunks.setdefault(name, (element, []))
        if known != element or (chunks and len(chunks[0][0]) != len(sizes)):
            raise FormatError(
                "two files say different things of one tensor",
                reason=Reason.FIELD_VALUE,
                object_name=name,
                expected=describe(known.type or known.dtype),
                found=describe(element.type or element.dtype),
            )
        place = Place(file, component.offset, component.length, Form.ELEMENTS)
        chunks.append((offsets, sizes, place))

    def table(self) -> Table:
        """Return all of them as a table."""
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
    """Return the type of a component's elements; of no width where it is unknown."""
    storage = STORAGE_TYPES.get(component.dtype)
    logical = None if component.type is None else LOGICAL_TYPES.get(component.type)
    if storage is None:
        return ElementType(component.dtype, component.type, 0)
    width = storage.width * (1 if logical is None else logical.storage_per_element)
    per_element = 1 if logical is None else logical.elements_per_storage
    return ElementType(component.dtype, component.type, width, per_element)


def _parsed(text: object, budget: Budget) -> Mapping[str, Any]:
    """Return the information of a file, empty where it has none."""
    if text is None:
        return {}
    found: object = None
    if isinstance(text, str):
        with budget.lent(4 * len(text)):
            data = text.encode("utf-8", "surrogatepass")
        budget.charge_bytes(len(data))
        budget.charge_json(data)
        with contextlib.suppress(ValueError):
            found = json.loads(text)
    if not isinstance(found, dict):
        raise FormatError(
            f"{INFORMATION} is no JSON object", reason=Reason.FIELD_VALUE, found=describe(text)
        )
    return found


def _offsets(information: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return where a part begins; at the tensor's own begin where the file does not say."""
    if information is None:
        return (0,) * rank
    offsets = information.get("saved_offsets") if isinstance(information, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != rank
        or not all(type(one) is int and 0 <= one < _MOST for one in offsets)
    ):
        raise FormatError(
            f"{INFORMATION} does not say where a part begins",
            reason=Reason.FIELD_VALUE,
            object_name=name,
            expected=f"saved_offsets: {rank} integers from 0 on",
            found=describe(offsets),
        )
    return tuple(offsets)
