"""The objects of a reader as named arrays, for export to other formats.

Most formats have only named arrays. A dense object becomes one array, any other object one array
for each of its components. Losses are reported here once for all formats.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from ztensor.errors import UnsupportedError, describe
from ztensor.ext import (
    LAYOUTS,
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    FileObjects,
    ObjectReader,
    Sink,
    TensorObject,
    element_count,
    result_dtype,
)
from ztensor.formats.ahead import Ahead
from ztensor.options import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Lose: TypeAlias = "Callable[[str | None, str], None]"
"""Takes an object that loses something, None for the file, and a sentence on what."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One array of the file that is written.

    Attributes:
        name: its name in that file.
        dtype: storage type.
        type: logical type, or None.
        shape: the dimensions, in elements of the logical type if there is one.
        nbytes: decoded length.
        file: the source file.
        object_name: the object's name in the source.
        role: the component's role.
    """

    name: str
    dtype: str
    type: str | None
    shape: tuple[int, ...]
    nbytes: int
    file: FileObjects
    object_name: str
    role: str

    def in_storage(self) -> Part:
        """Return the same bytes as elements of the storage type.

        A last axis is added if an element consists of several. Arrays of packed elements, and of
        unknown types, become flat.
        """
        logical = None if self.type is None else LOGICAL_TYPES.get(self.type)
        shape = self.shape
        if logical is not None and logical.storage_per_element > 1:
            shape = (*shape, logical.storage_per_element)
        width = STORAGE_TYPES[self.dtype].width
        if element_count(shape) * width != self.nbytes:
            shape = (self.nbytes // width,)
        return dataclasses.replace(self, type=None, shape=shape)


def parts_of(reader: ObjectReader, lose: Lose) -> list[Part]:
    """Return the objects of a reader as arrays, in its order. No data is read.

    Args:
        reader: an open reader, of one file or several.
        lose: called with losses: attributes of objects, layouts, and objects of unknown types or
            encodings.

    Raises:
        FormatError: the size of compressed data had to be counted, and it is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    parts: list[Part] = []
    taken: set[str] = set()
    for name in reader:
        home = reader.objects.part(name)
        tensor_object = home.object(name)
        lose_attributes(lose, name, tensor_object.attributes)
        if tensor_object.format != "dense":
            kind = describe(tensor_object.format)
            lose(name, f"the layout {kind} is lost: each component becomes an array of its own")
        elif beside := [describe(role) for role in tensor_object.components if role != "data"]:
            lose(name, f"components beside 'data' become arrays of their own: {', '.join(beside)}")
        for role, component in tensor_object.components.items():
            is_plain = tensor_object.format == "dense" and role == "data"
            own = name if is_plain else f"{name}.{role}"
            if not is_plain and (own in reader or own in taken):
                lose(name, f"component {describe(role)} is left out: {describe(own)} is taken")
                continue
            taken.add(own)
            try:
                parts.append(part_of(home, name, tensor_object, role, component, own))
            except UnsupportedError as error:
                lose(name, f"component {describe(role)} is left out: {error.message}")
    return parts


def require_known_layout(tensor_object: TensorObject) -> None:
    """Raise if the bytes of an object have no meaning without its layout, which is unknown.

    Raises:
        UnsupportedError: the layout is unknown.
    """
    if tensor_object.is_opaque and tensor_object.format not in LAYOUTS:
        raise UnsupportedError("the layout is unknown, and so is the meaning of the bytes")


def part_of(
    file: FileObjects,
    name: str,
    tensor_object: TensorObject,
    role: str,
    component: Component,
    own: str,
) -> Part:
    """Return a component as an array of its own, flat if the object is not dense.

    Args:
        file: the source file.
        name: the object's name.
        tensor_object: the object.
        role: the component's role.
        component: the component.
        own: the array's name.

    Raises:
        UnsupportedError: its type, encoding or layout is unknown.
        FormatError: the size of compressed data had to be counted, and it is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    require_known_layout(tensor_object)
    result_dtype(component)  # raises for an unknown type
    file.stored(component).encoding()
    nbytes = file.decoded_length(name, role)
    logical, width = component.logical, STORAGE_TYPES[component.dtype].width
    shape = tensor_object.shape
    if tensor_object.format != "dense" or role != "data":
        count = nbytes // width
        if logical is not None:
            count = count * logical.elements_per_storage // logical.storage_per_element
        shape = (count,)
    return Part(own, component.dtype, component.type, shape, nbytes, file, name, role)


def lose_attributes(lose: Lose, name: str | None, attributes: Mapping[str, object] | None) -> None:
    """Report the attributes of an object (or of the file, for None) as lost, if it has any."""
    if attributes:
        owner = "the file's" if name is None else "its"
        keys = ", ".join(map(describe, list(attributes)[:8]))
        lose(name, f"{owner} attributes have no place in the format: {keys}")


class Pouring(Ahead):
    """Writes arrays to a sink; other threads decode the next ones meanwhile.

    Args:
        sink: where the bytes go.
        parts: the arrays, in the order in which they are written.
        progress: called with the bytes of arrays written so far and of all of them.
        threads: how many decode; see `Ahead`.
        times: how often each array is read in a row.
    """

    def __init__(
        self,
        sink: Sink,
        parts: Sequence[Part],
        progress: Callable[[int, int], None] | None,
        threads: int | None,
        *,
        times: int = 1,
    ) -> None:
        keys = [(part.file, part.object_name, part.role) for part in parts for _ in range(times)]
        super().__init__(keys, threads)
        self._sink = sink
        self._report = summed(progress, sum(part.nbytes for part in parts))

    def bytes_of(self, part: Part) -> Iterator[memoryview]:
        """Yield the bytes of an array in chunks, little-endian.

        Raises:
            FormatError: stored bytes are damaged, or a bool is neither 0 nor 1: readers of other
                formats take other bytes for different values.
            SourceError: bytes could not be read.
        """
        file, name, role = part.file, part.object_name, part.role
        return file.with_valid_bools(name, role, self.chunks(file, name, role))

    def write(self, part: Part) -> None:
        """Write an array.

        Raises:
            FormatError: as `bytes_of`.
            SourceError: bytes could not be read or written.
        """
        for chunk in self.bytes_of(part):
            self._sink.write(chunk)
            self._report(chunk.nbytes)
