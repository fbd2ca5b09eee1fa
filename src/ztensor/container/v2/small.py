"""Small manifests of 2.x whose objects are all plain: cut into pieces at what all spell alike.

What plain is, `regular.py` tells. An object is two dozen items to the decoder. Cut at what stands
before its offset, before its digest and at its end, it leaves the name, the offset, the digits, and
what few objects of a file do not share with others, which one pattern looks at once for each kind.
Each piece has to be one whole item, or fields to the last byte. So nothing is taken for what it is
not, wherever the same bytes lie in a name or a number by chance. This too is only a shortcut: what
does not fit is read item by item.
"""

from __future__ import annotations

import functools
import operator
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.container.framing import FOOTER_2_BYTES, PAGE_2
from ztensor.container.v2.object import DTYPES, TYPES, is_name
from ztensor.errors import LimitError, ManifestError
from ztensor.model.dtype import decoded_size
from ztensor.model.table import PLAIN_DEPTH, IrregularError, Table, TableObjects
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.container.framing import Frame
    from ztensor.container.v2.places import Places
    from ztensor.limits import Budget

# Fewer objects are read sooner one by one: to make a table takes as long as these.
LEAST_OBJECTS = 2
_OBJECT_BYTES = 700  # of memory that an object takes: its match, columns, and name
_MOST_BYTES = 1 << 50  # of an object: more is for the decoder
_MOST_RANK = 8
_PACKED = "zt.zstd-seekable/1"
_SHORT_NAME, _LONG_NAME = 0x60, 0x78  # heads of texts below 24 bytes, and of those below 256

_text = cbor.encode_text
_WORDS = {_text(word): word for word in (*DTYPES, *TYPES) if word != "bool"}
_FIELDS = ("blob", "type", "dtype", "encoding", _PACKED, "decoded_length", "shape")
_START = b"\xa3" + _text("parts") + b"\xa1" + _text("data")
_END = _text("layout") + _text("dense")
_OFFSET = 1 + len(_text("blob")) + 1  # behind `_START`, where the offset begins
# What stands before the digits of a digest, and how many digits there are.
_DIGESTS = {
    _text("digest") + cbor.head(3, len(word) + digits) + word: digits
    for word, digits in ((b"xxh3:", 16), (b"sha256:", 64))
}
_TEXT_AT = {mark: mark.rindex(b"xxh3:" if b"xxh3:" in mark else b"sha256:") for mark in _DIGESTS}
_DIGESTS[b""] = _TEXT_AT[b""] = 0  # of those that have none
_DIGITS = b"0123456789abcdef"
# The sizes of a number's item, and the least number of each but the first.
_BYTES_OF = np.array(sorted(set(cbor.UINT_SIZES.values())))
_LEAST_OF = np.array([0x18, 1 << 8, 1 << 16, 1 << 32], np.uint64)
_NUMBER = rb"(?:[\0-\x17]|\x18.|\x19..|\x1a.{4}|\x1b.{8})"


class _Kind(NamedTuple):
    """What objects have in common that differ in names, places and digests alone."""

    length: int
    spelling: tuple[str, str | None]
    shape: tuple[int, ...]
    is_raw: bool
    decoded_length: int


def read_small(
    data: bytes, start: int, frame: Frame, budget: Budget, places: Places, depth: int
) -> tuple[TableObjects, int] | None:
    """Return the objects of the map at `start`, and where it ends.

    Args:
        data: the manifest's bytes.
        start: where the map begins.
        frame: where they lay.
        budget: what the file may cost.
        places: takes the blobs.
        depth: how deep an object may nest.

    Returns:
        None where objects are few, or not all of them plain, or something is wrong.
    """
    if depth < PLAIN_DEPTH - 2:
        return None
    before = budget.bytes_left
    try:
        count, first = cbor.map_head(data, start, strict=True)
        if not LEAST_OBJECTS <= count <= len(data):
            return None
        budget.charge_bytes(count * _OBJECT_BYTES)
        table, end = _read(data, first, count, frame.file_size - FOOTER_2_BYTES)
        places.add_rows(table.offsets, table.lengths)
    except (IrregularError, ManifestError, LimitError, LookupError, ValueError):  # or no UTF-8
        budget.release_to(before)
        return None
    return TableObjects(table, {}, table.names), end


