"""One frozen value holding the safety caps; each is used at the door where bytes come in."""

from __future__ import annotations

import dataclasses

MIB = 1 << 20
GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps on what a file may ask for. Pass a changed one as `open(..., limits=...)`.

    Attributes:
        manifest_bytes: largest manifest, in bytes. 1.1 and 1.2 fix 1 GiB (1.2 section 5, step 4);
            the same is applied to 0.1, whose text names none.
        depth: deepest nesting of CBOR items. Real manifests need 6.
        rank: most dimensions of an object that is read as an array. NumPy stops at 64.
        decoded_bytes: largest decoded size of one compressed component, in bytes. Raw components
            need no cap: their bytes are in the file.
        window_log: binary logarithm of the largest zstd window. Level 22 needs 27.
        index_bytes: longest index of a sharded model, in bytes. The largest known ones have 20 MB;
            reading one takes some twenty times its length.
    """

    manifest_bytes: int = GIB
    depth: int = 64
    rank: int = 64
    decoded_bytes: int = 64 * GIB
    window_log: int = 27
    index_bytes: int = 64 * MIB


DEFAULT_LIMITS = Limits()
