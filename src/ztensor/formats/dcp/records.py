"""Read one record of a `.distcp` file: locate the elements of a chunk, or read a value.

A record is a file of `torch.save` with one tensor or one value. If torch's writer uses safetensors,
each `.distcp` has one safetensors file after the values; the place of all its tensors is its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import Component, Encoding, Source, Stored, TensorObject, Unrepresented
from ztensor.formats import pt, safetensors
from ztensor.formats.base import gather_stored
from ztensor.formats.gathered import Gathered
from ztensor.formats.pt.objects import LONE_TENSOR
from ztensor.formats.pt.values import ElementType
from ztensor.formats.within import Within, moved
from ztensor.formats.zip import (
    LOCAL_MAGIC,
    STORED,
    Entry,
    place,
    read_entries,
    sum_of,
    zip_crc32,
)
from ztensor.limits import Budget, Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_HEAD = 16
_DESCRIBING = ("/data.pkl", "/byteorder")


class Record(NamedTuple):
    """The tensor of a record.

    Attributes:
        tensor: the object; offsets are in the whole source.
        encodings: encodings of its components by name.
        crc: CRC-32 of the bytes of its component, or None.
    """

    tensor: TensorObject
    encodings: Mapping[str, Encoding]
    crc: int | None

    def summed(self, data: Component) -> Component:
        """Return a component with the CRC-32 as the digest, if there is one."""
        return data._replace(digest=None if self.crc is None else zip_crc32(b"", self.crc))

    def strides(self, data: Component, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the bytes between neighbors along each axis; None if strides are not all."""
        encoding = self.encodings.get(data.encoding)
        if data.byte_order == "big" or not isinstance(encoding, Gathered):
            return None
        geometry = encoding.geometry
        if geometry.flags or geometry.stream is not None:
            return None
        strides = iter(geometry.stride)  # without axes of one element
        return tuple(0 if size == 1 else next(strides) for size in sizes)


