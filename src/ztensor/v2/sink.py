"""The bytes of an object by the calls of the 2.x releases: in chunks, or as one buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    UsageError,
    describe,
)
from ztensor.typing import ObjectSink
from ztensor.v2.raising import releasing


@releasing
class Sink:
    """Takes the bytes of an object in chunks, its parts in the order of their names.

    Made by `Writer.stream`. A dense tensor of one part is written directly; other objects are kept
    in memory until they are complete.
    """

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, int],
        done: Callable[[dict[str, bytearray]], None],
        direct: ObjectSink | None = None,
    ) -> None:
        self._name, self._done, self._direct = name, done, direct
        self._missing = {role: sizes[role] for role in sorted(sizes, key=str.encode)}
        self._data = {role: bytearray() for role in self._missing}
        self._written = 0
        self._is_closed = False

    @property
    def part(self) -> str | None:
        """Return the part that the next bytes belong to; None if all parts are complete."""
        return next((role for role, missing in self._missing.items() if missing), None)

    @property
    def written(self) -> int:
        """Return the number of bytes taken."""
        return self._written

    def write(self, chunk: Any) -> None:
        """Take more bytes.

        Raises:
            ValueError: more bytes come than were declared.
            BufferError: the chunk is not contiguous.
        """
        self._require_open()
        data = bytes_of(chunk)
        if data.nbytes > sum(self._missing.values()):
            raise ArgumentValueError(
                "there are more bytes than were declared", object_name=self._name
            )
        self._written += data.nbytes
        for role, missing in self._missing.items():
            taken, data = data[:missing], data[missing:]
            self._missing[role] -= taken.nbytes
            self._data[role] += taken
        if self._direct is not None:
            kept, dtype = self._data["data"], self._direct.dtype
            whole = len(kept) // dtype.itemsize * dtype.itemsize
            self._direct.write(np.frombuffer(bytes(kept[:whole]), dtype), flat=True)
            del kept[:whole]

    def close(self) -> None:
        """Finish the object.

        Raises:
            ValueError: bytes are missing. The writer writes nothing else before they come.
        """
        self._require_open()
        part = self.part
        if part is not None:
            raise UsageError(
                "bytes of the streamed object are missing",
                object_name=self._name,
                component=part,
                found=f"{self._missing[part]} too few",
            )
        self._is_closed = True
        self._done(self._data)

    def __enter__(self) -> Self:
        """Return the sink itself."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish the object, unless an exception was raised."""
        if kind is None and not self._is_closed:
            self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the sink is closed", object_name=self._name)


def bytes_of(data: Any) -> memoryview:
    """Return contiguous memory as bytes, without a copy.

    Raises:
        TypeError: the data is not a buffer.
        BufferError: the data is not contiguous.
    """
    try:
        view = memoryview(data)
    except TypeError as error:
        raise ArgumentTypeError(
            "data must be a buffer, such as bytes or an array", found=describe(data, 40)
        ) from error
    except ValueError:  # the buffer protocol has no name for the dtype
        view = memoryview(data.view(np.uint8))
    if not view.c_contiguous:
        raise NotContiguousError("data must be contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"")


class NotContiguousError(ArgumentValueError, BufferError):
    """Data is not contiguous."""
