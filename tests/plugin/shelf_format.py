"""The format `.lines`: one float32 a line, each of 16 characters, behind the word LINES."""

from typing import Any

import numpy as np

from ztensor import Limits
from ztensor.ext import (
    Component,
    Encoding,
    Format,
    Manifest,
    ObjectReader,
    Projection,
    Sink,
    Source,
    Stored,
    TensorObject,
)
from ztensor.limits import Budget


class Text(Encoding):
    """Numbers as text."""

    name = "lines"

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill a buffer with the decoded bytes."""
        del limits
        text = bytes(stored.read(0, stored.length))
        destination[:] = np.array(text.split(), np.float32).tobytes()


def project(source: Source, budget: Budget) -> Projection:
    """Parse a file."""
    del budget
    count = (source.size - 6) // 16
    data = Component("f32", 6, source.size - 6, encoding="lines", decoded_length=4 * count)
    objects = {"array": TensorObject((count,), "dense", {"data": data})}
    return Projection(Manifest("", objects), {"lines": Text()}, tuple)


def export(
    reader: ObjectReader, sink: Sink, *, lose: Any, progress: Any = None, threads: Any = None
) -> int:
    """Write the first object of a reader as a file."""
    del progress, threads
    first, *others = reader
    for name in others:
        lose(name, "a file has one array")
    sink.write(b"LINES\n")
    for value in np.ravel(reader[first]):
        sink.write(b"%15.7g\n" % value)
    return 1


LINES = Format("Lines", (".lines",), lambda look: look.head.startswith(b"LINES\n"), __name__)
