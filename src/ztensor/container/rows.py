"""A map of many objects, most of one form, read side by side: for each schema that has such a form.

Why it gives what the decoder gives, item after item:

- The first name begins behind the head of the map. Where one object ends the next name begins,
  and it has to end where the next object begins. So each object is where the decoder meets it,
  though the places were first guessed by looking for the bytes that objects begin with.
- An object counts as plain only if nothing is wrong with it, be it by the schema or its layout.

What a plain object is, and which columns are read of it, a schema says: a `RowForm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.model.dtype import STORAGE_TYPES
from ztensor.model.table import IrregularError
from ztensor.wire import cbor
from ztensor.wire.lockstep import (
    ARRAY,
    MOST_CHOICE,
    TEXT,
    UNSIGNED,
    Lanes,
    Vocabulary,
    find_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ztensor.limits import Budget
    from ztensor.model.dtype import LogicalType
    from ztensor.model.table import Ints, Uints

    DigestForm = tuple[bytes, bytes, int]

_BLOCK = 4096  # objects read side by side: what is gathered of them stays in cache
_NAMES = 512  # names taken from memory that is still in cache, and used again and again
_LEAST_BYTES = 60  # what a plain object takes at least
_MOST_RANK = 8
_MOST_ELEMENTS = float(1 << 50)  # so far float64 counts exactly, and no number of bytes overflows
_MOST_RATIO = 64  # storage elements to logical ones, or the reverse
_ROW_BYTES = 400  # of memory that a plain object takes: columns, its name, and a table of names
_FEW = 16  # objects that are not plain: this many, and one of every this many, may be between
_FAR = np.uint64(1 << 62)  # farther than any name ends


class RowForm(NamedTuple):
    """What a schema calls a plain object.

    Attributes:
        start: the bytes it begins with, three to eight.
        read_block: reads those that begin where lanes stand, and returns their columns: those of
            `Table`, and what `behind` gives.
        types: the words of its types.
    """

    start: bytes
    read_block: Callable[[Lanes], dict[str, Any]]
    types: RowTypes


class RowReading:
    """Reads the map of objects, but for what is in those that are not plain.

    Args:
        data: the manifest.
        start: where the map begins.
        form: what a plain object begins with, and what reads it.
        budget: what the file may cost.
        depth: how deep an object may nest.
        strict: whether only the deterministic form of CBOR is taken.

    Attributes:
        end: where the map ends.
        columns: those of `Table` about the plain objects, but for what all of them have in common.
        others: names and values of the other objects.
        order: all names.

    Raises:
        IrregularError: it is not of the regular form.
        ManifestError: likewise.
        LimitError: likewise.
    """

    def __init__(
        self,
        data: bytes,
        start: int,
        form: RowForm,
        budget: Budget,
        *,
        depth: int,
        strict: bool = False,
    ) -> None:
        self._data = data
        self._form = form
        self._budget = budget
        self._depth = depth
        self._strict = strict
        count, first_name = cbor.map_head(data, start, strict=strict)
        self._few = _FEW + count // _FEW
        self.others: list[tuple[str, object]] = []
        self.order: list[str] = []
        starts = None
        if 0 < count <= self._few + (len(data) - first_name) // _LEAST_BYTES:
            budget.charge_bytes(count * _ROW_BYTES)
            starts = find_all(data, first_name, form.start, most=2 * count)
        if starts is None or not count - self._few <= len(starts) > 0:
            raise IrregularError
        self.columns = self._read_plain(starts)
        self.end = self._read_names(count, first_name)

    def _read_plain(self, starts: Ints) -> dict[str, Any]:
        """Return the columns of those guessed objects that are plain, if they are objects."""
        whole: dict[str, Any] = {}
        dims: list[Uints] = []
        failed = dim_count = 0
        for first in range(0, len(starts), _BLOCK):
            block = starts[first : first + _BLOCK]
            after = first + len(block)
            stop = int(starts[after]) if after < len(starts) else len(self._data)
            columns = self._form.read_block(Lanes(self._data, block, stop, strict=self._strict))
            failed += len(block) - int(np.count_nonzero(columns["ok"]))
            if failed > 2 * self._few:
                raise IrregularError
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
        return {**whole, "dims": np.concatenate(dims), "spellings": self._form.types.spellings}

    def _read_names(self, count: int, first_name: int) -> int:
        """Read the names and the objects that are not plain, and return where the last one ends.

        A name has to end where its object begins. Where it does not, other objects lie between;
        where those do not lead there, the guess was wrong.
        """
        starts, ends = self.columns.pop("starts"), self.columns.pop("ends")
        name_starts = np.roll(self.columns.pop("next_names"), 1)
        name_stops = np.roll(self.columns.pop("next_starts"), 1)
        name_stops[:1] = -1  # the first name follows no object
        gaps = np.flatnonzero(name_stops != starts)
        name_starts[gaps] = starts[gaps]
        names = self.columns["names"] = _texts(self._data, name_starts, starts)
        done = 0
        for row in gaps.tolist():
            self.order += names[done:row]
            begin = int(ends[row - 1]) if row else first_name
            names[row] = self._walk(begin, int(starts[row]))
            done = row
        self.order += names[done:]
        end = int(ends[-1]) if names else first_name
        while len(self.order) < count:
            name, end = self._name(end)
            end = self._other(name, end)
        if len(self.order) > count:
            raise IrregularError
        return end

    def _walk(self, begin: int, stop: int) -> str:
        """Return the name that ends at `stop`; what lies before it are other objects."""
        while True:
            name, end = self._name(begin)
            if end == stop:
                return name
            if end > stop:
                raise IrregularError
            begin = self._other(name, end)

    def _name(self, start: int) -> tuple[str, int]:
        name, end = cbor.decode_item(
            self._data, start, depth=self._depth, budget=self._budget, strict=self._strict
        )
        if not isinstance(name, str):
            raise IrregularError
        return name, end

    def _other(self, name: str, start: int) -> int:
        if len(self.others) >= self._few:
            raise IrregularError
        entry, end = cbor.decode_item(
            self._data, start, depth=self._depth, budget=self._budget, strict=self._strict
        )
        self.others.append((name, entry))
        self.order.append(name)
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
                raise IrregularError from error
        texts += block
    return texts


# --- Parts of plain objects ------------------------------------------------------------------


def read_shapes(lanes: Lanes, *, from_left: bool = False) -> tuple[Ints, Uints, Ints, Uints]:
    """Read shapes; return ranks, the dimensions of all, where those of each begin, and products.

    Args:
        lanes: they stand before the shapes.
        from_left: whether a zero saves no product of what is before it.
    """
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
            if from_left:
                some.ok &= elements[some.index] <= _MOST_ELEMENTS
    lanes.ok &= elements <= _MOST_ELEMENTS
    return ranks, dims, dim_starts, np.minimum(elements, _MOST_ELEMENTS).astype(np.uint64)


def optional(lanes: Lanes, field: str, left: Uints) -> Lanes:
    """Return the lanes that have this field next, standing behind its key."""
    key = cbor.encode_text(field)
    has_field = left > 0
    if has_field.any():
        has_field &= lanes.sees(key)
    some = lanes.split(has_field)
    some.skip(len(key))
    left[some.index] -= np.uint64(1)
    return some


def read_digests(
    lanes: Lanes, digests: Sequence[DigestForm], *, lower: bool = False
) -> tuple[Ints, Ints]:
    """Read digests as writers spell them; return where their texts begin and how long they are.

    Args:
        lanes: they stand before the texts.
        digests: the head of such a text, what comes before the digits, and how many there are.
        lower: whether digits are in lower case alone.
    """
    starts, lengths = np.zeros((2, lanes.count), np.int64)
    for head, text, digits in digests:
        missing = lengths == 0
        if not missing.any():
            break
        with lanes.split(missing & lanes.sees(head + text)) as some:
            some.skip(len(head))
            starts[some.index] = some.position()
            lengths[some.index] = len(text) + digits
            some.skip(len(text))
            some.hexadecimal(digits, lower=lower)
    lanes.ok &= lengths > 0
    return starts, lengths


def behind(lanes: Lanes) -> dict[str, Any]:
    """Return what a block tells beside the columns of `Table`.

    That is `ok`, whether the row is of a plain object; `ends`, where it ends; `next_names` and
    `next_starts`, where the text of the name behind it begins and ends. What follows is a name or
    the end of the map: only what proves to be a name will count.
    """
    ok, ends = lanes.ok.copy(), lanes.position()
    name_lengths = np.minimum(lanes.head(TEXT), _FAR).astype(np.int64)
    next_names = lanes.position()
    return {
        "ok": ok,
        "ends": ends,
        "next_names": next_names,
        "next_starts": np.where(lanes.ok, next_names + name_lengths, -1),
    }


# --- Types ----------------------------------------------------------------------------------


class RowTypes:
    """The words a component's types may be, and what pairs of them mean.

    Args:
        logical_types: the registered ones.
        dtypes: the words of storage types that a `type` may be, too.
        more: further words of `dtype`.
        types_of: the types of a pair as the model has them.

    Attributes:
        storage: the words of `dtype`.
        logical: the words of `type`.
        stride: a pair is the place in `storage` times this, plus, where there is a `type`, 1 and
            its place in `logical`.
        spellings: of every pair, the types as the model has them.
        is_known: of every pair, whether those are types whose size is known.
    """

    def __init__(
        self,
        logical_types: tuple[LogicalType, ...],
        dtypes: tuple[str, ...],
        more: tuple[str, ...] = (),
        types_of: Callable[[str, str | None], tuple[str, str | None]] = lambda *pair: pair,
    ) -> None:
        by_name: dict[str | None, LogicalType] = {item.name: item for item in logical_types}
        # A vocabulary tells words by how they begin: of two that begin alike it can have one.
        words = {
            cbor.encode_text(word)[:8]: word
            for word in (*(item.name for item in logical_types), *dtypes)
            if word.isascii() and len(word) <= MOST_CHOICE
        }
        dtypes = (*dtypes, *more)
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
