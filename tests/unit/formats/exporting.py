"""A reader's content as a file of another format, in memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from ztensor.io.source.stream import StreamSink

Losses = list[tuple[str | None, str]]


def exported(export: Callable[..., object], reader: Any, **options: Any) -> tuple[bytes, Losses]:
    """Return the file that a format's `export` writes, and what it loses."""
    lost: Losses = []
    buffer = io.BytesIO()
    sink = StreamSink(buffer)
    export(reader, sink, lose=lambda name, what: lost.append((name, what)), **options)
    sink.commit()
    return buffer.getvalue(), lost
