"""Objects written, many plain ones at once: what the emitters of 1.x and of 2.x share.

Plain objects of one like differ in two places only, offset and digest: everything around those is
emitted once for each like, and copied.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.model.manifest import TensorObject, WrittenObjects
from ztensor.wire import cbor, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ztensor.model.manifest import PlainRows

# Objects that are put together at once: what they take is still in cache when it is joined.
_EMITTED = 2048
_MARK = 1 << 63  # an offset that no object has


class Around(NamedTuple):
    """The bytes of an object around its offset and its digest.

    Attributes:
        before: up to the offset.
        between: from there up to the digest.
        behind: what follows it; all of it is in `between` where there is no digest.
    """

    before: bytes
    between: bytes
    behind: bytes


class PlainEmitter:
    """Emits objects; a dense raw one takes 1 us instead of 15, as checkpoints have many of a like.

    Args:
        emit_any: emits any object.
        place: what the version has before an offset.
    """

    def __init__(self, emit_any: Callable[[TensorObject], bytes], place: bytes) -> None:
        self._emit_any, self._place = emit_any, place
        self._likes: dict[tuple[object, ...], Around] = {}

    def emit_all(self, objects: Mapping[str, TensorObject], names: Sequence[str]) -> list[bytes]:
        """Return a map of names and objects, in pieces.

        Args:
            objects: the objects.
            names: their names in the order they are written.
        """
        if isinstance(objects, WrittenObjects) and objects.rows:
            return [cbor.head(5, len(names)), *self._emit_rows(objects, names)]
        return cbor.map_parts((name, self._emit(objects[name])) for name in names)

    def _emit(self, tensor_object: TensorObject) -> bytes:
        component = tensor_object.components.get("data")
        is_plain = (
            tensor_object.format == "dense"
            and component is not None
            and len(tensor_object.components) == 1
            and component.encoding == "raw"
            and component.extra is None
            and component.shard is None
            and tensor_object.attributes is None
            and tensor_object.extra is None
        )
        if component is None or not is_plain:
            return self._emit_any(tensor_object)
        before, between, behind = self._around(tensor_object)
        digest = (component.digest or "").encode("ascii")
        return before + cbor.encode_uint(component.offset) + between + digest + behind

    def _around(self, like: TensorObject) -> Around:
        """Return what is around offset and digest of a plain object."""
        component = like.components["data"]
        digest = (component.digest or "").encode("ascii")
        key = (like.shape, component.dtype, component.type, component.length, len(digest))
        around = self._likes.get(key)
        if around is None:
            sample = replace(component, offset=_MARK)
            whole = self._emit_any(TensorObject(like.shape, "dense", {"data": sample}))
            before, rest = whole.split(self._place + cbor.encode_uint(_MARK), 1)
            between, _, behind = rest.partition(digest) if digest else (rest, b"", b"")
            around = self._likes[key] = Around(before + self._place, between, behind)
        return around

    def _emit_rows(self, objects: WrittenObjects, names: Sequence[str]) -> Iterator[bytes]:
        """Yield names and objects, most of them rows, some thousand at a time."""
        rows = objects.rows
        likes = [self._around(like) for like in rows.likes]
        is_in_order = names == rows.names
        entries: list[str] = []
        if not is_in_order:
            of_rows = _entries(rows, likes, range(len(rows)))
            entries = [
                self._emit(objects[name]).decode("latin-1") if row is None else of_rows[row]
                for name, row in zip(names, map(objects.row_of, names), strict=True)
            ]
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
