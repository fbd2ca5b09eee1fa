"""Build valid and invalid files of 2.x from the specification alone.

    file = File2()
    part = file.part(np.arange(4.0))
    data = file.seal({"objects": {"w": dense(part, [4])}})

Fields are written unchecked. `dense`, `part` and `seal` return valid ones; to break a rule, change
their results.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.ext import ALGORITHMS, cbor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAGIC = bytes.fromhex("895A54320D0A1A0A")
PAGE = 4096
_SHORT = {"float": "f", "int": "i", "uint": "u"}


class File2:
    """A file in the making.

    Args:
        alignment: blobs begin at multiples of it.
    """

    def __init__(self, alignment: int = PAGE) -> None:
        self._alignment = alignment
        self.data = bytearray(MAGIC)

    def blob(self, data: bytes) -> list[int]:
        """Append a blob; return its offset and length."""
        self.data += bytes(-len(self.data) % self._alignment)
        offset = len(self.data)
        self.data += data
        return [offset, len(data)]

    def part(self, array: Any, *, digest: str | None = "xxh3", **fields: Any) -> dict[str, Any]:
        """Append an array's bytes, raw; return the part that describes them."""
        array = np.ascontiguousarray(array)
        stored = array.tobytes()
        kind = array.dtype.name.rstrip("0123456789")
        word = f"{_SHORT.get(kind, kind)}{array.dtype.itemsize * 8}"
        part: dict[str, Any] = {"dtype": word, "blob": self.blob(stored)}
        if array.dtype == np.bool_:
            part |= {"dtype": "u8", "type": "bool"}
        if digest is not None:
            part["digest"] = ALGORITHMS[digest].of([stored])
        return part | fields

    def packed(
        self, decoded: bytes, stored: bytes, dtype: str = "u8", **fields: Any
    ) -> dict[str, Any]:
        """Append bytes as `zt.zstd-seekable/1` has them; return the part."""
        return {
            "dtype": dtype,
            "blob": self.blob(stored),
            "encoding": "zt.zstd-seekable/1",
            "decoded_length": len(decoded),
            "digest": ALGORITHMS["xxh3"].of([decoded]),
            **fields,
        }

    def seal(self, root: Mapping[str, object] | bytes) -> bytes:
        """Return the file with a manifest, a map or its bytes, and the footer."""
        manifest = root if isinstance(root, bytes) else cbor.encode(root)
        offset, length = self.blob(manifest)
        return bytes(self.data) + footer(
            offset, length, int(ALGORITHMS["xxh3"].of([manifest])[5:], 16)
        )

    def shard(self) -> bytes:
        """Return the file as a data shard: without a manifest."""
        self.data += bytes(-len(self.data) % PAGE)
        return bytes(self.data) + footer(0, 0, 0)


def footer(offset: int, length: int, digest: int, version: int = 2, magic: bytes = MAGIC) -> bytes:
    """Return a footer."""
    return struct.pack("<QQQII", offset, length, digest, version, 0) + magic


def dense(part: Mapping[str, object], shape: Iterable[int], **fields: Any) -> dict[str, Any]:
    """Return a dense object of one part."""
    return {"shape": list(shape), "layout": "dense", "parts": {"data": dict(part)}, **fields}


def seekable(frames: Iterable[bytes], sizes: Iterable[int]) -> bytes:
    """Return zstd frames with the table behind them.

    Args:
        frames: each whole.
        sizes: the decoded length of each.
    """
    frames = list(frames)
    entries = b"".join(
        struct.pack("<II", len(frame), size) for frame, size in zip(frames, sizes, strict=True)
    )
    head = struct.pack("<4sI", bytes.fromhex("5E2A4D18"), len(entries) + 9)
    foot = struct.pack("<IB4s", len(frames), 0, bytes.fromhex("B1EA928F"))
    return b"".join(frames) + head + entries + foot


def one_object() -> bytes:
    """Return a file of one dense object."""
    file = File2()
    return file.seal({"objects": {"w": dense(file.part(np.arange(6.0).reshape(2, 3)), [2, 3])}})
