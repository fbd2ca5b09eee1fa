"""`StoredArray`: one component as an array that is read only where it is indexed.

Every layout's lazy slices are made of these: a dense object is one, a sparse one three.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ztensor.buffers import empty_array
from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    LimitError,
    Reason,
    ZTensorError,
    describe,
)
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.filling import Elements, fill
from ztensor.io.reading.runs import Parts, StreamReader
from ztensor.io.reading.selection import select
from ztensor.io.source.base import AtOnce
from ztensor.spec.layout.base import Array
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import TensorObject

_WHOLE_BYTES = 64 << 20  # decoded, of a component that is kept whole for any part of it


class _Located(AtOnce):
    """Reads that others gather: what waits for them raises errors that say what it is about.

    Args:
        at_once: gathers them.
        attempt: does some work, and completes its errors.
    """

    def __init__(self, at_once: AtOnce, attempt: Callable[[Callable[[], Any]], Any]) -> None:
        self._at_once, self._attempt = at_once, attempt

    def add(self, offset: int, target: memoryview) -> None:
        """Ask for bytes."""
        self._at_once.add(offset, target)

    def later(self, work: Callable[[], None]) -> None:
        """Do something once what was asked for so far is there."""
        self._at_once.later(lambda: self._attempt(work))


class StoredArray:
    """One component as an array of a shape; indexing it reads what the index needs.

    Args:
        file: where it is; indexing takes it to be open.
        name: the object's name.
        tensor_object: the object.
        role: the component's.
        shape: the shape its elements are seen in; None for all of them in a row, decoded now to
            count them.
        entries: as `Layout.expected_length` takes it.
        copy: True gives no views of the file.

    Attributes:
        dtype: the element type of what indexing gives.
        shape: as given.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the logical type is defined on another storage type.
    """

    def __init__(
        self,
        file: FileObjects,
        name: str,
        tensor_object: TensorObject,
        role: str,
        shape: tuple[int, ...] | None,
        entries: int | None = None,
        *,
        copy: bool = False,
    ) -> None:
        if shape is None:
            entries = file.component(name, tensor_object, role, copy=True).size
            shape = (entries,)
        self._file, self._name, self._object = file, name, tensor_object
        self._role, self._entries, self._copy = role, entries, copy
        self._component = tensor_object.components[role]
        self._stored = file.stored(self._component)
        self._elements = Elements.of(self._component)
        self.dtype = self._elements.dtype
        self.shape = shape
        # What had to be decoded as a whole, for the next index. Threads may do it twice.
        self._decoded: Array | None = None

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy returns for this index of the array.

        Raw data that is mapped gives views where NumPy does; everything else is read into new
        memory, and no map is touched.

        Raises:
            ClosedError: the file is closed.
            ArgumentTypeError: it is no index.
            ArgumentValueError: it does not fit the shape.
            FormatError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded, or the result does not fit into memory.
            SourceError: the bytes could not be read.
        """
        if not self._copy and gives_view(key, len(self.shape)):
            whole = self._attempt(self._mapped, key)
            if whole is not None:
                return whole[key]
        return self.owned(key)

    def owned(self, key: Any) -> Any:
        """Return what indexing gives, as memory of its own.

        Raises:
            ZTensorError: what indexing raises.
        """

        def work() -> Any:
            at_once = AtOnce(self._file.source)
            take = self._asked(key, at_once)
            at_once.end()
            return take()

        return self._attempt(work, key)

    def ask(self, key: Any, at_once: AtOnce, put: Callable[[Any], None]) -> None:
        """Ask for what indexing gives, as memory of its own, which `put` gets later.

        Where it is not known which stored bytes are needed, they are read at once.

        Args:
            key: the index.
            at_once: what reads the file.
            put: called with the part.

        Raises:
            ZTensorError: what indexing raises; here, or when `at_once` reads.
        """
        located = _Located(at_once, functools.partial(self._attempt, key=key))
        take = self._attempt(functools.partial(self._asked, key, located), key)
        located.later(lambda: put(take()))

    def _attempt(self, work: Callable[[], Any], key: Any) -> Any:
        """Return what `work` does for an index; what it raises is an error of ours."""
        with self._file.located(self._name, self._role):
            self._file.require_open()
            try:
                return work()
            except ZTensorError:
                raise
            except (MemoryError, OverflowError) as error:
                raise LimitError(
                    "the result is larger than this machine or NumPy can hold; index a part of it",
                    reason=Reason.LIMIT_DECODED,
                    expected=f"less of shape {describe(self.shape, 60)} of {self.dtype.name}",
                    found=describe(key, 60),
                ) from error
            except (IndexError, ValueError) as error:
                raise ArgumentValueError(
                    f"the index does not fit: {error}",
                    expected=f"an index into shape {describe(self.shape, 60)}",
                    found=describe(key, 60),
                ) from error

    def _mapped(self) -> Array | None:
        """Return the whole as a view of the file, or None where it cannot be one."""
        component = self._component
        whole = self._stored.view() if self._elements.is_native else None
        if whole is None:
            return None
        try:
            array: Array = np.ndarray(self.shape, self.dtype, whole, component.offset)
        except (ValueError, TypeError):  # NumPy cannot hold the shape, or the sizes differ
            return None
        return array if array.nbytes == component.length else None

    def _asked(self, key: Any, at_once: AtOnce) -> Callable[[], Any]:
        """Ask for the bytes that an index needs, and return what makes the part of them."""
        selection = select(key, self.shape)
        if selection.is_whole and not self._is_asked_whole():  # it alone can be held to its digest
            return self._part_of_whole(key, is_kept=False)
        block = empty_array(tuple(map(len, selection.wanted)), self.dtype)
        part = functools.partial(block.__getitem__, selection.key)
        if block.size and self._decoded is None and self._stored.read_box(selection.wanted, block):
            return part
        reading = self._reading()
        if reading is None:
            return self._part_of_whole(key, is_kept=True)
        if block.size:
            fill(reading, self._component, self.shape, selection.wanted, block, at_once)
            if isinstance(reading, StreamReader):
                reading.finish()
            if selection.is_whole:
                memory = block.reshape(-1).view(np.uint8).data
                at_once.later(functools.partial(self._stored.require_filled, memory))
        return part

    def _is_asked_whole(self) -> bool:
        """Return whether the whole may be asked for with others, and checked when it is there."""
        nbytes = element_count(self.shape) * self.dtype.itemsize
        return self._file.source.prefers_long_reads and self._stored.is_in_place(nbytes)

    def _part_of_whole(self, key: Any, *, is_kept: bool) -> Callable[[], Any]:
        """Return what gives a part of the whole, which is read and checked now."""
        whole = self._decoded
        if whole is None:
            whole = self._whole()
            if is_kept and self._component.encoding != "raw":
                self._decoded = whole
        found = whole[key]
        # What is kept for the next index must not change with what the caller writes.
        return found.copy if whole is self._decoded else lambda: found

    def _whole(self) -> Array:
        if self._object.format == "dense" and self._role == "data":
            return self._file.array(self._name, copy=True)
        array = self._file.component(self._name, self._object, self._role, self._entries, copy=True)
        if array.size != element_count(self.shape):
            raise LayoutError(
                "the component has another number of elements than the object needs",
                reason=Reason.LAYOUT_COUNT,
                expected=f"shape {describe(self.shape, 60)}",
                found=f"{array.size} elements",
            )
        return array.reshape(self.shape)

    def _reading(self) -> Parts | None:
        """Return what reads any of the decoded bytes; None where only the whole can be read."""
        component, stored = self._component, self._stored
        count = 0 if self._decoded is not None else element_count(self.shape)
        needed, known = self._elements.nbytes(count), component.known_decoded_length
        is_guess = known is None and component.type is not None and component.logical is None
        if not count or not self.shape or is_guess or known not in (None, needed):
            return None  # nothing to gain; or the sizes differ, and the reader says so
        found = stored.reading(needed, (self._name, self._role))
        # Of another format's long component a part is taken from the stream, and nothing is kept.
        is_long = found is None and needed > _WHOLE_BYTES and not stored.has_common_encoding
        if is_long and stored.encoding().is_streamed(stored.stored()):
            return StreamReader(stored.checked_pieces(needed))
        return found


def gives_view(key: Any, rank: int) -> bool:
    """Return whether NumPy gives a view for an index of an array, and not elements of it."""
    if type(key) is slice:
        return rank > 0
    integers, is_array = 0, False
    for part in key if isinstance(key, tuple) else (key,):
        if part is Ellipsis:
            is_array = True
        elif type(part) is int or isinstance(part, np.integer):
            integers += 1
        elif part is not None and type(part) is not slice:
            return False
    return is_array or integers < rank
