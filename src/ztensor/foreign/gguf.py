"""GGUF: metadata, a table of tensors, and behind them the tensors, each at a multiple of a number.

Versions 2 and 3 are read, of either byte order; version 3 is written, little-endian. A tensor of
plain elements is a range of the file. A quantized one is too, as an object of a layout such as
`gguf.q4_k`, which has its blocks as they are (`ztensor.layout.gguf_blocks`). Types that ggml has
given a number to since, or taken it from, are listed and cannot be read; nor can blocks of
big-endian files, since no text says which of their bytes are swapped.

Metadata becomes the file's attributes, under the same keys. `GGUF.types`, which is no key of GGUF
since these are in small letters, has `[key, type]` for each in the order of the file, so that a
file can be written again as it was. A type is `u8` ... `f64`, `bool` or `str`; that of an array is
`[u8]`, and that of an array of arrays the list of theirs. A string that is no UTF-8 comes as bytes.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ContainerError,
    LimitError,
    ManifestError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    UnsupportedVersionError,
    describe,
)
from ztensor.foreign.base import RAW, ForeignEncoding, Projection
from ztensor.layout.gguf_blocks import BLOCK_TYPES, GGUF_LAYOUTS, PREFIX
from ztensor.model.account import Tally
from ztensor.model.dtype import STORAGE_TYPES, element_count
from ztensor.model.manifest import Component, Manifest, TensorObject
from ztensor.reading.ahead import Ahead
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Literal

    from ztensor.encoding import Stored
    from ztensor.limits import Budget, Limits
    from ztensor.model.account import Unrepresented
    from ztensor.reading.reader import ManifestReader
    from ztensor.source.base import Source
    from ztensor.source.sink import Sink

NAME = "gguf"
TYPES = "GGUF.types"

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_HEADER = "4sIQQ"  # magic, version, how many tensors, how many keys
_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_OF_SHARDS = ("split.no", "split.count", "split.tensors.count")
_MOST_ALIGNMENT = 1 << 16  # that we write; the padding is made in memory
_MOST_RANK = 4
_MOST_NAME = 63  # bytes, that ggml reads
_MOST_DIMENSION = (1 << 63) - 1
_SECTION = "GGUF"

# In bytes of memory: a text; a place in a list; a number; a key with its type; an array in an
# array; a tensor's object, with its line in the table.
_TEXT_COST, _PLACE_COST, _NUMBER_COST, _KEY_COST, _ARRAY_COST = 64, 9, 41, 400, 176
_TENSOR_COST = 1200
_SMALL = ("u8", "bool")  # Python has their numbers already
_ROUNDED = 16  # what a text may take beyond its own size
# Strings decoded at once, their bytes, and what one of these takes meanwhile.
_BATCH, _BATCH_BYTES, _WORST = 1024, 1 << 18, 7

# The header of a model is a few MiB, most of it its vocabulary.
_FIRST_READ = 1 << 20
_GROWTH = 4

# Types of metadata: number and word. Where the word is a struct's and NumPy's, what it is there.
_STR, _ARRAY = 8, 9
_WORDS: Mapping[int, str] = {
    0: "u8",
    1: "i8",
    2: "u16",
    3: "i16",
    4: "u32",
    5: "i32",
    6: "f32",
    7: "bool",
    _STR: "str",
    10: "u64",
    11: "i64",
    12: "f64",
}
_NUMBERS = {word: number for number, word in _WORDS.items()}
_ARRAYS = {word: f"[{word}]" for word in _NUMBERS}
_DTYPES = {
    "u8": "u1",
    "i8": "i1",
    "u16": "u2",
    "i16": "i2",
    "u32": "u4",
    "i32": "i4",
    "f32": "f4",
    "bool": "u1",
    "u64": "u8",
    "i64": "i8",
    "f64": "f8",
}

# Types of tensors whose elements are as NumPy has them.
_PLAIN = {
    0: "f32",
    1: "f16",
    24: "i8",
    25: "i16",
    26: "i32",
    27: "i64",
    28: "f64",
    30: "bf16",
}
_PLAIN_NUMBERS = {dtype: number for number, dtype in _PLAIN.items()}
_BLOCKS = {block_type.number: block_type for block_type in BLOCK_TYPES}


# --- Reading --------------------------------------------------------------------------------


def project(source: Source, budget: Budget) -> Projection:
    """Return what a file says; the tensors' bytes are where they are in the file.

    Raises:
        FormatError: the header is cut or malformed, a key or a tensor comes twice, or a tensor is
            not where and as long as it must be.
        UnsupportedVersionError: the file is of version 1, or of one after 3.
        LimitError: the header is longer than `Limits.manifest_bytes`, or nested too deeply.
        SourceError: it cannot be read.
    """
    cursor = _Cursor(source, budget)
    version, tensors, keys = _start(cursor)
    attributes = _metadata(cursor, keys)
    alignment = _alignment(attributes)
    infos = _infos(cursor, tensors)
    objects = _objects(infos, -(-cursor.at // alignment) * alignment, alignment, cursor)
    encodings = RAW
    if cursor.order == ">":
        encodings = {**RAW, _SWAPPED: _SwappedBlocks(_SWAPPED)}
    manifest = Manifest(str(version), objects, attributes or None)
    header = cursor.at
    return Projection(
        NAME, manifest, encodings, lambda: _gaps(objects, header, alignment, source.size)
    )


def _gaps(
    objects: Mapping[str, TensorObject], header: int, alignment: int, size: int
) -> list[Unrepresented]:
    """Return the bytes that are of no tensor, and more than fill up to the alignment."""
    left = Tally()
    ranges = [
        (component.offset, component.offset + component.length)
        for tensor_object in objects.values()
        for component in tensor_object.components.values()
        if component.length
    ]
    end = header
    for start, stop in [*sorted(ranges), (size, size)]:
        if start - end >= alignment:
            left.add("bytes of no tensor", nbytes=start - end)
        end = max(end, stop)
    return left()


def attributes_of_whole(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the shards of a model say of it: the first wins, and their places are left out.

    Args:
        shards: the attributes of each file, the first one first.
    """
    whole: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for attributes in shards:
        for key, value in attributes.items():
            whole.setdefault(key, value)
        for key, kind in _known_types(attributes.get(TYPES)):
            types.setdefault(key, kind)
    for key in _OF_SHARDS:
        whole.pop(key, None)
    if TYPES in whole:
        whole[TYPES] = [[key, kind] for key, kind in types.items() if key in whole]
    return whole


