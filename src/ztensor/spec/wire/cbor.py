"""CBOR (RFC 8949, before that 7049), read: any well-formed item within caps.

Nothing is interpreted: a tag stays a `Tag`, on a big integer too. A map with text keys is a
`dict`; one with any other key is a `Pairs`, since the keys 1, 1.0 and true would be one key of a
`dict`, and numbers a file chooses can be made to collide there.

A reader of one kind of item is a function `(decoder, pos, level) -> (value, end)`. No reader
compares the end of a short text with the end of the data: behind that `data[pos]` is an IndexError
and a slice is short, and `Decoder.read` looks once. Memory is charged before it is taken: of arrays
and maps when they begin, of texts and byte strings when they are met.

A strict reading takes the one deterministic form alone that `deterministic.py` writes (RFC 8949
section 4.2.1), and of what that can say neither tags nor simple values beside false, true and null.
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
# By the five low bits of a head: what reads its argument, its bytes, and the least that needs it.
_LONG_HEADS = {
    24: (struct.Struct(">B").unpack_from, 1, 24),
    25: (struct.Struct(">H").unpack_from, 2, 1 << 8),
    26: (struct.Struct(">I").unpack_from, 4, 1 << 16),
    27: (struct.Struct(">Q").unpack_from, 8, 1 << 32),
}
_SIMPLES = (*map(Simple, range(20)), False, True, None, *map(Simple, range(23, 256)))
_WORDS = 512  # short texts that one manifest shares; its own words are among the first it has

# Bytes of memory that items take at most in CPython: an array, map or tag; an item of an array with
# a number; a pair of a map with one; what tells a key that is not text from others; a text or byte
# string beside its bytes; and, while it is written, each byte of a key that is an array or a map.
_CONTAINER, _ITEM, _PAIR, _KEY, _STRING, _KEY_BYTE = 96, 64, 160, 200, 80, 100
# Of a byte of a text that is not ASCII; and while it is decoded, first to narrower characters.
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
    """Return the one item `data` holds.

    Byte strings become `bytes`, texts `str`, arrays `list`, maps with text keys `dict` in the
    order of the file, other maps `Pairs`, null None; `Tag`, `Simple` and `UNDEFINED` are the rest.
    Keys are equal when type and value are: 1 in any length is one key, 1.0 and true are two more;
    every NaN is the same key.

    Cost: linear in the bytes. Nothing is allocated for a declared count or length before that
    many bytes are known to follow.

    Args:
        data: the item's bytes, and no more.
        depth: deepest nesting; each array, map and tag counts one.
        budget: is charged what the item takes, before it is taken.
        strict: whether only the deterministic form is taken: definite lengths, shortest heads and
            floats, keys in the order of their bytes, no tags, no undefined or unnamed values.

    Raises:
        ManifestError: not exactly one well-formed item (CBOR_TRUNCATED, CBOR_MALFORMED,
            CBOR_TRAILING), a key twice in a map (CBOR_DUPLICATE_KEY), or text that is not UTF-8
            (CBOR_UTF8), or, where `strict`, another form than that one (CBOR_FORM).
        LimitError: it nests deeper than `depth`, or costs more than the budget has.
    """
    decoder = Decoder(bytes(data), budget, depth=depth, strict=strict)
    value, end = decoder.read(0)
    decoder.require_end(end)
    return value


class Decoder:
    """Reads items of some bytes one by one, wherever they begin; see `decode`."""

    __slots__ = ("_words", "budget", "data", "depth", "strict")

    def __init__(
        self, data: bytes, budget: Budget | None = None, *, depth: int = 64, strict: bool = False
    ) -> None:
        self.data, self.depth, self.strict = data, depth, strict
        self.budget = Budget(Limits(cost_floor=1 << 62), 0) if budget is None else budget
        self._words: dict[bytes, str] = {}

    def read(self, pos: int, level: int = 0) -> tuple[Any, int]:
        """Return the item at `pos`, inside of so many others, and where it ends.

        Raises:
            ManifestError: as `decode`; anything may follow the item.
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
        """Return the item at `pos`, and where it ends; its values are read, and charged, elsewhere.

        Args:
            pos: where it begins.
            level: in how many others it is.
            read: `(key, start) -> (value, end)` reads each value of a map. Each item of an array,
                too, whose key is its number; of an array none is returned.

        Raises:
            ManifestError: as `read`.
            LimitError: as `read`.
        """
        kind = self.kind(pos)
        if kind not in (ARRAY, MAP):
            return self.read(pos, level)
        count, pos = self.enter(pos, level)
        values: dict[str | bytes, object] = {}
        others: dict[str | bytes, object] = {}  # keys that are not text, by their form
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
        """Return the major type of the item at `pos`; None behind the end."""
        return self.data[pos] >> 5 if pos < len(self.data) else None

    def enter(self, pos: int, level: int, cost: int = 0) -> tuple[int, int]:
        """Return the count of the array, map or tag at `pos`, -1 for an open one, and its end.

        An array of so many items, or a map of so many pairs, fits into the bytes that are left.

        Args:
            pos: where it begins.
            level: in how many others it is.
            cost: bytes of memory that are charged for each item or pair; of an open one later.

        Raises:
            ManifestError: its head is malformed, or it is cut.
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
        """Raise where bytes follow the last item.

        Raises:
            ManifestError: some do.
        """
        if pos < len(self.data):
            found = f"{len(self.data) - pos} more bytes"
            raise malformed(Reason.CBOR_TRAILING, pos, "the manifest's end", found)

    def _head(self, pos: int, _: int = 0) -> tuple[int, int]:
        """Return the argument of the head at `pos`, -1 for an open length, and where it ends.

        Of an unsigned integer, which is its argument, this is the reader.
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
        self._refuse(pos, "a definite length", "an open one")
        return _ENDLESS, end

    def _negative(self, pos: int, _: int) -> tuple[int, int]:
        argument, end = self._head(pos)
        return -1 - argument, end

    def _string(self, pos: int, _: int) -> tuple[bytes | str, int]:
        first = self.data[pos]
        if 0x5F < first < 0x78:  # a short text, which need not end where the data does
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
        """Return a text that no word is; of a short one it is not known whether it is cut."""
        budget, length = self.budget, end - begin
        budget.charge_bytes(_STRING + 2 * length)  # its bytes, and its characters
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
        """Read a byte string or text of open length; each chunk of a text is valid by itself."""
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
        """Read a map; short texts, which most keys are, are read here."""
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
            first = data[pos]  # behind the end where the key is cut: then it is no key at all
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
        """Read the rest of a map whose next key is no text. Equal keys are written alike."""
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
        """Return bytes that equal keys have and no others: the one form they are written in."""
        if not is_container(key):
            return encode(key)
        with self.budget.lent(length * _KEY_BYTE):
            form = encode(key, self.depth)
        self.budget.charge_steps(len(form))  # the key may lie in a key itself, and so on
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
        """Yield for each item of an open array or map, and charge it."""
        return map(self.budget.charge_bytes, repeat(cost))

    def _refuse(self, pos: int, expected: str, found: str) -> None:
        """Raise for what the one form has not, where only that is read."""
        if self.strict:
            raise malformed(Reason.CBOR_FORM, pos, expected, found)

    def _truncated(self) -> ManifestError:
        """Return the error for an item that goes on behind the end."""
        at = len(self.data)
        return malformed(Reason.CBOR_TRUNCATED, at, "an item", f"the manifest's end at byte {at}")

    def _too_deep(self, pos: int) -> ZTensorError:
        expected, found = f"at most {self.depth} levels", "one more"
        if self.strict and self.depth < self.budget.limits.depth:  # a limit of the form
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
    """Return the error for bytes that break a rule of CBOR, or of its one form."""
    what = "in deterministic form" if reason is Reason.CBOR_FORM else "valid CBOR"
    return ManifestError(
        f"the manifest is not {what} at byte {pos}",
        reason=reason,
        expected=expected,
        found=found,
        section=_SECTIONS.get(reason, "RFC 8949 section 3"),
    )


def duplicate_key(pos: int, key: object) -> ManifestError:
    """Return the error for a key that a map has twice."""
    found = f"the key {shown(key)} a second time"
    return malformed(Reason.CBOR_DUPLICATE_KEY, pos, "each key of a map once", found)


def unsorted(pos: int) -> ManifestError:
    """Return the error for a key that comes too late."""
    expected = "keys in the order of their encoded bytes"
    return malformed(Reason.CBOR_FORM, pos, expected, "a key behind a larger one")