def _read(data: bytes, pos: int, count: int, blobs_end: int) -> tuple[Table, int]:
    """Return the objects as a table, and where the last one ends.

    Args:
        data: the manifest's bytes.
        pos: where the first name begins.
        count: how many objects there are.
        blobs_end: where in the file the footer begins.

    Raises:
        IrregularError: not all are plain, or something is wrong.
        LookupError: likewise.
        UnicodeDecodeError: likewise.
    """
    first, *rest = data[pos:].split(_START, count)
    if len(rest) < count:
        raise IrregularError
    bodies, ends, behind = zip(*[one.partition(_END) for one in rest], strict=True)
    if not all(ends):
        raise IrregularError
    names = _names([first, *behind[:-1]])
    digests, marks, before, after = _cut_digests(bodies)
    sizes = [cbor.UINT_SIZES[body[_OFFSET]] for body in before]
    offsets = np.array(
        [
            int.from_bytes(body[_OFFSET + 1 : _OFFSET + size], "big") if size > 1 else body[_OFFSET]
            for body, size in zip(before, sizes, strict=True)
        ],
        np.uint64,
    )
    shortest = _BYTES_OF[np.searchsorted(_LEAST_OF, offsets, "right")]
    if (shortest != sizes).any() or int(offsets.max()) > _MOST_BYTES:
        raise IrregularError
    codes: dict[tuple[bytes, bytes, bytes], int] = {}
    row_of = [
        codes.setdefault((body[:_OFFSET] + body[_OFFSET + size :], mark, more), len(codes))
        for body, size, mark, more in zip(before, sizes, marks, after, strict=True)
    ]
    kinds = [_kind(*kind) for kind in codes]
    places = offsets.astype(np.int64)
    table = _table(names, kinds, row_of, offsets=places, **digests)
    if (places % PAGE_2).any() or int(places.min()) < PAGE_2:
        raise IrregularError
    if int((places + table.lengths).max()) > blobs_end:
        raise IrregularError
    end = len(data) - len(behind[-1])
    return table, end


def _names(items: list[bytes]) -> list[str]:
    """Return the texts that are all of these items, which come in the order of their bytes.

    Raises:
        IrregularError: an item is no name, or they are in another order.
        LookupError: likewise.
        UnicodeDecodeError: likewise.
    """
    names = []
    for item in items:
        head, count = item[0], len(item)
        if head == _SHORT_NAME + count - 1 < _LONG_NAME:
            names.append(item[1:].decode())
        elif head == _LONG_NAME and item[1] == count - 2 >= _LONG_NAME - _SHORT_NAME:
            names.append(item[2:].decode())
        else:
            raise IrregularError
    if not all(map(operator.lt, items, items[1:])) or not all(map(is_name, names)):
        raise IrregularError
    return names


class _Cut(NamedTuple):
    """Objects cut at their digests."""

    columns: dict[str, Any]
    marks: Sequence[bytes]
    before: Sequence[bytes]
    behind: Sequence[bytes]


def _cut_digests(bodies: Sequence[bytes]) -> _Cut:
    """Return the digests, what each begins with, what is before it, and what behind.

    Raises:
        IrregularError: a digest is cut off, or has other characters.
    """
    mark = _mark(bodies[0])
    if mark:  # mostly all are of one kind
        before, found, tails = zip(*[one.partition(mark) for one in bodies], strict=True)
        if all(found):
            count, length = len(bodies), _DIGESTS[mark]
            digits = [tail[:length] for tail in tails]
            text = mark.join((b"", *digits))
            full, at = len(mark) + length, _TEXT_AT[mark]
            if len(text) < full * count or b"".join(digits).translate(None, _DIGITS):
                raise IrregularError
            starts = np.arange(count) * full + at
            columns = _columns(text, starts, np.full(count, full - at))
            return _Cut(columns, [mark] * count, before, [tail[length:] for tail in tails])
    return _cut_others(bodies)


def _cut_others(bodies: Sequence[bytes]) -> _Cut:
    """Return the same where digests are of several kinds, or there are none."""
    marks = [_mark(one) for one in bodies]
    text, places = b"", []
    before, behind = [], []
    for one, mark in zip(bodies, marks, strict=True):
        length, at = _DIGESTS[mark], _TEXT_AT[mark]
        first, _, tail = one.partition(mark) if mark else (one, b"", b"")
        if len(tail) < length or tail[:length].translate(None, _DIGITS):
            raise IrregularError
        places.append((len(text) + at, len(mark) + length - at))
        text += mark + tail[:length]
        before.append(first)
        behind.append(tail[length:])
    starts, lengths = np.array(places, np.int64).T
    return _Cut(_columns(text, starts, lengths), marks, before, behind)


