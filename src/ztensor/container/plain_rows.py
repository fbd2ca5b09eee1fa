"""Many plain objects written at once: what the emitters of 1.x and of 2.x share.

Objects of one like differ in two places only, offset and digest: everything around those is the
emitter's, made once for each like.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.wire import cbor, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ztensor.model.manifest import PlainRows, TensorObject, WrittenObjects

# Objects that are put together at once: what they take is still in cache when it is joined.
_EMITTED = 2048


class Around(NamedTuple):
    """The bytes of an object around its offset and its digest.

    Attributes:
        before: up to the offset.
        between: from there up to the digits of the digest.
        behind: what follows them; all of it where there is no digest.
    """

    before: bytes
    between: bytes
    behind: bytes = b""


def emit_rows(
    objects: WrittenObjects,
    names: Sequence[str],
    around: Callable[[TensorObject], Around],
    emit_object: Callable[[TensorObject], bytes],
) -> Iterable[bytes]:
    """Yield a map of names and objects, most of them rows, some thousand at a time.

    Args:
        objects: the objects.
        names: their names in the order they are written.
        around: gives what is around offset and digest of a like.
        emit_object: gives an object that is no row.
    """
    rows = objects.rows
    likes = [around(like) for like in rows.likes]
    is_in_order = names == rows.names
    entries: list[str] = []
    if not is_in_order:
        of_rows = _entries(rows, likes, range(len(rows)))
        entries = [
            emit_object(objects[name]).decode("latin-1") if row is None else of_rows[row]
            for name, row in zip(names, map(objects.row_of, names), strict=True)
        ]
    yield cbor.head(5, len(names))
    for start in range(0, len(names), _EMITTED):
        part = range(len(names))[start : start + _EMITTED]
        heads, texts = columns.encode_texts(names[part.start : part.stop])
        some = _entries(rows, likes, part) if is_in_order else entries[part.start : part.stop]
        parts = chain.from_iterable(zip(heads, texts, some, strict=True))
        yield "".join(parts).encode("latin-1")


def _entries(rows: PlainRows, likes: Sequence[Around], part: range) -> list[str]:
    """Return what follows the names of some rows, as text of one character a byte.

    Rows of one like, with offsets of one length, differ in some columns only; those are filled
    for all of them at once.

    Args:
        rows: all rows.
        likes: what is around offset and digest, of each like.
        part: the rows wanted.
    """
    window = slice(part.start, part.stop)
    kinds = np.array(rows.kinds[window])
    offsets = np.array(rows.offsets[window], np.uint64)
    entries = [""] * len(part)
    for kind in np.unique(kinds).tolist():
        before, between, behind = likes[kind]
        of_kind = np.flatnonzero(kinds == kind)
        for places, encoded in columns.encode_uints(offsets[of_kind]):
            some = of_kind[places].tolist()
            digests = "".join(rows.digests[part[place]] or "" for place in some).encode("ascii")
            parts: list[bytes | columns.Bytes] = [
                before,
                encoded,
                between,
                np.frombuffer(digests, np.uint8).reshape(len(some), -1),
                behind,
            ]
            made = columns.side_by_side(len(some), parts)
            if len(made) == len(entries):
                return made
            for place, entry in zip(some, made, strict=True):
                entries[place] = entry
    return entries
