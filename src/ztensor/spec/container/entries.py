"""The map of objects, written: what the emitters of 1.x and of 2.x share.

Plain objects of one kind differ in two places only, offset and digest: everything around those is
emitted once for each kind, and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.spec.model.manifest import Entry, TensorObject, WrittenObjects
from ztensor.spec.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Objects that are joined at once: their bytes are still in cache then.
_JOINED = 2048
_MARK = 1 << 63  # an offset that no object has


class Around(NamedTuple):
    """The bytes of an object around its offset and its digest.

    Attributes:
        before: up to the offset.
        between: from there up to the digest's text; all of it where there is no digest.
        behind: what follows the text.
    """

    before: bytes
    between: bytes
    behind: bytes


class ObjectsEmitter:
    """Emits objects; a dense raw one takes 1 us instead of 15, as checkpoints have many of a kind.

    Args:
        emit_object: emits any object.
        place: what the version has before an offset.
    """

    def __init__(self, emit_object: Callable[[TensorObject], bytes], place: bytes) -> None:
        self._emit_object, self._place = emit_object, place
        self._arounds: dict[tuple[object, ...], Around] = {}

    def emit(self, objects: Mapping[str, TensorObject], names: Sequence[str]) -> Iterator[bytes]:
        """Yield a map of names and objects, some thousand objects at a time.

        Args:
            objects: the objects.
            names: their names in the order they are written.
        """
        entries: Mapping[str, Entry] = objects
        kinds: list[Around] = []
        if isinstance(objects, WrittenObjects):
            entries, kinds = objects.entries, [self._around(kind) for kind in objects.kinds]
        yield cbor.head(5, len(names))
        for start in range(0, len(names), _JOINED):
            parts = []
            for name in names[start : start + _JOINED]:
                parts.append(cbor.encode_text(name))
                entry = entries[name]
                if isinstance(entry, TensorObject):
                    component = entry.components.get("data")
                    if component is None or not _is_plain(entry):
                        parts.append(self._emit_object(entry))
                        continue
                    around, offset, digest = self._around(entry), component.offset, component.digest
                else:
                    number, offset, digest = entry
                    around = kinds[number]
                before, between, behind = around
                parts += before, cbor.encode_uint(offset), between, (digest or "").encode(), behind
            yield b"".join(parts)

    def _around(self, plain: TensorObject) -> Around:
        """Return what is around offset and digest of a plain object."""
        component = plain.components["data"]
        digest = (component.digest or "").encode()
        key = (plain.shape, component.dtype, component.type, component.length, len(digest))
        around = self._arounds.get(key)
        if around is None:
            sample = component._replace(offset=_MARK)
            whole = self._emit_object(TensorObject(plain.shape, "dense", {"data": sample}))
            before, rest = whole.split(self._place + cbor.encode_uint(_MARK), 1)
            between, _, behind = rest.partition(digest) if digest else (rest, b"", b"")
            around = self._arounds[key] = Around(before + self._place, between, behind)
        return around


def _is_plain(tensor_object: TensorObject) -> bool:
    """Return whether an object is of a kind."""
    return (
        tensor_object.format == "dense"
        and len(tensor_object.components) == 1
        and tensor_object.attributes is None
        and tensor_object.extra is None
        and all(
            component.encoding == "raw" and component.extra is None and component.shard is None
            for component in tensor_object.components.values()
        )
    )
