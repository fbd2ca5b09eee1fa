"""The version-neutral manifest: component, object, file.

Where versions differ in meaning, the model has a field (byte order, what a digest covers, what a
true byte is), so that nothing behind the container package asks for the version.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, LogicalType, StorageType

ALIGNMENT = 64
# Bytes of memory that an object takes at most with its place in a `dict`, and each component:
# without names, and without texts longer than those of real files.
OBJECT_COST, COMPONENT_COST = 400, 280


class Shape(tuple[int, ...]):
    """A shape as users get it: a tuple that also equals the list of it, which the 1.2 API gave."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return not self == other

    __hash__ = tuple.__hash__


class Shard(NamedTuple):
    """Another file that parts of objects lie in, as a file of 2.x names it (2.1 section 7).

    Attributes:
        name: its name in the file's table; no path.
        size: its length in bytes.
        digest: `algorithm:hex` over all of it.
        start: its first byte where all files are laid behind one another, or None where no
            object needs it.
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
        length: bytes on disk, compressed where the encoding compresses.
        type: logical type's name, or None where it equals the storage type.
        encoding: `raw`, `zstd`, or an unknown word as written.
        digest: `algorithm:hex` over the stored bytes, as written, or None.
        decoded_length: bytes after decoding as the manifest gives them, or None.
        byte_order: order of the decoded elements; `big` occurs in 0.1 only.
        nonzero_is_true: 0.1 lets any non-zero byte mean true; 1.x fixes 0 and 1.
        digest_may_cover_decoded: 1.1's sentence can be read as the digest of decoded bytes.
        is_exact: as in 2.x: the digest is that of the decoded bytes, whatever its number of digits,
            an unknown type is not read as its storage type, a bool is 0 or 1, and bits that belong
            to no element are 0.
        shard: the other file the bytes lie in, as in 2.x, or None; `offset` is then one of all
            files laid behind one another.
        extra: fields no known version names, kept and ignored; None where there are none.
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
        """Return the same elsewhere in the file; half the time of `_replace`."""
        dtype, _, _, logical, encoding, _, *rest = self
        return Component._make((dtype, offset, length, logical, encoding, digest, *rest))

    @property
    def storage(self) -> StorageType | None:
        """Return the storage type, or None where the word is unknown."""
        return STORAGE_TYPES.get(self.dtype)

    @property
    def logical(self) -> LogicalType | None:
        """Return the logical type, or None where there is none or it is unknown."""
        return None if self.type is None else LOGICAL_TYPES.get(self.type)

    @property
    def width(self) -> int | None:
        """Return the bytes of an element, or of those that share one; None where it is unknown."""
        storage, logical = self.storage, self.logical
        if storage is None or logical is None or logical.dtype != self.dtype:
            return storage and storage.width
        return storage.width * logical.storage_per_element

    @property
    def has_free_bools(self) -> bool:
        """Return whether its elements are bools of which any byte but 0 is true."""
        return self.nonzero_is_true and self.dtype == "bool"

    @property
    def has_checked_bools(self) -> bool:
        """Return whether its elements are bools of which any byte but 0 and 1 is refused."""
        return self.is_exact and self.dtype == "bool"

    def is_native(self, *, packed: bool = False) -> bool:
        """Return whether decoded bytes are elements as NumPy has them in this machine's memory.

        Args:
            packed: whether elements that share a byte count too, as they do for torch.
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
        """Return the decoded length in bytes as far as the manifest alone tells it."""
        return self.length if self.encoding == "raw" else self.decoded_length

    def known_count(self, per_entry: int = 1) -> int | None:
        """Return how many entries it holds as far as the manifest tells.

        An entry is `per_entry` storage elements, or one logical element where there is a logical
        type.
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
        attributes: the object's own key-value pairs, or None.
        extra: fields no known version names, kept and ignored; None where there are none.
        is_opaque: only the layout tells what the stored bytes are. So it is in 0.1, whose `dtype`
            is the tensor's and not the blob's; since 1.0 every component has a type of its own.
        entries_once: of a sparse one no position comes twice, and the columns of each row rise:
            so 2.x has it, where 1.x takes any order and adds up.
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
        """Return the component of a dense object that says nothing else; None of any other."""
        data = self.components.get("data")
        if data is None or len(self.components) > 1 or self.format != "dense":
            return None
        others = self.attributes, self.extra, data.extra, data.shard
        return data if others == (None, None, None, None) else None

    @property
    def stored_nbytes(self) -> int:
        """Return the bytes of all components as they are stored."""
        return sum(component.length for component in self.components.values())


Entry: TypeAlias = "TensorObject | tuple[int, int, str | None]"
"""An object; or the number of its kind, its offset and its digest."""


class WrittenObjects(UserDict[str, Any]):
    """Objects by name, in the order they are written; small plain ones take a tuple each.

    Making a `TensorObject` of a small tensor takes longer than writing it.

    Attributes:
        kinds: dense objects of one raw component. Objects of one kind differ in offset and digest
            alone, and either all have a digest or none has.
        data: by name an object, or what tells it from its kind.
    """

    data: dict[str, Entry]

    def __init__(self, objects: Mapping[str, TensorObject] | None = None) -> None:
        self.kinds: list[TensorObject] = []
        self.data = dict(objects or {})

    def __getitem__(self, name: str) -> TensorObject:
        """Return an object, which is made where there is only its tuple."""
        entry = self.data[name]
        if isinstance(entry, TensorObject):
            return entry
        number, offset, digest = entry
        kind = self.kinds[number]
        like = kind.components["data"]
        return kind._replace(components={"data": like.at(offset, like.length, digest)})


_NO_SHARDS: Mapping[str, Shard] = {}


class Commit(NamedTuple):
    """Our writer's root field `commit`: where a state of the file ends.

    Attributes:
        prev: length of the file before this commit, 0 for a new file.
        end: length of the file after this commit.
    """

    prev: int
    end: int


class Manifest(NamedTuple):
    """What one file holds, whatever version wrote it.

    Attributes:
        version: the version text as written, `0.1.0` for files of that container.
        objects: name to object, in the order of the file.
        attributes: the file's own key-value pairs, or None.
        commit: the writer's commit record, or None where the file carries none.
        extra: fields no known version names, kept and ignored; None where there are none.
        shards: the other files its table names, by name; only those with a `start` are needed.
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
        """Return the manifest with the objects of another file, which it then names.

        Args:
            name: what the table calls the file.
            size: its length in bytes.
            digest: `algorithm:hex` over all of it.
            objects: their components at offsets of that file.
        """
        shard = Shard(name, size, digest, start=0)
        moved = {}
        for key, found in objects.items():
            parts = found.components.items()
            components = {role: part._replace(shard=shard) for role, part in parts}
            moved[key] = found._replace(components=components)
        return self._replace(objects={**self.objects, **moved}, shards={**self.shards, name: shard})


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """Return the first multiple of an alignment at or after `offset` (1.2 section 4, Alignment)."""
    return -(-offset // alignment) * alignment
