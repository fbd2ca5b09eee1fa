"""Folders of versions, as slime, miles and SGLang's `/pull_weights` read and write them.

| file in `weight_v000007` | content |
| --- | --- |
| `model-00000-of-00001.safetensors` | for each changed tensor a zstd frame, as a vector of bytes |
| its `__metadata__` | the checksum of each new tensor's bytes |
| `model.safetensors.index.json` | version and base, coding, checksum; written last |

A frame has old bytes XOR new bytes, or positions and values of changed bytes ("overwrite"). An
index without a coding is of a whole state.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ztensor import open as open_reader
from ztensor.delta.changes import Delta, Part
from ztensor.delta.comparing import Pair
from ztensor.delta.dialects import Dialect, Target, loose
from ztensor.delta.errors import OTHER_OR_DAMAGED, DeltaError, DeltaReason, malformed, require
from ztensor.delta.file import closed_on_error
from ztensor.delta.report import DeltaReport
from ztensor.delta.states import HASHERS, Header
from ztensor.delta.stream import Values
from ztensor.errors import (
    ArgumentValueError,
    MissingDependencyError,
    Reason,
    ZTensorError,
    describe,
    system_call,
)
from ztensor.ext import ENCODINGS, OpenFolder, Place, Range
from ztensor.limits import Limits
from ztensor.options import require_choice
from ztensor.typing import Array, Durable

INDEX = "model.safetensors.index.json"
_ONLY = "model.safetensors"
_NAME = re.compile(r"weight_v(\d{1,18})", re.ASCII)
_FILE = "model-00000-of-00001.safetensors"
_CODINGS = {"xor": "difference", "overwrite": "new"}  # word of the index to `values` of `make`
_LEVEL = 1
_END = 1 << 32  # positions have 32 bits


def _blake3() -> Any:
    try:
        return importlib.import_module("blake3").blake3()
    except ImportError as error:
        raise MissingDependencyError("checksums by blake3", install="blake3") from error


# Word to hasher and number of digits.
CHECKSUMS: Mapping[str, tuple[Callable[[], Any], int]] = {
    "xxh3-128": (HASHERS["xxh3-128"], 32),
    "blake3": (_blake3, 64),
    "adler32": (loose.Adler32, 8),
}


# --- Reading ------------------------------------------------------------------------------------


def is_one(path: str) -> bool:
    """Return whether a path is a folder of a version."""
    if not os.path.isdir(path):
        return False
    if _NAME.fullmatch(os.path.basename(os.path.abspath(path))):
        return True
    try:
        with open_reader(os.path.join(path, INDEX)) as reader:
            return "delta_encoding" in reader.objects.set.metadata  # type: ignore[union-attr]
    except ZTensorError:
        return False


def read(path: str) -> Delta:
    """Open a version: a delta, or a whole state, which replaces any base.

    Raises:
        DeltaError: it is not published yet, has an unknown coding, or is malformed.
        FormatError: the index or a file is damaged.
        SourceError: a file is missing, or cannot be read.
    """
    with system_call("cannot list the folder", path):
        files = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    has_index = os.path.lexists(os.path.join(path, INDEX))
    is_published = has_index or files == [_ONLY]
    require(is_published, "the version is not published yet: no index", files, file=path)
    reader: Any = open_reader(os.path.join(path, INDEX if has_index else _ONLY))
    with closed_on_error(reader, path):
        facts = reader.objects.set.metadata if has_index else {}
        if "delta_encoding" not in facts:
            return _whole(reader, path)
        folder, named = os.path.dirname(reader.name), reader.objects.set.places
        others = [name for name in files if os.path.join(folder, name) not in named]
        require(not others, "a file is not in the index", others)
        count = sum(len(part.names) for part in reader.objects.parts())
        require(count == len(reader), "the files have other tensors than the index", count)
        return _delta(reader, facts, path)


def _delta(reader: Any, facts: Mapping[str, object], path: str) -> Delta:
    version, base = (_number(facts.get(word), word) for word in ("version", "base_version"))
    words = {
        "delta_encoding": _CODINGS,
        "compression_format": ("zstd",),
        "checksum_format": CHECKSUMS,
    }
    coding, _, algorithm = (
        loose.require_known(facts.get(word), known, word) for word, known in words.items()
    )
    hasher, count = CHECKSUMS[algorithm]
    hasher()  # the library is there
    entries = {}
    for name in reader:
        stored = loose.stored_of(reader, name)
        checksum = loose.checksum_of(reader, name, hasher, f"[0-9a-f]{{{count}}}")
        part = functools.partial(_part, stored=stored, coding=coding)
        entries[name] = loose.change(name, stored.length, coding, part, checksum)
    return loose.LooseDelta(
        path,
        entries,
        dialect="slime",
        base=f"version:{base}",
        result=f"version:{version}",
        label=str(version),
        nbytes=reader.nbytes + os.path.getsize(reader.name),
        close=reader.close,
    )


def _whole(reader: Any, path: str) -> Delta:
    match = _NAME.fullmatch(os.path.basename(os.path.abspath(path)))
    if match is None:
        raise malformed("the folder of a whole state has no version as its name")
    version = int(match[1])
    facts = {"base": f"version:{version - 1}", "result": f"version:{version}"}
    return loose.WholeDelta(reader, dialect="slime", label=str(version), **facts)


def _number(value: object, word: str) -> int:
    is_number = isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) is not None
    require(is_number, f"{word} is not a number", value)
    return int(str(value))


def _part(header: Header, *, stored: Range, coding: str) -> Part:
    if coding == "xor":
        return loose.XorPart(header, stored.length, functools.partial(loose.zstd_blocks, stored))
    return loose.BytesPart(header, stored.length, functools.partial(_overwritten, stored))


def _overwritten(stored: Range, length: int) -> tuple[Array, Array]:
    """Return the positions (n,) u4, ascending, and values (n,) u1 of changed bytes.

    Raises:
        DeltaError: they do not fit a component of so many bytes.
        FormatError: the frame is damaged, or longer than such a component can need.
    """
    file, limits = stored.source.name, Limits(decoded_bytes=4 + 5 * length)
    try:
        data = b"".join(ENCODINGS["zstd"].decode_chunks(stored, None, limits))
    except ZTensorError as error:
        if error.reason is Reason.LIMIT_DECODED:
            error.hint = f"a tensor of {length:,} bytes needs fewer: {OTHER_OR_DAMAGED}"
        raise error.locate(file=file) from None
    count = int.from_bytes(data[:4], "little")
    is_whole = 4 <= len(data) == 4 + 5 * count
    require(is_whole, f"the length is not of {count:,} changed bytes", len(data), file=file)
    positions = np.frombuffer(data, "<u4", count, 4)
    loose.require_rising(positions, -1, length, file=file)
    return positions, np.frombuffer(data, np.uint8, count, 4 + 4 * count)


# --- Writing ------------------------------------------------------------------------------------


def write(target: Target) -> DeltaReport:
    """Write a version as a new folder; its index is written last.

    Args:
        target: the folder, such as `updates/weight_v000007`; without a version its name has the
            number. The values "difference" are XOR, "new" are changed bytes. The checksum is one of
            `CHECKSUMS`, or True for "xxh3-128". If durable is "auto", files are flushed.

    Raises:
        DeltaError: a tensor is added, removed, replaced, not dense, or too long to overwrite.
        ArgumentValueError: the version has no number.
        UsageError: the folder has a version already.
        SourceError: a file cannot be written.
    """
    place, version, values = Place.of(target.path), target.version, target.values
    word = "xxh3-128" if target.checksum is True else target.checksum
    require_choice("checksum", word, tuple(CHECKSUMS))
    match = _NAME.fullmatch(os.path.basename(os.path.abspath(place.path)))
    if version is None and match is not None:
        version = int(match[1])
    if type(version) is not int or version < 1:
        raise ArgumentValueError(f"version must be a number from 1, not {describe(version)}")
    index = Place.of(os.path.join(place.path, INDEX))
    index.require_free()
    both = target.compare()
    OpenFolder.make(place.path)
    with system_call("cannot list the folder", place.path):
        files = [name for name in os.listdir(place.path) if name.endswith(".safetensors")]
    if others := [name for name in files if name != _FILE or not both.names]:
        raise ArgumentValueError(f"the folder has files already, such as {describe(others[0])}")
    work = functools.partial(_coded, values=values, hasher=CHECKSUMS[str(word)][0])
    done = loose.coded(target, both, both.pairs(), work, "slime")
    is_durable: Durable = True if target.durable == "auto" else target.durable
    nbytes = loose.save(done, os.path.join(place.path, _FILE), is_durable) if done else 0
    facts = {
        "version": f"{version:06d}",
        "base_version": f"{version - 1:06d}",
        "delta_encoding": next(coding for coding, each in _CODINGS.items() if each == values),
        "compression_format": "zstd",
        "checksum_format": word,
    }
    text = json.dumps({"metadata": facts, "weight_map": dict.fromkeys(both.names, _FILE)})
    index.sink(is_durable).commit(text.encode())
    changed = sum(each.changed for each in done)
    states = f"version:{version - 1}", f"version:{version}"
    return DeltaReport(place.path, *states, len(done), changed, nbytes + len(text))


def _coded(
    pair: Pair, old: Array, new: Array, *, values: Values, hasher: Callable[[], Any]
) -> loose.Coded:
    if values == "new" and new.size >= _END:
        message = "positions of bytes have 32 bits: a tensor of 4 GiB needs values='difference'"
        raise DeltaError(message, reason=DeltaReason.DIALECT, object_name=pair.name)
    if values == "new":
        positions = np.flatnonzero(old != new).astype("<u4")
        count = np.array([positions.size], "<u4")
        data = np.concatenate([count.view(np.uint8), positions.view(np.uint8), new[positions]])
    else:
        data = old ^ new
    checksum = hasher()
    checksum.update(new)
    changed = loose.changed_elements(pair, old, new).size
    return loose.Coded(
        {pair.name: loose.framed(data, _LEVEL)}, {pair.name: checksum.hexdigest()}, changed
    )


DIALECT = Dialect(is_one, read, write)