class _Cursor:
    """A place in a header, of which as much is in memory as was asked for.

    Attributes:
        at: the place.
        data: the file's first bytes.
        order: `<` or `>`, for struct and NumPy.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self.budget, self.limits = source, budget, budget.limits
        self.data = b""
        self.at = 0
        self.order: Literal["<", ">"] = "<"

    def need(self, length: int) -> None:
        """Have so many bytes from here on.

        Raises:
            ContainerError: the file does not have them.
            LimitError: `Limits.manifest_bytes` does not allow it.
        """
        end, have = self.at + length, len(self.data)
        if end <= have:
            return
        source, most = self.source, self.limits.manifest_bytes
        if end > source.size:
            raise ContainerError(
                "the file ends inside its header; it was cut, or a length in it is wrong",
                reason=Reason.TRUNCATED,
                expected=f"{describe(length)} bytes at offset {self.at}",
                found=f"{source.size - self.at}",
                section=_SECTION,
            )
        if end > most:
            raise LimitError(
                "the header is longer than Limits.manifest_bytes",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {most} bytes",
                found=f"at least {end}",
            )
        stop = min(max(end, _GROWTH * have, _FIRST_READ), source.size, most)
        self.budget.charge_bytes(2 * stop)  # both halves, and the whole
        self.data += read_bytes(source, have, stop - have)
        self.budget.release_bytes(stop + have)

    def require_left(self, count: int, least: int, what: str) -> None:
        """Raise where the rest of the file is too short for `count` things of `least` bytes.

        Raises:
            ContainerError: it is.
        """
        left = self.source.size - self.at
        if count * least > left:
            raise ContainerError(
                f"the file is too short for as many {what} as its header tells",
                reason=Reason.TRUNCATED,
                expected=f"at least {count * least} bytes for {count}",
                found=f"{left}",
                section=_SECTION,
            )

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next fields, in the file's byte order."""
        form = self.order + form
        length = struct.calcsize(form)
        self.need(length)
        self.at += length
        return struct.unpack_from(form, self.data, self.at - length)

    def text(self) -> bytes:
        """Return the next string."""
        (length,) = self.take("Q")
        self.need(length)
        self.at += length
        self.budget.charge_bytes(_TEXT_COST + 4 * length)  # a character takes four bytes at most
        return self.data[self.at - length : self.at]

    def name(self, what: str) -> str:
        """Return the next string, which must be UTF-8."""
        text = self.text()
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise _broken(f"the name of a {what} is not UTF-8", found=describe(text)) from error


