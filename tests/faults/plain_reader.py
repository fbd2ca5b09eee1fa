"""A minimal reader of 1.1 and 1.2, written from the specification: nothing of the library is used.

As released readers do, it looks at the last bytes only and takes the manifest they point to.
"""

from __future__ import annotations

import sys
from typing import Any

import cbor2

if sys.version_info >= (3, 14):
    from compression.zstd import decompress
else:
    import zstandard

    def decompress(data: bytes) -> bytes:
        """Decode frames one behind the other."""
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


MAGIC = b"ZTEN1000"


def plain_state(data: bytes) -> dict[str, Any]:
    """Return what a file says, in the words of `judge.state_of`; raises where it says nothing."""
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
