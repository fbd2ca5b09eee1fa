"""CBOR (RFC 8949, before that 7049), read: any well-formed item within caps.

Nothing is interpreted: a tag stays a `Tag`, even on a big integer. A map with text keys becomes a
`dict`, any other map `Pairs`: in a `dict` the keys 1, 1.0 and true would be equal, and a file could
choose numbers whose hashes collide.

Each major type has a reader `(decoder, pos, level) -> (value, end)`. Readers do not compare the end
of a short text with the end of the data: beyond it, `data[pos]` raises IndexError and slices are
short, and `Decoder.read` turns both into a truncation error. Memory is charged before it is
allocated: for arrays and maps at their heads, for texts and byte strings one by one.

A strict reading accepts only the deterministic form that `deterministic.py` writes (RFC 8949
section 4.2.1), without tags and without simple values other than false, true and null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeAlias

from ztensor.errors import LimitError, ManifestError, Reason, ZTensorError, describe
from ztensor.limits import Budget, Limits
from ztensor.spec.wire.deterministic import ARRAY as ARRAY
from ztensor.spec.wire.deterministic import BYTES, FLOATS, TEXT, is_container, shown
from ztensor.spec.wire.deterministic import MAP as MAP
from ztensor.spec.wire.deterministic import TAG as TAG
from ztensor.spec.wire.deterministic import UINT64_MAX as UINT64_MAX
from ztensor.spec.wire.deterministic import UNDEFINED as UNDEFINED
from ztensor.spec.wire.deterministic import Encoded as Encoded
from ztensor.spec.wire.deterministic import Fields as Fields
from ztensor.spec.wire.deterministic import Pairs as Pairs
from ztensor.spec.wire.deterministic import Simple as Simple
from ztensor.spec.wire.deterministic import Tag as Tag
from ztensor.spec.wire.deterministic import encode as encode
from ztensor.spec.wire.deterministic import head as head
from ztensor.spec.wire.deterministic import key_order as key_order
from ztensor.spec.wire.deterministic import with_dicts as with_dicts

Visit: TypeAlias = Callable[[Any, int], tuple[object, int]]

_BREAK = 0xFF
_ENDLESS = -1
# By the five low bits of a head: the reader of its argument, the argument's bytes, and the smallest
# argument that needs them.
_LONG_HEADS = {
    24: (struct.Struct(">B").unpack_from, 1, 24),
    25: (struct.Struct(">H").unpack_from, 2, 1 << 8),
    26: (struct.Struct(">I").unpack_from, 4, 1 << 16),
    27: (struct.Struct(">Q").unpack_from, 8, 1 << 32),
}
_SIMPLES = (*map(Simple, range(20)), False, True, None, *map(Simple, range(23, 256)))
_WORDS = 512  # interned short texts per manifest: the schema's words are among the first

# Upper bounds in bytes of the memory that CPython takes for: an array, map or tag; an item of an
# array with its number; a pair of a map with its number; the identity of a key that is not text;
# a text or byte string without its bytes; a byte of an array or map that is encoded as a key.
_CONTAINER, _ITEM, _PAIR, _KEY, _STRING, _KEY_BYTE = 96, 64, 160, 200, 80, 100
# For a byte of a text that is not ASCII: afterwards, and while it is decoded and widened.
_WIDE, _WIDENED = 4, 6

_SECTIONS = {
    Reason.CBOR_UTF8: "RFC 8949 section 3.1",
    Reason.CBOR_FORM: "RFC 8949 section 4.2.1",
    Reason.CBOR_DUPLICATE_KEY: "RFC 8949 section 5.6",
}


def decode(
    data: bytes | memoryview,
    *,
    depth: int = 64,
    budget: Budget | None = None,
    strict: bool = False,
) -> object:
    """Decode `data`, which must be exactly one item.

    Byte strings become `bytes`, texts `str`, arrays `list`, maps with text keys `dict` in the
    order of the file, other maps `Pairs`, null None; the rest `Tag`, `Simple` and `UNDEFINED`.
    Keys are equal if type and value are: 1 in any length is one key, 1.0 and true are two more;
    all NaNs are one key.

    Time: linear in the bytes. Nothing is allocated for a declared count or length before it is
    compared with the remaining bytes.

    Args:
        data: the item's bytes.
        depth: deepest nesting; each array, map and tag counts one.
        budget: is charged for the item's memory before it is allocated.
        strict: accept the deterministic form only: definite lengths, shortest heads and floats,
            keys in the order of their bytes, no tags, no simple values but false, true and null.

    Raises:
        ManifestError: not exactly one well-formed item (CBOR_TRUNCATED, CBOR_MALFORMED,
            CBOR_TRAILING), a key twice in a map (CBOR_DUPLICATE_KEY), text that is not UTF-8
            (CBOR_UTF8), or, if `strict`, not the deterministic form (CBOR_FORM).
        LimitError: it nests deeper than `depth`, or costs more than the budget.
    """
    decoder = Decoder(bytes(data), budget, depth=depth, strict=strict)
    value, end = decoder.read(0)
    decoder.require_end(end)
    return value


class Decoder:
    """Decodes items of one buffer at any positions; arguments as in `decode`."""

    __slots__ = ("_words", "budget", "data", "depth", "strict")

    def __init__(
        self, data: bytes, budget: Budget | None = None, *, depth: int = 64, strict: bool = False
    ) -> None:
        self.data, self.depth, self.strict = data, depth, strict
        self.budget = Budget(Limits(cost_floor=1 << 62), 0) if budget is None else budget
        self._words: dict[bytes, str] = {}

    def read(self, pos: int, level: int = 0) -> tuple[Any, int]:
        """Decode the item at `pos`; return it and its end.

        Args:
            pos: offset of the item's head.
            level: number of items around it.

        Raises:
            ManifestError: as `decode`; but other bytes may follow the item.
            LimitError: as `decode`.
        """
        value: Any
        try:
            value, end = _READERS[self.data[pos] >> 5](self, pos, level)
        except (IndexError, struct.error):
            raise self._truncated() from None
        except RecursionError:
            raise self._too_deep(pos) from None
        if end > len(self.data):
            raise self._truncated()
        return value, end

    def visit(self, pos: int, level: int, read: Visit) -> tuple[Any, int]:
        """Decode the map or array at `pos` with a function for its values; return it and its end.

        Args:
            pos: offset of the item's head.
            level: number of items around it.
            read: `(key, start) -> (value, end)` decodes, and charges, each value of a map. Also
                each item of an array, with its index as key; an array is returned empty.

        Raises:
            ManifestError: as `read`.
            LimitError: as `read`.
        """
        kind = self.kind(pos)
        if kind not in (ARRAY, MAP):
            return self.read(pos, level)
        count, pos = self.enter(pos, level)
        values: dict[str | bytes, object] = {}
        others: dict[str | bytes, object] = {}  # encoded form to key, of keys that are not text
        before, number = b"", 0
        while number != count:
            if count < 0 and self.data[pos : pos + 1] == b"\xff":
                pos += 1
                break
            if kind == ARRAY:
                _, pos = read(number, pos)
            else:
                start, (key, pos) = pos, self.read(pos, level + 1)
                form = key
                if type(key) is not str:
                    self.budget.charge_bytes(_KEY + _PAIR)
                    form = self._identity(key, pos - start)
                    others[form] = key
                if form in values:
                    raise duplicate_key(start, key)
                if self.strict and self.data[start:pos] < before:
                    raise unsorted(start)
                before = self.data[start:pos]
                values[form], pos = read(key, pos)
            number += 1
        if kind == ARRAY:
            return [], pos
        pairs = Pairs((others.get(form, form), value) for form, value in values.items())
        return pairs if others else values, pos

    def kind(self, pos: int) -> int | None:
        """Return the major type of the item at `pos`; None at the end of the data."""
        return self.data[pos] >> 5 if pos < len(self.data) else None

    def enter(self, pos: int, level: int, cost: int = 0) -> tuple[int, int]:
        """Decode the head of the array, map or tag at `pos`; return its count and the head's end.

        The count is -1 for an indefinite length; otherwise the remaining bytes are enough for it.

        Args:
            pos: offset of the head.
            level: number of items around it.
            cost: bytes to charge per item or pair, if the length is definite.

        Raises:
            ManifestError: the head is malformed, or the item is truncated.
            LimitError: it nests too deep, or costs too much.
        """
        try:
            first = self.data[pos]
        except IndexError:
            raise self._truncated() from None
        count, end = first & 0x1F, pos + 1
        if count > 23:
            count, end = self._head(pos)
            if count * ((first >> 5) - TEXT) > len(self.data) - end and first >> 5 != TAG:
                raise self._truncated()
        if level >= self.depth:
            raise self._too_deep(pos)
        budget = self.budget
        budget.bytes_left -= _CONTAINER + cost * count
        if budget.bytes_left < 0:
            raise budget.exceeded()
        return count, end

    def require_end(self, pos: int) -> None:
        """Check that `pos` is the end of the data.

        Raises:
            ManifestError: more bytes follow.
        """
        if pos < len(self.data):
            found = f"{len(self.data) - pos} more bytes"
            raise malformed(Reason.CBOR_TRAILING, pos, "the manifest's end", found)

    def _head(self, pos: int, _: int = 0) -> tuple[int, int]:
        """Decode the head at `pos`: its argument, -1 for an indefinite length, and its end.

        It is also the reader of unsigned integers.
        """
        first = self.data[pos]
        info, end = first & 0x1F, pos + 1
        if info < 24:
            return info, end
        if info < 28:
            unpack, size, least = _LONG_HEADS[info]
            if end + size > len(self.data):
                raise self._truncated()
            (argument,) = unpack(self.data, end)
            if argument < least and first < 0xE0:
                self._refuse(pos, f"the shortest head for {argument}", f"{size + 1} bytes")
            return argument, end + size
        if info < 31 or not BYTES <= first >> 5 <= MAP:
            found = f"byte 0x{first:02x}"
            raise malformed(Reason.CBOR_MALFORMED, pos, "an item", found)
        self._refuse(pos, "a definite length", "an indefinite one")
        return _ENDLESS, end

    def _negative(self, pos: int, _: int) -> tuple[int, int]:
        argument, end = self._head(pos)
        return -1 - argument, end

    def _string(self, pos: int, _: int) -> tuple[bytes | str, int]:
        first = self.data[pos]
        if 0x5F < first < 0x78:  # a short text, whose end is not compared with the data's
            end = pos + first - 0x5F
            word = self._words.get(self.data[pos + 1 : end])
            return (self._text(pos + 1, end) if word is None else word), end
        length, begin = self._head(pos)
        if length == _ENDLESS:
            return self._chunks(begin, first >> 5)
        end = begin + length
        if end > len(self.data):
            raise self._truncated()
        if first >> 5 == TEXT:
            return self._text(begin, end), end
        self.budget.charge_bytes(_STRING + length)
        return self.data[begin:end], end

    def _text(self, begin: int, end: int) -> str:
        """Decode and intern a text; a short one may extend beyond the data, and is then wrong."""
        budget, length = self.budget, end - begin
        budget.charge_bytes(_STRING + 2 * length)  # the sliced bytes and the characters
        raw = self.data[begin:end]
        is_ascii = raw.isascii()
        if not is_ascii:
            budget.charge_bytes((_WIDENED - 1) * length)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            if end > len(self.data):
                raise self._truncated() from None
            found = f"{describe(raw[error.start : error.end])} ({error.reason})"
            at = begin + error.start
            raise malformed(Reason.CBOR_UTF8, at, "UTF-8", found) from None
        budget.bytes_left += length if is_ascii else (1 + _WIDENED - _WIDE) * length
        if len(raw) < 24 and len(self._words) < _WORDS:
            self._words[raw] = text
        return text

    def _chunks(self, pos: int, kind: int) -> tuple[bytes | str, int]:
        """Read a byte string or text of indefinite length; each chunk must be valid UTF-8."""
        left = self.budget.bytes_left
        chunks: list[Any] = []
        length = 0
        while (first := self.data[pos]) != _BREAK:
            if first >> 5 != kind or first & 0x1F == 0x1F:
                expected, found = "a chunk of definite length, or a break", f"byte 0x{first:02x}"
                raise malformed(Reason.CBOR_MALFORMED, pos, expected, found)
            chunk, end = self._string(pos, 0)
            length += end - pos
            pos = end
            if chunk:
                self.budget.charge_bytes(_ITEM)
                chunks.append(chunk)
        is_wide = kind == TEXT and not all(map(str.isascii, chunks))
        cost = _STRING + length * (_WIDE if is_wide else 1)
        self.budget.charge_bytes(cost)
        whole: bytes | str = (b"" if kind == BYTES else "").join(chunks)
        self.budget.release_to(left - cost)
        return whole, pos + 1

    def _array(self, pos: int, level: int) -> tuple[list[object], int]:
        data = self.data
        count, pos = self.enter(pos, level, _ITEM)
        item: object
        items: list[object] = []
        for _ in range(count) if count >= 0 else self._endless(_ITEM):
            first = data[pos]
            if first == _BREAK and count < 0:
                return items, pos + 1
            if first < 0x18:
                item, pos = first, pos + 1
            else:
                item, pos = _READERS[first >> 5](self, pos, level + 1)
            items.append(item)
        return items, pos

    def _map(self, pos: int, level: int) -> tuple[dict[str, object] | Pairs, int]:
        """Read a map; short text keys are decoded inline."""
        data, words, strict = self.data, self._words, self.strict
        count, pos = self.enter(pos, level, _PAIR)
        fields: dict[str, object] = {}
        key: Any
        before = b""
        for _ in range(count) if count >= 0 else self._endless(_PAIR):
            start, first = pos, data[pos]
            if 0x5F < first < 0x78:
                pos += first - 0x5F
                key = words.get(data[start + 1 : pos])
                if key is None:
                    key = self._text(start + 1, pos)
            elif first >> 5 == TEXT:
                key, pos = self._string(start, level)
            elif first == _BREAK and count < 0:
                return fields, pos + 1
            else:
                return self._pairs(fields, pos, count, level)
            first = data[pos]  # IndexError for a truncated key, before it is compared
            if key in fields:
                raise duplicate_key(start, key)
            if strict:
                form = data[start:pos]
                if form < before:
                    raise unsorted(start)
                before = form
            if first < 0x18:
                fields[key], pos = first, pos + 1
            else:
                fields[key], pos = _READERS[first >> 5](self, pos, level + 1)
        return fields, pos

    def _pairs(
        self, fields: dict[str, object], pos: int, count: int, level: int
    ) -> tuple[Pairs, int]:
        """Read the rest of a map from its first key that is not text; compare encoded keys."""
        pairs: list[tuple[object, object]] = [*fields.items()]
        seen = set(map(encode, fields))
        before = max(seen, default=b"")
        self.budget.charge_bytes((_KEY + _PAIR) * max(count, len(pairs)))
        for _ in range(count - len(pairs)) if count >= 0 else self._endless(_KEY + _PAIR):
            if count < 0 and self.data[pos] == _BREAK:
                pos += 1
                break
            key, end = _READERS[self.data[pos] >> 5](self, pos, level + 1)
            value, behind = _READERS[self.data[end] >> 5](self, end, level + 1)
            form = self._identity(key, end - pos)
            if form in seen:
                raise duplicate_key(pos, key)
            if self.strict and form < before:
                raise unsorted(pos)
            seen.add(form)
            before, pos = form, behind
            pairs.append((key, value))
        self.budget.release_bytes(_KEY * len(pairs))
        return Pairs(pairs), pos

    def _identity(self, key: object, length: int) -> bytes:
        """Return the deterministic form of a key: equal for equal keys only."""
        if not is_container(key):
            return encode(key)
        with self.budget.lent(length * _KEY_BYTE):
            form = encode(key, self.depth)
        self.budget.charge_steps(len(form))  # nested keys are encoded again on every level
        return form

    def _tag(self, pos: int, level: int) -> tuple[Tag, int]:
        number, end = self.enter(pos, level, 0)
        self.budget.charge_bytes(_ITEM)
        self._refuse(pos, "no tag", "a tag")
        value, end = _READERS[self.data[end] >> 5](self, end, level + 1)
        return Tag(number, value), end

    def _other(self, pos: int, _: int) -> tuple[object, int]:
        first = self.data[pos]
        if first == _BREAK:
            raise malformed(Reason.CBOR_MALFORMED, pos, "an item", "a break")
        argument, end = self._head(pos)
        if first in FLOATS:
            (value,) = FLOATS[first].unpack_from(self.data, pos + 1)
            if self.strict and encode(value) != self.data[pos:end]:
                self._refuse(pos, "the shortest float that keeps the value", "another")
            return value, end
        if first == 0xF8 and argument < 32:
            expected = "a simple value of 32 to 255 in the second byte"
            raise malformed(Reason.CBOR_MALFORMED, pos, expected, str(argument))
        if not 0xF4 <= first <= 0xF6:
            self._refuse(pos, "false, true or null", f"simple value {argument}")
        return _SIMPLES[argument], end

    def _endless(self, cost: int) -> Iterator[None]:
        """Charge `cost` and yield, without end: the loop over items of indefinite length."""
        return map(self.budget.charge_bytes, repeat(cost))

    def _refuse(self, pos: int, expected: str, found: str) -> None:
        """Raise CBOR_FORM in a strict reading."""
        if self.strict:
            raise malformed(Reason.CBOR_FORM, pos, expected, found)

    def _truncated(self) -> ManifestError:
        """Return the error for an item that extends beyond the data."""
        at = len(self.data)
        return malformed(Reason.CBOR_TRUNCATED, at, "an item", f"the manifest's end at byte {at}")

    def _too_deep(self, pos: int) -> ZTensorError:
        expected, found = f"at most {self.depth} levels", "one more"
        if (
            self.strict and self.depth < self.budget.limits.depth
        ):  # the format's cap, not the user's
            return malformed(Reason.CBOR_FORM, pos, expected, found)
        return LimitError(
            f"the manifest nests deeper than Limits.depth at byte {pos}",
            reason=Reason.LIMIT_DEPTH,
            expected=expected,
            found=found,
        )


_READERS = (
    Decoder._head,
    Decoder._negative,
    Decoder._string,
    Decoder._string,
    Decoder._array,
    Decoder._map,
    Decoder._tag,
    Decoder._other,
)


def malformed(reason: Reason, pos: int, expected: str, found: str) -> ManifestError:
    """Return the error for bytes that break a rule of CBOR, or of its deterministic form."""
    rule = "in deterministic form" if reason is Reason.CBOR_FORM else "valid CBOR"
    return ManifestError(
        f"the manifest is not {rule} at byte {pos}",
        reason=reason,
        expected=expected,
        found=found,
        section=_SECTIONS.get(reason, "RFC 8949 section 3"),
    )


def duplicate_key(pos: int, key: object) -> ManifestError:
    """Return the error for a repeated key of a map."""
    found = f"the key {shown(key)} a second time"
    return malformed(Reason.CBOR_DUPLICATE_KEY, pos, "each key of a map once", found)


def unsorted(pos: int) -> ManifestError:
    """Return the error for a key that is out of order."""
    expected = "keys in the order of their encoded bytes"
    return malformed(Reason.CBOR_FORM, pos, expected, "a key behind a larger one")
