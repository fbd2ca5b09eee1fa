"""The version-neutral manifest: component, object, file.

Where versions differ in meaning, the model has a field (byte order, bytes that a digest covers,
bytes that mean true), so that no code behind the container package asks for the version.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, LogicalType, StorageType

ALIGNMENT = 64
# Upper bounds of the memory of an object with its entry in a `dict`, and of each component, in
# bytes; names and unusually long texts are charged separately.
OBJECT_COST, COMPONENT_COST = 400, 280


class Shape(tuple[int, ...]):
    """A shape as users get it: a tuple that also equals a list, since the 1.2 API gave lists."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return not self == other

    __hash__ = tuple.__hash__


class Shard(NamedTuple):
    """A further file that holds components of this file's objects, in 2.x (2.1 section 7).

    Attributes:
        name: the shard's name in the file's table; not a path.
        size: length in bytes.
        digest: `algorithm:hex` over the whole shard.
        start: offset of the shard in the concatenation of all files of the set; None if no
            component is in it.
    """

    name: str
    size: int
    digest: str
    start: int | None = None


class Component(NamedTuple):
    """One stored run of bytes of an object (1.2 section 1, Component).

    Attributes:
        dtype: storage type's name; an unknown word is kept as written.
        offset: first byte in the file.
        length: bytes on disk, compressed if the encoding compresses.
        type: logical type's name; None if it equals the storage type.
        encoding: `raw`, `zstd`, or an unknown word as written.
        digest: `algorithm:hex` over the stored bytes, as written; None if the manifest has none.
        decoded_length: bytes after decoding, as written; None if the manifest gives no number.
        byte_order: order of the decoded elements; `big` occurs in 0.1 only.
        nonzero_is_true: 0.1 lets any non-zero byte mean true; 1.x fixes 0 and 1.
        digest_may_cover_decoded: 1.1's sentence also allows a digest of the decoded bytes.
        is_exact: the rules of 2.x apply: the digest covers the decoded bytes and may have any
            number of digits, an unknown type is not read as its storage type, a bool is 0 or 1,
            and padding bits are 0.
        shard: the further file that holds the bytes, in 2.x; None for the file itself. With a
            shard, `offset` counts in the concatenation of all files of the set.
        extra: fields that no known version names, kept and ignored; None if there are none.
    """

    dtype: str
    offset: int
    length: int
    type: str | None = None
    encoding: str = "raw"
    digest: str | None = None
    decoded_length: int | None = None
    byte_order: Literal["little", "big"] = "little"
    nonzero_is_true: bool = False
    digest_may_cover_decoded: bool = False
    is_exact: bool = False
    shard: Shard | None = None
    extra: Mapping[str, object] | None = None

    def at(self, offset: int, length: int, digest: str | None) -> Component:
        """Return a copy with another offset, length and digest; half the time of `_replace`."""
        dtype, _, _, logical, encoding, _, *rest = self
        return Component._make((dtype, offset, length, logical, encoding, digest, *rest))

    @property
    def storage(self) -> StorageType | None:
        """Return the storage type; None if the word is unknown."""
        return STORAGE_TYPES.get(self.dtype)

    @property
    def logical(self) -> LogicalType | None:
        """Return the logical type; None if there is none or the word is unknown."""
        return None if self.type is None else LOGICAL_TYPES.get(self.type)

    @property
    def width(self) -> int | None:
        """Return the bytes that an element fills, 1 if it shares one; None for an unknown type."""
        storage, logical = self.storage, self.logical
        if storage is None or logical is None or logical.dtype != self.dtype:
            return storage and storage.width
        is_packed = logical.elements_per_storage > 1
        return storage.width * (1 if is_packed else logical.storage_per_element)

    @property
    def has_free_bools(self) -> bool:
        """Return whether the elements are bools and any non-zero byte means true (0.1)."""
        return self.nonzero_is_true and self.dtype == "bool"

    @property
    def has_checked_bools(self) -> bool:
        """Return whether the elements are bools and a byte other than 0 and 1 is refused (2.x)."""
        return self.is_exact and self.dtype == "bool"

    def is_native(self, *, packed: bool = False) -> bool:
        """Return whether the decoded bytes are valid elements in this machine's memory unchanged.

        Args:
            packed: accept elements that share a byte: torch has such types, NumPy has not.
        """
        storage, logical = self.storage, self.logical
        return (
            storage is not None
            and (self.byte_order == sys.byteorder or storage.width == 1)
            and not self.has_free_bools
            and not self.has_checked_bools
            and (packed or logical is None or logical.elements_per_storage == 1)
        )

    @property
    def known_decoded_length(self) -> int | None:
        """Return the decoded length in bytes; None if the manifest alone does not give it."""
        return self.length if self.encoding == "raw" else self.decoded_length

    def known_count(self, per_entry: int = 1) -> int | None:
        """Return the number of entries; None if the manifest alone does not give it.

        An entry is one logical element; without a logical type, `per_entry` storage elements.
        """
        length, storage, logical = self.known_decoded_length, self.storage, self.logical
        if length is None or storage is None:
            return None
        count = length // storage.width
        if logical is not None:
            return count * logical.elements_per_storage // logical.storage_per_element
        return count // per_entry if per_entry else 0


