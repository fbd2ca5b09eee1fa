"""Patches of TRL: new bf16 values at positions, in a safetensors file.

| part of the file | content |
| --- | --- |
| `NAME.idx` | positions as I32 ("raw"), or the elements between them as U16 or U32 ("gap_delta") |
| `NAME.val` | new values as BF16 |
| `__metadata__` | `format`, `version`, `sparse`, `encoding`, `model_version`, counts |

`sparse` "False" is of a whole state. A patch has no checksum, and does not name its base.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ztensor import open as open_reader
from ztensor.delta.changes import Change, Delta, Part
from ztensor.delta.comparing import Pair
from ztensor.delta.dialects import Dialect, Target, loose
from ztensor.delta.errors import DeltaError, DeltaReason, require
from ztensor.delta.file import closed_on_error
from ztensor.delta.report import DeltaReport
from ztensor.delta.states import Header, headers_of
from ztensor.errors import ArgumentValueError, ZTensorError, describe
from ztensor.ext import ObjectReader
from ztensor.typing import Array

_FORMAT = "sparse_weight_patch"
_TYPES = {"raw": ("int32",), "gap_delta": ("uint16", "uint32")}  # of positions, by encoding
_ENDS = (".idx", ".val")


# --- Reading ------------------------------------------------------------------------------------


def is_one(path: str) -> bool:
    """Return whether a file is a patch by its metadata."""
    try:
        with open_reader(path) as reader:
            return reader.format == "safetensors" and reader.attributes.get("format") == _FORMAT
    except ZTensorError:
        return False


def read(path: str) -> Delta:
    """Open a patch, or a whole state.

    Raises:
        DeltaError: it is of another version or encoding, or malformed.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    reader = open_reader(path)
    with closed_on_error(reader, path):
        facts = reader.attributes
        kind = f"{facts.get('format')} {facts.get('version')}"
        loose.require_known(kind, (f"{_FORMAT} 1",), "format of a patch")
        how: dict[str, Any] = {"dialect": "trl", "label": facts.get("model_version")}
        if facts.get("sparse") == "False":
            return loose.WholeDelta(reader, **how)
        encoding = loose.require_known(facts.get("encoding"), _TYPES, "encoding of a patch")
        names = {name.removesuffix(end) for end in _ENDS for name in reader if name.endswith(end)}
        is_paired = {*reader} == {name + end for name in names for end in _ENDS}
        require(
            is_paired, "a patch has positions and values of each tensor, and no others", [*reader]
        )
        entries = {name: _entry(reader, name, encoding) for name in sorted(names)}
    return loose.LooseDelta(path, entries, nbytes=reader.nbytes, close=reader.close, **how)


def _entry(reader: ObjectReader, name: str, encoding: str) -> Change:
    index, values = (reader.metadata(name + end) for end in _ENDS)
    found = index.dtype, values.dtype, index.shape, values.shape
    is_typed = index.dtype in _TYPES[encoding] and values.dtype == "bfloat16"
    is_flat = len(index.shape) == 1 and tuple(index.shape) == tuple(values.shape)
    message = f"a patch has bf16 values and as many positions, {' or '.join(_TYPES[encoding])}"
    require(is_typed and is_flat, message, found, object_name=name)
    nbytes = index.nbytes + values.nbytes
    part = functools.partial(_Part, nbytes=nbytes, reader=reader, name=name)
    return loose.change(name, nbytes, _Part.coding, part)


class _Part(Part):
    """New elements at positions."""

    coding = "new"

    def __init__(self, header: Header, *, nbytes: int, reader: ObjectReader, name: str) -> None:
        if (header.dtype, header.type) != ("bf16", None):
            message = f"patches of TRL change bf16 tensors, not {header.type or header.dtype}"
            raise DeltaError(message, reason=DeltaReason.SHAPE, object_name=name)
        super().__init__(header, nbytes, reader.metadata(f"{name}.idx").shape[0])
        self._reader, self._name = reader, name

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements; see `Part`."""
        del old
        index, values = (self._reader[self._name + end] for end in _ENDS)
        last = -1
        for start in range(0, index.size, loose.WINDOW):
            positions = index[start : start + loose.WINDOW].astype(np.int64)
            if index.dtype != np.int32:
                positions = np.cumsum(positions + 1) + last
            loose.require_rising(positions, last, self.header.nbytes // 2, object_name=self._name)
            last = int(positions[-1])
            yield positions, values[start : start + loose.WINDOW].view("<u2")


# --- Writing ------------------------------------------------------------------------------------


def write(target: Target) -> DeltaReport:
    """Write a patch with gaps between positions; without a version it has the number 0.

    Raises:
        ArgumentValueError: the version is not a number, or the suffix of the file not
            `.safetensors`.
        DeltaError: a tensor is added, removed, replaced, not bf16 or has an ambiguous name.
        SourceError: the file cannot be written.
    """
    version = target.version
    if version is not None and (type(version) is not int or version < 0):
        raise ArgumentValueError(f"version must be a number from 0, not {describe(version)}")
    name, both = loose.file_name(target.path), target.compare()
    done = loose.coded(target, both, both.pairs(), _coded, "trl")
    changed = sum(each.changed for each in done)
    notes = {
        "format": _FORMAT,
        "version": "1",
        "sparse": "True",
        "model_version": str(version or 0),
        "num_changed_params": str(len(done)),
        "total_changed_elements": str(changed),
        "total_elements": str(both.elements),
        "sparsity": str(1 - changed / max(both.elements, 1)),
        "encoding": "gap_delta",
    }
    nbytes = loose.save(done, name, target.durable, notes)
    return DeltaReport(name, None, None, len(done), changed, nbytes)


def _coded(pair: Pair, old: Array, new: Array) -> loose.Coded:
    header, name = headers_of(pair.new)["data"], pair.name
    if (header.dtype, header.type) != ("bf16", None) or name.endswith(_ENDS):
        message = "patches of TRL change bf16 tensors, without .idx or .val at the end of names"
        raise DeltaError(message, reason=DeltaReason.DIALECT, object_name=name)
    positions = loose.changed_elements(pair, old, new)
    gaps = np.diff(positions, prepend=-1) - 1
    index = gaps.astype("<u2" if gaps.max(initial=0) < 1 << 16 else "<u4")
    values = new.view(ml_dtypes.bfloat16)[positions]
    return loose.Coded({f"{name}.idx": index, f"{name}.val": values}, {}, positions.size)


DIALECT = Dialect(is_one, read, write)
