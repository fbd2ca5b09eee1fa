"""Small manifests of 1.1 and 1.2: cut into pieces where plain objects have the same bytes.

An object by itself is a dozen items of CBOR. Cut at the words that all plain ones spell alike, it
leaves five pieces: what comes before its offset, which few objects of a file do not share with
others, its offset, the fields behind it, the digits of its digest, and the name of the next object.
One pattern cuts all objects, which takes a third of the time that it takes to cut each. Each kind
of piece is looked at once, and each item in a piece has to fill it to the end. So the items are
those that the general decoder meets, wherever the same bytes lie in a name or a number by chance:
then something is too long or too short, and all is left to the general decoder.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.container.v1.object import types_of
from ztensor.digest import ALGORITHMS
from ztensor.model.dtype import decoded_size
from ztensor.model.rules import ALIGNMENT
from ztensor.model.table import IrregularError
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.container.framing import Frame
    from ztensor.limits import Budget

_text, _TEXT = cbor.encode_text, 3
START = b"\xa3" + _text("shape")
MIDDLE = b"".join(
    (_text("format"), _text("dense"), _text("components"), b"\xa1", _text("data"))
)  # what is between the shape and the component
# The digests writers write: head, text before the digits, and how many digits.
DIGESTS = tuple(
    (cbor.head(_TEXT, len(text) + algorithm.digits), text, algorithm.digits)
    for algorithm in ALGORITHMS.values()
    if algorithm.is_written
    for text in (algorithm.spell("").encode("ascii"),)
)

_DTYPE, _TYPE, _OFFSET, _LENGTH = map(_text, ("dtype", "type", "offset", "length"))
_DECODED, _ENCODING, _DIGEST = map(_text, ("uncompressed_length", "encoding", "digest"))
_MOST_FIELDS = 3  # that may be missing behind the length
_ENCODINGS = {_ENCODING + _text(word): word == "raw" for word in ("raw", "zstd")}
_DIGITS = b"0123456789abcdefABCDEF"
_NAME = 0x60  # the head of a text of no bytes
_NAME_8 = 0x78  # of one whose length is in the next byte
_ARRAY, _MAP = 0x80, 0xA0
_MOST_RANK = 8
_MOST_WORDS = 100  # bytes that types take: they are remembered
# Bytes of what stands before an offset, and between it and a digest.
_LEAST_KIND = len(b"\x80" + MIDDLE + b"\xa3" + _DTYPE)
_MOST_KIND = _LEAST_KIND + 9 * _MOST_RANK + _MOST_WORDS
_MOST_STORED = len(_DECODED + _ENCODING + _text("zstd")) + 2 * 9
_MOST_BYTES = 1 << 50  # of a decoded object: more is for the general decoder

# Fewer objects are read sooner one by one: the columns take as long as these.
LEAST_OBJECTS = 4
_OBJECT_BYTES = 700  # of memory that an object takes: its pieces, columns, name, and table of names

# Whole items that are unsigned numbers, by their heads; those in the head have no more bytes.
_NUMBERS: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    0x18: struct.Struct(">xB").unpack,
    0x19: struct.Struct(">xH").unpack,
    0x1A: struct.Struct(">xI").unpack,
    0x1B: struct.Struct(">xQ").unpack,
}


@dataclasses.dataclass(slots=True)
class Pieces:
    """A map of plain objects; see `root.Reading`. All rules are checked, and no column is made.

    Attributes:
        order: the names.
        end: where the map ends.
        offsets: first bytes in the file.
        row_of: of each object its place in `rows`.
        rows: of each that differ in more than that the length, whether it is raw, the decoded
            length, and the places and counts of types and dimensions, as `Table` has them.
        spellings: as `Table` has them.
        dims: likewise.
        digits: of each digest; none where there are no digests.
        text: what stands before the digits.
        others: nothing.
    """

    order: list[str]
    end: int
    offsets: list[int]
    row_of: list[int]
    rows: list[tuple[int, ...]]
    spellings: tuple[tuple[str, str | None], ...]
    dims: list[int]
    digits: list[bytes]
    text: bytes
    others: tuple[tuple[str, object], ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of a table, which who only lists the names needs none of."""
        count = len(self.order)
        rows = np.array(self.rows, np.int64).T[:, self.row_of]
        lengths, is_raw, decoded, types, ranks, dim_starts = rows
        length = len(self.text) + len(self.digits[0]) if self.digits else 0
        return {
            "names": self.order,
            "offsets": np.array(self.offsets, np.int64),
            "lengths": lengths,
            "types": types,
            "spellings": self.spellings,
            "ranks": ranks,
            "dims": np.array(self.dims, np.uint64),
            "dim_starts": dim_starts,
            "is_raw": is_raw == 1,
            "decoded_lengths": decoded,
            "digest_text": self.text.join((b"", *self.digits)),
            "digest_starts": np.arange(count) * length,
            "digest_lengths": np.full(count, length),
        }


