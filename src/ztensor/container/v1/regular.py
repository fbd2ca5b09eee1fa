"""Large manifests of 1.1 and 1.2 by columns: what `object.py` says of one object, for all at once.

Most objects of most files are plain: dense, one component, no attributes, the fields in the order
released writers and ours put them. `wire/lockstep.py` reads those side by side, the rules are
checked as array operations, and what is kept are columns of numbers; a `TensorObject` is made when
one is asked for. The few other objects a file may have are read by `object.py` between them.

This is only ever a shortcut: where a file is not mostly of that form, or anything in it breaks a
rule of the schema, `read_root` returns None, and the general decoder reads all and says what is
wrong. Why both give the same:

- The first name begins behind the head of `objects`. Where one object ends the next name begins,
  and it has to end where the next object begins. So each object is where the decoder meets it,
  though the places were first guessed by looking for the bytes that objects begin with.
- An object counts as plain only if nothing is wrong with it, be it by the schema or its layout.
"""

from __future__ import annotations

import functools
import operator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.container.v1.object import WORDS_OF_1_1, is_1_1, parse_object, types_of
from ztensor.digest import ALGORITHMS
from ztensor.errors import LimitError, ManifestError
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.model.rules import ALIGNMENT
from ztensor.model.table import Table, TableObjects
from ztensor.wire import cbor
from ztensor.wire.lockstep import (
    ARRAY,
    MAP,
    MOST_CHOICE,
    TEXT,
    UNSIGNED,
    Lanes,
    Vocabulary,
    find_all,
)

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.dtype import LogicalType
    from ztensor.model.problem import Problem
    from ztensor.model.table import Ints, Uints

_BLOCK = 4096  # objects read side by side: what is gathered of them stays in cache
_NAMES = 512  # names taken from memory that is still in cache, and used again and again
_LEAST_BYTES = 60  # what a plain object takes at least
_LEAST_DEPTH = 5  # how deep a plain object nests, counted from the root
_MOST_RANK = 8
_MOST_ELEMENTS = float(1 << 50)  # so far float64 counts exactly, and no number of bytes overflows
_MOST_RATIO = 64  # storage elements to logical ones, or the reverse
_ROW_BYTES = 400  # of memory that a plain object takes: columns, its name, and a table of names
_FEW = 16  # objects that are not plain: this many, and one of every this many, may be between
_FAR = np.uint64(1 << 62)  # farther than any name ends

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


class _IrregularError(Exception):
    """The manifest is for the general decoder."""


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
    if budget.limits.depth < _LEAST_DEPTH:
        return None
    before = budget.bytes_left
    try:
        return _read_root(data, frame, budget)
    except (_IrregularError, ManifestError, LimitError):
        budget.release_to(before)
        return None


def _read_root(data: bytes, frame: Frame, budget: Budget) -> tuple[dict[str, object], TableObjects]:
    root: dict[str, object] = {}
    reading = None
    pairs, pos = cbor.map_head(data, 0)
    for _ in range(pairs):
        key, pos = cbor.decode_item(data, pos, depth=budget.limits.depth - 1, budget=budget)
        if not isinstance(key, str) or key in root:
            raise _IrregularError
        if key == "objects":
            root[key] = {}
            reading = _Reading(data, pos, frame.manifest_offset, budget)
            pos = reading.end
        else:
            root[key], pos = cbor.decode_item(
                data, pos, depth=budget.limits.depth - 1, budget=budget
            )
    if pos != len(data) or reading is None:
        raise _IrregularError
    return root, reading.objects(frame, is_1_1=is_1_1(root.get("version")))


# --- The map of objects ---------------------------------------------------------------------


