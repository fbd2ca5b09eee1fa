"""HDF5 files, made by h5py in memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest


def made(fill: Callable[[Any], object], **options: Any) -> bytes:
    """Return the bytes of a file; `fill` takes the open one, `options` are of `h5py.File`."""
    h5py: Any = pytest.importorskip("h5py", reason="h5py, which writes it, is not installed")

    buffer = io.BytesIO()
    with h5py.File(buffer, "w", **options) as file:
        fill(file)
    return buffer.getvalue()
