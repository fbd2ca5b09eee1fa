"""`StoredArray`: one component as an array that is read only where it is indexed.

Every layout's lazy slices are made of these: a dense object is one, a sparse one three.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from ztensor.buffers import empty_array
from ztensor.encoding import ENCODINGS
from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    LimitError,
    Reason,
    ZTensorError,
    describe,
)
from ztensor.layout.elements import is_native, result_dtype, storage_dtype, typed_array
from ztensor.model.dtype import LOGICAL_TYPES, element_count
from ztensor.model.manifest import Component
from ztensor.reading.runs import WHOLE_BYTES, PartReader, RunReader, StreamReader
from ztensor.reading.selection import picked, plan, select
from ztensor.source.at_once import AtOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.layout.base import Array
    from ztensor.model.manifest import TensorObject
    from ztensor.reading.component import ReadInto
    from ztensor.reading.file import FileObjects
    from ztensor.reading.selection import Piece, Selection


class _Elements(NamedTuple):
    """How a component's elements lie in its decoded bytes: `per_unit` of them in `width` bytes."""

    dtype: np.dtype[Any]
    width: int
    per_unit: int
    is_native: bool  # they lie there as NumPy has them

    def nbytes(self, count: int) -> int:
        return -(-count // self.per_unit) * self.width


def _elements(component: Component) -> _Elements:
    if component.type is not None and component.type not in LOGICAL_TYPES:
        return _look_up(component)  # a file may name any number of them, and one may be registered
    return _known(
        component.dtype,
        component.type,
        component.byte_order,
        component.nonzero_is_true,
        component.is_exact,
    )


@functools.cache
def _known(
    dtype: str,
    type: str | None,
    byte_order: Any,
    nonzero_is_true: bool,  # noqa: FBT001
    is_exact: bool,  # noqa: FBT001
) -> _Elements:
    return _look_up(
        Component(
            dtype,
            0,
            0,
            type,
            byte_order=byte_order,
            nonzero_is_true=nonzero_is_true,
            is_exact=is_exact,
        )
    )


def _look_up(component: Component) -> _Elements:
    dtype, logical = result_dtype(component), component.logical
    per_unit = 1 if logical is None else logical.elements_per_storage
    width = dtype.itemsize if per_unit == 1 else storage_dtype(component).itemsize
    return _Elements(dtype, width, per_unit, is_native(component))


class StoredArray:
    """One component as an array of a shape; indexing it reads what the index needs.

    Args:
        file: where it lies; indexing takes it to be open.
        name: the object's name.
        tensor_object: the object.
        role: the component's.
        shape: the shape its elements are seen in.
        entries: as `Layout.expected_length` takes it.
        copy: True gives no views of the file.

    Attributes:
        dtype: the element type of what indexing gives.
        shape: as given.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the logical type is defined on another storage type.
    """

    __slots__ = (
        "_component",
        "_copy",
        "_decoded",
        "_elements",
        "_entries",
        "_file",
        "_name",
        "_object",
        "_role",
        "_stored",
        "dtype",
        "shape",
    )

    def __init__(
        self,
        file: FileObjects,
        name: str,
        tensor_object: TensorObject,
        role: str,
        shape: tuple[int, ...],
        entries: int | None = None,
        *,
        copy: bool = False,
    ) -> None:
        self._file = file
        self._name = name
        self._object = tensor_object
        self._role = role
        self._entries = entries
        self._copy = copy
        self._component = component = tensor_object.components[role]
        self._stored = file.stored(component)
        self._elements = _elements(component)
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
        mapped = None
        if self._elements.is_native and not self._copy and gives_view(key, len(self.shape)):
            mapped = self._mapped()
        if mapped is not None:
            try:
                return mapped[key]
            except (IndexError, TypeError, ValueError, OverflowError):
                pass  # the way below says what is wrong with the key
        return self.owned(key)

    def owned(self, key: Any) -> Any:
        """Return what indexing gives, as memory of its own.

        Raises:
            ZTensorError: what indexing raises.
        """
        return self._attempt(functools.partial(self._read, key), key)

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
        take = self._attempt(functools.partial(self._asked, key, at_once), key)
        at_once.later(lambda: put(self._attempt(take, key)))

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
        self._file.require_open()
        try:
            whole = self._stored.view()
        except ZTensorError as error:
            error.locate(file=self._file.name, object_name=self._name, component=self._role)
            raise
        if whole is None:
            return None
        try:
            array: Array = np.ndarray(self.shape, self.dtype, whole, self._component.offset)
        except (ValueError, TypeError):  # NumPy cannot hold the shape, or the sizes differ
            return None
        return array if array.nbytes == self._component.length else None

    def _read(self, key: Any) -> Any:
        """Return the part that `key` selects, as memory of its own."""
        selection = select(key, self.shape)
        if not selection.is_whole and self._decoded is None:
            block = empty_array(tuple(map(len, selection.wanted)), self.dtype)
            if block.size and self._stored.read_box(selection.wanted, block):
                return block[selection.key]
        read_into = self._reading()
        if read_into is None or selection.is_whole:  # only the whole can be checked by its digest
            whole = self._whole(is_kept=read_into is None)
            # What is kept for the next index must not change with what the caller writes.
            part = whole[key]
            return part.copy() if whole is self._decoded else part
        return self._read_part(selection, read_into)

    def _read_part(self, selection: Selection, read_into: ReadInto) -> Any:
        block = empty_array(tuple(map(len, selection.wanted)), self.dtype)
        if block.size and not self._read_rows(read_into, selection, block):
            if self._is_read_at_once(read_into):
                at_once = AtOnce(read_into.source)
                self._read_pieces(selection, block, read_into.by(at_once), at_once)
                at_once.end()
            else:
                self._read_pieces(selection, block, read_into)
                if isinstance(read_into, StreamReader):
                    read_into.finish()
        return block[selection.key]

    def _read_pieces(
        self,
        selection: Selection,
        block: Array,
        read_into: ReadInto,
        at_once: AtOnce | None = None,
    ) -> None:
        """Fill a block with what is wanted; with `at_once` it is full when that has ended."""
        for piece in plan(self.shape, selection.wanted, self.dtype.itemsize):
            target = block[piece.target]
            if piece.window is None:
                self._fill(read_into, piece.start, target.reshape(-1))
                continue
            window = empty_array((element_count(piece.window),), self.dtype)
            self._fill(
                read_into,
                piece.start,
                window[piece.lead : piece.lead + piece.stop - piece.start],
            )
            if at_once is not None:
                at_once.later(functools.partial(_pick, target, window, piece))
            else:
                _pick(target, window, piece)

    def _asked(self, key: Any, at_once: AtOnce) -> Callable[[], Any]:
        """Ask for the bytes that an index needs, and return what makes the part of them."""
        selection = select(key, self.shape)
        if selection.is_whole:
            plain = self._file.places().of(self._name)
            if plain is not None and plain[3] == element_count(self.shape) * self.dtype.itemsize:
                whole = empty_array(self.shape, self.dtype)
                memory = whole.reshape(-1).view(np.uint8).data
                at_once.add(plain[2], memory)
                return functools.partial(self._checked, whole, memory, key)
        else:
            read_into = self._reading()
            if self._is_read_at_once(read_into):
                block = empty_array(tuple(map(len, selection.wanted)), self.dtype)
                if block.size:
                    self._read_pieces(selection, block, read_into.by(at_once), at_once)
                return functools.partial(block.__getitem__, selection.key)
            if isinstance(read_into, RunReader):
                held = read_into.ask(self._places(selection), at_once)
                if held is not None:
                    return functools.partial(self._read_part, selection, held)
        value = self._read(key)
        return lambda: value

    def _checked(self, whole: Array, memory: memoryview, key: Any) -> Any:
        self._stored.require_filled(memory)
        return whole[key]

    def _places(self, selection: Selection) -> Iterator[tuple[int, int]]:
        """Yield where the decoded bytes that are wanted begin and end."""
        elements = self._elements
        if not all(map(len, selection.wanted)):
            return
        for piece in plan(self.shape, selection.wanted, self.dtype.itemsize):
            first = piece.start // elements.per_unit * elements.width
            yield first, elements.nbytes(piece.stop)

    def _is_read_at_once(self, read_into: ReadInto | None) -> TypeGuard[PartReader]:
        """Return whether all parts are asked for before one is there."""
        return (
            isinstance(read_into, PartReader)
            and self._elements.is_native
            and read_into.prefers_many
        )

    def _read_rows(self, read_into: ReadInto, selection: Selection, block: Array) -> bool:
        """Read whole rows of a component in runs, if that is what is wanted; say whether."""
        if not isinstance(read_into, RunReader) or not self._elements.is_native:
            return False
        rows, *others = selection.wanted
        if any(
            len(indices) != length for indices, length in zip(others, self.shape[1:], strict=True)
        ):
            return False
        return read_into.rows(rows, block.reshape(len(rows), -1).view(np.uint8))

    def _fill(self, read_into: ReadInto, start: int, target: Array) -> None:
        """Fill a flat, contiguous array with the elements from number `start` on."""
        elements = self._elements
        if elements.is_native:
            read_into(start * elements.width, target.view(np.uint8).data)
            return
        unit, lead = divmod(start, elements.per_unit)
        offset, stop = unit * elements.width, elements.nbytes(start + target.size)
        data = empty_array((stop - offset,), np.dtype(np.uint8))
        read_into(offset, data.data)
        target[...] = typed_array(self._component, data)[lead : lead + target.size]

    def _whole(self, *, is_kept: bool) -> Array:
        """Return all of it, read and checked as a whole."""
        array = self._decoded
        if array is not None:
            return array
        if self._object.format == "dense" and self._role == "data":
            array = self._file.array(self._name, copy=True)
        else:
            array = self._file.component(
                self._name, self._object, self._role, self._entries, copy=True
            )
            if array.size != element_count(self.shape):
                raise LayoutError(
                    "the component has another number of elements than the object needs",
                    reason=Reason.LAYOUT_COUNT,
                    expected=f"shape {describe(self.shape, 60)}",
                    found=f"{array.size} elements",
                )
            array = array.reshape(self.shape)
        if is_kept and self._component.encoding != "raw":
            self._decoded = array
        return array

    def _reading(self) -> ReadInto | None:
        """Return what reads any of the decoded bytes; None where only the whole can be read."""
        component = self._component
        count = 0 if self._decoded is not None else element_count(self.shape)
        needed, known = self._elements.nbytes(count), component.known_decoded_length
        is_guess = known is None and component.type is not None and component.logical is None
        if not count or not self.shape or is_guess or known not in (None, needed):
            return None  # nothing to gain; or the sizes differ, and the reader says so
        stored = self._stored
        found = stored.reading(needed, (self._name, self._role))
        # Of another format's long component a part is taken from the stream, and nothing is kept.
        is_long = found is None and needed > WHOLE_BYTES and component.encoding not in ENCODINGS
        if is_long and stored.encoding().is_streamed(stored.stored()):
            return StreamReader(stored.checked_pieces(needed))
        return found


def _pick(target: Array, window: Array, piece: Piece) -> None:
    target[...] = picked(window.reshape(piece.window or ()), piece.picks)


def gives_view(key: Any, rank: int) -> bool:
    """Return whether NumPy gives a view for an index of an array, and not elements of it."""
    integers, is_array = 0, False
    for part in key if isinstance(key, tuple) else (key,):
        if part is Ellipsis:
            is_array = True
        elif type(part) is int or isinstance(part, np.integer):
            integers += 1
        elif part is not None and type(part) is not slice:
            return False
    return is_array or integers < rank
