"""The tensors of a GGUF file as objects, their places checked."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from ztensor.errors import Reason, UnsupportedVersionError, describe
from ztensor.ext import (
    STORAGE_TYPES,
    Component,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
    element_count,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.gguf.cursor import Cursor
from ztensor.formats.gguf.metadata import alignment_of, read_metadata
from ztensor.formats.gguf.types import (
    BLOCKS,
    HEADER,
    LAYOUTS,
    MOST_RANK,
    PLAIN,
    PLAIN_NUMBERS,
    SWAPPED,
    broken,
)
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal


_VERSIONS = (2, 3)
_UNKNOWN = "gguf.type_"  # and the number of a type
# Writers differ in which bytes of blocks they swap.
_SWAPPED_MESSAGE = (
    "blocks of big-endian files are not read; convert the file to little-endian with "
    "gguf-convert-endian of the package gguf"
)
MOST_DIMENSION = (1 << 63) - 1
# Bytes of memory of a tensor without its name, and of a dimension.
_TENSOR_COST, _AXIS_COST = 560, 48
# Name, shape, number of the type, and the offset from the first tensor.
Info = tuple[str, tuple[int, ...], int, int]


def project(source: Source, budget: Budget) -> Projection:
    """Return the tensors of a file, as ranges of it, and its metadata.

    Raises:
        FormatError: the header is cut or malformed, a key or a tensor is there twice, or a tensor
            has a wrong place or length.
        UnsupportedVersionError: the file is of version 1, or of a version after 3.
        LimitError: the header is longer than `Limits.manifest_bytes`, or nested too deeply.
        SourceError: it cannot be read.
    """
    cursor = Cursor(source, budget)
    version, attributes, infos = read_header(cursor)
    objects, left = objects_of(infos, alignment_of(attributes), cursor)
    encodings = RAW
    if cursor.order == ">":
        encodings = {**RAW, SWAPPED: Absent(SWAPPED, _SWAPPED_MESSAGE, is_absent=False)}
    return Projection(Manifest(str(version), objects, attributes or None), encodings, left)


def read_header(
    cursor: Cursor, spans: dict[str, slice] | None = None
) -> tuple[int, dict[str, object], list[Info]]:
    """Return the version, the attributes, and the table of tensors.

    Args:
        cursor: the file; afterwards at the end of the table.
        spans: takes the bytes of each key with its value, as a slice of `cursor.data`.

    Raises:
        ZTensorError: as `project`.
    """
    version, tensors, keys = _start(cursor)
    attributes = read_metadata(cursor, keys, spans)
    alignment_of(attributes)
    return version, attributes, _infos(cursor, tensors)


def _start(cursor: Cursor) -> tuple[int, int, int]:
    """Return the version, the number of tensors and the number of keys."""
    _, version, _, _ = cursor.take(HEADER)
    if version & 0xFFFF == 0:  # a small number in the other byte order
        cursor.order = ">"
    cursor.at = 0
    _, version, tensors, keys = cursor.take(HEADER)
    if version not in _VERSIONS:
        raise UnsupportedVersionError(
            "GGUF of this version cannot be read; convert the file with the tools of llama.cpp",
            expected=f"version {' or '.join(map(str, _VERSIONS))}",
            found=str(version),
        )
    cursor.require_left(keys, 13, "keys")
    cursor.require_left(tensors, 24, "tensors")
    return version, tensors, keys


def _infos(cursor: Cursor, count: int) -> list[Info]:
    cursor.require_left(count, 24, "tensors")
    cursor.budget.charge_bytes(_TENSOR_COST * count)
    infos = []
    for _ in range(count):
        name = cursor.name("tensor")
        (rank,) = cursor.take("I")
        if rank > MOST_RANK:
            raise broken(
                "a tensor has more dimensions than GGUF allows",
                object_name=name,
                expected=f"at most {MOST_RANK}",
                found=str(rank),
            )
        cursor.budget.charge_bytes(_AXIS_COST * rank)
        *dimensions, number, offset = cursor.take(f"{rank}QIQ")
        if dimensions and max(dimensions) > MOST_DIMENSION:
            raise broken(
                "a dimension is too large",
                object_name=name,
                expected=f"at most {MOST_DIMENSION}",
                found=describe(dimensions),
            )
        infos.append((name, tuple(dimensions[::-1]), number, offset))
    return infos


def objects_of(
    infos: Sequence[Info], alignment: int, cursor: Cursor, *, are_checked: bool = True
) -> tuple[dict[str, TensorObject], Tally]:
    """Return the tensors, their places checked, and a tally of bytes between them.

    Args:
        infos: the table.
        alignment: the alignment of offsets.
        cursor: the file, at the end of the table.
        are_checked: False allows any places, and tallies nothing.
    """
    start = -(-cursor.at // alignment) * alignment  # the offset of the first tensor
    size = cursor.source.size
    places: list[int] = []  # offsets of all tensors, for tensors of unknown types
    objects: dict[str, TensorObject] = {}
    ranges = []
    for name, shape, number, offset in infos:
        if name in objects:
            raise broken(
                "duplicate tensor name", reason=Reason.DUPLICATE_NAME, found=describe(name)
            )
        place, length = start + offset, length_of(name, shape, number)
        if offset % alignment and are_checked:
            raise broken(
                "the offset of a tensor is not a multiple of the alignment",
                reason=Reason.OFFSET_ALIGNMENT,
                object_name=name,
                expected=f"a multiple of {alignment}",
                found=str(offset),
            )
        if length is None:  # up to the next tensor
            places = places or sorted({start + other for *_, other in infos})
            behind = bisect.bisect_right(places, place)
            length = (places[behind] if behind < len(places) else size) - place
        if not are_checked:
            objects[name] = object_of(shape, number, place, max(length, 0), cursor.order)
            continue
        if length < 0 or (length and place + length > size):
            raise broken(
                "a tensor is not inside the file, which was perhaps cut",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"at most {size} bytes",
                found=f"{describe(length)} bytes at offset {place}",
            )
        objects[name] = object_of(shape, number, min(place, size), length, cursor.order)
        if length:
            ranges.append((place, place + length, name))
    left, end = Tally(), cursor.at
    for place, stop, name in [*sorted(ranges), (size, size, "")]:
        if place < end:
            raise broken(
                "two tensors overlap",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"an offset from {end} on",
                found=str(place),
            )
        if place - end >= alignment:  # fewer bytes are padding
            left.add("bytes of no tensor", nbytes=place - end)
        end = stop
    return objects, left


def length_of(name: str, shape: tuple[int, ...], number: int) -> int | None:
    """Return the length of a tensor in bytes, or None for an unknown type."""
    if number in PLAIN:
        return element_count(shape) * STORAGE_TYPES[PLAIN[number]].width
    block_type = BLOCKS.get(number)
    if block_type is None:
        return None
    length = block_type.data_bytes(shape)
    if length is None:
        raise broken(
            "the rows of a quantized tensor are not whole blocks",
            reason=Reason.SIZE_MISMATCH,
            object_name=name,
            expected=f"a multiple of {block_type.elements} as the last dimension",
            found=f"shape {describe(shape)} of {block_type.name}",
        )
    return length


def object_of(
    shape: tuple[int, ...], number: int, place: int, length: int, order: Literal["<", ">"]
) -> TensorObject:
    """Return a tensor as an object: its shape, the number of its type, and its range."""
    if number in PLAIN:
        byte_order: Literal["little", "big"] = "little" if order == "<" else "big"
        component = Component(PLAIN[number], place, length, byte_order=byte_order)
        return TensorObject(shape, "dense", {"data": component})
    if number not in BLOCKS:
        component = Component("u8", place, length)
        return TensorObject(shape, f"{_UNKNOWN}{number}", {"data": component}, is_opaque=True)
    component = Component("u8", place, length)
    if order == ">":
        component = Component("u8", place, length, encoding=SWAPPED, decoded_length=length)
    return TensorObject(shape, BLOCKS[number].layout, {"data": component})


def number_of(tensor: TensorObject) -> int:
    """Return the number of the type of a tensor; see `object_of`."""
    if tensor.format == "dense":
        return PLAIN_NUMBERS[tensor.components["data"].dtype]
    if tensor.format in LAYOUTS:
        return LAYOUTS[tensor.format].number
    return int(tensor.format.removeprefix(_UNKNOWN))