def _start(cursor: _Cursor) -> tuple[int, int, int]:
    """Return version, how many tensors and how many keys there are."""
    _, version, _, _ = cursor.take(_HEADER)
    if version & 0xFFFF == 0:  # a small number, from the other end
        cursor.order = ">"
    cursor.at = 0
    _, version, tensors, keys = cursor.take(_HEADER)
    if version not in _VERSIONS:
        raise UnsupportedVersionError(
            "GGUF of this version cannot be read; convert the file with the tools of llama.cpp",
            expected=f"version {' or '.join(map(str, _VERSIONS))}",
            found=str(version),
        )
    cursor.require_left(keys, 13, "keys")
    cursor.require_left(tensors, 24, "tensors")
    return version, tensors, keys


def _metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    attributes: dict[str, object] = {}
    types: list[object] = []
    for _ in range(count):
        key = cursor.name("key")
        if key in attributes:
            raise _broken("a key comes twice", reason=Reason.DUPLICATE_NAME, found=describe(key))
        (number,) = cursor.take("I")
        cursor.budget.charge_bytes(_KEY_COST)
        kind, value = _value(cursor, number, key, 1)
        attributes[key] = value
        types.append([key, kind])
    if TYPES in attributes:
        raise _broken("a key has capital letters, and ours are the same", found=describe(TYPES))
    if types:
        attributes[TYPES] = types
    return attributes


def _value(cursor: _Cursor, number: int, key: str, depth: int) -> tuple[object, object]:
    """Return the type and the value of the next thing of a type."""
    if number != _ARRAY:
        word = _word(number, key)
        return word, _items(cursor, word, 1, key)[0]
    if depth >= cursor.limits.depth:
        raise LimitError(
            "an array is nested deeper than Limits.depth",
            reason=Reason.LIMIT_DEPTH,
            expected=f"at most {cursor.limits.depth} levels",
            found=f"more, under the key {describe(key)}",
        )
    number, count = cursor.take("IQ")
    if number != _ARRAY:
        word = _word(number, key)
        return _ARRAYS[word], _items(cursor, word, count, key)
    cursor.require_left(count, 12, "arrays in an array")
    cursor.budget.charge_bytes(_ARRAY_COST * count)
    pairs = [_value(cursor, number, key, depth + 1) for _ in range(count)]
    return [kind for kind, _ in pairs], [value for _, value in pairs]


def _word(number: int, key: str) -> str:
    word = _WORDS.get(number)
    if word is None:
        raise _broken(
            f"the value of the key {describe(key)} is of an unknown type",
            reason=Reason.FIELD_TYPE,
            expected=f"a number from 0 to {max(_WORDS)}",
            found=str(number),
        )
    return word


