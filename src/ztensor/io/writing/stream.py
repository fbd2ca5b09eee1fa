"""A dense object that is written in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.io.tensor import as_array
from ztensor.io.writing.blob import Blob, FrameBlob
from ztensor.io.writing.planning import Draft, require_written_bools
from ztensor.spec.layout.elements import Blocks
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import TensorObject

if TYPE_CHECKING:
    import numpy as np

    from ztensor.accepted import TensorLike
    from ztensor.spec.layout.base import Array


class _Owner(Protocol):
    """The writer of the file that the object goes to."""

    draft: Draft

    @property
    def state(self) -> str: ...
    def abort(self) -> None: ...
    def _end_stream(self, name: str, tensor_object: TensorObject) -> None: ...


class ObjectSink:
    """Takes one dense object's elements in pieces; made by `Writer.stream`.

    Attributes:
        name: the object's name.
        shape: its shape.
        dtype: the element type that pieces must have.
    """

    def __init__(
        self,
        writer: _Owner,
        name: str,
        plan: TensorObject,
        dtype: np.dtype[Any],
        blob: Blob | FrameBlob,
    ) -> None:
        self.name = name
        self.shape: tuple[int, ...] = plan.shape
        self.dtype = dtype
        self._writer, self._plan, self._blob = writer, plan, blob
        self._missing = element_count(plan.shape)
        self._is_open = True

    def write(self, piece: TensorLike, *, flat: bool = False) -> None:
        """Store the next rows: an array of shape `(k, *shape[1:])`, or one row of `shape[1:]`.

        Args:
            piece: a NumPy array or a torch tensor of the object's element type, in any byte order
                and memory order. The caller may change it afterwards.
            flat: True takes an array of any shape as elements in C order, also within a row.

        Raises:
            ArgumentTypeError: the piece has another element type.
            ArgumentValueError: it does not consist of whole rows, or has more elements than are
                missing. Nothing of it is stored, and the sink stays open.
            FormatError: a bool for a file of 2.x is neither 0 nor 1.
            ClosedError: the sink or its writer is closed.
            SourceError: a write failed. The writer is then aborted.
        """
        self._require_open()
        try:
            array = as_array("data", piece)
            self._require_next(array, flat=flat)
            if self._writer.draft.emitter.form.is_exact:
                require_written_bools("data", array)
        except ZTensorError as error:
            error.locate(object_name=self.name)
            raise
        try:
            for block in Blocks.of(array):
                self._blob.write(block)
        except BaseException:
            self._is_open = False
            self._writer.abort()
            raise
        self._missing -= array.size

    def _require_next(self, array: Array, *, flat: bool) -> None:
        """Raise if a piece cannot be the next one: its elements would get wrong positions."""
        if array.dtype.newbyteorder("=") != self.dtype:
            raise ArgumentTypeError(
                "the piece has another element type",
                expected=self.dtype.name,
                found=array.dtype.name,
            )
        row = self.shape[1:]
        if not flat and row != array.shape and (row != array.shape[1:] or not self.shape):
            error = ArgumentValueError(
                "the piece does not consist of whole rows",
                expected=f"shape {describe(('k', *row)).replace(repr('k'), 'k')}",
                found=describe(array.shape),
            )
            error.hint = "write(piece, flat=True) stores any elements in C order"
            raise error
        if not flat and self._missing % max(element_count(row), 1):
            raise ArgumentValueError(
                "a piece written with flat=True ended within a row; go on with flat=True",
                found=f"{self._missing} elements missing, rows of {element_count(row)}",
            )
        if array.size > self._missing:
            raise ArgumentValueError(
                "the piece has more elements than are missing",
                expected=f"at most {self._missing} more",
                found=str(array.size),
            )
        packed = self._plan.components["data"].logical
        in_byte = 1 if packed is None else packed.elements_per_storage
        if array.size % in_byte and array.size != self._missing:
            raise ArgumentValueError(
                "a piece of packed elements must fill whole bytes",
                expected=f"a multiple of {in_byte} elements",
                found=str(array.size),
            )

    def close(self) -> None:
        """End the object; the writer can write others again.

        Raises:
            UsageError: elements are missing; the sink stays open.
            SourceError: a write failed. The writer is then aborted.
        """
        self._require_open()
        if self._missing:
            raise UsageError(
                "elements are missing",
                object_name=self.name,
                expected=f"{element_count(self.shape)} for shape {describe(self.shape)}",
                found=f"{self._missing} fewer",
            )
        self._is_open = False
        try:
            component = self._blob.finish(self._plan.components["data"])
        except BaseException:
            self._writer.abort()
            raise
        made = self._plan._replace(components={"data": component})
        self._writer._end_stream(self.name, made)

    def _require_open(self) -> None:
        if not self._is_open or self._writer.state != "open":
            raise ClosedError("the stream is closed", object_name=self.name)

    def __enter__(self) -> Self:
        """Return the sink itself."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close, or abort the whole writer after an exception."""
        if kind is not None:
            self._is_open = False
            self._writer.abort()
        elif self._is_open:
            self.close()