def _columns(text: bytes, starts: Any, lengths: Any) -> dict[str, Any]:
    return {"digest_text": text, "digest_starts": starts, "digest_lengths": lengths}


def _mark(body: bytes) -> bytes:
    """Return what the digest of an object begins with; nothing where there is none."""
    return next((mark for mark in _DIGESTS if mark and mark in body), b"")


def _table(names: list[str], kinds: list[_Kind], row_of: Any, **columns: Any) -> Table:
    spellings: dict[tuple[str, str | None], int] = {}
    dims: list[int] = []
    rows = []
    for kind in kinds:
        place = spellings.setdefault(kind.spelling, len(spellings))
        rows.append(
            (kind.length, place, len(kind.shape), len(dims), kind.is_raw, kind.decoded_length)
        )
        dims += kind.shape
    lengths, types, ranks, dim_starts, is_raw, decoded = np.array(rows, np.int64).T[:, row_of]
    return Table(
        names=names,
        lengths=lengths,
        types=types,
        spellings=tuple(spellings),
        ranks=ranks,
        dims=np.array(dims, np.uint64),
        dim_starts=dim_starts,
        is_raw=is_raw == 1,
        decoded_lengths=decoded,
        digest_covers_decoded=True,
        is_exact=True,
        packed=_PACKED,
        **columns,
    )


@functools.lru_cache(maxsize=512)  # a model's files have few, and are opened again and again
def _kind(before: bytes, mark: bytes, after: bytes) -> _Kind:
    """Return what objects have in common that differ in names, places and digests alone.

    Args:
        before: what lies between the first words and the digest, without the offset.
        mark: what a digest begins with; none where there is no digest.
        after: what lies behind it, to the last words.

    Raises:
        IrregularError: they are not those of a plain object, or break a rule.
        KeyError: likewise.
    """
    digest = mark + b"0" * _DIGESTS[mark]
    item = _START + before[:_OFFSET] + b"\0" + before[_OFFSET:] + digest + after + _END
    found = _pattern().fullmatch(item)
    if found is None:
        raise IrregularError
    fields, length, logical, dtype, digit, decoded, dims = found.groups()
    optional = (logical is not None) + (digit is not None) + 2 * (decoded is not None)
    word = None if logical is None else _WORDS[logical]
    storage = _WORDS[dtype]
    shape = cbor.decode(dims, depth=1, strict=True)
    if fields[0] - 0xA2 != optional or storage not in DTYPES or not isinstance(shape, list):
        raise IrregularError
    if (word is not None and TYPES.get(word) != storage) or len(shape) > _MOST_RANK:
        raise IrregularError
    elements = 1
    for dimension in shape:  # from the left, as the releases: a zero behind saves nothing
        elements *= dimension
        if elements > _MOST_BYTES:
            raise IrregularError
    stored = _number(length)
    held = stored if decoded is None else _number(decoded)
    if held != decoded_size(storage, word, shape) or max(stored, held) > _MOST_BYTES:
        raise IrregularError
    return _Kind(
        stored, (storage, word), tuple(shape), decoded is None, -1 if decoded is None else held
    )


def _number(item: bytes) -> int:
    """Return the unsigned number that is all of an item.

    Raises:
        IrregularError: it is not in the shortest form, or too large for a place in a file.
    """
    number = int.from_bytes(item[1:], "big") if len(item) > 1 else item[0]
    if number > _MOST_BYTES or cbor.head(0, number) != item:
        raise IrregularError
    return number


@functools.cache
def _pattern() -> re.Pattern[bytes]:
    """Return what matches a plain object from its first byte to its last."""
    word = {text: re.escape(_text(text)) for text in _FIELDS}
    parts = (
        re.escape(_START) + rb"([\xa2-\xa6])" + word["blob"] + rb"\x82\0(" + _NUMBER + b")",
        b"(?:" + word["type"] + b"(.{2,16}?))?",
        word["dtype"] + b"(.{2,5}?)",
        b"("
        + b"|".join(
            re.escape(mark) + b"0{%d}" % length for mark, length in _DIGESTS.items() if mark
        )
        + b")?",
        b"(?:" + word["encoding"] + word[_PACKED] + word["decoded_length"],
        b"(" + _NUMBER + b"))?",
        word["shape"] + rb"([\x80-\x88]" + _NUMBER + b"*)",
        re.escape(_END),
    )
    return re.compile(b"".join(parts), re.DOTALL)
