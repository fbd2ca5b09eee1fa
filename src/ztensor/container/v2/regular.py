"""Large manifests of 2.x by columns: what `object.py` says of one object, for all at once.

Plain is an object that is dense, of one part in the file itself, and without attributes. This is
only ever a shortcut: where a file is not mostly of such objects, or anything in it breaks a rule,
it returns None, and item by item all is read, and said what is wrong. `container/rows.py` tells
why both give the same.
"""

from __future__ import annotations

import functools
import operator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.container.framing import FOOTER_2_BYTES, PAGE_2
from ztensor.container.rows import (
    RowForm,
    RowReading,
    RowTypes,
    behind,
    optional,
    read_digests,
    read_shapes,
)
from ztensor.container.v2.object import DTYPES, TYPES, is_name, parse_object
from ztensor.errors import LimitError, ManifestError
from ztensor.model.dtype import LOGICAL_TYPES
from ztensor.model.table import PLAIN_DEPTH, IrregularError, Table, TableObjects
from ztensor.wire import cbor
from ztensor.wire.lockstep import MAP, UNSIGNED, Lanes

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.container.v2.places import Places
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject
    from ztensor.model.problem import Problem

_text = cbor.encode_text
_START = b"\xa3" + _text("parts")
_PART = b"\xa1" + _text("data")
_BLOB = _text("blob") + b"\x82"
_PACKED = "zt.zstd-seekable/1"
_PACKED_LENGTH = _text(_PACKED) + _text("decoded_length")
_LAYOUT = _text("layout") + _text("dense")
# The registered digests: head, text before the digits, and how many digits.
_DIGESTS = tuple(
    (_text(f"{name}:" + "0" * digits)[: -digits - len(name) - 1], f"{name}:".encode(), digits)
    for name, digits in (("xxh3", 16), ("sha256", 64))
)


def read_objects(
    data: bytes, start: int, frame: Frame, budget: Budget, places: Places, depth: int
) -> tuple[TableObjects, int] | None:
    """Return the objects of the map at `start`, and where it ends.

    Args:
        data: the manifest's bytes.
        start: where the map begins.
        frame: where they lay.
        budget: what the file may cost.
        places: takes the blobs.
        depth: how deep an object may nest.

    Returns:
        None where the map is not of the regular form, or something in it is wrong; `places` may
        have taken blobs all the same.
    """
    if depth < PLAIN_DEPTH - 2:
        return None
    before = budget.bytes_left
    end = frame.file_size - FOOTER_2_BYTES
    types = _types()
    form = RowForm(_START, lambda lanes: _read_block(lanes, types, end), types)
    try:
        reading = RowReading(data, start, form, budget, depth=depth, strict=True)
        others = _parse_others(reading, places, budget)
        _require_names(reading.order)
    except (IrregularError, ManifestError, LimitError):
        budget.release_to(before)
        return None
    columns = reading.columns
    places.add_rows(columns["offsets"], columns["lengths"])
    table = Table(
        **columns, digest_text=data, digest_covers_decoded=True, is_exact=True, packed=_PACKED
    )
    return TableObjects(table, others, reading.order), reading.end


def _parse_others(reading: RowReading, places: Places, budget: Budget) -> dict[str, TensorObject]:
    problems: list[Problem] = []
    others = {}
    for name, entry in reading.others:
        parsed = parse_object(name, entry, places, budget, problems)
        if parsed is None:
            raise IrregularError
        others[name] = parsed
    return others


def _require_names(order: list[str]) -> None:
    """Raise unless names are names, in the order of their encoded bytes, each once."""
    whole = "".join(order)
    if whole.isascii():
        lengths = np.fromiter(map(len, order), np.int64, len(order))
        are_names = "\0" not in whole and int(lengths.min()) > 0 and int(lengths.max()) <= 1024
    else:
        lengths = np.fromiter((len(name.encode()) for name in order), np.int64, len(order))
        are_names = all(map(is_name, order))
    steps = np.diff(lengths)
    rising = np.fromiter(map(operator.lt, order, islice(order, 1, None)), np.bool_, len(steps))
    if not are_names or not ((steps > 0) | ((steps == 0) & rising)).all():
        raise IrregularError


def _read_block(lanes: Lanes, types: RowTypes, end: int) -> dict[str, Any]:
    """Return the columns of the objects that begin where the lanes stand.

    Args:
        lanes: they stand there.
        types: the words of types.
        end: where in the file the footer begins.
    """
    lanes.literal(_START + _PART)
    left = lanes.head(MAP)  # fields still to come
    left -= np.uint64(2)  # of those that may be missing
    lanes.literal(_BLOB)
    offsets = lanes.head(UNSIGNED)
    lengths = lanes.head(UNSIGNED)
    pairs = np.zeros(lanes.count, np.int64)
    with optional(lanes, "type", left) as some:
        pairs[some.index] = 1 + some.choice(types.logical)
    lanes.literal(_text("dtype"))
    pairs += lanes.choice(types.storage) * types.stride
    digest_starts, digest_lengths = np.zeros((2, lanes.count), np.int64)
    with optional(lanes, "digest", left) as some:
        digest_starts[some.index], digest_lengths[some.index] = read_digests(
            some, _DIGESTS, lower=True
        )
    is_raw = np.ones(lanes.count, np.bool_)
    held = lengths.copy()
    with optional(lanes, "encoding", left) as some:
        some.literal(_PACKED_LENGTH)
        held[some.index] = some.head(UNSIGNED)
        is_raw[some.index] = False
        left[some.index] -= np.uint64(1)
    lanes.literal(_text("shape"))
    ranks, dims, dim_starts, elements = read_shapes(lanes, from_left=True)
    lanes.literal(_LAYOUT)

    page, last = np.uint64(PAGE_2), np.uint64(end)
    lanes.ok &= left == 0
    lanes.ok &= types.is_known[pairs]
    lanes.ok &= (offsets % page == 0) & (offsets >= page) & (offsets <= last)
    lanes.ok &= lengths <= last - np.minimum(offsets, last)
    lanes.ok &= held == types.sizes(pairs, elements)
    return {
        "offsets": offsets.astype(np.int64),
        "lengths": lengths.astype(np.int64),
        "types": pairs,
        "ranks": ranks,
        "dims": dims,
        "dim_starts": dim_starts,
        "is_raw": is_raw,
        "decoded_lengths": np.where(is_raw, np.int64(-1), held.astype(np.int64)),
        "digest_starts": digest_starts,
        "digest_lengths": digest_lengths,
        **behind(lanes),
    }


@functools.lru_cache(maxsize=1)
def _types() -> RowTypes:
    # Bools are looked at when they are read: they are no plain elements.
    names = [name for name in TYPES if name != "bool"]
    return RowTypes(tuple(LOGICAL_TYPES[name] for name in names), tuple(sorted(DTYPES)))
