"""Bytes that have no digest of their own: held to a sum of their format, or to nothing."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from ztensor.errors import ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.spec.model.dtype import element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects
    from ztensor.spec.model.manifest import Component, TensorObject


def unchecked_names(objects: Objects) -> Iterator[str]:
    """Yield the objects with bytes that nothing in the files can be held to: no digest, no sum."""
    sums: dict[FileObjects, Sums] = {}
    for name in objects.names:
        file = objects.part(name)
        if file not in sums:
            sums[file] = Sums(file)
        tensor_object = file.object(name)
        if any(
            is_unheld(file, tensor_object, component) and sums[file].over(component) is None
            for component in tensor_object.components.values()
        ):
            yield name


def is_unheld(file: FileObjects, tensor_object: TensorObject, component: Component) -> bool:
    """Return whether a component has bytes, and neither a digest nor an encoding that has one.

    In other formats they may lie in another file, or nobody knows how many they are.
    """
    has_bytes = component.length or (file.format != "zt" and element_count(tensor_object.shape))
    if not has_bytes or component.digest is not None:
        return False
    return not file.stored(component).has_sum()


class Sums:
    """The sums a file has over more than one component, each looked at once.

    Args:
        file: the file.
    """

    def __init__(self, file: FileObjects) -> None:
        self._sums = sorted(file.sums, key=lambda one: one.offset)
        self._starts = [one.offset for one in self._sums]
        self._found: dict[int, ZTensorError | None] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sums)

    def over(self, component: Component) -> int | None:
        """Return the number of the sum over all of a component's stored bytes."""
        number = bisect.bisect_right(self._starts, component.offset) - 1
        if number < 0:
            return None
        one = self._sums[number]
        ends = component.offset + component.length, one.offset + one.length
        return number if ends[0] <= ends[1] else None

    def fault(self, number: int) -> ZTensorError | None:
        """Return what is wrong with the bytes of a sum, or None."""
        if number not in self._found:
            self._found[number] = None
            try:
                with foreign_bytes("the component"):
                    self._sums[number].check()
            except ZTensorError as error:
                self._found[number] = error
        return self._found[number]
