"""Small manifests of 2.x whose objects are all plain: each object matched by one pattern.

What plain is, `regular.py` tells. A pattern takes an object in one step where the decoder takes two
dozen, and begins at once where columns take a millisecond. It matches from one object's first byte
to its last, and each text in between is looked up as a whole, so nothing is taken for what it is
not. This too is only a shortcut: what does not match is read item by item.
"""

from __future__ import annotations

import functools
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
    from ztensor.container.framing import Frame
    from ztensor.container.v2.places import Places
    from ztensor.limits import Budget

# Fewer objects are read sooner one by one: to make a table takes as long as these.
LEAST_OBJECTS = 6
_OBJECT_BYTES = 700  # of memory that an object takes: its match, columns, and name
_MOST_BYTES = 1 << 50  # of an object: more is for the decoder
_MOST_RANK = 8
_PACKED = "zt.zstd-seekable/1"
_SHORT_NAME, _LONG_NAME = 0x60, 0x78  # heads of texts below 24 bytes, and of those below 256

_text = cbor.encode_text
_WORDS = {_text(word): word for word in (*DTYPES, *TYPES) if word != "bool"}
_FIELDS = (
    *("parts", "data", "blob", "type", "dtype", "digest", "encoding", _PACKED, "decoded_length"),
    *("shape", "layout", "dense"),
)
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
    except (IrregularError, ManifestError, LimitError, LookupError, UnicodeDecodeError):
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
    match = _pattern().match
    names: list[str] = []
    codes: dict[tuple[bytes | None, ...], int] = {}
    rows: list[tuple[int, int, int, int]] = []
    before = b""
    for _ in range(count):
        head = data[pos]
        start = pos + 1 if head < _LONG_NAME else pos + 2
        end = start + (head - _SHORT_NAME if head < _LONG_NAME else data[pos + 1])
        name = data[start:end].decode()
        form = data[pos:end]
        # In the order of their encoded bytes, each once, and in the shortest form.
        if form <= before or _text(name) != form or not is_name(name):
            raise IrregularError
        before = form
        found = match(data, end)
        if found is None:
            raise IrregularError
        fields, offset, length, logical, dtype, digest, decoded, dims = found.groups()
        kind = fields, length, logical, dtype, b"" if digest else None, decoded, dims
        names.append(name)
        rows.append(
            (
                codes.setdefault(kind, len(codes)),
                _number(offset),
                *_digest_place(found.start(6), digest),
            )
        )
        pos = found.end()
    kinds = [_kind(*kind) for kind in codes]
    columns = np.array(rows, np.int64).T
    offsets = columns[1]
    lengths = np.array([kind.length for kind in kinds], np.int64)[columns[0]]
    if (offsets % PAGE_2).any() or int(offsets.min()) < PAGE_2:
        raise IrregularError
    if int((offsets + lengths).max()) > blobs_end:
        raise IrregularError
    return _table(data, names, kinds, columns, lengths), pos


def _table(data: bytes, names: list[str], kinds: list[_Kind], columns: Any, lengths: Any) -> Table:
    codes, offsets, digest_starts, digest_lengths = columns
    spellings: dict[tuple[str, str | None], int] = {}
    dims: list[int] = []
    rows = []
    for kind in kinds:
        place = spellings.setdefault(kind.spelling, len(spellings))
        rows.append((place, len(kind.shape), len(dims), kind.is_raw, kind.decoded_length))
        dims += kind.shape
    types, ranks, dim_starts, is_raw, decoded_lengths = np.array(rows, np.int64).T[:, codes]
    return Table(
        names=names,
        offsets=offsets,
        lengths=lengths,
        types=types,
        spellings=tuple(spellings),
        ranks=ranks,
        dims=np.array(dims, np.uint64),
        dim_starts=dim_starts,
        is_raw=is_raw == 1,
        decoded_lengths=decoded_lengths,
        digest_starts=digest_starts,
        digest_lengths=digest_lengths,
        digest_text=data,
        digest_covers_decoded=True,
        is_exact=True,
        packed=_PACKED,
    )


def _digest_place(start: int, item: bytes | None) -> tuple[int, int]:
    """Return where the text of a digest begins that is all of an item, and how long it is."""
    if item is None:
        return 0, 0
    head = 1 if item[0] < _LONG_NAME else 2
    return start + head, len(item) - head


@functools.lru_cache(maxsize=512)  # a model's files have few, and are opened again and again
def _kind(
    fields: bytes,
    length: bytes,
    logical: bytes | None,
    dtype: bytes,
    digest: bytes | None,
    decoded: bytes | None,
    dims: bytes,
) -> _Kind:
    """Return what the items of an object mean that do not differ from one to the next.

    Raises:
        IrregularError: they are not those of a plain object, or break a rule.
        KeyError: likewise.
    """
    optional = (logical is not None) + (digest is not None) + 2 * (decoded is not None)
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
        rb"\xa3" + word["parts"] + rb"\xa1" + word["data"] + rb"([\xa2-\xa6])",
        word["blob"] + rb"\x82(" + _NUMBER + b")(" + _NUMBER + b")",
        b"(?:" + word["type"] + b"(.{2,16}?))?",
        word["dtype"] + b"(.{2,5}?)",
        b"(?:" + word["digest"] + rb"(\x75xxh3:[0-9a-f]{16}|\x78\x47sha256:[0-9a-f]{64}))?",
        b"(?:" + word["encoding"] + word[_PACKED] + word["decoded_length"],
        b"(" + _NUMBER + b"))?",
        word["shape"] + rb"([\x80-\x88]" + _NUMBER + b"*)",
        word["layout"] + word["dense"],
    )
    return re.compile(b"".join(parts), re.DOTALL)