class _Reading:
    """Reads the map of objects, but for what is in those that are not plain.

    Args:
        data: the manifest.
        start: where the map begins.
        blobs_end: where in the file the manifest begins.
        budget: what the file may cost; an object may nest as deep as its limits say.

    Attributes:
        end: where the map ends.

    Raises:
        _IrregularError: it is not of the regular form.
        ManifestError: likewise.
        LimitError: likewise.
    """

    def __init__(self, data: bytes, start: int, blobs_end: int, budget: Budget) -> None:
        self._data = data
        self._blobs_end = blobs_end
        self._budget = budget
        self._depth = budget.limits.depth - 2
        count, first_name = cbor.map_head(data, start)
        self._few = _FEW + count // _FEW
        self._others: list[tuple[str, object]] = []
        self._order: list[str] = []
        starts = None
        if 0 < count <= self._few + (len(data) - first_name) // _LEAST_BYTES:
            budget.charge_bytes(count * _ROW_BYTES)
            starts = find_all(data, first_name, _START, most=2 * count)
        if starts is None or not count - self._few <= len(starts) > 0:
            raise _IrregularError
        self._columns = self._read_plain(starts)
        self.end = self._read_names(count, first_name)

    def objects(self, frame: Frame, *, is_1_1: bool) -> TableObjects:
        """Return what was read, the objects that are not plain parsed by `object.py`.

        Raises:
            _IrregularError: something is wrong with one of those, or a name comes twice.
        """
        problems: list[Problem] = []
        others = {}
        for name, entry in self._others:
            tensor_object = parse_object(name, entry, frame, self._budget, problems, is_1_1=is_1_1)
            if tensor_object is None or name in others:
                raise _IrregularError
            others[name] = tensor_object
        # Writers sort names: to see that is four times faster than to hash them.
        order = self._order
        is_sorted = all(map(operator.lt, order, islice(order, 1, None)))
        if not is_sorted and len(set(order)) < len(order):
            raise _IrregularError
        table = Table(**self._columns, digest_text=self._data, digest_may_cover_decoded=is_1_1)
        return TableObjects(table, others, order)

    def _read_plain(self, starts: Ints) -> dict[str, Any]:
        """Return the columns of those guessed objects that are plain, if they are objects."""
        types = _types_with(tuple(LOGICAL_TYPES.values()), tuple(STORAGE_TYPES))
        whole: dict[str, Any] = {}
        dims: list[Uints] = []
        failed = dim_count = 0
        for first in range(0, len(starts), _BLOCK):
            block = starts[first : first + _BLOCK]
            after = first + len(block)
            stop = int(starts[after]) if after < len(starts) else len(self._data)
            columns = _read_block(Lanes(self._data, block, stop), types, self._blobs_end)
            failed += len(block) - int(np.count_nonzero(columns["ok"]))
            if failed > 2 * self._few:
                raise _IrregularError
            dims.append(columns.pop("dims"))
            columns["dim_starts"] += dim_count
            dim_count += len(dims[-1])
            for key, column in columns.items():
                if first == 0:
                    whole[key] = np.empty(len(starts), column.dtype)
                whole[key][first:after] = column
        whole["starts"] = starts
        ok = whole.pop("ok")
        if failed:
            whole = {key: column[ok] for key, column in whole.items()}
        return {**whole, "dims": np.concatenate(dims), "spellings": types.spellings}

    def _read_names(self, count: int, first_name: int) -> int:
        """Read the names and the objects that are not plain, and return where the last one ends.

        A name has to end where its object begins. Where it does not, other objects lie between;
        where those do not lead there, the guess was wrong.
        """
        starts, ends = self._columns.pop("starts"), self._columns.pop("ends")
        name_starts = np.roll(self._columns.pop("next_names"), 1)
        name_stops = np.roll(self._columns.pop("next_starts"), 1)
        name_stops[:1] = -1  # the first name follows no object
        gaps = np.flatnonzero(name_stops != starts)
        name_starts[gaps] = starts[gaps]
        names = self._columns["names"] = _texts(self._data, name_starts, starts)
        done = 0
        for row in gaps.tolist():
            self._order += names[done:row]
            begin = int(ends[row - 1]) if row else first_name
            names[row] = self._walk(begin, int(starts[row]))
            done = row
        self._order += names[done:]
        end = int(ends[-1]) if names else first_name
        while len(self._order) < count:
            name, end = self._name(end)
            end = self._other(name, end)
        if len(self._order) > count:
            raise _IrregularError
        return end

    def _walk(self, begin: int, stop: int) -> str:
        """Return the name that ends at `stop`; what lies before it are other objects."""
        while True:
            name, end = self._name(begin)
            if end == stop:
                return name
            if end > stop:
                raise _IrregularError
            begin = self._other(name, end)

    def _name(self, start: int) -> tuple[str, int]:
        name, end = cbor.decode_item(self._data, start, depth=self._depth, budget=self._budget)
        if not isinstance(name, str):
            raise _IrregularError
        return name, end

    def _other(self, name: str, start: int) -> int:
        if len(self._others) >= self._few:
            raise _IrregularError
        entry, end = cbor.decode_item(self._data, start, depth=self._depth, budget=self._budget)
        self._others.append((name, entry))
        self._order.append(name)
        return end


