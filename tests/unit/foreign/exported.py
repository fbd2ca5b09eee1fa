"""What a module of a format writes of an open file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ztensor.source.stream import StreamSink

if TYPE_CHECKING:
    from ztensor.reading.reader import ObjectReader


def exported(reader: ObjectReader, by: Any) -> tuple[bytes, list[str]]:
    """Return the file that is written, and what it loses."""
    lost: list[str] = []
    buffer = io.BytesIO()
    sink = StreamSink(buffer)
    by.export(reader, sink, lose=lambda _, what: lost.append(what))
    sink.commit()
    return buffer.getvalue(), lost
