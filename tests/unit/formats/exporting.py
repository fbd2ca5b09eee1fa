"""The objects of a reader as a file of another format, in memory."""

from __future__ import annotations

import io
from typing import Any

from ztensor.ext import FORMATS
from ztensor.io.source.stream import StreamSink

Losses = list[tuple[str | None, str]]


def exported(kind: str, reader: Any, **options: Any) -> tuple[bytes, Losses]:
    """Return the bytes of a file of a format with the objects of a reader, and the losses."""
    lost: Losses = []
    buffer = io.BytesIO()
    sink = StreamSink(buffer)
    FORMATS[kind].loaded().export(
        reader, sink, lose=lambda name, what: lost.append((name, what)), **options
    )
    sink.commit()
    return buffer.getvalue(), lost
