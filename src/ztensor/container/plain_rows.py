"""Objects written, many plain ones at once: what the emitters of 1.x and of 2.x share.

Plain objects of one like differ in two places only, offset and digest: everything around those is
emitted once for each like, and copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ztensor.model.manifest import TensorObject, WrittenObjects
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        pieces = [cbor.head(5, len(names))]
        if not isinstance(objects, WrittenObjects):
            pieces += [cbor.encode_text(name) + self._emit(objects[name]) for name in names]
            return pieces
        rows = objects.rows
        likes = [self._around(like) for like in rows.likes]
        are_rows = names == rows.names
        places = range(len(names)) if are_rows else map(objects.row_of, names)
        for name, row in zip(names, places, strict=True):
            if row is None:
                entry = self._emit(objects[name])
            else:
                before, between, behind = likes[rows.kinds[row]]
                digest = (rows.digests[row] or "").encode("ascii")
                entry = before + cbor.encode_uint(rows.offsets[row]) + between + digest + behind
            pieces.append(cbor.encode_text(name) + entry)
        return pieces

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
