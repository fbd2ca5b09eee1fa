"""Stored bytes to decoded bytes and back; one file per encoding.

Read `base.py` (the contract), `raw.py`, `zstd/`, then `zstd_seekable.py`, the encoding of 2.x on
top of the same frames, and `streams.py`, for encodings that divide data into streams. Nothing here
knows tensors or files: an encoding sees a `Stored` (random access to one component's bytes) and a
destination. `ENCODINGS` is the table; a new encoding is one file and one line.
"""

from ztensor.registry import Registry
from ztensor.spec.encoding.base import Encoding, Stored

ENCODINGS: Registry[str, Encoding] = Registry(
    {
        "raw": "ztensor.spec.encoding.raw:RAW",
        "zstd": "ztensor.spec.encoding.zstd.codec:ZSTD",
        "zt.zstd-seekable/1": "ztensor.spec.encoding.zstd_seekable:ZSTD_SEEKABLE",
        "pyztensor.planes/1": "ztensor.planes.encoding:PLANES",
    },
    group="ztensor.encodings",
    kind=Encoding,
)


__all__ = ["ENCODINGS", "Encoding", "Stored"]
