"""What writes a manifest: a class for each version, and the map of objects that they share.

A version says which fields an object has there. Plain objects of one kind differ in two places
only, offset and digest: everything around those is emitted once for each kind, and copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztensor.errors import NotRepresentableError, describe
from ztensor.spec.container.framing import FORM_1, Form
from ztensor.spec.model.manifest import Entry, Manifest, TensorObject, WrittenObjects
from ztensor.spec.wire import cbor
from ztensor.spec.wire.deterministic import ENCODE_DEPTH, encode_text, head
from ztensor.spec.wire.record import kind_of

_MARK = 1 << 63  # an offset that no object has


class Emitter:
    """Writes manifests of one version.

    Attributes:
        version: the version text written into files.
        magic: the first bytes of a file.
        form: what its blobs are like.
        place: what is before the offset of a blob.
        levels: in how many items of the manifest an object is.
    """

    version: str
    magic: bytes
    form: Form = FORM_1
    place: bytes
    levels = 2

    def __init__(self) -> None:
        self._arounds: dict[tuple[object, ...], tuple[bytes, bytes, bytes]] = {}

    def require_name(self, name: str) -> None:
        """Raise `NotRepresentableError` where no object can be called so."""
        if not name.isascii():
            cbor.encode(name)

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise `NotRepresentableError` where the version cannot say what the object is."""
        self._emit_object(tensor_object)

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise `NotRepresentableError` where the version cannot hold a file's attributes."""
        cbor.encode(named(attributes), ENCODE_DEPTH - 1)

    def entry(self, tensor_object: TensorObject) -> Mapping[str, Any]:
        """Return the fields of an object, as the version has them.

        Raises:
            NotRepresentableError: the version has none that say what the object is.
        """
        raise NotImplementedError

    def object_of(self, entry: Mapping[str, Any]) -> TensorObject:
        """Return the object that fields are read as: the reverse of `entry`, which 2.x has.

        Raises:
            NotRepresentableError: readers of the version would refuse it.
        """
        raise NotImplementedError

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return everything that follows the last blob: the same manifest gives the same bytes.

        Args:
            manifest: what to write.
            manifest_offset: where the result will lie in the file.
            prev: length of the file before this state, 0 for a new one.
        """
        raise NotImplementedError

    def _emit_objects(
        self, objects: Mapping[str, TensorObject], names: Sequence[str]
    ) -> cbor.Encoded:
        """Return a map of names and objects; a plain one takes 1 us instead of 15."""
        entries: Mapping[str, Entry] = objects
        kinds: list[tuple[bytes, bytes, bytes]] = []
        if isinstance(objects, WrittenObjects):
            entries, kinds = objects.data, [self._around(kind) for kind in objects.kinds]
        parts = [head(cbor.MAP, len(names))]
        for name in names:
            parts.append(encode_text(name))
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
            parts += before, head(0, offset), between, (digest or "").encode(), behind
        return cbor.Encoded(b"".join(parts))

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        return cbor.encode(self.entry(tensor_object), ENCODE_DEPTH - self.levels)

    def _around(self, plain: TensorObject) -> tuple[bytes, bytes, bytes]:
        """Return what is before a plain object's offset, from there to its digest, and behind."""
        component = plain.components["data"]
        digest = (component.digest or "").encode()
        key = (plain.shape, component.dtype, component.type, component.length, len(digest))
        around = self._arounds.get(key)
        if around is None:
            sample = component._replace(offset=_MARK)
            whole = self._emit_object(TensorObject(plain.shape, "dense", {"data": sample}))
            before, rest = whole.split(self.place + head(0, _MARK), 1)
            between, _, behind = rest.partition(digest) if digest else (rest, b"", b"")
            around = self._arounds[key] = before + self.place, between, behind
        return around


def named(attributes: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return attributes whose names are all text: a reader would lose the others.

    Raises:
        NotRepresentableError: one has another name.
    """
    for key in attributes or ():
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
    return None if attributes is None else dict(attributes)


def with_unknown(
    known: Mapping[str, object], extra: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the fields that are there, and those that no version names in order behind them.

    Args:
        known: all fields of the version, None for those that are absent.
        extra: fields that another writer put there.

    Raises:
        NotRepresentableError: one of those would get a meaning.
    """
    fields = {key: value for key, value in known.items() if value is not None}
    for key, value in sorted(extra.items()) if extra else ():
        if key in known:
            raise NotRepresentableError(
                "the version has a field of its own of that name", found=describe(key)
            )
        fields[key] = value
    return fields


def refused(version: str, message: str, found: str, section: str) -> NotRepresentableError:
    """Return the error for what a version cannot say."""
    return NotRepresentableError(f"version {version} {message}", found=found, section=section)
