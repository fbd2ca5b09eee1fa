"""The header of a safetensors file as objects, checked."""

from __future__ import annotations

import json
import math
import operator
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import (
    FormatError,
    LimitError,
    ManifestError,
    Reason,
    describe,
)
from ztensor.ext import (
    Component,
    LaterObjects,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
)
from ztensor.formats.base import RAW
from ztensor.formats.safetensors.types import METADATA, MOST, MOST_HEADER, TYPES, length_of
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_FAR = 1 << 62
_BLANKS = " \t\n\r"  # JSON allows them after the header, and writers pad with them
_SECTION = "safetensors, Format"
# Bytes of memory at most: of a tensor in the columns and tables of names, of a pair of type and
# shape, of a dimension, of a character of a text that is not ASCII.
_ROW_BYTES, _KIND_BYTES, _SIZE_BYTES, _WIDE = 200, 400, 40, 4
_PART_LENGTH = 1 << 14  # bytes of a part of the header at least
_MOST_DEPTH = 127  # nesting that the format's own library reads

# A header is cut after a tensor; a match inside a text or another object is found by parsing.
_BETWEEN = re.compile(rf'\}}[{_BLANKS}]*+,[{_BLANKS}]*+(?=")'.encode())


class Entries(NamedTuple):
    """A header's tensors as columns. Only JSON types are checked."""

    names: list[str]
    kinds: dict[tuple[str, tuple[int, ...]], int]  # each distinct dtype and shape, numbered
    codes: list[int]  # numbers of `kinds`
    starts: list[int]
    stops: list[int]


def project(source: Source, budget: Budget) -> Projection:
    """Return the tensors of a file, as ranges of it.

    Strings of `__metadata__` are the file's attributes.

    Raises:
        FormatError: the header is malformed or too long, has a duplicate name, or does not cover
            every byte after it exactly once.
        LimitError: it is longer than `Limits.manifest_bytes`, or nested too deeply.
        SourceError: it cannot be read.
    """
    attributes, entries, start, left = read_header(source, budget)
    objects = objects_of(entries, start, source.size - start)
    return Projection(Manifest("", objects, attributes or None), RAW, left)


def read_header(source: Source, budget: Budget) -> tuple[dict[str, str], Entries, int, Tally]:
    """Return metadata, tensors, the offset of the data, and a tally of unknown fields.

    Raises:
        FormatError: the header is malformed or too long.
        LimitError: it is longer than `Limits.manifest_bytes`, or nested too deeply.
        SourceError: it cannot be read.
    """
    data, start = _header(source, budget)
    left = Tally()
    try:
        metadata, entries = _parsed(data, budget, left)
        return _attributes(metadata), entries, start, left
    except RecursionError as error:
        raise LimitError(
            "the header is nested too deeply", reason=Reason.LIMIT_DEPTH, section=_SECTION
        ) from error
    except (FormatError, LimitError):
        raise
    except ValueError as error:  # also from bytes or lone surrogates that are not text
        raise _broken("the header is not JSON", found=describe(str(error), 120)) from error


def _header(source: Source, budget: Budget) -> tuple[bytes | bytearray, int]:
    """Return the header, and the offset of the data."""
    limits = budget.limits
    if source.size < 8:
        raise _broken("the file is too short", reason=Reason.TRUNCATED, found=f"{source.size}")
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > MOST_HEADER:
        raise _broken(
            "the header is too long",
            reason=Reason.MANIFEST_SIZE,
            expected=f"at most {MOST_HEADER} bytes",
            found=describe(length),
        )
    if length > limits.manifest_bytes:
        raise LimitError(
            "the header is longer than Limits.manifest_bytes",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {limits.manifest_bytes} bytes",
            found=str(length),
        )
    if length > source.size - 8:
        raise _broken(
            "the file ends inside its header; it was cut, or is not of this format",
            reason=Reason.TRUNCATED,
            expected=f"a header of {length} bytes",
            found=f"{source.size - 8}",
        )
    budget.charge_steps(length)
    budget.charge_bytes(2 * length)  # the mapped pages count too
    data = source.read(8, length)
    if not data.startswith(b"{"):
        raise _broken("the header does not begin with '{'", found=describe(bytes(data)))
    return data, 8 + length