def read_pieces(data: bytes, start: int, frame: Frame, budget: Budget) -> Pieces:
    """Return what the map of objects at `start` holds.

    Args:
        data: the manifest's bytes.
        start: where the map begins.
        frame: where they lay.
        budget: what the file may cost.

    Raises:
        IrregularError: its objects are not all plain, they are few, or something is wrong.
        ManifestError: it is no map.
        LimitError: it would cost more than it may.
    """
    count, first_name = cbor.map_head(data, start)
    if not LEAST_OBJECTS <= count <= len(data):
        raise IrregularError
    budget.charge_bytes(count * _OBJECT_BYTES)
    try:
        return _read(data[first_name:], count, len(data), frame.manifest_offset)
    except (LookupError, ValueError, struct.error) as error:  # a piece is too short, or no UTF-8
        raise IrregularError from error


def _read(objects: bytes, count: int, size: int, blobs_end: int) -> Pieces:
    """Return the objects.

    Args:
        objects: from the first name to the end of the manifest.
        count: how many there are.
        size: bytes of the manifest.
        blobs_end: where the bytes of objects end.

    Raises:
        IrregularError: not all are plain, or something is wrong.
        LookupError: likewise, as are those that follow.
        ValueError: likewise.
        struct.error: likewise.
    """
    digest = _digest_of_first(objects)
    pieces: list[Any] = _pattern(digest).split(objects, count)
    width = 3 if digest is None else 5
    if len(pieces) <= width * count:
        raise IrregularError
    names, kinds, offsets = pieces[::width], pieces[1::width], pieces[2::width]
    text, digits = b"", []
    if digest is None:  # nothing tells where the fields end: they are before the names still
        ends = [_fields_end(one) for one in names[1:]]
        fields = [one[:end] for one, end in zip(names[1:], ends, strict=True)]
        names[1:] = [one[end:] for one, end in zip(names[1:], ends, strict=True)]
    else:
        fields, text, digits = pieces[3::width], digest[1], pieces[4::width]
        if b"".join(digits).translate(None, _DIGITS):
            raise IrregularError
    end = size - len(names.pop())

    places = [_NUMBERS[offset[0]](offset)[0] for offset in offsets]
    if functools.reduce(operator.or_, places) % ALIGNMENT or min(places) < ALIGNMENT:
        raise IrregularError
    pairs = list(zip(kinds, fields, strict=True))
    codes = {pair: code for code, pair in enumerate(dict.fromkeys(pairs))}
    rows, spellings, dims = _rows(codes, blobs_end, has_digests=digest is not None)
    row_of = [codes[pair] for pair in pairs]
    if max([place + rows[row][0] for place, row in zip(places, row_of, strict=True)]) > blobs_end:
        raise IrregularError
    order = _names(names)
    return Pieces(order, end, places, row_of, rows, spellings, dims, digits, text)


def _digest_of_first(objects: bytes) -> tuple[bytes, bytes, int] | None:
    """Return the one of `DIGESTS` that the first object has, or None."""
    start = objects.index(START)
    end = objects.find(START, start + 1)
    for digest in DIGESTS:
        if objects.find(_DIGEST + digest[0] + digest[1], start, end) > 0:
            return digest
    return None


@functools.cache
def _pattern(digest: tuple[bytes, bytes, int] | None) -> re.Pattern[bytes]:
    """Return what matches a plain object, and has its pieces in groups.

    What a group takes ends where the next word begins for the first time, and is not long: so the
    time is linear in the bytes, whatever they are.
    """
    groups = [(_LEAST_KIND, _MOST_KIND, _OFFSET), (1, 9, _LENGTH)]
    end = b""
    if digest is not None:
        head, text, digits = digest
        groups.append((1, _MOST_STORED, _DIGEST + head + text))
        end = b"(.{%d})" % digits
    parts = [b"(?>(.{%d,%d}?)%s)" % (least, most, re.escape(w)) for least, most, w in groups]
    return re.compile(b"".join((re.escape(START), *parts, end)), re.DOTALL)


def _names(items: list[bytes]) -> list[str]:
    """Return the texts that are all of these items."""
    return [
        item[1:].decode()
        if item[0] == _NAME + len(item) - 1 < _NAME_8
        else item[2:].decode()
        if item[0] == _NAME_8 and item[1] == len(item) - 2
        else _name(item)
        for item in items
    ]


def _name(item: bytes) -> str:
    name, end = cbor.decode_item(item, 0, depth=0)  # a long one, or one of another form
    if not isinstance(name, str) or end < len(item):
        raise IrregularError
    return name


