"""`zstd`: one or more Zstandard frames (RFC 8878), decoded straight into the destination.

To read in this order: `held.py` keeps short stored bytes in memory; `frames.py` steps through frame
and block headers and knows, without decoding, where each frame lies, how much it can decode to and
which window it demands; `listing.py` writes that into the manifest, for readers over a
network; `libraries.py` is the seam to whichever library is installed; `codec.py`
joins them to the encoding.
"""

from ztensor.encoding.zstd.codec import (
    FASTEST_LEVEL,
    FRAME_BYTES,
    STRONGEST_LEVEL,
    ZSTD,
    Zstd,
)
from ztensor.encoding.zstd.frames import walk_frames
from ztensor.encoding.zstd.held import Held
from ztensor.encoding.zstd.libraries import bind_standard_library, bind_zstandard, find_binding
from ztensor.encoding.zstd.listing import FRAME_FIELD, listed_frames, runs_of_field

__all__ = [
    "FASTEST_LEVEL",
    "FRAME_BYTES",
    "FRAME_FIELD",
    "STRONGEST_LEVEL",
    "ZSTD",
    "Held",
    "Zstd",
    "bind_standard_library",
    "bind_zstandard",
    "find_binding",
    "listed_frames",
    "runs_of_field",
    "walk_frames",
]
