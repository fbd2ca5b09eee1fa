"""Files with a flipped bit."""

from __future__ import annotations

from pathlib import Path

import ztensor


def flip(path: Path, place: int, bits: int = 1) -> None:
    """Flip bits of a byte of a file; a negative place counts from its end."""
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


def flip_object(path: Path, name: str) -> None:
    """Flip a bit of the first byte of an object with one component."""
    with ztensor.open(path) as reader:
        offset = reader.location(name).offset
    flip(path, offset)
