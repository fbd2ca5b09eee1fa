"""Public metadata of one object: shape, types and components, without data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.errors import ObjectNotFoundError, describe
from ztensor.interactive import Shown
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.model.manifest import Component, Shape, TensorObject
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class ComponentMetadata(Mapping[str, Any]):
    """Extent, types and encoding of one component; also a mapping of its fields.

    Attributes:
        dtype: long name of the storage type, such as `float32`; an unknown word as written.
        type: name of the logical type, or None.
        offset: first byte in the file, or in the shard.
        length: bytes on disk.
        encoding: `raw`, `zstd`, or an unknown word as written.
        digest: `algorithm:hex` over the stored bytes, or None.
        uncompressed_length: the decoded length if the manifest states it, or None.
        shard: the name of its 2.x shard; None if it is in the file itself.
    """

    dtype: str
    type: str | None
    offset: int
    length: int
    encoding: str
    digest: str | None
    uncompressed_length: int | None
    shard: str | None = None

    def __getitem__(self, field: str) -> Any:
        """Return a field by its name.

        Raises:
            ObjectNotFoundError: no field of that name; also a `KeyError`.
        """
        if field not in self.__dataclass_fields__:
            raise ObjectNotFoundError(
                "a component has no such field",
                expected=f"one of {', '.join(self.__dataclass_fields__)}",
                found=describe(field),
            )
        return getattr(self, field)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields; `shard` only if it is not None."""
        fields = list(self.__dataclass_fields__)
        return iter(fields if self.shard is not None else fields[:-1])

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(list(iter(self)))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


@dataclasses.dataclass(frozen=True, slots=True)
class TensorMetadata(Shown):
    """One object of a file.

    Attributes:
        name: the object's name.
        dtype: long name of the main component's storage type (`data`, `values`,
            `packed_weight`); of an unknown layout, the first component's.
        shape: logical dimensions; `()` is a scalar. It also equals a list of the same integers.
        format: the layout's name.
        type: name of the main component's logical type, or None.
        components: role to component.
        attributes: the object's own key-value pairs, possibly empty.
        nbytes: decoded bytes of all components; the stored length for components whose decoded
            length is unknown.
        stored_nbytes: bytes of all components on disk.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...]
    format: str
    _: dataclasses.KW_ONLY
    type: str | None = None
    components: Mapping[str, ComponentMetadata] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nbytes: int = 0
    stored_nbytes: int = 0


def describe_object(name: str, tensor_object: TensorObject) -> TensorMetadata:
    """Return the public metadata of an object's manifest entry."""
    layout = LAYOUTS.get(tensor_object.format)
    nbytes = stored_nbytes = 0
    described: dict[str, ComponentMetadata] = {}
    for role, component in tensor_object.components.items():
        decoded = component.known_decoded_length
        if decoded is None and layout is not None:
            decoded = layout.expected_length(tensor_object, role, None)
        nbytes += component.length if decoded is None else decoded
        stored_nbytes += component.length
        described[role] = _describe(component)
    first = next(iter(described), "")
    main = described.get(first if layout is None else layout.main_role)
    return TensorMetadata(
        name=name,
        shape=Shape(tensor_object.shape),
        dtype=None if main is None else main.dtype,
        type=None if main is None else main.type,
        format=tensor_object.format,
        components=described,
        attributes=dict(with_dicts(tensor_object.attributes)) if tensor_object.attributes else {},
        nbytes=nbytes,
        stored_nbytes=stored_nbytes,
    )


def _describe(component: Component) -> ComponentMetadata:
    shard, storage = component.shard, component.storage
    return ComponentMetadata(
        dtype=component.dtype if storage is None else storage.long_name,
        type=component.type,
        offset=component.offset - (0 if shard is None else shard.start or 0),
        length=component.length,
        encoding=component.encoding,
        digest=component.digest,
        uncompressed_length=component.decoded_length,
        shard=None if shard is None else shard.name,
    )
