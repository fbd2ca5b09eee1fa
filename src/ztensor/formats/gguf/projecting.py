"""A GGUF file as objects: the table of tensors, every rule about their places checked."""

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
from ztensor.formats.gguf.types import BLOCKS, HEADER, MOST_RANK, PLAIN, SWAPPED, broken
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal


_VERSIONS = (2, 3)
# Which of their bytes are swapped depends on who wrote them.
_SWAPPED_MESSAGE = (
    "blocks of big-endian files are not read; convert the file to little-endian with "
    "gguf-convert-endian of the package gguf"
)
MOST_DIMENSION = (1 << 63) - 1
# Bytes of memory that a tensor takes beside its name, and each of its dimensions.
_TENSOR_COST, _AXIS_COST = 560, 48


def project(source: Source, budget: Budget) -> Projection:
    """Return what a file says; the tensors' bytes are where they are in the file.

    Raises:
        FormatError: the header is cut or malformed, a key or a tensor comes twice, or a tensor is
            not where and as long as it must be.
        UnsupportedVersionError: the file is of version 1, or of one after 3.
        LimitError: the header is longer than `Limits.manifest_bytes`, or nested too deeply.
        SourceError: it cannot be read.
    """
    cursor = Cursor(source, budget)
    version, tensors, keys = _start(cursor)
    attributes = read_metadata(cursor, keys)
    alignment = alignment_of(attributes)
    infos = _infos(cursor, tensors)
    objects, left = _objects(infos, alignment, cursor)
    encodings = RAW
    if cursor.order == ">":
        encodings = {**RAW, SWAPPED: Absent(SWAPPED, _SWAPPED_MESSAGE, is_absent=False)}
    return Projection(Manifest(str(version), objects, attributes or None), encodings, left)


def _start(cursor: Cursor) -> tuple[int, int, int]:
    """Return version, how many tensors and how many keys there are."""
    _, version, _, _ = cursor.take(HEADER)
    if version & 0xFFFF == 0:  # a small number, from the other end
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


# Name, shape, type's number, and where it begins, counted from the first.
_Info = tuple[str, tuple[int, ...], int, int]


def _infos(cursor: Cursor, count: int) -> list[_Info]:
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


def _objects(
    infos: Sequence[_Info], alignment: int, cursor: Cursor
) -> tuple[dict[str, TensorObject], Tally]:
    """Return the tensors, every rule about their places checked, and what bytes are of none.

    Args:
        infos: the table.
        alignment: what offsets are multiples of.
        cursor: behind the table, for size and byte order of the file.
    """
    start = -(-cursor.at // alignment) * alignment  # where the first tensor may begin
    size = cursor.source.size
    places: list[int] = []  # of all tensors; made where a type is unknown
    objects: dict[str, TensorObject] = {}
    ranges = []
    for name, shape, number, offset in infos:
        if name in objects:
            raise broken(
                "two tensors have the same name", reason=Reason.DUPLICATE_NAME, found=describe(name)
            )
        place, length = start + offset, length_of(name, shape, number)
        if offset % alignment:
            raise broken(
                "a tensor begins at no multiple of the alignment",
                reason=Reason.OFFSET_ALIGNMENT,
                object_name=name,
                expected=f"a multiple of {alignment}",
                found=str(offset),
            )
        if length is None:  # as long as it can be
            places = places or sorted({start + one for *_, one in infos})
            behind = bisect.bisect_right(places, place)
            length = (places[behind] if behind < len(places) else size) - place
        if length < 0 or (length and place + length > size):
            raise broken(
                "a tensor is not inside the file, which was perhaps cut",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"at most {size} bytes",
                found=f"{describe(length)} bytes at offset {place}",
            )
        objects[name] = _object(shape, number, min(place, size), length, cursor.order)
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
        if place - end >= alignment:  # else they fill up to it
            left.add("bytes of no tensor", nbytes=place - end)
        end = stop
    return objects, left


def length_of(name: str, shape: tuple[int, ...], number: int) -> int | None:
    """Return the bytes of a tensor; None where its type is unknown."""
    if number in PLAIN:
        return element_count(shape) * STORAGE_TYPES[PLAIN[number]].width
    block_type = BLOCKS.get(number)
    if block_type is None:
        return None
    length = block_type.data_bytes(shape)
    if length is None:
        raise broken(
            "the rows of a quantized tensor are no whole blocks",
            reason=Reason.SIZE_MISMATCH,
            object_name=name,
            expected=f"a multiple of {block_type.elements} as the last dimension",
            found=f"shape {describe(shape)} of {block_type.name}",
        )
    return length


def _object(
    shape: tuple[int, ...], number: int, place: int, length: int, order: Literal["<", ">"]
) -> TensorObject:
    if number in PLAIN:
        byte_order: Literal["little", "big"] = "little" if order == "<" else "big"
        component = Component(PLAIN[number], place, length, byte_order=byte_order)
        return TensorObject(shape, "dense", {"data": component})
    if number not in BLOCKS:
        component = Component("u8", place, length)
        return TensorObject(shape, f"gguf.type_{number}", {"data": component}, is_opaque=True)
    component = Component("u8", place, length)
    if order == ">":
        component = Component("u8", place, length, encoding=SWAPPED, decoded_length=length)
    return TensorObject(shape, BLOCKS[number].layout, {"data": component})