def _items(cursor: _Cursor, word: str, count: int, key: str) -> list[Any]:
    """Return the next values of a type other than array."""
    if word == "str":
        return _strings(cursor, count)
    dtype = np.dtype(cursor.order + _DTYPES[word])
    cursor.require_left(count, dtype.itemsize, "values in an array")
    length = count * dtype.itemsize
    cursor.budget.charge_bytes(count * (_PLACE_COST if word in _SMALL else _NUMBER_COST))
    cursor.need(length)
    array = np.frombuffer(cursor.data, dtype, count, cursor.at)
    cursor.at += length
    if word == "bool":
        if array.max(initial=0) > 1:
            raise _broken(
                f"a bool of the key {describe(key)} is neither 0 nor 1",
                reason=Reason.BOOL_VALUE,
                found=str(array.max()),
            )
        array = array.astype(np.bool_)
    values: list[Any] = array.tolist()
    return values


def _strings(cursor: _Cursor, count: int) -> list[str | bytes]:
    """Return the next strings; vocabularies have hundreds of thousands of them."""
    cursor.require_left(count, 8, "strings in an array")
    budget, length_at = cursor.budget, struct.Struct(cursor.order + "Q").unpack_from
    budget.charge_bytes(_PLACE_COST * count)
    texts: list[str | bytes] = []
    data, at, have = cursor.data, cursor.at, len(cursor.data)
    while count:
        found: list[bytes] = []
        append, begin = found.append, at
        for _ in range(min(_BATCH, count)):
            start = at + 8
            if start > have:
                cursor.at = at
                cursor.need(8)
                data, have = cursor.data, len(cursor.data)
            stop = start + length_at(data, at)[0]
            if stop > have:
                cursor.at = start
                cursor.need(stop - start)
                data, have = cursor.data, len(cursor.data)
            append(data[start:stop])
            at = stop
            if at - begin > _BATCH_BYTES:
                break
        count -= len(found)
        texts += _decoded(found, budget)
    cursor.at = at
    return texts


def _decoded(found: list[bytes], budget: Budget) -> Sequence[str | bytes]:
    """Return strings as text where they are UTF-8."""
    worst = _WORST * sum(map(len, found)) + _TEXT_COST * len(found)
    budget.charge_bytes(worst)
    texts: list[str | bytes]
    try:
        texts = list(map(bytes.decode, found))
    except UnicodeDecodeError:
        texts = [_text(one) for one in found]
    budget.release_bytes(worst - sum(map(sys.getsizeof, texts)) - _ROUNDED * len(texts))
    return texts


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _alignment(attributes: Mapping[str, object]) -> int:
    """Return what tensors begin at multiples of."""
    if _ALIGNMENT not in attributes:
        return _DEFAULT_ALIGNMENT
    alignment, types = attributes[_ALIGNMENT], attributes[TYPES]
    if not isinstance(types, list) or [_ALIGNMENT, "u32"] not in types:
        raise _broken(
            f"{_ALIGNMENT} is of another type",
            reason=Reason.FIELD_TYPE,
            expected="u32",
            found=describe(alignment),
        )
    if not _is_alignment(alignment):
        raise _broken(
            f"{_ALIGNMENT} is no alignment", expected="a power of two", found=describe(alignment)
        )
    return int(alignment)  # type: ignore[call-overload, no-any-return]  # as was just checked


def _is_alignment(value: object) -> bool:
    return type(value) is int and value > 0 and value & (value - 1) == 0


# Name, shape, type's number, and where it begins, counted from the first.
_Info = tuple[str, tuple[int, ...], int, int]


def _infos(cursor: _Cursor, count: int) -> list[_Info]:
    cursor.require_left(count, 24, "tensors")
    cursor.budget.charge_bytes(_TENSOR_COST * count)
    infos = []
    for _ in range(count):
        name = cursor.name("tensor")
        (rank,) = cursor.take("I")
        if rank > _MOST_RANK:
            raise _broken(
                "a tensor has more dimensions than GGUF allows",
                object_name=name,
                expected=f"at most {_MOST_RANK}",
                found=str(rank),
            )
        *dimensions, number, offset = cursor.take(f"{rank}QIQ")
        if dimensions and max(dimensions) > _MOST_DIMENSION:
            raise _broken(
                "a dimension is too large",
                object_name=name,
                expected=f"at most {_MOST_DIMENSION}",
                found=describe(dimensions),
            )
        infos.append((name, tuple(dimensions[::-1]), number, offset))
    return infos