class Strided(Encoding):
    """The elements of a chunk that are not in C's order, or not without gaps.

    Args:
        name: how components name it.
        width: bytes of an element.
        sizes: the chunk's shape.
        strides: bytes between neighbors along each axis.
    """

    def __init__(
        self, name: str, width: int, sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.name = name
        self._dtype = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
        self._sizes, self._strides = sizes, strides

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly."""
        del limits
        target = np.frombuffer(destination, self._dtype).reshape(self._sizes)
        self.read_box(stored, (0,) * target.ndim, self._sizes, target)

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Array
    ) -> bool:
        """Fill an array of elements as wide as these with a box of the chunk."""
        place = [slice(at, at + count) for at, count in zip(offsets, sizes, strict=True)]
        gather_stored(stored, self._dtype, self._strides, place, target.view(self._dtype))
        return True


class Value(NamedTuple):
    """The value of a record.

    Attributes:
        attributes: by name; a lone value has the name that `pt` gives it.
        tensors: tensors inside of the value.
        left: the loss report.
    """

    attributes: Mapping[str, object]
    tensors: Mapping[str, TensorObject]
    left: Sequence[Unrepresented]


def read_tensor(
    source: Source, name: str, at: int, length: int, end: int, limits: Limits
) -> Record:
    """Return the tensor of a record.

    Args:
        source: the joined files.
        name: the tensor's name.
        at: offset of the record.
        length: its length.
        end: end of its file.
        limits: safety caps.

    Raises:
        FormatError: the record is damaged, or holds no tensor.
        UnsupportedError: its pickle calls a function that tensors do not need.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    if is_safetensors(source, at, end):
        within = Within(source, at, end - at)
        stored = safetensors.project(within, Budget(limits, within.size)).manifest.objects.get(name)
        if stored is None:
            raise FormatError(
                "the safetensors file lacks the tensor",
                reason=Reason.COMPONENT_MISSING,
                found=describe(name),
            )
        return Record(moved(stored, at), {}, None)
    within = Within(source, at, length)
    entries = _entries(within, limits)
    projection = pt.project(within, Budget(limits, length))
    tensor = projection.manifest.objects.get(LONE_TENSOR)
    if tensor is None or len(projection.manifest.objects) != 1:
        raise FormatError(
            "the record of a chunk holds no tensor",
            reason=Reason.COMPONENT_MISSING,
            expected="one tensor",
            found=f"{len(projection.manifest.objects)}",
        )
    return Record(moved(tensor, at), projection.encodings, _crc(within, entries, tensor))


def is_safetensors(source: Source, at: int, end: int) -> bool:
    """Return whether a safetensors file begins here, not a record of `torch.save`.

    Raises:
        SourceError: the file cannot be read.
    """
    return at + _HEAD <= end and bytes(source.read(at, _HEAD))[6:9] == b"\0\0{"


def _entries(source: Source, limits: Limits) -> Mapping[str, Entry]:
    """Return the zip members of a record by name; the CRC-32 of its pickle is compared.

    Raises:
        FormatError: the record is not a zip archive, or damaged.
        SourceError: it cannot be read.
    """
    head = bytes(source.read(0, min(source.size, len(LOCAL_MAGIC))))
    if head.startswith((b"\x80", b"L")):
        return {}  # written with `_use_new_zipfile_serialization=False`
    if head != LOCAL_MAGIC:
        raise FormatError(
            "no record of torch.save begins where .metadata says",
            reason=Reason.FIELD_VALUE,
            found=describe(head),
        )
    entries = read_entries(source, Budget(limits, source.size))
    for name, entry in entries.items():
        if entry.crc and name.endswith(_DESCRIBING):
            *_, check = sum_of(source, entry)
            check()
    return entries


def _crc(source: Source, entries: Mapping[str, Entry], tensor: TensorObject) -> int | None:
    """Return the CRC-32 of the zip member that a component is, None if it is only a part."""
    component = tensor.components.get("data")
    if component is None or not component.length:
        return None
    for entry in entries.values():
        if entry.begin < component.offset < entry.end and entry.crc and entry.method == STORED:
            stored = place(source, entry)
            if (stored.offset, stored.length) == (component.offset, component.length):
                return entry.crc
    return None


def require_same(tensor: TensorObject, element: ElementType, sizes: tuple[int, ...]) -> Component:
    """Return the component of a record's tensor if its shape and type are as expected.

    Raises:
        FormatError: shape or type are not those of `.metadata`.
        UnsupportedError: the tensor is not dense.
    """
    expected = logical_shape(element, sizes)
    if tensor.shape != expected:
        raise FormatError(
            "a chunk has another shape than .metadata says",
            reason=Reason.SIZE_MISMATCH,
            expected=describe(expected, 100),
            found=describe(tensor.shape, 100),
        )
    data = tensor.components.get("data")
    if tensor.format != "dense" or data is None:
        raise UnsupportedError(
            "a chunk of a tensor in several chunks is not dense",
            reason=Reason.UNKNOWN_LAYOUT,
            found=describe(tensor.format),
        )
    if (data.dtype, data.type) != (element.dtype, element.type):
        raise FormatError(
            "a chunk has another type than .metadata says",
            reason=Reason.FIELD_VALUE,
            expected=describe(element.type or element.dtype),
            found=describe(data.type or data.dtype),
        )
    return data


def logical_shape(element: ElementType, size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in elements; torch counts bytes that hold several."""
    if element.per_element > 1 and size:
        return (*size[:-1], size[-1] * element.per_element)
    return size


def read_value(source: Source, at: int, length: int, limits: Limits) -> Value:
    """Return the value of a record.

    Raises:
        FormatError: the record is damaged.
        UnsupportedError: its pickle calls a function that plain values do not need.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    within = Within(source, at, length)
    _entries(within, limits)
    contents = pt.project(within, Budget(limits, length))
    return Value(contents.manifest.attributes or {}, contents.manifest.objects, contents.account())
