"""Bytes that have no digest of their own: held to a sum of their format, or to nothing."""

from __future__ import annotations

import bisect
import operator

from ztensor.errors import ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.io.reading.opened import OpenedFile
from ztensor.spec.digest import Sum
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, TensorObject

_offset = operator.attrgetter("offset")


def is_unheld(file: OpenedFile, tensor_object: TensorObject, component: Component) -> bool:
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

    def __init__(self, file: OpenedFile) -> None:
        self._sums = sorted(file.sums, key=_offset)
        self._faults: dict[int, ZTensorError | None] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sums)

    def over(self, component: Component) -> Sum | None:
        """Return the sum over all of a component's stored bytes."""
        number = bisect.bisect_right(self._sums, component.offset, key=_offset) - 1
        found = self._sums[number] if number >= 0 else None
        end = component.offset + component.length
        return None if found is None or end > found.offset + found.length else found

    def fault(self, one: Sum) -> ZTensorError | None:
        """Return what is wrong with the bytes of a sum, or None."""
        if one.offset not in self._faults:
            self._faults[one.offset] = None
            try:
                with foreign_bytes("the component"):
                    one.check()
            except ZTensorError as error:
                self._faults[one.offset] = error
        return self._faults[one.offset]