def _parsed(data: bytes | bytearray, budget: Budget, left: Tally) -> tuple[object, Entries]:
    """Return the metadata and the tensors of a header. Only JSON types are checked."""
    metadata: list[object] = []
    entries = Entries([], {}, [], [], [])
    at, least = 1, _PART_LENGTH
    while True:
        between = _BETWEEN.search(data, at + least)
        end = between.start() + 1 if between else len(data)
        before = budget.bytes_left
        budget.charge_bytes(end - at)
        part = b"".join((b"{", memoryview(data)[at:end], b"}" if between else b""))
        text = budget.text(part)
        budget.charge_json(part)
        try:
            members = _DECODER.decode(text)
        except json.JSONDecodeError:
            if between is None:
                raise
            budget.release_to(before)
            least = 2 * (end - at)
            continue
        _require_characters(members, part, budget)
        if METADATA in members:
            metadata.append(members.pop(METADATA))
        else:
            budget.release_to(before)
        is_narrow = part.isascii() and b"\\u" not in part
        budget.charge_bytes(_ROW_BYTES * len(members) + len(part) * (1 if is_narrow else _WIDE))
        _take(members, entries, budget, left)
        if between is None:
            break
        at, least = between.end(), _PART_LENGTH
    if len(metadata) > 1:
        raise _twice([METADATA, METADATA])
    return metadata[0] if metadata else None, entries


def _require_characters(members: object, part: bytes, budget: Budget) -> None:
    """Raise if an escape is a lone surrogate, even in an unused text."""
    if b"\\u" in part:
        budget.charge_bytes(3 * _WIDE * len(part))  # each text, all of them, and as bytes
        json.dumps(members, ensure_ascii=False).encode()


_fields_of = operator.itemgetter("dtype", "shape", "data_offsets")
_FIELD_TYPES = str, list, int, int


def _take(members: dict[str, Any], entries: Entries, budget: Budget, left: Tally) -> None:
    """Add tensors to the columns."""
    names, kinds, codes, starts, stops = entries
    for name, entry in members.items():
        try:
            dtype, shape, (start, stop) = _fields_of(entry)
        except (TypeError, KeyError, ValueError):
            raise _misfit(name, entry) from None
        # JSON's true equals 1 in Python, but is not a number.
        types = type(dtype), type(shape), type(start), type(stop)
        if types != _FIELD_TYPES or not 0 <= start <= MOST >= stop >= 0:
            raise _misfit(name, entry)
        for size in shape:
            if type(size) is not int:
                raise _misfit(name, entry)
        kind = dtype, tuple(shape)
        code = kinds.get(kind)
        if code is None:
            if not all(0 <= size <= MOST for size in shape):
                raise _misfit(name, entry)
            budget.charge_bytes(_KIND_BYTES + len(dtype) * _WIDE + _SIZE_BYTES * len(shape))
            code = kinds[kind] = len(kinds)
        if len(entry) > 3:
            if _depth(entry) >= _MOST_DEPTH:
                raise RecursionError
            left.add("unknown field", name, len(entry) - 3)
        names.append(name)
        codes.append(code)
        starts.append(start)
        stops.append(stop)


def _misfit(name: str, entry: Any) -> ManifestError:
    """Return the error for the first invalid field of a tensor."""
    if not isinstance(entry, dict):
        return _wrong_type(name, "an object with dtype, shape and data_offsets", entry)
    dtype, shape, offsets = map(entry.get, ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        return _wrong_type(name, "dtype: text", dtype)
    if not _are_sizes(shape):
        return _wrong_type(name, "shape: a list of integers from 0 on", shape)
    return _wrong_type(name, "data_offsets: two integers from 0 on", offsets)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MOST for n in value)


