"""Stored bytes to decoded bytes and back; one file per encoding.

Read `base.py` (the contract), `raw.py`, then `zstd/`. Nothing here knows tensors or files: an
encoding sees a `Stored` (random access to one component's bytes) and a destination.
`ENCODINGS` is the table; a new encoding is one file and one line.
"""

from ztensor.encoding.base import Encoding, Stored
from ztensor.encoding.raw import Raw
from ztensor.encoding.zstd import Zstd

ENCODINGS: dict[str, Encoding] = {
    "raw": Raw(),
    "zstd": Zstd(),
}

__all__ = ["ENCODINGS", "Encoding", "Stored"]
