"""`StoredArray`: one component as a lazy array; indexing reads only the elements of the index.

The lazy slices of every layout consist of these: one for a dense object, three for a sparse one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
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
from ztensor.io.reading.parts import Fill, fill_from_stream, needed_bytes
from ztensor.io.reading.selection import gives_view, select
from ztensor.io.source.base import AtOnce
from ztensor.spec.layout.base import Array
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import TensorObject

_WHOLE_BYTES = 64 << 20  # decoded components up to this size are cached whole


class StoredArray:
    """One component as an array of a shape; indexing reads only the elements of the index.

    Args:
        file: the file of the object; it must be open for indexing.
        name: the object's name.
        tensor_object: the object's entry of the manifest.
        role: the component's role.
        shape: the shape of the elements; None is flat, and decodes the component now to count them.
        entries: see `Layout.expected_length`.
        copy: True returns no views of the file.

    Attributes:
        dtype: the element type.
        shape: the shape.

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
        copy: bool,
    ) -> None:
        if shape is None:
            entries = file.component(name, tensor_object, role, copy=True).size
            shape = (entries,)
        self._file, self._name, self._object = file, name, tensor_object
        self._role, self._entries, self._copy = role, entries, copy
        self._component = tensor_object.components[role]
        self._stored = file.stored(self._component)
        self.dtype, self.shape = result_dtype(self._component), shape
        # The whole decoded component, kept for the next index. Threads may decode it twice.
        self._decoded: Array | None = None

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy returns for this index of the array.

        Mapped raw data is a view wherever NumPy returns a view. Everything else is read into new
        memory without touching a map.

        Raises:
            ClosedError: the file is closed.
            ArgumentTypeError: `key` is not an index.
            ArgumentValueError: `key` does not fit the shape.
            FormatError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded, or the result does not fit into memory.
            SourceError: the bytes could not be read.
        """
        if not self._copy and gives_view(key, len(self.shape)):
            with self._about(key):
                if self._stored.is_in_place(self._nbytes) and self._stored.view() is not None:
                    return self._whole(copy=False)[key]
        return self.owned(key)

    def owned(self, key: Any) -> Any:
        """Return the result of an index in new memory.

        Raises:
            ZTensorError: as indexing.
        """
        results: list[Any] = []
        with self._about(key):
            at_once = AtOnce(self._file.source)
            self._ask(key, at_once, results.append)
            at_once.end()
        return results[0]

    def ask(self, key: Any, at_once: AtOnce, put: Callable[[Any], None]) -> None:
        """Request the result of an index in new memory; `put` gets it when `at_once` ends.

        If the needed stored bytes are not known, the component is read immediately.

        Args:
            key: the index.
            at_once: collects the requests and reads the file.
            put: called with the result.

        Raises:
            ZTensorError: as indexing; here, or when `at_once` reads.
        """
        at_once.about = functools.partial(self._about, key)
        with self._about(key):
            self._ask(key, at_once, put)

    @contextlib.contextmanager
    def _about(self, key: Any) -> Iterator[None]:
        """Return a context that converts the errors of an index to ours."""
        with self._file.located(self._name, self._role):
            self._file.require_open()
            try:
                yield
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

    def _ask(self, key: Any, at_once: AtOnce, put: Callable[[Any], None]) -> None:
        """Request the bytes of an index, or read the whole component if it has no entry points."""
        wanted, place, is_whole = select(key, self.shape)
        is_far = self._file.source.prefers_long_reads
        if is_whole and not (is_far and self._stored.is_in_place(self._nbytes)):
            put(self._part_of_whole(key, is_kept=False))  # a whole read compares the digest
            return
        block = empty_array(tuple(map(len, wanted)), self.dtype)
        is_empty = self._decoded is not None or not block.size
        if is_empty or not self._stored.read_box(wanted, block):
            fill = self._filler()
            if fill is None:
                put(self._part_of_whole(key, is_kept=True))
                return
            if block.size:
                fill(wanted, block, at_once)
                if is_whole:
                    memory = block.reshape(-1).view(np.uint8).data
                    at_once.later(functools.partial(self._stored.require_filled, memory))
        at_once.later(lambda: put(block[place]))

    @property
    def _nbytes(self) -> int:
        return element_count(self.shape) * self.dtype.itemsize

    def _part_of_whole(self, key: Any, *, is_kept: bool) -> Any:
        """Read and check the whole component, and return the result of an index."""
        whole = self._decoded
        if whole is None:
            whole = self._whole(copy=True)
            if is_kept and self._component.encoding != "raw":
                self._decoded = whole
        # A copy: the caller may write to the result, and the cache must not change.
        return whole[key].copy() if whole is self._decoded else whole[key]

    def _whole(self, *, copy: bool) -> Array:
        if self._object.format == "dense" and self._role == "data":
            return self._file.array(self._name, copy=copy)
        array = self._file.component(self._name, self._object, self._role, self._entries, copy=copy)
        if array.size != element_count(self.shape):
            raise LayoutError(
                "the component has a wrong number of elements",
                reason=Reason.LAYOUT_COUNT,
                expected=f"shape {describe(self.shape, 60)}",
                found=f"{array.size} elements",
            )
        return array.reshape(self.shape)

    def _filler(self) -> Fill | None:
        """Return a function that fills arrays with slices; None if only a whole read works."""
        component, stored = self._component, self._stored
        known = component.known_decoded_length
        is_guess = known is None and component.type is not None and component.logical is None
        if self._decoded is not None or not self._nbytes or not self.shape or is_guess:
            return None  # nothing to gain
        needed = needed_bytes(component, self.shape)
        if known not in (None, needed):
            return None  # a whole read raises the error
        fill = stored.filler(self.shape, (self._name, self._role))
        if fill is not None or needed <= _WHOLE_BYTES or self._file.is_common(component.encoding):
            return fill
        # A long component of another format is streamed for each slice, without a cache.
        if not stored.encoding().is_streamed(stored.stored()):
            return None
        pieces = stored.checked_pieces(needed)
        return functools.partial(fill_from_stream, pieces, component, self.shape)
