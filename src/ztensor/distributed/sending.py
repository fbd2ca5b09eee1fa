"""What a process wrote as bytes, for those whose processes exchange no more than bytes.

A `PartRecord` may also be pickled; this needs no pickle, so what comes from another process is
only ever columns of numbers and texts.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile
from ztensor.distributed.part import PartRecord
from ztensor.distributed.saves import save_of
from ztensor.errors import FormatError, Reason, ZTensorError, describe
from ztensor.ext import cbor

_ARRAYS = {
    "kind", "tensor", "file", "number", "encoding", "offsets", "sizes", "at", "length", "digest",
    "content",
}  # fmt: skip
_BYTES = {"digest", "content"}


def record_to_bytes(record: PartRecord) -> bytes:
    """Return a record as bytes; `record_from_bytes` reads them."""
    table = record.table
    fields: dict[str, Any] = {
        "process": record.process,
        "save_id": record.save_id,
        "processes": record.processes,
    }
    for field in dataclasses.fields(ChunkTable):
        value = getattr(table, field.name)
        if field.name not in _ARRAYS:
            fields[field.name] = value if isinstance(value, str) else [_plain(one) for one in value]
        elif value is not None:
            dtype = np.uint8 if field.name in _BYTES else "<i8"
            width = [value.shape[1]] if field.name in _BYTES else []
            fields[field.name] = [*width, np.ascontiguousarray(value, dtype).tobytes()]
    return cbor.encode(fields)


def _plain(one: Any) -> Any:
    return list(one) if isinstance(one, tuple) else one


def record_from_bytes(data: bytes) -> PartRecord:
    """Return the record of another process.

    Its chunks are not checked here: `commit` holds those of all processes to one another.

    Raises:
        FormatError: the bytes are none that `record_to_bytes` gives.
    """
    try:
        fields: Any = cbor.decode(data)
        columns: dict[str, Any] = {name: _column(name, fields.get(name)) for name in _ARRAYS}
        table = ChunkTable(
            names=[str(name) for name in fields["names"]],
            kinds=[Kind(*one) for one in fields["kinds"]],
            shapes=[tuple(map(int, shape)) for shape in fields["shapes"]],
            files=[TableFile(*one) for one in fields["files"]],
            encodings=[str(word) for word in fields["encodings"]],
            algorithm=str(fields["algorithm"]),
            **columns,
        )
        save = save_of({"save": fields["save_id"], "processes": fields["processes"]})
        return PartRecord(int(fields["process"]), table, save.id, save.processes)
    except (ZTensorError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise FormatError(
            "these bytes are no record of a process",
            reason=Reason.FIELD_VALUE,
            found=describe(data),
        ) from error


def _column(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _BYTES:
        width, data = value
        return np.frombuffer(data, np.uint8).reshape(-1, width)
    (data,) = value
    return np.frombuffer(data, "<i8").astype(np.int64)
