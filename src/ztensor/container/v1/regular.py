"""Large manifests of 1.1 and 1.2 by columns: what `object.py` says of one object, for all at once.

Most objects of most files are plain: dense, one component, no attributes, the fields in the order
released writers and ours put them. `wire/lockstep.py` reads those side by side, the rules are
checked as array operations, and what is kept are columns of numbers; a `TensorObject` is made when
one is asked for. The few other objects a file may have are read by `object.py` between them.

This is only ever a shortcut: where a file is not mostly of that form, or anything in it breaks a
rule of the schema, `read_root` returns None, and the general decoder reads all and says what is
wrong. `container/rows.py` tells why both give the same.
"""

from __future__ import annotations

import functools
import operator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.container.rows import (
    LEAST_DEPTH,
    IrregularError,
    RowForm,
    RowReading,
    RowTypes,
    behind,
    optional,
    read_digests,
    read_shapes,
)
from ztensor.container.v1.object import WORDS_OF_1_1, is_1_1, parse_object, types_of
from ztensor.digest import ALGORITHMS
from ztensor.errors import LimitError, ManifestError
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.model.rules import ALIGNMENT
from ztensor.model.table import Table, TableObjects
from ztensor.wire import cbor
from ztensor.wire.lockstep import MAP, TEXT, UNSIGNED, Lanes, Vocabulary

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.dtype import LogicalType
    from ztensor.model.problem import Problem

_text = cbor.encode_text
_START = b"\xa3" + _text("shape")
_MIDDLE = b"".join(
    (_text("format"), _text("dense"), _text("components"), b"\xa1", _text("data"))
)  # what is between the shape and the component

_ENCODINGS = Vocabulary(("raw", "zstd"))
# The digests writers write: head, text before the digits, and how many digits.
_DIGESTS = tuple(
    (cbor.head(TEXT, len(text) + algorithm.digits), text, algorithm.digits)
    for algorithm in ALGORITHMS.values()
    if algorithm.is_written
    for text in (algorithm.spell("").encode("ascii"),)
)


# --- The root -------------------------------------------------------------------------------


def read_root(
    data: bytes, frame: Frame, budget: Budget
) -> tuple[dict[str, object], TableObjects] | None:
    """Return the root's fields, with an empty map as `objects`, and the objects.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost; of its limits, `depth` is used.

    Returns:
        None where the manifest is not of the regular form, or something in it is wrong.
    """
    if budget.limits.depth < LEAST_DEPTH:
        return None
    before = budget.bytes_left
    try:
        return _read_root(data, frame, budget)
    except (IrregularError, ManifestError, LimitError):
        budget.release_to(before)
        return None


def _read_root(data: bytes, frame: Frame, budget: Budget) -> tuple[dict[str, object], TableObjects]:
    root: dict[str, object] = {}
    reading = None
    pairs, pos = cbor.map_head(data, 0)
    for _ in range(pairs):
        key, pos = cbor.decode_item(data, pos, depth=budget.limits.depth - 1, budget=budget)
        if not isinstance(key, str) or key in root:
            raise IrregularError
        if key == "objects":
            root[key] = {}
            form = _form(frame.manifest_offset)
            reading = RowReading(data, pos, form, budget, depth=budget.limits.depth - 2)
            pos = reading.end
        else:
            root[key], pos = cbor.decode_item(
                data, pos, depth=budget.limits.depth - 1, budget=budget
            )
    if pos != len(data) or reading is None:
        raise IrregularError
    is_of_1_1 = is_1_1(root.get("version"))
    return root, _objects(reading, data, frame, budget, is_1_1=is_of_1_1)


def _form(blobs_end: int) -> RowForm:
    types = _types_with(tuple(LOGICAL_TYPES.values()), tuple(STORAGE_TYPES))
    return RowForm(_START, lambda lanes: _read_block(lanes, types, blobs_end), types)


def _objects(
    reading: RowReading, data: bytes, frame: Frame, budget: Budget, *, is_1_1: bool
) -> TableObjects:
    """Return what was read, the objects that are not plain parsed by `object.py`.

    Raises:
        IrregularError: something is wrong with one of those, or a name comes twice.
    """
    problems: list[Problem] = []
    others = {}
    for name, entry in reading.others:
        tensor_object = parse_object(name, entry, frame, budget, problems, is_1_1=is_1_1)
        if tensor_object is None or name in others:
            raise IrregularError
        others[name] = tensor_object
    # Writers sort names: to see that is four times faster than to hash them.
    order = reading.order
    is_sorted = all(map(operator.lt, order, islice(order, 1, None)))
    if not is_sorted and len(set(order)) < len(order):
        raise IrregularError
    table = Table(**reading.columns, digest_text=data, digest_may_cover_decoded=is_1_1)
    return TableObjects(table, others, order)


@functools.lru_cache(maxsize=1)  # the registry seldom changes
def _types_with(logical_types: tuple[LogicalType, ...], dtypes: tuple[str, ...]) -> RowTypes:
    return RowTypes(logical_types, dtypes, tuple(WORDS_OF_1_1), types_of)


# --- Plain objects --------------------------------------------------------------------------


def _read_block(lanes: Lanes, types: RowTypes, blobs_end: int) -> dict[str, Any]:
    """Return the columns of the objects that begin where the lanes stand."""
    lanes.literal(_START)
    ranks, dims, dim_starts, elements = read_shapes(lanes)
    lanes.literal(_MIDDLE)
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
        digest_starts[some.index], digest_lengths[some.index] = read_digests(some, _DIGESTS)

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
