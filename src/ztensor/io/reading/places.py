"""Where the plain tensors of a file are: all that NumPy needs to give one.

Plain is a dense object whose decoded bytes are its elements as NumPy has them. If it is raw, too, a
view is an array over the map, a copy the same over memory that was read, a row an offset more.
Every other object is fetched, checked and decoded; `file.py` does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.buffers import empty_array
from ztensor.errors import ClosedError, ZTensorError
from ztensor.io.reading.component import COMPLEX_ALIGNMENT
from ztensor.spec.layout.base import Array
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.model.objects import Table, TableObjects

if TYPE_CHECKING:
    from ztensor.io.reading.opened import OpenedFile

# Places that are remembered: more are looked up anew.
_MOST_KNOWN = 1 << 16
# All places are found together once so many were asked for, and this part of all.
_FEW, _SHARE = 16, 64


class Place(NamedTuple):
    """A plain tensor.

    Attributes:
        shape: its shape.
        dtype: the type of its elements.
        offset: its first byte in the file.
        length: its bytes on disk, at least one.
        digest: its digest as the file spells it, or None.
        encoding: how the bytes are stored, such as `raw`.
        is_viewable: whether the array may be a view of the file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    length: int
    digest: str | None
    encoding: str
    is_viewable: bool

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array."""
        return element_count(self.shape) * self.dtype.itemsize

    def array(self, memory: memoryview, start: int) -> Array | None:
        """Return the array whose bytes begin there in memory; None where NumPy has none such."""
        try:
            return np.ndarray(self.shape, self.dtype, memory, start)
        except (ValueError, TypeError):
            return None


class _Kind(NamedTuple):
    """What places have in common that differ in offset, length and digest; `step`: see `place`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    encoding: str
    step: int

    def place(self, offset: int, length: int, digest: str | None) -> Place | None:
        """Return a place, whose views begin at multiples of `step`; None without any bytes."""
        shape, dtype, encoding, step = self
        if not length:  # there may be no map of it
            return None
        is_viewable = encoding == "raw" and not offset % step
        return Place._make((shape, dtype, offset, length, digest or None, encoding, is_viewable))


class Places:
    """The plain tensors of one file.

    Args:
        file: the file.
    """

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._objects = file.manifest.objects
        self._source = file.source
        self._most_rank = file.limits.rank
        self._dtypes: dict[tuple[object, ...], np.dtype[Any] | None] = {}
        self._known: dict[str, Place | None] = {}
        self._is_whole = False  # whether all were found together, or cannot be

    # --- Where they are ---------------------------------------------------------------------

    def of(self, name: str) -> Place | None:
        """Return the place of a plain tensor; None for other objects, and for other names.

        Once some were asked for one by one all are found together, in a fifth of the time.
        """
        try:
            return self._known[name]
        except KeyError:
            pass
        except TypeError:  # not even a name
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        if not self._is_whole and _FEW <= len(self._known) >= len(self._objects) // _SHARE:
            self._is_whole = True
            if isinstance(self._objects, TableObjects) and len(self._objects) <= _MOST_KNOWN:
                self._known |= self.every()
                return self.of(name)
        found = self._known[name] = self._of_object(self._objects.get(name))
        return found

    def every(self) -> dict[str, Place | None]:
        """Return the places of all objects by name, in the order of the file, encoded ones too."""
        objects = self._objects
        if not isinstance(objects, TableObjects):
            return {name: self._of_object(one) for name, one in objects.items()}
        found = dict(zip(objects.table.names, self._of_table(objects.table), strict=True))
        if not objects.others:
            return found
        found |= {name: self._of_object(one) for name, one in objects.others.items()}
        return {name: found[name] for name in objects}

    def _of_object(self, found: TensorObject | None) -> Place | None:
        kind = None if found is None else self._kind(found)
        if found is None or kind is None:
            return None
        component = found.components["data"]
        return kind.place(component.offset, component.length, component.digest)

    def _of_table(self, table: Table) -> list[Place | None]:
        """Return the places of all rows of a table."""
        kinds = [
            (self._kind(kind), len(kind.components["data"].digest or "")) for kind in table.kinds
        ]
        text = table.text.decode("latin-1")  # digests in it are ASCII
        rows = zip(
            map(kinds.__getitem__, table.kind_of.tolist()),
            table.offsets.tolist(),
            table.lengths.tolist(),
            table.digests.tolist(),
            strict=True,
        )
        return [
            None if kind is None else kind.place(offset, length, text[start : start + digits])
            for (kind, digits), offset, length, start in rows
        ]

    def _kind(self, found: TensorObject) -> _Kind | None:
        """Return what tells places of such objects; None for objects that are not plain."""
        if found.format != "dense" or len(found.shape) > self._most_rank:
            return None
        component = found.components["data"]
        key = (
            component.dtype,
            component.type,
            component.byte_order,
            component.nonzero_is_true,
            component.is_exact,
        )
        if key not in self._dtypes:
            self._dtypes[key] = native_dtype(component)
        dtype = self._dtypes[key]
        if dtype is None:
            return None
        # By its letter: NumPy takes a microsecond to make the name of a type.
        step = COMPLEX_ALIGNMENT if dtype.char == "D" else 1
        return _Kind(found.shape, dtype, component.encoding, step)

    # --- One of them ------------------------------------------------------------------------

    def view(self, name: str) -> Array | None:
        """Return a plain tensor as a view of the map; None where that takes more.

        With `verify=True` its digest is checked, once.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the file is not what it was.
        """
        place = self.of(name)
        if place is None or not place.is_viewable:
            return None
        source = self._source
        whole = source.view()
        if whole is None:
            return None
        try:
            source.require_unchanged()
            if self._file.verify is True:
                component = self._objects[name].components["data"]
                with self._file.located(name, "data"):
                    self._file.stored(component).check(once=True)
        except ZTensorError as error:
            if not isinstance(error, ClosedError):  # which is so whatever is asked for
                error.locate(file=self._file.name, object_name=name)
            raise
        return place.array(whole, place.offset)

    def copied(self, name: str) -> Array | None:
        """Return a plain tensor as new memory, its digest checked; None for others.

        Raises:
            DigestMismatchError: the bytes do not match their digest.
            SourceError: they could not be read.
        """
        place = self.of(name)
        if place is None or place.encoding != "raw":
            return None
        with self._file.located(name, "data"):
            memory = empty_array((place.length,), np.dtype(np.uint8)).data
            self._file.stored(self._objects[name].components["data"]).fill(memory)
        return place.array(memory, 0)


def native_dtype(component: Component) -> np.dtype[Any] | None:
    """Return the type of elements that decoded bytes are as they are; None where they are not."""
    if component.type is not None and component.logical is None:
        return None
    if not component.is_native():
        return None
    try:
        return result_dtype(component)
    except ZTensorError:
        return None  # reading it says why
