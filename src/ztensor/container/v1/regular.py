"""Large manifests of 1.1 and 1.2 by columns: what `object.py` says of one object, for all at once.

Most objects of most files are plain: dense, one component, no attributes, the fields in the order
released writers and ours put them. `wire/lockstep.py` reads those side by side, the rules are
checked as array operations, and what is kept are columns of numbers; a `TensorObject` is made when
one is asked for. The few other objects a file may have are read by `object.py` between them.

This is only ever a shortcut, as `root.py` tells. `container/rows.py` tells why it gives what the
general decoder gives.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.container.rows import (
    RowForm,
    RowReading,
    RowTypes,
    behind,
    optional,
    read_digests,
    read_shapes,
)
from ztensor.container.v1.object import WORDS_OF_1_1, types_of
from ztensor.container.v1.pieces import DIGESTS, MIDDLE, START
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.model.rules import ALIGNMENT
from ztensor.wire import cbor
from ztensor.wire.lockstep import MAP, UNSIGNED, Lanes, Vocabulary

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.dtype import LogicalType

_text = cbor.encode_text
_ENCODINGS = Vocabulary(("raw", "zstd"))


def read_columns(data: bytes, start: int, frame: Frame, budget: Budget, depth: int) -> RowReading:
    """Return what the map of objects at `start` holds.

    Args:
        data: the manifest's bytes.
        start: where the map begins.
        frame: where they lay.
        budget: what the file may cost.
        depth: how deep an object may nest.

    Raises:
        IrregularError: it is not mostly of plain objects.
        ManifestError: likewise.
        LimitError: likewise.
    """
    types = _types_with(tuple(LOGICAL_TYPES.values()), tuple(STORAGE_TYPES))
    blobs_end = frame.manifest_offset
    form = RowForm(START, lambda lanes: _read_block(lanes, types, blobs_end), types)
    return RowReading(data, start, form, budget, depth=depth)


@functools.lru_cache(maxsize=1)  # the registry seldom changes
def _types_with(logical_types: tuple[LogicalType, ...], dtypes: tuple[str, ...]) -> RowTypes:
    return RowTypes(logical_types, dtypes, tuple(WORDS_OF_1_1), types_of)


# --- Plain objects --------------------------------------------------------------------------


def _read_block(lanes: Lanes, types: RowTypes, blobs_end: int) -> dict[str, Any]:
    """Return the columns of the objects that begin where the lanes stand."""
    lanes.literal(START)
    ranks, dims, dim_starts, elements = read_shapes(lanes)
    lanes.literal(MIDDLE)
    left = lanes.head(MAP)  # fields still to come
    left -= np.uint64(3)  # of those that may be missing
    lanes.literal(_text("dtype"))
    pairs = lanes.choice(types.storage) * types.stride
    with optional(lanes, "type", left) as some:
        pairs[some.index] += 1 + some.choice(types.logical)
    lanes.literal(_text("offset"))
    offsets = lanes.head(UNSIGNED)
    lanes.literal(_text("length"))
    lengths = lanes.head(UNSIGNED)

    expected = types.sizes(pairs, elements)
    decoded_lengths = np.full(lanes.count, -1, np.int64)
    with optional(lanes, "uncompressed_length", left) as some:
        some.ok &= some.head(UNSIGNED) == expected[some.index]
        decoded_lengths[some.index] = expected[some.index]
    is_raw = np.ones(lanes.count, np.bool_)
    with optional(lanes, "encoding", left) as some:
        is_raw[some.index] = some.choice(_ENCODINGS) == 0
    digest_starts, digest_lengths = np.zeros((2, lanes.count), np.int64)
    with optional(lanes, "digest", left) as some:
        digest_starts[some.index], digest_lengths[some.index] = read_digests(some, DIGESTS)

    lanes.ok &= left == 0
    lanes.ok &= types.is_known[pairs]
    lanes.ok &= (offsets % ALIGNMENT == 0) & (offsets >= ALIGNMENT) & (offsets <= blobs_end)
    lanes.ok &= lengths <= blobs_end - np.minimum(offsets, blobs_end)
    lanes.ok &= ~is_raw | (lengths == expected)
    return {
        "offsets": offsets.astype(np.int64),
        "lengths": lengths.astype(np.int64),
        "types": pairs,
        "ranks": ranks,
        "dims": dims,
        "dim_starts": dim_starts,
        "is_raw": is_raw,
        "decoded_lengths": decoded_lengths,
        "digest_starts": digest_starts,
        "digest_lengths": digest_lengths,
        **behind(lanes),
    }
