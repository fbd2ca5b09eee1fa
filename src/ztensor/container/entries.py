"""The map of objects, written: what the emitters of 1.x and of 2.x share.

Plain objects of one kind differ in two places only, offset and digest: an emitter makes what is
around these once for each kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.model.manifest import Entry, TensorObject, WrittenObjects
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Objects that are joined at once: their bytes are still in cache then.
_JOINED = 2048


class Around(NamedTuple):
    """The bytes of an object around its offset and its digest.

    Attributes:
        before: up to the offset.
        between: from there up to the digest's text; all of it where there is no digest.
        behind: what follows the text.
    """

    before: bytes
    between: bytes
    behind: bytes = b""

    def entry(self, offset: int, digest: str | None) -> bytes:
        """Return an object of the kind."""
        text = (digest or "").encode()
        return b"".join((self.before, cbor.encode_uint(offset), self.between, text, self.behind))


def emit_entries(
    objects: Mapping[str, TensorObject],
    names: Sequence[str],
    around: Callable[[TensorObject], Around],
    emit_object: Callable[[TensorObject], bytes],
) -> Iterator[bytes]:
    """Yield a map of names and objects, some thousand objects at a time.

    Args:
        objects: the objects.
        names: their names in the order they are written.
        around: gives what is around offset and digest of a kind.
        emit_object: gives an object that is of no kind.
    """
    entries: Mapping[str, Entry] = objects
    kinds: list[Around] = []
    if isinstance(objects, WrittenObjects):
        entries, kinds = objects.entries, [around(kind) for kind in objects.kinds]
    yield cbor.head(5, len(names))
    for start in range(0, len(names), _JOINED):
        parts = []
        for name in names[start : start + _JOINED]:
            parts.append(cbor.encode_text(name))
            entry = entries[name]
            if isinstance(entry, TensorObject):
                parts.append(emit_object(entry))
            else:
                number, offset, digest = entry
                before, between, behind = kinds[number]
                parts += before, cbor.encode_uint(offset), between, (digest or "").encode(), behind
        yield b"".join(parts)
