"""Small manifests of 1.1 and 1.2: cut into pieces where plain objects have the same bytes.

An object by itself is a dozen items of CBOR. Cut at what all plain ones spell alike, it leaves
four pieces: what comes before its offset, which few objects of a file do not share with others,
its offset, the fields behind it, and the name of the next object. Each kind of piece is looked at
once, and each item in a piece has to fill it to the end. So the items are those that the general
decoder meets, wherever the same bytes lie in a name or a number by chance: then something is too
long or too short, and all is left to the general decoder.
"""

from __future__ import annotations

import dataclasses
import functools
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
    from collections.abc import Callable, Sequence

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
    """A map of plain objects; see `root.Reading`."""

    columns: dict[str, Any]
    others: list[tuple[str, object]]
    order: list[str]
    end: int


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
    first, *rest = data[first_name:].split(START, count)
    if len(rest) < count:
        raise IrregularError
    try:
        return _read(first, rest, len(data), frame.manifest_offset)
    except (LookupError, ValueError, struct.error) as error:  # a piece is too short, or no UTF-8
        raise IrregularError from error


def _read(first: bytes, objects: list[bytes], size: int, blobs_end: int) -> Pieces:
    """Return the objects.

    Args:
        first: the first name.
        objects: each with the name behind it, the last with all that is behind it.
        size: bytes of the manifest.
        blobs_end: where the bytes of objects end.

    Raises:
        IrregularError: not all are plain, or something is wrong.
        LookupError: likewise, as are those that follow.
        ValueError: likewise.
        struct.error: likewise.
    """
    kinds, _, rest = zip(*[one.partition(_OFFSET) for one in objects], strict=True)
    offsets, _, rest = zip(*[one.partition(_LENGTH) for one in rest], strict=True)
    digests, fields, names = _cut_digests(rest)

    order = _names([first, *names[:-1]])
    numbers = [_NUMBERS[offset[0]](offset)[0] for offset in offsets]
    if min(numbers) < ALIGNMENT or max(numbers) > blobs_end:
        raise IrregularError
    columns = _columns(kinds, fields, blobs_end, has_digests=bool(digests["digest_text"]))
    places = np.array(numbers, np.int64)
    if (places % ALIGNMENT).any() or (places + columns["lengths"]).max() > blobs_end:
        raise IrregularError
    columns.update(names=order, offsets=places, **digests)
    return Pieces(columns, [], order, size - len(names[-1]))


def _names(items: list[bytes]) -> list[str]:
    """Return the texts that are all of these items."""
    return [
        item[2:].decode() if item[0] == _NAME_8 and item[1] == len(item) - 2 else _name(item)
        for item in items
    ]


def _name(item: bytes) -> str:
    if item[0] == _NAME + len(item) - 1 < _NAME_8:
        return item[1:].decode()
    name, end = cbor.decode_item(item, 0, depth=0)  # a long one, or one of another form
    if not isinstance(name, str) or end < len(item):
        raise IrregularError
    return name


def _cut_digests(rest: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes], list[bytes]]:
    """Return the columns of the digests, what comes before each, and what behind."""
    count = len(rest)
    for head, text, length in DIGESTS:
        mark = _DIGEST + head + text
        if mark in rest[0]:
            fields, marks, tails = zip(*[one.partition(mark) for one in rest], strict=True)
            digits = [tail[:length] for tail in tails]
            whole = b"".join(digits)
            if not all(marks) or len(whole) < count * length or whole.translate(None, _DIGITS):
                raise IrregularError
            full = len(text) + length
            starts = np.arange(count) * full
            columns = {
                "digest_text": text.join((b"", *digits)),
                "digest_starts": starts,
                "digest_lengths": starts * 0 + full,
            }
            return columns, list(fields), [tail[length:] for tail in tails]
    none = np.zeros(count, np.int64)
    ends = [_fields_end(one) for one in rest]
    return (
        {"digest_text": b"", "digest_starts": none, "digest_lengths": none},
        [one[:end] for one, end in zip(rest, ends, strict=True)],
        [one[end:] for one, end in zip(rest, ends, strict=True)],
    )


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


def _columns(
    kinds: Sequence[bytes], fields: Sequence[bytes], blobs_end: int, *, has_digests: bool
) -> dict[str, Any]:
    """Return the columns of all but names, offsets and digests.

    Args:
        kinds: of each object what lies before its offset.
        fields: of each what lies behind, but the digest.
        blobs_end: where the bytes of objects end.
        has_digests: whether there are digests.

    Raises:
        IrregularError: an object is not plain, or its size does not fit.
    """
    dims: list[int] = []
    spellings: dict[tuple[str, str | None], int] = {}
    known: dict[bytes, tuple[int, ...]] = {}
    places: dict[tuple[bytes, bytes], int] = {}
    row_of = [places.setdefault(pair, len(places)) for pair in zip(kinds, fields, strict=True)]
    rows = []
    for kind, some in places:
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
    columns = np.array(rows, np.int64).T[:, row_of]
    names = ("lengths", "is_raw", "decoded_lengths", "types", "ranks", "dim_starts")
    result: dict[str, Any] = dict(zip(names, columns, strict=True))
    result["is_raw"] = result["is_raw"] == 1
    return {**result, "dims": np.array(dims, np.uint64), "spellings": tuple(spellings)}


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
