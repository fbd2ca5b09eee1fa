"""CBOR, read: any well-formed item within caps.

A reader of one kind of item is a function `(decoder, pos, level) -> (value, end)`. None of them
compares the end of a short text with the end of the data: behind that `data[pos]` is an IndexError
and a slice is short, and `Decoder.read` looks once. Memory is charged before it is taken: of arrays
and maps when they begin, of texts and byte strings when they are met.

A strict reading takes the one deterministic form alone that `encoding.py` writes (RFC 8949 section
4.2.1), and of what that can say neither tags nor simple values beside false, true and null.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ztensor.errors import LimitError, ManifestError, NotRepresentableError, Reason, describe
from ztensor.limits import Budget, Limits
from ztensor.spec.wire.cbor.encoding import FLOATS, encode
from ztensor.spec.wire.cbor.values import UNDEFINED, Pairs, Simple, Tag, is_container

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADS = "RFC 8949 section 3"
_TEXTS = "RFC 8949 section 3.1"
_BREAKS = "RFC 8949 section 3.2.1"
_CHUNKS = "RFC 8949 section 3.2.3"
_SIMPLES = "RFC 8949 section 3.3"
_FORM = "RFC 8949 section 4.2.1"
_KEYS = "RFC 8949 section 5.6"

UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, OTHER = range(8)
_KINDS = (
    "an unsigned integer", "a negative integer", "a byte string", "a text",
    "an array", "a map", "a tag", "a simple value",
)  # fmt: skip
_BREAK = 0xFF
_ENDLESS = -1
# By the five low bits of a head: what reads its argument, its bytes, and the least that needs it.
_LONG_HEADS = {
    24: (struct.Struct(">B").unpack_from, 2, 24),
    25: (struct.Struct(">H").unpack_from, 3, 1 << 8),
    26: (struct.Struct(">I").unpack_from, 5, 1 << 16),
    27: (struct.Struct(">Q").unpack_from, 9, 1 << 32),
}
_CONSTANTS: dict[int, object] = {0xF4: False, 0xF5: True, 0xF6: None, 0xF7: UNDEFINED}
_SIMPLE = tuple(map(Simple, range(256)))  # a file may hold millions of them
_WORDS = 512  # short texts that one manifest shares; its own words are among the first it has

# Bytes of memory that items take at most in CPython: an array, map or tag; an item of an array with
# a number; a pair of a map with one; what tells a key that is not text from others; a text or byte
# string beside its bytes; and, while it is written, each byte of a key that is an array or a map.
_CONTAINER, _ITEM, _PAIR, _KEY, _STRING, _KEY_BYTE = 96, 64, 160, 200, 80, 100
# Of a byte of a text that is not ASCII; and while it is decoded, first to narrower characters.
_WIDE, _WIDENED = 4, 6


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
    """Reads items of some bytes one by one, wherever they begin; see `decode`.

    Args:
        data: the bytes.
        budget: is charged what items take, before it is taken.
        depth: deepest nesting.
        strict: whether only the deterministic form is taken.
    """

    __slots__ = ("_left", "_words", "budget", "data", "depth", "strict")

    def __init__(
        self, data: bytes, budget: Budget | None = None, *, depth: int = 64, strict: bool = False
    ) -> None:
        self.data, self.depth, self.strict = data, depth, strict
        self.budget = Budget(Limits(cost_floor=1 << 62), 0) if budget is None else budget
        self._left = self.budget.bytes_left
        self._words: dict[bytes, str] = {}

    def read(self, pos: int, level: int = 0) -> tuple[object, int]:
        """Return the item at `pos`, inside of so many others, and where it ends.

        Raises:
            ManifestError: as `decode`; anything may follow the item.
            LimitError: as `decode`.
        """
        before = self._left = self.budget.bytes_left
        try:
            value, end = self._item(pos, level)
        except (IndexError, struct.error):
            raise self.truncated() from None
        except RecursionError:
            raise self._too_deep(pos) from None
        if end > len(self.data):
            raise self.truncated()
        self.budget.charge_bytes(before - self._left)
        return value, end

    def kind(self, pos: int) -> int | None:
        """Return the major type of the item at `pos`; None behind the end."""
        return self.data[pos] >> 5 if pos < len(self.data) else None

    def head(self, pos: int, _: int = 0) -> tuple[int, int]:
        """Return the argument of the head at `pos`, -1 for an open length, and where it ends.

        Of an unsigned integer, which is its argument, this is the reader.

        Raises:
            ManifestError: it is cut or reserved, or has no argument; or, where `strict`, is not the
                shortest of a definite length.
        """
        first = self.data[pos]
        info = first & 0x1F
        if info < 24:
            return info, pos + 1
        if info < 28:
            unpack, size, least = _LONG_HEADS[info]
            try:
                (argument,) = unpack(self.data, pos + 1)
            except struct.error:
                raise self.truncated(pos) from None
            if self.strict and argument < least and first < 0xE0:
                raise other_form(pos, f"the shortest head for {argument}", f"{size} bytes")
            return argument, pos + size
        if info < 31:
            expected = "additional information 0 to 27 or 31"
            raise _malformed(pos, expected, f"the reserved {info}", _HEADS)
        if not BYTES <= first >> 5 <= MAP:
            found = f"an indefinite length on {_KINDS[first >> 5]}"
            raise _malformed(pos, "a definite head", found, _BREAKS)
        if self.strict:
            raise other_form(pos, "a definite length", "an open one")
        return _ENDLESS, pos + 1

    def enter(self, pos: int, level: int, cost: int = 0) -> tuple[int, int]:
        """Return the count of the array, map or tag at `pos`, -1 for an open one, and its end.

        An array of so many items, or a map of so many pairs, fits into the bytes that are left.

        Args:
            pos: where it begins.
            level: in how many others it is.
            cost: bytes of memory that are charged for each item or pair.

        Raises:
            ManifestError: as `head`, or it is cut.
            LimitError: it nests too deep.
        """
        try:
            first = self.data[pos]
        except IndexError:
            raise self.truncated() from None
        count, end = first & 0x1F, pos + 1
        if count > 23:
            count, end = self.head(pos)
            kind = first >> 5
            if count * (kind - TEXT) > len(self.data) - end and kind != TAG:
                raise self.truncated(
                    pos, f"{_KINDS[kind]} of {count} {'pairs' if kind == MAP else 'items'}"
                )
        if level >= self.depth:
            raise self._too_deep(pos)
        left = self._left = self._left - _CONTAINER - cost * count  # an open one: later
        if left < 0:
            raise self.budget.exceeded()
        return count, end

    def require_end(self, pos: int) -> None:
        """Raise where bytes follow the last item.

        Raises:
            ManifestError: some do.
        """
        if pos < len(self.data):
            found = f"{len(self.data) - pos} more bytes"
            raise _error(Reason.CBOR_TRAILING, pos, "the manifest's end", found, _HEADS)

    # --- Kinds of items -----------------------------------------------------------------------

    def _item(self, pos: int, level: int) -> tuple[object, int]:
        first = self.data[pos]
        if first < 0x18:
            return first, pos + 1
        return _READERS[first >> 5](self, pos, level)

    def _negative(self, pos: int, _: int) -> tuple[int, int]:
        argument, end = self.head(pos)
        return -1 - argument, end

    def _string(self, pos: int, _: int) -> tuple[bytes | str, int]:
        first = self.data[pos]
        kind = first >> 5
        if 0x5F < first < 0x78:  # a short text, which need not end where the data does
            end = pos + first - 0x5F
            word = self._words.get(self.data[pos + 1 : end])
            return (self._text(pos + 1, end) if word is None else word), end
        length, begin = self.head(pos)
        if length == _ENDLESS:
            return self._chunks(begin, kind)
        end = begin + length
        if end > len(self.data):
            raise self.truncated(pos, f"{_KINDS[kind]} of {length} bytes")
        if kind == TEXT:
            return self._text(begin, end), end
        self._charge(_STRING + length)
        return self.data[begin:end], end

    def _text(self, begin: int, end: int) -> str:
        """Return a text that no word is; of a short one it is not known whether it is cut."""
        left = self._left = self._left - _STRING - 2 * (end - begin)  # bytes, and characters
        if left < 0:
            raise self.budget.exceeded()
        raw = self.data[begin:end]
        if raw.isascii():
            text = raw.decode()
        else:
            self._charge((_WIDENED - 1) * len(raw))
            text = self._decoded(raw, begin, end)
            self._left += (_WIDENED - _WIDE) * len(raw)
        self._left += end - begin  # the bytes are gone, or one of few words
        if len(raw) < 24 and len(self._words) < _WORDS:
            self._words[raw] = text
        return text

    def _decoded(self, raw: bytes, begin: int, end: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if end > len(self.data):
                raise self.truncated() from None
            found = f"{describe(raw[error.start : error.end])} ({error.reason})"
            raise _error(Reason.CBOR_UTF8, begin + error.start, "UTF-8", found, _TEXTS) from None

    def _chunks(self, pos: int, kind: int) -> tuple[bytes | str, int]:
        """Read a byte string or text of open length; each chunk of a text is valid by itself."""
        data, whole = self.data, bytearray()
        while (first := data[pos]) != _BREAK:
            if first >> 5 != kind or first & 0x1F == 0x1F:
                expected = f"{_KINDS[kind]} of definite length, or a break"
                raise _malformed(pos, expected, f"byte 0x{first:02x}", _CHUNKS)
            length, begin = self.head(pos)
            pos = begin + length
            if pos > len(data):
                raise self.truncated()
            self._charge(2 * length)
            chunk = data[begin:pos]
            if kind == TEXT and not chunk.isascii():
                self._charge(_WIDENED * length)
                self._decoded(chunk, begin, pos)
                self._left += _WIDENED * length
            whole += chunk
        self._charge(_STRING + len(whole) * (1 if kind == BYTES or whole.isascii() else _WIDENED))
        return (bytes(whole) if kind == BYTES else whole.decode()), pos + 1

    def _array(self, pos: int, level: int) -> tuple[list[object], int]:
        data = self.data
        count, pos = self.enter(pos, level, _ITEM)
        items: list[object] = []
        item: object
        for _ in range(count) if count >= 0 else self._endless(_ITEM):
            first = data[pos]
            if first < 0x18:
                item, pos = first, pos + 1
            elif first == _BREAK and count < 0:
                return items, pos + 1
            else:
                item, pos = _READERS[first >> 5](self, pos, level + 1)
            items.append(item)
        return items, pos

    def _map(self, pos: int, level: int) -> tuple[dict[str, object] | Pairs, int]:
        """Read a map; short texts, which most keys and many values are, are read here."""
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
            if key in fields:
                raise self._unless_cut(pos, duplicate_key(start, key))
            if strict:
                form = data[start:pos]
                if form < before:
                    raise self._unless_cut(pos, unsorted(start))
                before = form
            first = data[pos]
            if 0x5F < first < 0x78:
                start, pos = pos + 1, pos + first - 0x5F
                word = words.get(data[start:pos])
                fields[key] = self._text(start, pos) if word is None else word
            elif first < 0x18:
                fields[key] = first
                pos += 1
            else:
                fields[key], pos = _READERS[first >> 5](self, pos, level + 1)
        return fields, pos

    def _pairs(
        self, fields: dict[str, object], pos: int, count: int, level: int
    ) -> tuple[Pairs, int]:
        """Read the rest of a map whose next key is no text."""
        pairs: list[tuple[object, object]] = [*fields.items()]
        seen = set(map(encode, fields))
        before = max(seen, default=b"")
        self._charge((_KEY + _PAIR) * max(count, len(pairs)))
        for _ in range(count - len(pairs)) if count >= 0 else self._endless(_KEY + _PAIR):
            if count < 0 and self.data[pos] == _BREAK:
                pos += 1
                break
            key, end = self._item(pos, level + 1)
            form = self._identity(pos, end, key)
            if form in seen:
                raise self._unless_cut(end, duplicate_key(pos, key))
            if self.strict and form < before:
                raise self._unless_cut(end, unsorted(pos))
            value, pos = self._item(end, level + 1)
            seen.add(form)
            before = form
            pairs.append((key, value))
        self._left += _KEY * len(pairs)
        return Pairs(pairs), pos

    def _identity(self, pos: int, end: int, key: object) -> bytes:
        """Return bytes that equal keys have and no others: the one form they are written in."""
        lent = (end - pos) * _KEY_BYTE if is_container(key) else 0
        self._charge(lent)
        try:
            form = encode(key)
        except NotRepresentableError:  # deeper than anything is written
            raise self._too_deep(pos) from None
        self._left += lent
        if lent:  # the key may lie in a key itself, and so on
            self.budget.charge_steps(len(form))
        return form

    def _tag(self, pos: int, level: int) -> tuple[Tag, int]:
        number, end = self.enter(pos, level)
        self._charge(_ITEM)
        if self.strict:
            raise other_form(pos, "no tag", "a tag")
        value, end = self._item(end, level + 1)
        return Tag(number, value), end

    def _other(self, pos: int, _: int) -> tuple[object, int]:
        first = self.data[pos]
        if first in FLOATS:
            number = FLOATS[first]
            (value,) = number.unpack_from(self.data, pos + 1)
            end = pos + 1 + number.size
            if self.strict and encode(value) != self.data[pos:end]:
                raise other_form(pos, "the shortest float that keeps the value", "another")
            return value, end
        if first == _BREAK:
            raise _malformed(pos, "an item", "a break", _BREAKS)
        argument, end = self.head(pos)
        if first == 0xF8 and argument < 32:
            expected = "a simple value of 32 to 255 in the second byte"
            raise _malformed(pos, expected, str(argument), _SIMPLES)
        if self.strict and not 0xF4 <= first <= 0xF6:
            raise other_form(pos, "false, true or null", f"simple value {argument}")
        return (_CONSTANTS[first] if first in _CONSTANTS else _SIMPLE[argument]), end

    # --- What they cost, and what is wrong with them ------------------------------------------

    def _endless(self, cost: int) -> Iterator[None]:
        """Yield for each item of an open array or map, and charge it."""
        return map(self._charge, repeat(cost))

    def _charge(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise self.budget.exceeded()

    def truncated(self, pos: int | None = None, expected: str = "an item") -> ManifestError:
        """Return the error for an item that goes on behind the end."""
        size = len(self.data)
        found = f"the manifest's end at byte {size}"
        at = size if pos is None else pos
        return _error(Reason.CBOR_TRUNCATED, at, expected, found, _HEADS)

    def _unless_cut(self, end: int, error: ManifestError) -> ManifestError:
        """Return the error for an item that ends there, which may be behind the end."""
        return self.truncated() if end > len(self.data) else error

    def _too_deep(self, pos: int) -> LimitError:
        return LimitError(
            f"the manifest nests deeper than Limits.depth at byte {pos}",
            reason=Reason.LIMIT_DEPTH,
            expected=f"at most {self.depth} levels",
            found="one more",
        )


_READERS = (
    Decoder.head,
    Decoder._negative,
    Decoder._string,
    Decoder._string,
    Decoder._array,
    Decoder._map,
    Decoder._tag,
    Decoder._other,
)


def _error(reason: Reason, pos: int, expected: str, found: str, section: str) -> ManifestError:
    return ManifestError(
        f"the manifest is not valid CBOR at byte {pos}",
        reason=reason,
        expected=expected,
        found=found,
        section=section,
    )


def _malformed(pos: int, expected: str, found: str, section: str) -> ManifestError:
    return _error(Reason.CBOR_MALFORMED, pos, expected, found, section)


def duplicate_key(pos: int, key: object) -> ManifestError:
    """Return the error for a key that a map has twice."""
    what = "which holds others" if is_container(key) else describe(key)
    found = f"the key {what} a second time"
    return _error(Reason.CBOR_DUPLICATE_KEY, pos, "each key of a map once", found, _KEYS)


def unsorted(pos: int) -> ManifestError:
    """Return the error for a key that comes too late."""
    expected = "keys in the order of their encoded bytes"
    return other_form(pos, expected, "a key behind a larger one")


def other_form(pos: int, expected: str, found: str) -> ManifestError:
    """Return the error for an item that is well-formed, and not in its deterministic form."""
    return ManifestError(
        f"the manifest is not in deterministic form at byte {pos}",
        reason=Reason.CBOR_FORM,
        expected=expected,
        found=found,
        section=_FORM,
    )