def _depth(value: object) -> int:
    """Return the nesting depth of lists and objects."""
    depth, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, (dict, list))]:
        depth += 1
        layer = [
            inner for item in layer for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _integer(text: str) -> int | float:
    # As in the format's library, -0 and numbers beyond 64 bits are floats.
    return int(text) if text != "-0" and len(text) <= 20 else _finite(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _twice([name for name, _ in pairs])
    return result


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_no_constant,
    parse_int=_integer,
    parse_float=_finite,
)


def _attributes(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise _wrong_type(METADATA, "an object", metadata)
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise _wrong_type(METADATA, f"text for {describe(key)}", value)
    return metadata


def objects_of(entries: Entries, start: int, length: int | None) -> Mapping[str, TensorObject]:
    """Return the tensors as objects, their sizes checked.

    Args:
        entries: the tensors.
        start: the offset of the data.
        length: the length of the data, of which every byte must belong to one tensor; None checks
            only that ranges are below 2^62.

    Raises:
        FormatError: a name is there twice, or a range is wrong.
    """
    names, kinds, codes, starts, stops = entries
    if len(set(names)) < len(names) or METADATA in names:
        raise _twice([*names, METADATA])
    if length is not None:
        _require_no_gaps(entries, length)
    elif max((*starts, *stops), default=0) > _FAR:
        raise _broken("a tensor is too far away", reason=Reason.OUT_OF_BOUNDS)
    lengths = [length_of(*kind) for kind in kinds]
    sizes = [*map(operator.sub, stops, starts)]
    if sizes != [*map(lengths.__getitem__, codes)]:
        for name, code, nbytes in zip(names, codes, sizes, strict=True):
            if nbytes < 0 or lengths[code] not in (nbytes, None):
                kind = [*kinds][code]
                raise _broken(
                    "the length of a tensor differs from its shape",
                    reason=Reason.SIZE_MISMATCH,
                    object_name=name,
                    expected=f"the bytes of {describe(kind[0])} of shape {describe(kind[1], 60)}",
                    found=f"{nbytes}",
                )
    firsts = np.array(starts, np.int64)
    alike = []
    for word, shape in kinds:
        dtype, logical = TYPES[word][1:] if word in TYPES else (word, None)
        alike.append(TensorObject(shape, "dense", {"data": Component(dtype, 0, 0, logical)}))
    return LaterObjects.of_columns(
        list(names),
        alike,
        np.array(codes, np.int64),
        firsts + start,
        np.array(stops, np.int64) - firsts,
    )


def _require_no_gaps(entries: Entries, length: int) -> None:
    """Raise unless every byte of the data belongs to exactly one tensor."""
    names, _, _, starts, stops = entries
    if [0, *stops] == [*starts, length]:  # in the order of the data, as all writers have them
        return
    at = 0
    for start, stop, name in sorted(zip(starts, stops, names, strict=True)):
        if start != at or stop < at:
            raise _broken(
                "tensors overlap, or there are bytes between them",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"data from offset {at}",
                found=f"data from {start} to {stop}",
            )
        at = stop
    if at != length:
        raise _broken(
            "the file was cut: its last tensors are incomplete; download or save it again"
            if at > length
            else "bytes after the last tensor",
            reason=Reason.TRUNCATED if at > length else Reason.OUT_OF_BOUNDS,
            expected=f"{at} bytes of data",
            found=f"{length}",
        )


def _broken(message: str, **details: Any) -> ManifestError:
    return ManifestError(message, **{"reason": Reason.FIELD_VALUE, "section": _SECTION, **details})


def _wrong_type(name: str, expected: str, found: object) -> ManifestError:
    return _broken(
        "invalid field of the header",
        reason=Reason.FIELD_TYPE,
        object_name=name,
        expected=expected,
        found=describe(found),
    )


def _twice(names: Sequence[str]) -> ManifestError:
    seen: set[str] = set()
    twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return _broken(
        "duplicate name in the header", reason=Reason.DUPLICATE_NAME, found=describe(twice)
    )
