"""Any reader's objects and attributes as a GGUF file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import NotRepresentableError, describe
from ztensor.ext import ObjectReader, Sink
from ztensor.formats.gguf.metadata import as_text, known_types
from ztensor.formats.gguf.projecting import MOST_DIMENSION, length_of
from ztensor.formats.gguf.types import (
    ALIGNMENT,
    ARRAY,
    DEFAULT_ALIGNMENT,
    DTYPES,
    HEADER,
    LAYOUTS,
    MAGIC,
    MOST_RANK,
    NUMBERS,
    PLAIN_NUMBERS,
    SWAPPED,
    TYPES,
    is_alignment,
)
from ztensor.formats.parts import Part, Pouring, lose_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MOST_ALIGNMENT = 1 << 16  # of written files; the padding is made in memory
MOST_NAME = 63  # bytes of a name that ggml reads


def export(
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write a reader's objects as a file of version 3, little-endian.

    Dense objects of GGUF's types and objects of blocks are written, in the order of their bytes in
    the source; other objects are left out. Attributes become metadata of the types in `GGUF.types`,
    and else of the smallest common type that fits, such as `u32`, `i32` or `f32`.

    For arguments and errors see `FormatModule.export`.
    """
    rows = [row for name in reader if (row := row_of(reader, name, lose)) is not None]
    if reader and not rows:
        why: list[str] = []
        row_of(reader, next(iter(reader)), lambda _, sentence: why.append(sentence))
        raise NotRepresentableError(
            "GGUF cannot hold any of the objects; quantize or convert them first",
            expected=f"dense ones of {', '.join(PLAIN_NUMBERS)}, or blocks of GGUF",
            found=why[0],
        )
    rows.sort(key=lambda row: row.place)
    pairs = _pairs(reader.attributes, lose)
    alignment = {key: value for key, _, value in pairs}.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    head = [struct.pack(f"<{HEADER}", MAGIC, 3, len(rows), len(pairs))]
    for key, kind, value in pairs:
        head.append(packed_pair(key, kind, value, "<"))
    at = 0
    for _, part, number in rows:
        head.append(packed_info(part.name, part.shape, number, at, "<"))
        at += -(-part.nbytes // alignment) * alignment
    start = b"".join(head)
    sink.write(start + bytes(-len(start) % alignment))
    with Pouring(sink, [row.part for row in rows], progress, threads) as pouring:
        for row in rows:
            pouring.write(row.part)
            sink.write(bytes(-row.part.nbytes % alignment))
    return len(rows)


class Row(NamedTuple):
    """A written tensor: the name of its source and the offset there, the array, its type number."""

    place: tuple[str, int]
    part: Part
    number: int


def row_of(reader: ObjectReader, name: str, lose: Callable[[str | None, str], None]) -> Row | None:
    """Return the row of an object, or None if it is left out."""
    home = reader.objects.part(name)
    tensor_object = home.object(name)
    shape, component = tensor_object.shape, tensor_object.components.get("data")
    number, length = None, None
    if component is not None and component.encoding != SWAPPED:
        if tensor_object.format in LAYOUTS:
            block_type = LAYOUTS[tensor_object.format]
            number, length = block_type.number, block_type.data_bytes(shape)
        elif tensor_object.format == "dense" and component.type is None:
            number = PLAIN_NUMBERS.get(component.dtype)
            length = None if number is None else length_of(name, shape, number)
    if component is None or number is None or length is None:
        kind = component.type or component.dtype if component is not None else "no data"
        lose(name, f"left out: GGUF has no {describe(tensor_object.format)} of {describe(kind)}")
        return None
    if len(shape) > MOST_RANK or max(shape, default=0) > MOST_DIMENSION:
        lose(name, f"left out: GGUF has at most {MOST_RANK} dimensions, each below 2^63")
        return None
    if (size := len(name.encode())) > MOST_NAME:
        lose(name, f"left out: GGUF has at most {MOST_NAME} bytes of a name, which has {size}")
        return None
    if not shape and number == PLAIN_NUMBERS["bf16"]:
        lose(name, "written with one dimension: readers of GGUF stop at a bf16 that has none")
        shape = (1,)
    lose_attributes(lose, name, tensor_object.attributes)
    if others := [role for role in tensor_object.components if role != "data"]:
        lose(name, f"components beside 'data' are left out: {', '.join(map(describe, others))}")
    part = Part(name, component.dtype, None, shape, length, home, name, "data")
    return Row((home.name, component.offset), part, number)


def _pairs(
    attributes: Mapping[str, Any], lose: Callable[[str | None, str], None]
) -> list[tuple[str, Any, Any]]:
    """Return the keys, types and values that can be written, in the order of `GGUF.types`."""
    known = dict(known_types(attributes.get(TYPES)))
    pairs = []
    for key in dict.fromkeys((*known, *attributes)):
        if key == TYPES or key not in attributes:
            continue
        value, kind = attributes[key], known.get(key)
        if kind is None or not fits(value, kind):
            kind = inferred(value)
        is_bad = key == ALIGNMENT and not (
            kind == "u32" and is_alignment(value) and value <= MOST_ALIGNMENT
        )
        if kind is None or is_bad:
            lose(None, f"the attribute {describe(key)} is left out: {describe(value, 40)}")
            continue
        pairs.append((key, kind, value))
    return pairs


def inferred(value: object) -> Any:
    """Return the smallest common type of a value, or None if no type fits."""
    if isinstance(value, list):
        if value and all(isinstance(item, list) for item in value):
            kinds = [inferred(item) for item in value]
            return None if None in kinds else kinds
        candidates = ["[str]", "[bool]", "[i32]", "[u32]", "[i64]", "[u64]", "[f32]", "[f64]"]
    else:
        candidates = ["str", "bool", "u32", "i32", "u64", "i64", "f32", "f64"]
    return next((kind for kind in candidates if fits(value, kind)), None)


def fits(value: object, kind: object) -> bool:
    """Return whether a value, written as this type, is read back equal."""
    if isinstance(kind, list):
        return (
            isinstance(value, list)
            and len(value) == len(kind)
            and all(map(fits, value, kind))
            and all(map(_is_array, kind))
        )
    if not isinstance(kind, str):
        return False
    if not _is_array(kind):
        return kind in NUMBERS and not isinstance(value, list) and fits([value], f"[{kind}]")
    word = kind[1:-1]
    if not isinstance(value, list) or word not in NUMBERS:
        return False
    types = set(map(type, value))
    if word == "str":  # bytes that are UTF-8 would come back as text
        return types <= {str, bytes} and not (
            bytes in types
            and any(isinstance(item, bytes) and item != as_text(item) for item in value)
        )
    if word == "bool":
        return types <= {bool}
    if word[0] == "f":
        if not types <= {float}:
            return False
        floats = np.array(value, np.float64)
        with np.errstate(over="ignore"):
            return np.array_equal(floats.astype(DTYPES[word]), floats, equal_nan=True)
    limits = np.iinfo(DTYPES[word])
    return types <= {int} and all(limits.min <= item <= limits.max for item in value)


def _is_array(kind: object) -> bool:
    return isinstance(kind, list) or (isinstance(kind, str) and kind[:1] == "[")


def _number(kind: Any) -> int:
    return ARRAY if _is_array(kind) else NUMBERS[kind]


def packed_pair(key: str, kind: Any, value: Any, order: str) -> bytes:
    """Return the bytes of a key and its value, of a type that fits, in a byte order."""
    return (
        _packed_text(key, order)
        + struct.pack(f"{order}I", _number(kind))
        + _packed(value, kind, order)
    )


def packed_info(name: str, shape: Sequence[int], number: int, offset: int, order: str) -> bytes:
    """Return the bytes of a row of the table of tensors, in a byte order."""
    record = f"{order}I{len(shape)}QIQ"
    return _packed_text(name, order) + struct.pack(record, len(shape), *shape[::-1], number, offset)


def _packed(value: Any, kind: Any, order: str) -> bytes:
    if isinstance(kind, list):
        items = b"".join(_packed(item, of, order) for item, of in zip(value, kind, strict=True))
        return struct.pack(f"{order}IQ", ARRAY, len(value)) + items
    if _is_array(kind):
        word = kind[1:-1]
        head = struct.pack(f"{order}IQ", NUMBERS[word], len(value))
        return head + _packed_items(value, word, order)
    return _packed_items([value], kind, order)


def _packed_items(values: list[Any], word: str, order: str) -> bytes:
    if word == "str":
        return b"".join(_packed_text(text, order) for text in values)
    return np.array(values, order + DTYPES[word]).tobytes()


def _packed_text(text: str | bytes, order: str) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack(f"{order}Q", len(data)) + data