def _objects(
    infos: Sequence[_Info], start: int, alignment: int, cursor: _Cursor
) -> dict[str, TensorObject]:
    """Return the tensors, every rule about their places checked.

    Args:
        infos: the table.
        start: where the first tensor may begin.
        alignment: what offsets are multiples of.
        cursor: for size and byte order of the file.
    """
    size = cursor.source.size
    places = sorted({start + offset for *_, offset in infos})
    objects: dict[str, TensorObject] = {}
    ranges = []
    for name, shape, number, offset in infos:
        if name in objects:
            raise _broken(
                "two tensors have the same name", reason=Reason.DUPLICATE_NAME, found=describe(name)
            )
        place, length = start + offset, _length(name, shape, number)
        if offset % alignment:
            raise _broken(
                "a tensor begins at no multiple of the alignment",
                reason=Reason.OFFSET_ALIGNMENT,
                object_name=name,
                expected=f"a multiple of {alignment}",
                found=str(offset),
            )
        if length is None:  # as long as it can be
            behind = bisect.bisect_right(places, place)
            length = (places[behind] if behind < len(places) else size) - place
        if length < 0 or (length and place + length > size):
            raise _broken(
                "a tensor is not inside the file, which was perhaps cut",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"at most {size} bytes",
                found=f"{describe(length)} bytes at offset {place}",
            )
        objects[name] = _object(shape, number, min(place, size), length, cursor.order)
        if length:
            ranges.append((place, place + length, name))
    ranges.sort()
    for (_, stop, _), (place, _, name) in itertools.pairwise(ranges):
        if place < stop:
            raise _broken(
                "two tensors overlap",
                reason=Reason.OUT_OF_BOUNDS,
                object_name=name,
                expected=f"an offset from {stop} on",
                found=str(place),
            )
    return objects