def _fields_end(fields: bytes) -> int:
    """Return where the fields end that begin behind the word `length`."""
    end = cbor.UINT_SIZES[fields[0]]
    if fields.startswith(_DECODED, end):
        end += len(_DECODED)
        end += cbor.UINT_SIZES[fields[end]]
    if fields.startswith(_ENCODING, end):
        for encoding in _ENCODINGS:
            if fields.startswith(encoding, end):
                return end + len(encoding)
    return end


def _number(item: bytes) -> int:
    """Return the unsigned number that is all of an item."""
    if len(item) == 1 and item[0] < 0x18:
        return item[0]
    number: int = _NUMBERS[item[0]](item)[0]
    return number


def _rows(
    pairs: Iterable[tuple[bytes, bytes]], blobs_end: int, *, has_digests: bool
) -> tuple[list[tuple[int, ...]], tuple[tuple[str, str | None], ...], list[int]]:
    """Return what objects have that differ in names, offsets and digests alone; see `Pieces`.

    Args:
        pairs: what lies before the offset, and what behind it but the digest.
        blobs_end: where the bytes of objects end.
        has_digests: whether there are digests.

    Raises:
        IrregularError: an object is not plain, or its size does not fit.
    """
    dims: list[int] = []
    spellings: dict[tuple[str, str | None], int] = {}
    known: dict[bytes, tuple[int, ...]] = {}
    rows: list[tuple[int, ...]] = []
    for kind, some in pairs:
        if kind not in known:
            count, spelling, shape = _kind(kind)
            size = decoded_size(*spelling, shape)
            if size is None or size > _MOST_BYTES:
                raise IrregularError
            place = spellings.setdefault(spelling, len(spellings))
            known[kind] = count, size, place, len(shape), len(dims)
            dims += shape
        wanted, size, *rest = known[kind]
        count, length, is_raw, decoded = _stored(some)
        if (
            count + has_digests != wanted
            or length > blobs_end
            or (is_raw and length != size)
            or decoded not in (-1, size)
        ):
            raise IrregularError
        rows.append((length, is_raw, decoded, *rest))
    return rows, tuple(spellings), dims


@functools.lru_cache(maxsize=512)  # likewise, where objects are raw
def _stored(fields: bytes) -> tuple[int, int, bool, int]:
    """Return what lies behind an offset.

    That is how many fields there are beside the length, the length, whether the bytes are raw, and
    how long they are when decoded, or -1.
    """
    end = cbor.UINT_SIZES[fields[0]]
    length = _number(fields[:end])
    count, decoded, is_raw = 0, -1, True
    if fields.startswith(_DECODED, end):
        start = end + len(_DECODED)
        end = start + cbor.UINT_SIZES[fields[start]]
        decoded = _number(fields[start:end])
        count += 1
    if end < len(fields):
        is_raw = _ENCODINGS[fields[end:]]
        count += 1
    return count, length, is_raw, decoded


@functools.lru_cache(maxsize=512)  # a model's files have few, and are opened again and again
def _kind(kind: bytes) -> tuple[int, tuple[str, str | None], tuple[int, ...]]:
    """Return how many fields behind the length an object has, its types and its shape."""
    shape, middle, component = kind.partition(MIDDLE)
    if not middle or len(component) > _MOST_WORDS:
        raise IrregularError
    return *_spelling(component), _shape(shape)


def _shape(item: bytes) -> tuple[int, ...]:
    """Return the shape that is all of an item."""
    rank = item[0] - _ARRAY
    if not 0 <= rank <= _MOST_RANK:
        raise IrregularError
    shape = []
    start = 1
    for _ in range(rank):
        end = start + cbor.UINT_SIZES[item[start]]
        shape.append(_number(item[start:end]))
        start = end
    if start < len(item):
        raise IrregularError
    return tuple(shape)


def _spelling(component: bytes) -> tuple[int, tuple[str, str | None]]:
    """Return how many fields a component has that may be missing, and its types."""
    count = component[0] - _MAP - 3
    if not component.startswith(_DTYPE, 1):
        raise IrregularError
    dtype, end = cbor.decode_item(component, 1 + len(_DTYPE), depth=0)
    logical = None
    if end < len(component):
        if not component.startswith(_TYPE, end):
            raise IrregularError
        word, end = cbor.decode_item(component, end + len(_TYPE), depth=0)
        if not isinstance(word, str):
            raise IrregularError
        logical = word
        count -= 1
    if not isinstance(dtype, str) or end < len(component) or not 0 <= count <= _MOST_FIELDS:
        raise IrregularError
    return count, types_of(dtype, logical)