class TensorObject(NamedTuple):
    """One named object (1.2 section 1, Object).

    Attributes:
        shape: logical dimensions; `()` is a scalar.
        format: the layout's name; an unknown word is kept as written.
        components: role to component.
        attributes: the object's own key-value pairs; None if it has none.
        extra: fields that no known version names, kept and ignored; None if there are none.
        is_opaque: the layout is unknown, and without it the types of the components are too. Only
            in 0.1, whose `dtype` describes the tensor; since 1.0 each component has its own.
        entries_once: positions of a sparse object are distinct, and the columns of each row
            ascend (2.x). 1.x allows any order and adds up repeated positions.
    """

    shape: tuple[int, ...]
    format: str
    components: Mapping[str, Component]
    attributes: Mapping[str, object] | None = None
    extra: Mapping[str, object] | None = None
    is_opaque: bool = False
    entries_once: bool = False

    @property
    def only_data(self) -> Component | None:
        """Return the component of a plain dense object; None if the object has anything more.

        Plain: one component in this file, no attributes, no unknown fields.
        """
        data = self.components.get("data")
        if data is None or len(self.components) > 1 or self.format != "dense":
            return None
        others = self.attributes, self.extra, data.extra, data.shard
        return data if others == (None, None, None, None) else None

    @property
    def stored_nbytes(self) -> int:
        """Return the sum of the stored lengths of all components, in bytes."""
        return sum(component.length for component in self.components.values())


Entry: TypeAlias = "TensorObject | tuple[int, int, str | None]"
"""An object; or the index of its template, its offset and its digest."""


class WrittenObjects(UserDict[str, Any]):
    """Objects by name, in the order they are written; a small plain object is only a tuple.

    Building a `TensorObject` for a small tensor takes longer than writing its bytes.

    Attributes:
        kinds: templates: dense objects of one raw component. The objects of a template differ
            only in offset and digest, and either all of them have a digest or no object has.
        data: name to object, or to the tuple that completes its template.
    """

    data: dict[str, Entry]

    def __init__(self, objects: Mapping[str, TensorObject] | None = None) -> None:
        self.kinds: list[TensorObject] = []
        self.data = dict(objects or {})

    def __getitem__(self, name: str) -> TensorObject:
        """Return an object; it is built if `data` has only its tuple."""
        entry = self.data[name]
        if isinstance(entry, TensorObject):
            return entry
        number, offset, digest = entry
        template = self.kinds[number]
        component = template.components["data"]
        return template._replace(
            components={"data": component.at(offset, component.length, digest)}
        )


_NO_SHARDS: Mapping[str, Shard] = {}


class Commit(NamedTuple):
    """Our writer's root field `commit`: the end of one state of the file.

    Attributes:
        prev: length of the file before this commit, 0 for a new file.
        end: length of the file after this commit.
    """

    prev: int
    end: int


class Manifest(NamedTuple):
    """The content of one file, independent of its version.

    Attributes:
        version: the version text as written, `0.1.0` for files of that container.
        objects: name to object, in the order of the file.
        attributes: the file's own key-value pairs; None if it has none.
        commit: the writer's commit record; None if the file has none.
        extra: fields that no known version names, kept and ignored; None if there are none.
        shards: name to shard, as the file's table lists them; only shards with a `start` are used.
    """

    version: str
    objects: Mapping[str, TensorObject]
    attributes: Mapping[str, object] | None = None
    commit: Commit | None = None
    extra: Mapping[str, object] | None = None
    shards: Mapping[str, Shard] = _NO_SHARDS

    def joined(
        self, name: str, size: int, digest: str, objects: Mapping[str, TensorObject]
    ) -> Manifest:
        """Return the manifest with the objects of another file added, which becomes its shard.

        Args:
            name: the shard's name in the table.
            size: length of that file in bytes.
            digest: `algorithm:hex` over that whole file.
            objects: name to object; offsets count in that file.
        """
        shard = Shard(name, size, digest, start=0)
        moved = {}
        for key, tensor_object in objects.items():
            parts = tensor_object.components.items()
            components = {role: part._replace(shard=shard) for role, part in parts}
            moved[key] = tensor_object._replace(components=components)
        return self._replace(objects={**self.objects, **moved}, shards={**self.shards, name: shard})


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """Return the first multiple of an alignment at or after `offset` (1.2 section 4, Alignment)."""
    return -(-offset // alignment) * alignment