def _length(name: str, shape: tuple[int, ...], number: int) -> int | None:
    """Return the bytes of a tensor; None where its type is unknown."""
    if number in _PLAIN:
        return element_count(shape) * STORAGE_TYPES[_PLAIN[number]].width
    block_type = _BLOCKS.get(number)
    if block_type is None:
        return None
    length = block_type.data_bytes(shape)
    if length is None:
        raise _broken(
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
    if number in _PLAIN:
        byte_order: Literal["little", "big"] = "little" if order == "<" else "big"
        component = Component(_PLAIN[number], place, length, byte_order=byte_order)
        return TensorObject(shape, "dense", {"data": component})
    if number not in _BLOCKS:
        component = Component("u8", place, length)
        return TensorObject(shape, f"{PREFIX}type_{number}", {"data": component}, is_opaque=True)
    component = Component("u8", place, length)
    if order == ">":
        component = Component("u8", place, length, encoding=_SWAPPED, decoded_length=length)
    return TensorObject(shape, PREFIX + _BLOCKS[number].name, {"data": component})


_SWAPPED = "gguf.big_endian"


class _SwappedBlocks(ForeignEncoding):
    """Blocks of a big-endian file: which of their bytes are swapped depends on who wrote them."""

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse all of them.

        Raises:
            UnsupportedError: always.
        """
        del stored, expected_length, limits
        raise UnsupportedError(
            "blocks of big-endian files are not read; convert the file to little-endian with "
            "gguf-convert-endian of the package gguf",
            reason=Reason.UNKNOWN_ENCODING,
        )

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Refuse all of them.

        Raises:
            UnsupportedError: always.
        """
        self.check_length(stored, destination.nbytes, limits)


def _broken(message: str, **details: Any) -> ManifestError:
    return ManifestError(message, **{"reason": Reason.FIELD_VALUE, "section": _SECTION, **details})


# --- Writing --------------------------------------------------------------------------------


def export(
    reader: ManifestReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write what a reader holds as a file of version 3, little-endian.

    Dense objects of the types GGUF has and objects of blocks are written, in the order their bytes
    have in the source; all others are left out. Attributes become metadata, of the types that
    `GGUF.types` tells and else of the smallest common ones: `u32`, `i32`, `f32` where they fit.

    Args:
        reader: an open reader.
        sink: where the bytes go; finished by the caller.
        lose: called with an object's name, or None, and what cannot be said of it.
        progress: called with the bytes of tensors written so far and of all of them.
        threads: how many decode beside the one that writes.

    Returns:
        How many of the reader's objects the file has, in whole or in part.

    Raises:
        NotRepresentableError: no object can be written.
        FormatError: stored bytes are damaged.
        SourceError: bytes could not be read or written.
    """
    chosen = [row for name in reader if (row := _row(reader, name, lose)) is not None]
    if reader and not chosen:
        raise NotRepresentableError(
            "GGUF can hold none of the objects; quantize or convert them first",
            expected=f"dense ones of {', '.join(_PLAIN_NUMBERS)}, or blocks of GGUF",
        )
    chosen.sort(key=lambda row: row[:2])
    pairs = _pairs(reader.attributes, lose)
    alignment = {key: value for key, _, value in pairs}.get(_ALIGNMENT, _DEFAULT_ALIGNMENT)
    head = [struct.pack(f"<{_HEADER}", _MAGIC, 3, len(chosen), len(pairs))]
    for key, kind, value in pairs:
        head += (_packed_text(key), struct.pack("<I", _number(kind)), _packed(value, kind))
    at = 0
    for *_, name, shape, number, length in chosen:
        head.append(_packed_text(name))
        head.append(struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], number, at))
        at += -(-length // alignment) * alignment
    start = b"".join(head)
    sink.write(start + bytes(-len(start) % alignment))
    done, total = 0, sum(row[-1] for row in chosen)
    with Ahead([(reader.reader_of(row[2]), row[2], "data") for row in chosen], threads) as ahead:
        for *_, name, _, _, length in chosen:
            for chunk in ahead.chunks(reader.reader_of(name), name, "data"):
                sink.write(chunk)
                done += chunk.nbytes
                if progress is not None:
                    progress(done, total)
            sink.write(bytes(-length % alignment))
    return len(chosen)


# The source's name and the place in it, then name, shape, type's number and length.
_Row = tuple[str, int, str, tuple[int, ...], int, int]


def _row(reader: ManifestReader, name: str, lose: Callable[[str | None, str], None]) -> _Row | None:
    """Return how an object is written, or None where it is not."""
    home = reader.reader_of(name)
    tensor_object = home._object(name)
    shape, component = tensor_object.shape, tensor_object.components.get("data")
    number, length = None, None
    if component is not None and component.encoding != _SWAPPED:
        if tensor_object.format in GGUF_LAYOUTS:
            block_type = GGUF_LAYOUTS[tensor_object.format].block_type
            number, length = block_type.number, block_type.data_bytes(shape)
        elif tensor_object.format == "dense" and component.type is None:
            number = _PLAIN_NUMBERS.get(component.dtype)
            length = None if number is None else _length(name, shape, number)
    if component is None or number is None or length is None:
        kind = component.type or component.dtype if component is not None else "no data"
        lose(name, f"left out: GGUF has no {describe(tensor_object.format)} of {describe(kind)}")
        return None
    if len(shape) > _MOST_RANK or len(name.encode()) > _MOST_NAME:
        lose(
            name,
            f"left out: GGUF has at most {_MOST_RANK} dimensions, and {_MOST_NAME} bytes of a name",
        )
        return None
    if not shape and number == _PLAIN_NUMBERS["bf16"]:
        lose(name, "written with one dimension: readers of GGUF stop at a bf16 that has none")
        shape = (1,)
    if tensor_object.attributes:
        keys = ", ".join(map(describe, list(tensor_object.attributes)[:8]))
        lose(name, f"its attributes have no place in the format: {keys}")
    if others := [role for role in tensor_object.components if role != "data"]:
        lose(name, f"components beside 'data' are left out: {', '.join(map(describe, others))}")
    return home.name, component.offset, name, shape, number, length


def _pairs(
    attributes: Mapping[str, Any], lose: Callable[[str | None, str], None]
) -> list[tuple[str, Any, Any]]:
    """Return keys, types and values that can be written, in the order they once had."""
    known = dict(_known_types(attributes.get(TYPES)))
    pairs = []
    for key in dict.fromkeys((*known, *attributes)):
        if key == TYPES or key not in attributes:
            continue
        value, kind = attributes[key], known.get(key)
        if kind is None or not _fits(value, kind):
            kind = _inferred(value)
        is_bad = key == _ALIGNMENT and not (
            kind == "u32" and _is_alignment(value) and value <= _MOST_ALIGNMENT
        )
        if kind is None or is_bad:
            lose(None, f"the attribute {describe(key)} is left out: {describe(value, 40)}")
            continue
        pairs.append((key, kind, value))
    return pairs


def _known_types(pairs: object) -> Iterator[tuple[str, Any]]:
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], pair[1]


def _inferred(value: object) -> Any:
    """Return the type to write a value as, or None where there is none."""
    if isinstance(value, list):
        if value and all(isinstance(one, list) for one in value):
            kinds = [_inferred(one) for one in value]
            return None if None in kinds else kinds
        candidates = ["[str]", "[bool]", "[i32]", "[u32]", "[i64]", "[u64]", "[f32]", "[f64]"]
    else:
        candidates = ["str", "bool", "u32", "i32", "u64", "i64", "f32", "f64"]
    return next((kind for kind in candidates if _fits(value, kind)), None)


def _fits(value: object, kind: object) -> bool:
    """Return whether a value is one of a type, so that reading it again gives the same."""
    if isinstance(kind, list):
        return (
            isinstance(value, list)
            and len(value) == len(kind)
            and all(map(_fits, value, kind))
            and all(map(_is_array, kind))
        )
    if not isinstance(kind, str):
        return False
    if not _is_array(kind):
        return kind in _NUMBERS and not isinstance(value, list) and _fits([value], f"[{kind}]")
    word = kind[1:-1]
    if not isinstance(value, list) or word not in _NUMBERS:
        return False
    types = set(map(type, value))
    if word == "str":  # bytes that are UTF-8 would come back as text
        return types <= {str, bytes} and not (
            bytes in types and any(isinstance(one, bytes) and one != _text(one) for one in value)
        )
    if word == "bool":
        return types <= {bool}
    if word[0] == "f":
        if not types <= {float}:
            return False
        floats = np.array(value, np.float64)
        with np.errstate(over="ignore"):
            return np.array_equal(floats.astype(_DTYPES[word]), floats, equal_nan=True)
    limits = np.iinfo(_DTYPES[word])
    return types <= {int} and all(limits.min <= one <= limits.max for one in value)


def _is_array(kind: object) -> bool:
    return isinstance(kind, list) or (isinstance(kind, str) and kind[:1] == "[")


def _number(kind: Any) -> int:
    return _ARRAY if _is_array(kind) else _NUMBERS[kind]


def _packed(value: Any, kind: Any) -> bytes:
    """Return the bytes of a value that fits a type."""
    if isinstance(kind, list):
        items = b"".join(map(_packed, value, kind))
        return struct.pack("<IQ", _ARRAY, len(value)) + items
    if _is_array(kind):
        word = kind[1:-1]
        return struct.pack("<IQ", _NUMBERS[word], len(value)) + _packed_items(value, word)
    return _packed_items([value], kind)


def _packed_items(values: list[Any], word: str) -> bytes:
    if word == "str":
        return b"".join(map(_packed_text, values))
    return np.array(values, "<" + _DTYPES[word]).tobytes()


def _packed_text(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data