def _texts(data: bytes, starts: Ints, stops: Ints) -> list[str]:
    """Return the texts between these places, which are in order."""
    texts: list[str] = []
    for first in range(0, len(starts), _NAMES):
        begins, ends = starts[first : first + _NAMES], stops[first : first + _NAMES]
        base = int(begins[0])
        # One character a byte: what is cut out of it is the text as long as it is ASCII.
        window = data[base : int(ends[-1])].decode("latin-1")
        places = zip((begins - base).tolist(), (ends - base).tolist(), strict=True)
        block = [window[begin:end] for begin, end in places]
        if not "".join(block).isascii():
            try:
                block = [text.encode("latin-1").decode() for text in block]
            except UnicodeDecodeError as error:
                raise _IrregularError from error
        texts += block
    return texts


# --- Plain objects --------------------------------------------------------------------------


def _read_block(lanes: Lanes, types: _Types, blobs_end: int) -> dict[str, Any]:
    """Return the columns of the objects that begin where the lanes stand.

    Beside those of `Table`: `ok`, whether the row is of a plain object; `ends`, where it ends;
    `next_names` and `next_starts`, where the text of the name behind it begins and ends.
    """
    lanes.literal(_START)
    ranks, dims, dim_starts, elements = _read_shapes(lanes)
    lanes.literal(_MIDDLE)
    left = lanes.head(MAP)  # fields still to come
    left -= np.uint64(3)  # of those that may be missing
    lanes.literal(_text("dtype"))
    pairs = lanes.choice(types.storage) * types.stride
    with _optional(lanes, "type", left) as some:
        pairs[some.index] += 1 + some.choice(types.logical)
    lanes.literal(_text("offset"))
    offsets = lanes.head(UNSIGNED)
    lanes.literal(_text("length"))
    lengths = lanes.head(UNSIGNED)

    expected = types.sizes(pairs, elements)
    decoded_lengths = np.full(lanes.count, -1, np.int64)
    with _optional(lanes, "uncompressed_length", left) as some:
        some.ok &= some.head(UNSIGNED) == expected[some.index]
        decoded_lengths[some.index] = expected[some.index]
    is_raw = np.ones(lanes.count, np.bool_)
    with _optional(lanes, "encoding", left) as some:
        is_raw[some.index] = some.choice(_ENCODINGS) == 0
    digest_starts, digest_lengths = np.zeros((2, lanes.count), np.int64)
    with _optional(lanes, "digest", left) as some:
        digest_starts[some.index], digest_lengths[some.index] = _read_digests(some)

    lanes.ok &= left == 0
    lanes.ok &= types.is_known[pairs]
    lanes.ok &= (offsets % ALIGNMENT == 0) & (offsets >= ALIGNMENT) & (offsets <= blobs_end)
    lanes.ok &= lengths <= blobs_end - np.minimum(offsets, blobs_end)
    lanes.ok &= ~is_raw | (lengths == expected)
    ok, ends = lanes.ok.copy(), lanes.position()

    # What follows is a name or the end of the map. Only what proves to be a name will count.
    name_lengths = np.minimum(lanes.head(TEXT), _FAR).astype(np.int64)
    next_names = lanes.position()
    return {
        "ok": ok,
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
        "ends": ends,
        "next_names": next_names,
        "next_starts": np.where(lanes.ok, next_names + name_lengths, -1),
    }


