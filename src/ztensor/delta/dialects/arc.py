"""Files of arc_v1 and arc_v2 (Fireworks): every tensor of the base as old bytes XOR new bytes.

| part of the safetensors file | content |
| --- | --- |
| tensor, a vector of bytes | one zlib stream (arc_v1) or zstd frame (arc_v2) |
| `__metadata__` | name to adler32 of the new bytes, as a decimal number |

Nothing names the format, the base or a version. A tensor of arc_v3 is a pickle, which is refused,
or a safetensors file with an arc_v2 tensor, which is read.
"""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Iterator

from ztensor import open as open_reader
from ztensor.delta.changes import Change, Checksum, Delta
from ztensor.delta.comparing import Comparison, Pair
from ztensor.delta.dialects import Dialect, Target, loose
from ztensor.delta.errors import DeltaError, DeltaReason, malformed, require
from ztensor.delta.file import closed_on_error
from ztensor.delta.report import DeltaReport
from ztensor.errors import ZTensorError
from ztensor.ext import ObjectReader, Range
from ztensor.typing import Array

_LEVEL = 3
_ZSTD = b"\x28\xb5\x2f\xfd"
_PICKLE = b"ARC3_ENVELOPE\0"
_TENSOR = "tensor"  # the only name in the file that is a tensor of arc_v3
_DIGITS = "0|[1-9][0-9]{0,9}"


class _Decimal(loose.Adler32):
    """adler32 with decimal digits."""

    def hexdigest(self) -> str:
        return str(self.value)


# --- Reading ------------------------------------------------------------------------------------


def is_one(path: str) -> bool:
    """Return whether all tensors of a safetensors file are bytes with decimal checksums."""
    try:
        with open_reader(path) as reader:
            for name in reader:
                loose.stored_of(reader, name)
                loose.checksum_of(reader, name, _Decimal, _DIGITS)
            return bool(len(reader)) and reader.format == "safetensors"
    except ZTensorError:
        return False


def read(path: str) -> Delta:
    """Open a file, or a folder of files.

    Raises:
        DeltaError: it is malformed, or has a pickle.
        FormatError: it is damaged.
        SourceError: it cannot be read.
    """
    reader = open_reader(path)
    with closed_on_error(reader, path):
        kind = reader.format
        require(kind == "safetensors", "a delta of arc is a safetensors file", kind)
        entries = {name: _entry(reader, name) for name in reader}
    how = {"dialect": "arc", "nbytes": reader.nbytes, "close": reader.close}
    return loose.LooseDelta(path, entries, is_complete=True, **how)


def _entry(reader: ObjectReader, name: str) -> Change:
    stored = loose.stored_of(reader, name)
    checksum = loose.checksum_of(reader, name, _Decimal, _DIGITS)
    head = bytes(stored.read(0, min(stored.length, len(_PICKLE))))
    if head == _PICKLE:
        message = "a tensor of arc_v3 is a pickle, which could run any program: it is not read"
        raise DeltaError(message, reason=DeltaReason.DIALECT, object_name=name)
    if head[8:9] == b"{":
        stored, head = _inner(stored, checksum, name)
    blocks = functools.partial(loose.zstd_blocks if head[:4] == _ZSTD else _zlib_blocks, stored)
    part = functools.partial(loose.XorPart, nbytes=stored.length, content=blocks)
    return loose.change(name, stored.length, loose.XorPart.coding, part, checksum)


def _inner(stored: Range, checksum: Checksum, name: str) -> tuple[Range, bytes]:
    """Return the stored bytes of the only tensor in the file that is a tensor of arc_v3."""
    reader = open_reader(io.BytesIO(stored.read(0, stored.length)))
    facts = reader.attributes
    is_one = list(reader) == [_TENSOR] and facts.get(_TENSOR) == checksum.digits
    require(is_one, "the file in a tensor of arc_v3 has other content", facts, object_name=name)
    word, known = facts.get("fallback_name", "arc_v2"), ("arc_v1", "arc_v2")
    loose.require_known(word, known, "coding of a tensor of arc_v3", object_name=name)
    inner = loose.stored_of(reader, _TENSOR)
    return inner, bytes(inner.read(0, min(inner.length, 4)))


def _zlib_blocks(stored: Range, length: int) -> Iterator[memoryview]:
    """Yield the bytes of a zlib stream, in one block; see `zstd_blocks`."""
    stream, file = zlib.decompressobj(), stored.source.name
    try:
        data = stream.decompress(stored.read(0, stored.length), length + 1)
    except zlib.error as error:
        raise malformed("the zlib stream is damaged", file=file, found=str(error)) from error
    if len(data) > length or (stream.eof and len(data) < length):
        raise loose.other_length(stored, length)
    is_whole = stream.eof and not stream.unused_data
    require(is_whole, "the zlib stream is cut off, or bytes follow it", stream.eof, file=file)
    yield memoryview(data)


# --- Writing ------------------------------------------------------------------------------------


def write(target: Target) -> DeltaReport:
    """Write a file of arc_v2, with tensors that do not change, too.

    Raises:
        ArgumentValueError: the suffix of the file is not `.safetensors`.
        DeltaError: a tensor is added, removed, replaced or not dense.
        SourceError: the file cannot be written.
    """
    name, both = loose.file_name(target.path), target.compare()
    done = loose.coded(target, both, _all(both), _coded, "arc")
    nbytes = loose.save(done, name, target.durable)
    changed = sum(each.changed for each in done)
    return DeltaReport(name, None, None, len(both.names), changed, nbytes)


def _all(both: Comparison) -> Iterator[Pair]:
    """Yield all tensors; those that do not change as pairs of themselves."""
    yield from both.pairs()
    changed = frozenset(both.names)
    for name in both.base:
        if name not in changed and name not in both.removed:
            tensor = both.base[name]
            yield Pair(name, tensor, tensor, (b"", b""))


def _coded(pair: Pair, old: Array, new: Array) -> loose.Coded:
    checksum = _Decimal()
    checksum.update(new)
    frame, digits = loose.framed(old ^ new, _LEVEL), checksum.hexdigest()
    return loose.Coded(
        {pair.name: frame}, {pair.name: digits}, loose.changed_elements(pair, old, new).size
    )


DIALECT = Dialect(is_one, read, write)
