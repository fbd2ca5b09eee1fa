"""Bulk parsing of a manifest's objects that differ only in name, extent and digest digits.

Objects whose encoded bytes are equal except for these are of one *kind*. The general parser
(`walk.py`) parses the first object of each kind, with all rules of the version: the template. The
bytes of the others are compared with their template by array operations, and the bytes that may
differ are checked for all objects together. So this file contains no rule of a schema, and gives
the result of the general parser:

- Starts of objects are guessed from their first bytes, and proved by the names: the first name
  follows the head of the map, and every name lies exactly between two objects.
- Objects are grouped by a hash of some of their bytes, and every group is proved by all bytes.
- The few objects of no kind are parsed one by one, between the others.

If most objects are of no kind, or any object is invalid, `Kinds.read` returns None: the general
parser then parses everything and reports the problems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ztensor.errors import LimitError, ManifestError
from ztensor.spec.model.dtype import decoded_size
from ztensor.spec.model.manifest import TensorObject
from ztensor.spec.model.objects import Bools, Ints, Table, TableObjects, Uints
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import ManifestForm

ReadObject: TypeAlias = Callable[[object, int], tuple[TensorObject | None, int]]

_FEW = 16  # objects of no kind that are allowed, plus one per 16 objects; also the first kinds
_MANY_KINDS = 4  # each further kind needs so many objects
_ROUNDS = 4  # rounds of grouping, for objects that the hash put into a wrong group
_LONGEST = 1024  # longest run before a blob's offset or behind its length, in bytes
_STRIDE = 1 << 18  # bytes searched at a time, which stay in the CPU cache
_SAMPLE = 4096  # bytes that are counted to find the rarest byte of a text
_PAD = 16  # zero bytes behind the manifest, so that a word can be read at each of its bytes
_ROW_COST = 400  # bytes of memory of an object: its columns, its name, and the index of names
_MOST_BYTES = 1 << 50  # of an object, so that no int64 column overflows
_SHAPE = cbor.encode("shape")
_ANY_NAME = "name"  # stands for the name of a template, which is read later
_FAR = np.uint64(1 << 62)  # larger than any offset
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
# By the five low bits of a head: the bytes of its argument, and the smallest one that needs them.
_WIDTHS = np.array([0] * 24 + [1, 2, 4, 8] + [0] * 4)
_LEAST = np.array([0] * 24 + [24, 1 << 8, 1 << 16, 1 << 32] + [0] * 4, np.uint64)
_DIGITS = b"0123456789ABCDEFabcdef"
_IS_DIGIT, _IS_LOWER_DIGIT = (
    np.isin(np.arange(256), list(digits)) for digits in (_DIGITS, b"0123456789abcdef")
)


class _NotBulkError(Exception):
    """The general parser is needed."""


def _require(condition: bool) -> None:  # noqa: FBT001  # as `assert` has it
    if not condition:
        raise _NotBulkError


class _Kind(NamedTuple):
    """A template, and the lengths of its encoded runs in bytes.

    Attributes:
        first: the template, parsed.
        middle: the run between the blob's length and the digest's digits.
        digits: the digits.
        behind: the run behind the digits.
        fixed: the digest's text before the digits.
        length: the blob's length; -1 if it varies within the kind, as for encoded blobs.
    """

    first: TensorObject
    middle: int
    digits: int
    behind: int
    fixed: int
    length: int


class Kinds:
    """A bulk parser of one map of objects.

    Args:
        decoder: a decoder of the manifest's bytes.
        form: the encoded form of the version's plain objects.
        count: number of objects in the map.
        read_object: `(name, start) -> (object or None, end)`, the general parser.
        level: number of items around the map.
    """

    def __init__(
        self,
        decoder: cbor.Decoder,
        form: ManifestForm,
        count: int,
        read_object: ReadObject,
        level: int,
    ) -> None:
        self._decoder, self._level, self._data = decoder, level, decoder.data
        self._form, self._count, self._read_object = form, count, read_object
        self._few = _FEW + count // _FEW

    def read(self, pos: int, blobs_end: int) -> tuple[TableObjects, int] | None:
        """Return the objects and their end; None if the general parser is needed.

        Args:
            pos: offset of the first name.
            blobs_end: the file offset that no blob exceeds.

        Raises:
            LimitError: the objects cost too much.
        """
        budget, length = self._decoder.budget, len(self._data)
        before = budget.bytes_left
        # Outside `try`: the general parser charges more per object and would fail later.
        budget.charge_bytes(length + self._count * _ROW_COST)
        padded = self._data + bytes(_PAD)
        self._octets = np.frombuffer(padded, np.uint8)
        # At each offset, the following eight bytes as a number.
        self._words: Uints = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
        try:
            objects, end = self._read(pos, blobs_end)
        except (_NotBulkError, ManifestError, LimitError, UnicodeDecodeError):
            budget.release_to(before)
            return None
        budget.release_bytes(length)
        return objects, end

    def _read(self, pos: int, blobs_end: int) -> tuple[TableObjects, int]:
        form = self._form
        starts = self._find(form.start, pos, 2 * self._count)
        _require(self._count - self._few <= len(starts) > 0)
        places = self._next(form.place, pos, starts)
        offsets, after, good = self._number(places + len(form.place))
        between = np.uint64(int.from_bytes(form.between, "little"))
        words = self._words[np.minimum(after, len(self._data))]
        good &= words & _MASKS[len(form.between)] == between
        lengths, after, is_number = self._number(after + len(form.between))
        good &= is_number & (offsets >= form.alignment) & (offsets % form.alignment == 0)
        good &= (offsets + lengths <= blobs_end) & (places - starts <= _LONGEST)
        rows = np.flatnonzero(good)
        _require(len(rows) > 0)
        kinds, kind_of = self._kinds(starts[rows], places[rows], after[rows])
        rows, kind_of = rows[kind_of >= 0], kind_of[kind_of >= 0]
        _require(len(rows) > 0)
        middle, count, behind, fixed, length = np.array([kind[1:] for kind in kinds])[kind_of].T
        digits = after[rows] + middle
        good = ((length < 0) | (length == lengths[rows])) & self._are_digits(digits, count)
        ends, texts = (digits + count + behind)[good], (digits - fixed)[good]
        rows, kind_of = rows[good], kind_of[good]
        _require(self._count - len(rows) <= self._few)
        names, order, others, end = self._names(pos, starts[rows], ends)
        table = Table(
            names,
            [kind.first for kind in kinds],
            kind_of,
            offsets[rows],
            lengths[rows],
            texts,
            self._data,
        )
        return TableObjects(table, others, order), end

    # --- Bytes ------------------------------------------------------------------------------

    def _find(self, text: bytes, pos: int, most: int) -> Ints:
        """Return the offsets of a text of at most eight bytes; there may be `most` of them."""
        places, stop = [], len(self._data)
        mask, word = _MASKS[len(text)], np.uint64(int.from_bytes(text, "little"))
        # Search for the text's rarest byte first: letters are everywhere.
        sample = self._data[pos : pos + _SAMPLE]
        rarest = min(range(len(text)), key=lambda index: sample.count(text[index]))
        for low in range(pos + rarest, stop, _STRIDE):
            stride = self._octets[low : min(low + _STRIDE, stop)]
            at = np.flatnonzero(stride == text[rarest]) + (low - rarest)
            places.append(at[self._words[at] & mask == word])
            most -= len(places[-1])
            _require(most >= 0)
        return np.concatenate(places) if places else np.zeros(0, np.int64)

    def _next(self, text: bytes, pos: int, starts: Ints) -> Ints:
        """Return the first offset of a text at or after each start; the data's end if none."""
        places = np.append(self._find(text, pos, 4 * self._count), len(self._data))
        return places[np.searchsorted(places, starts)]

    def _same(self, here: Ints, there: Ints, lengths: Ints) -> Bools:
        """Return a mask: the `lengths` bytes at `here` equal those at `there`; all (rows,)."""
        same = np.ones(len(here), np.bool_)
        last, least = len(self._data), int(lengths.min(initial=_LONGEST))
        for step in range(0, int(lengths.max(initial=0)), 8):
            words = self._words[np.minimum(here + step, last)]
            words ^= self._words[np.minimum(there + step, last)]
            if step + 8 > least:
                words &= _MASKS[np.clip(lengths - step, 0, 8)]
            same &= words == 0
        return same

    def _number(self, at: Ints) -> tuple[Ints, Ints, Bools]:
        """Decode unsigned integers: values, ends, and a mask of the valid ones; all (rows,)."""
        at = np.minimum(at, len(self._data))
        heads = self._octets[at]
        info = heads & 0x1F
        widths = _WIDTHS[info]
        numbers = self._words[np.minimum(at + 1, len(self._data))].byteswap()
        numbers >>= (64 - 8 * np.maximum(widths, 1)).astype(np.uint64)
        numbers = np.where(widths > 0, numbers, info)
        is_number = (heads < 0x1C) & (numbers < _FAR)
        if self._decoder.strict:
            is_number &= numbers >= _LEAST[info]
        return numbers.astype(np.int64), at + 1 + widths, is_number

    def _are_digits(self, at: Ints, counts: Ints) -> Bools:
        """Return a mask: the `counts` bytes at each offset are hexadecimal digits."""
        are_digits = np.ones(len(at), np.bool_)
        table = _IS_LOWER_DIGIT if self._decoder.strict else _IS_DIGIT
        for count in set(counts.tolist()):
            rows = np.flatnonzero(counts == count)
            shape = len(self._octets) - count, count
            windows: Any = np.ndarray(shape, np.uint8, self._octets, 0, (1, 1))
            octets = windows[np.minimum(at[rows], shape[0] - 1)]
            are_digits[rows] = table[octets].all(axis=1)
        return are_digits

    # --- Kinds ------------------------------------------------------------------------------

    def _kinds(self, starts: Ints, places: Ints, after: Ints) -> tuple[list[_Kind], Ints]:
        """Return the kinds, and the index of each object's kind, -1 for none.

        Args:
            starts: (objects,) offsets of the objects.
            places: (objects,) offsets of the bytes before the blob's offset.
            after: (objects,) offsets behind the blob's length.
        """
        guesses = self._guesses(starts, places, after)
        prefixes = places - starts
        kinds: list[_Kind] = []
        kind_of = np.full(len(starts), -1, np.int64)
        rows = np.arange(len(starts))
        for _ in range(_ROUNDS):
            if not len(rows):
                break
            _, firsts, groups = np.unique(guesses[rows], return_index=True, return_inverse=True)
            _require(len(kinds) + len(firsts) <= _FEW + self._count // _MANY_KINDS)
            firsts = rows[firsts]
            codes = np.full(len(firsts), -1, np.int64)
            for group, row in enumerate(firsts.tolist()):
                kind = self._kind(int(starts[row]), int(after[row]))
                if kind is not None:
                    codes[group] = len(kinds)
                    kinds.append(kind)
            candidates = codes[groups]
            plain = np.flatnonzero(candidates >= 0)
            here, there = rows[plain], firsts[groups[plain]]
            sizes = np.array([kind[1:4] for kind in kinds], np.int64).reshape(-1, 3)
            middle, digits, behind = sizes[candidates[plain]].T
            past = middle + digits
            same = prefixes[here] == prefixes[there]
            same &= self._same(starts[here], starts[there], prefixes[there])
            same &= self._same(after[here], after[there], middle)
            same &= self._same(after[here] + past, after[there] + past, behind)
            kind_of[here[same]] = candidates[plain[same]]
            # Objects unlike the first of their group are grouped again, without it.
            rows = rows[(kind_of[rows] < 0) & (rows != firsts[groups])]
        return kinds, kind_of

    def _guesses(self, starts: Ints, places: Ints, after: Ints) -> Uints:
        """Return a hash per object, equal for all objects of a kind."""
        tail = self._form.has_tail
        shapes = self._next(_SHAPE, int(starts[0]), starts) if tail else starts + 1
        shapes = shapes + len(_SHAPE)
        more = (after, after + 8) if tail else (places - 16, places - 24)
        guesses = (places - starts).astype(np.uint64)
        for at in (shapes, shapes + 6, places - 8, *more):
            guesses = (guesses ^ (guesses >> np.uint64(29))) * _MIX
            guesses += self._words[np.clip(at, 0, len(self._data))]
        return guesses

    def _kind(self, start: int, after: int) -> _Kind | None:
        """Parse the first object of a kind; None if it is not plain.

        Nothing remains to be checked of a plain object except its stored bytes.
        """
        tensor_object, end = self._read_object(_ANY_NAME, start)
        if tensor_object is None:
            raise _NotBulkError
        part = tensor_object.only_data
        if part is None or part.has_checked_bools or end - after > _LONGEST:
            return None
        size = decoded_size(part.dtype, part.type, tensor_object.shape)
        if size is None or size > _MOST_BYTES or part.decoded_length not in (None, size):
            return None
        is_raw = part.encoding == "raw"
        if part.length != size if is_raw else part.encoding != self._form.packed:
            return None
        text = part.digest or ""
        fixed = text.find(":") + 1
        fixed += 2 if text[fixed : fixed + 2] in ("0x", "0X") else 0
        at = self._data.find(text.encode(), after, end) if text else end
        digits, middle = len(text) - fixed, at + fixed - after
        behind = end - after - middle - digits
        return _Kind(tensor_object, middle, digits, behind, fixed, size if is_raw else -1)

    # --- Names ------------------------------------------------------------------------------

    def _names(
        self, pos: int, starts: Ints, ends: Ints
    ) -> tuple[list[str], list[str], dict[str, TensorObject], int]:
        """Return names of the rows, names of all objects, the other objects, and the map's end.

        Args:
            pos: offset of the first name.
            starts: (rows,) offsets of the plain objects.
            ends: (rows,) offsets behind them.
        """
        begins = np.append(pos, ends[:-1])
        heads = self._octets[np.minimum(begins, len(self._data))]
        is_long = heads == 0x78
        lengths = np.where(is_long, self._octets[begins + 1], heads - np.uint8(0x60))
        lengths = lengths.astype(np.int64)
        is_name = np.where(is_long, lengths >= 24, (heads >= 0x60) & (heads < 0x78))
        is_name &= begins + 1 + is_long + lengths == starts
        lengths[~is_name] = 0
        names = self._texts(starts - lengths, starts)
        order: list[str] = []
        others: dict[str, TensorObject] = {}
        done = 0
        for row in [*np.flatnonzero(~is_name).tolist(), len(names)]:  # other objects precede these
            order += names[done:row]
            done, at = row, int(begins[row]) if row < len(names) else int(ends[-1])
            while row < len(names) or len(order) < self._count:
                name, at = self._decoder.read(at, self._level + 1)
                if not isinstance(name, str):
                    raise _NotBulkError
                if row < len(names) and at >= starts[row]:
                    _require(at == starts[row])
                    names[row] = name
                    break
                tensor_object, at = self._read_object(name, at)
                if tensor_object is None:
                    raise _NotBulkError
                others[name] = tensor_object
                order.append(name)
        _require(len(order) == self._count and self._form.are_names(order))
        return names, order, others, at

    def _texts(self, starts: Ints, stops: Ints) -> list[str]:
        """Decode the texts `[start, stop)`."""
        budget = self._decoder.budget
        cost = 4 * int((stops - starts).sum())  # if all characters are wide
        budget.charge_bytes(cost)
        places = zip(starts.tolist(), stops.tolist(), strict=True)
        texts = [self._data[start:stop].decode() for start, stop in places]
        if all(map(str.isascii, texts)):
            budget.release_bytes(cost)
        return texts
