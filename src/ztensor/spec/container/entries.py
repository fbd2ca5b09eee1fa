"""The map of objects, written, and attributes: what the emitters of all versions share.

Plain objects of one kind differ in two places only, offset and digest: everything around those is
emitted once for each kind, and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ztensor.errors import NotRepresentableError
from ztensor.spec.model.manifest import Entry, TensorObject, WrittenObjects
from ztensor.spec.wire import cbor
from ztensor.spec.wire.deterministic import ENCODE_DEPTH
from ztensor.spec.wire.record import kind_of

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

    def emit(self, objects: Mapping[str, TensorObject], names: Sequence[str]) -> bytes:
        """Return a map of names and objects.

        Args:
            objects: the objects.
            names: their names in the order they are written.
        """
        entries: Mapping[str, Entry] = objects
        kinds: list[Around] = []
        if isinstance(objects, WrittenObjects):
            entries, kinds = objects.data, [self._around(kind) for kind in objects.kinds]
        parts = [cbor.head(5, len(names))]
        for name in names:
            parts.append(cbor.encode_text(name))
            entry = entries[name]
            if not isinstance(entry, TensorObject):
                number, offset, digest = entry
                before, between, behind = kinds[number]
            elif (data := entry.only_data) is not None and data.encoding == "raw":
                offset, digest = data.offset, data.digest
                before, between, behind = self._around(entry)
            else:
                parts.append(self._emit_object(entry))
                continue
            parts += before, cbor.encode_uint(offset), between, (digest or "").encode(), behind
        return b"".join(parts)

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


def attribute_fields(
    attributes: Mapping[str, object] | None, levels: int
) -> Iterator[tuple[str, bytes]]:
    """Yield names and encoded values, refused where a reader would lose them or find them too deep.

    Args:
        attributes: what to write.
        levels: how many maps and arrays of the manifest the values lie in.
    """
    for key, value in (attributes or {}).items():
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
        yield key, cbor.encode(value, ENCODE_DEPTH - levels)


def refused(version: str, message: str, found: str, section: str) -> NotRepresentableError:
    """Return the error for what a version cannot say."""
    return NotRepresentableError(f"version {version} {message}", found=found, section=section)
