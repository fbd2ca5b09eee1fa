"""Minimal readers of 1.1, 1.2 and 2.x, written from the specifications: nothing of the library.

As released readers do, they look at the last bytes only and take the manifest those point to.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import cbor2
import xxhash

if sys.version_info >= (3, 14):
    from compression.zstd import decompress
else:
    import zstandard

    def decompress(data: bytes) -> bytes:
        """Decode frames one behind the other."""
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


MAGIC = b"ZTEN1000"
MAGIC_2 = bytes.fromhex("895A54320D0A1A0A")
FOOTER_2 = struct.Struct("<QQQI4x8s")


def plain_state(data: bytes) -> dict[str, Any]:
    """Return the contents of a file as `judge.state_of` does; raise if it cannot be read."""
    return _state_2(data) if data[:8] == MAGIC_2 else _state_1(data)


def _state_1(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[-16:-8], "little")
    start = len(data) - 16 - size
    if data[:8] != MAGIC or data[-8:] != MAGIC or size == 0 or start < 8:
        raise ValueError("no file")
    root = cbor2.loads(data[start:-16])
    objects = {}
    for name, entry in root["objects"].items():
        parts = {}
        for role, part in entry["components"].items():
            stored = data[part["offset"] : part["offset"] + part["length"]]
            if len(stored) != part["length"] or part["offset"] + part["length"] > start:
                raise ValueError("no blob")
            parts[role] = decompress(stored) if part.get("encoding") == "zstd" else stored
        objects[name] = (tuple(entry["shape"]), parts, entry.get("attributes") or {})
    return {"objects": objects, "attributes": root.get("attributes") or {}}


def _state_2(data: bytes) -> dict[str, Any]:
    offset, length, digest, version, magic = FOOTER_2.unpack(data[-FOOTER_2.size :])
    manifest = data[offset : offset + length]
    if magic != MAGIC_2 or version != 2 or xxhash.xxh3_64_intdigest(manifest) != digest:
        raise ValueError("no file")
    root = cbor2.loads(manifest)
    objects = {}
    for name, entry in root["objects"].items():
        parts = {}
        for role, part in entry["parts"].items():
            start, count = part["blob"]
            stored = data[start : start + count]
            if len(stored) != count or start % 4096 or start + count > len(data) - FOOTER_2.size:
                raise ValueError("no blob")
            parts[role] = decompress(stored) if "encoding" in part else stored
        objects[name] = (tuple(entry["shape"]), parts, entry.get("attributes") or {})
    return {"objects": objects, "attributes": root.get("attributes") or {}}