def _read_shapes(lanes: Lanes) -> tuple[Ints, Uints, Ints, Uints]:
    """Read shapes; return ranks, the dimensions of all, where those of each begin, and products."""
    heads = lanes.head(ARRAY)
    lanes.ok &= heads <= _MOST_RANK
    ranks = np.minimum(heads, _MOST_RANK).astype(np.int64)
    dim_starts = np.cumsum(ranks) - ranks
    dims = np.zeros(int(ranks.sum()), np.uint64)
    elements = np.ones(lanes.count)
    for axis in range(ranks.max(initial=0)):
        with lanes.split(ranks > axis) as some:
            dim = some.head(UNSIGNED)
            dims[dim_starts[some.index] + axis] = dim
            elements[some.index] *= dim
    lanes.ok &= elements <= _MOST_ELEMENTS
    return ranks, dims, dim_starts, np.minimum(elements, _MOST_ELEMENTS).astype(np.uint64)


def _optional(lanes: Lanes, field: str, left: Uints) -> Lanes:
    """Return the lanes that have this field next, standing behind its key."""
    key = _text(field)
    has_field = left > 0
    if has_field.any():
        has_field &= lanes.sees(key)
    some = lanes.split(has_field)
    some.skip(len(key))
    left[some.index] -= np.uint64(1)
    return some


def _read_digests(lanes: Lanes) -> tuple[Ints, Ints]:
    """Read digests as writers spell them; return where their texts begin and how long they are."""
    starts, lengths = np.zeros((2, lanes.count), np.int64)
    for head, text, digits in _DIGESTS:
        missing = lengths == 0
        if not missing.any():
            break
        with lanes.split(missing & lanes.sees(head + text)) as some:
            some.skip(len(head))
            starts[some.index] = some.position()
            lengths[some.index] = len(text) + digits
            some.skip(len(text))
            some.hexadecimal(digits)
    lanes.ok &= lengths > 0
    return starts, lengths


# --- Types ----------------------------------------------------------------------------------


class _Types:
    """The words a component's types may be, and what pairs of them mean.

    Args:
        logical_types: the registered ones.
        dtypes: the words of storage types.

    Attributes:
        storage: the words of `dtype`.
        logical: the words of `type`.
        stride: a pair is the place in `storage` times this, plus, where there is a `type`, 1 and
            its place in `logical`.
        spellings: of every pair, the types as the model has them.
        is_known: of every pair, whether those are types whose size is known.
    """

    def __init__(self, logical_types: tuple[LogicalType, ...], dtypes: tuple[str, ...]) -> None:
        by_name: dict[str | None, LogicalType] = {item.name: item for item in logical_types}
        # A vocabulary tells words by how they begin: of two that begin alike it can have one.
        words = {
            _text(word)[:8]: word
            for word in (*(item.name for item in logical_types), *dtypes)
            if word.isascii() and len(word) <= MOST_CHOICE
        }
        dtypes = (*dtypes, *WORDS_OF_1_1)
        self.storage = Vocabulary(dtypes)
        self.logical = Vocabulary(tuple(words.values()))
        self.stride = 1 + len(words)
        self.spellings = tuple(
            types_of(dtype, word) for dtype in dtypes for word in (None, *words.values())
        )
        ratios = [_ratio(dtype, name, by_name.get(name)) for dtype, name in self.spellings]
        self.is_known = np.array([ratio is not None for ratio in ratios])
        self._ratios = np.array([ratio or (1, 1, 1) for ratio in ratios], np.uint64).T

    def sizes(self, pairs: Ints, elements: Uints) -> Uints:
        """Return how many bytes so many elements of these types take."""
        units, groups, widths = (ratio[pairs] for ratio in self._ratios)
        sizes: Uints = (elements * units + groups - np.uint64(1)) // groups * widths
        return sizes


_types_with = functools.lru_cache(maxsize=1)(_Types)  # the registry seldom changes


def _ratio(
    dtype: str, name: str | None, logical: LogicalType | None
) -> tuple[int, int, int] | None:
    """Return how many storage elements make how many logical ones, and bytes of one; or None."""
    storage = STORAGE_TYPES.get(dtype)
    if storage is None:
        return None
    if name is None:
        return 1, 1, storage.width
    if logical is None or logical.dtype != dtype:
        return None
    units, groups = logical.storage_per_element, logical.elements_per_storage
    is_sane = 0 < units <= _MOST_RATIO and 0 < groups <= _MOST_RATIO
    return (units, groups, storage.width) if is_sane else None
