"""CBOR, read: any well-formed item within caps, in one loop that does not recurse.

A strict reading takes the one deterministic form alone that `encoding.py` writes, and of what that
can say neither tags nor simple values beside false, true and null.
"""

from __future__ import annotations

import struct
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from ztensor.errors import LimitError, ManifestError, Reason, describe
from ztensor.wire.cbor.encoding import FLOATS, assemble, encode, inside_of
from ztensor.wire.cbor.form import key_order, other_form, require_form, require_rising, unsorted
from ztensor.wire.cbor.values import UNDEFINED, Container, Pairs, Simple, Tag, is_container

if TYPE_CHECKING:
    from ztensor.limits import Budget


_HEADS = "RFC 8949 section 3"
_TEXTS = "RFC 8949 section 3.1"
_BREAKS = "RFC 8949 section 3.2.1"
_CHUNKS = "RFC 8949 section 3.2.3"
_SIMPLES = "RFC 8949 section 3.3"
_KEYS = "RFC 8949 section 5.6"

_KINDS = (
    "an unsigned integer",
    "a negative integer",
    "a byte string",
    "a text",
    "an array",
    "a map",
    "a tag",
    "a simple value",
)
_CONSTANTS: dict[int, object] = {0xF4: False, 0xF5: True, 0xF6: None, 0xF7: UNDEFINED}
_uint16 = struct.Struct(">H").unpack_from
_uint32 = struct.Struct(">I").unpack_from
_uint64 = struct.Struct(">Q").unpack_from

_SIMPLE = tuple(map(Simple, range(256)))  # a file may hold millions of them
_WORDS = 512  # short texts one decode shares; a manifest's own words are among the first it meets

# Bytes of memory that items take at most, as CPython has them on 64 bits, growing included.
_EMPTY, _LIST, _SLOT = 72, 96, 12
_DICT, _ENTRY, _SMALL_DICT = 192, 110, 5  # the first five entries are in what a dict begins with
_PAIR = 96  # of a map with other keys
_IDENTITY = 200  # of such a key, while the map is looked through
_SERIAL = 480  # of a key, or what is inside one, that holds others
_NUMBER = 32
_ROUNDING = 16  # memory is given out in steps of so many
_TEXT, _WIDE = 80, 4  # of any text, and for each byte of one that is not ASCII
_ADVANCE = 64  # items that are paid for at a time where a map or array does not say how many
_FIRST = 4  # likewise, when it begins
_UNLIMITED = 1 << 62


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
    data = bytes(data)  # no copy where it is bytes already
    value, end = _decode(data, 0, depth, budget, strict=strict)
    if end < len(data):
        raise trailing(end, len(data))
    return value


def decode_item(
    data: bytes,
    start: int,
    *,
    depth: int = 64,
    budget: Budget | None = None,
    words: dict[bytes, str] | None = None,
    strict: bool = False,
) -> tuple[object, int]:
    """Return the item at `start`, as `decode` gives it, and where it ends; anything may follow.

    Items that are decoded one after the other share short texts by the same `words`, {} at first.

    Raises:
        ManifestError: as `decode`.
        LimitError: as `decode`.
    """
    if words is None and not strict and 0 <= start < len(data) and 0x5F < data[start] < 0x78:
        short = _short_text(data, start, budget)  # what most items of a root are
        if short is not None:
            return short
    return _decode(data, start, depth, budget, words, strict=strict)


def _short_text(data: bytes, start: int, budget: Budget | None) -> tuple[str, int] | None:
    """Return the text of less than 24 bytes at `start`, and where it ends; None where it is none.

    It costs what it costs in `_decode`, in a quarter of the time.
    """
    end = start + data[start] - 0x5F
    raw = data[start + 1 : end]
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if end > len(data):
        return None
    if budget is not None:
        budget.charge_bytes(_TEXT + (len(raw) if text.isascii() else _WIDE * len(raw)))
    return text, end


def map_head(data: bytes, start: int, *, strict: bool = False) -> tuple[int, int]:
    """Return how many pairs the map at `start` has, and where the first of them begins.

    The count is -1 where a break ends the map. Else so many pairs fit into the bytes left.

    Raises:
        ManifestError: no map begins there, it is cut, or, where `strict`, its head is not the
            shortest of a definite length.
    """
    return _container_head(data, start, 5, strict=strict)


def array_head(data: bytes, start: int) -> tuple[int, int]:
    """Return how many items the array at `start` has, and where they begin; as `map_head`."""
    return _container_head(data, start, 4, strict=False)


def tag_head(data: bytes, start: int) -> tuple[int, int]:
    """Return the number of the tag at `start`, and where its item begins.

    Raises:
        ManifestError: its head is cut, or its number is left open.
    """
    return _definite(data, start)


def _container_head(data: bytes, start: int, major: int, *, strict: bool) -> tuple[int, int]:
    expected = _KINDS[major]
    if not 0 <= start < len(data):
        raise truncated(start, expected, len(data))
    if data[start] >> 5 != major:
        raise _error(Reason.CBOR_MALFORMED, start, expected, _KINDS[data[start] >> 5], _HEADS)
    if strict:
        require_form(data, start)
    return _count(data, start)


def _decode(
    data: bytes,
    pos: int,
    depth: int,
    budget: Budget | None,
    words: dict[bytes, str] | None = None,
    *,
    strict: bool = False,
) -> tuple[object, int]:
    """Return the item at `pos` and where it ends.

    One loop over all items, the frequent forms inline. The container being filled is five locals;
    those around it wait on `stack`:

    fields: the open map as long as all its keys are text, else None.
    items: else the items of an array, a tag, or a map, whose keys and values alternate.
    label: for `fields` the key whose value comes next. For `items` what they are: None an array,
        a number a tag, a tuple (offset of the first key that is not text, keys before it) a map.
    left: items, or pairs of `fields`, still to come; those that are paid for where `is_open`.
    is_open: whether a break ends it.

    What is left of the budget is a local too, `room`. A container's slots are paid for when it
    begins, texts and numbers when they are met.

    The end of a short text is not compared with the end of the data: what follows it would be
    read behind the end, which is an IndexError, and the last item is looked at when all is done.
    """
    size = len(data)
    words = {} if words is None else words
    identities: _Identities | None = None
    stack: list[tuple[dict[str, object] | None, list[object], Any, int, bool]] = []
    fields: dict[str, object] | None = None
    items: list[object] = []
    label: Any = None
    left = 1
    is_open = False
    value: object
    start = end = pos
    raw = b""
    before = room = _UNLIMITED if budget is None else budget.bytes_left
    try:
        while True:
            while not left:
                if is_open:
                    left = _ADVANCE
                    room -= _ADVANCE * (_SLOT if fields is None else _ENTRY)
                    break
                if fields is not None:
                    value = fields
                elif label is None:
                    if not stack:
                        if pos > size:
                            raise truncated(start, "a text", size)
                        if budget is not None:
                            budget.charge_bytes(before - room)
                        return items[0], pos
                    value = items
                elif type(label) is int:
                    value = Tag(label, items[0])
                else:
                    if budget is not None:
                        budget.charge_bytes(before - room)
                    identities = identities or _Identities(budget)
                    value = _pairs(items, label, identities, data, depth, budget)
                    if strict:
                        require_rising(value, label[0])
                    if budget is not None:
                        before = room = budget.bytes_left
                fields, items, label, left, is_open = stack.pop()
                if fields is not None:
                    fields[label] = value
                else:
                    items.append(value)
                left -= 1

            if room < 0 and budget is not None:
                budget.charge_bytes(before - room)
            start = pos
            first = data[pos]
            if strict and first & 0x1F > 0x17:
                require_form(data, start)
            pos += 1
            if fields is not None:
                if 0x5F < first < 0x79:
                    if first < 0x78:
                        end = pos + first - 0x60
                    else:
                        end = pos + 1 + data[pos]
                        pos += 1
                    raw = data[pos:end]
                    label = words.get(raw)
                    if label is None:
                        label = raw.decode()
                        room -= _TEXT + (len(raw) if label.isascii() else _WIDE * len(raw))
                        if len(words) < _WORDS:
                            words[raw] = label
                    pos = end
                elif 0x78 < first < 0x80:
                    label, pos = _scalar(data, start, room, budget)
                    room -= getsizeof(label) + _ROUNDING
                elif first == 0xFF and is_open:
                    left, is_open = 0, False
                    continue
                else:  # from here on it is a map of any keys; this key is its next item
                    items = list(chain.from_iterable(fields.items()))
                    label = (start, len(fields))
                    left *= 2
                    fields = None
                if fields is not None:
                    if label in fields and pos <= size:
                        raise duplicate_key(start, label)
                    if strict and fields and key_order(label) < key_order(next(reversed(fields))):
                        raise unsorted(start)
                    start = pos
                    first = data[pos]
                    if strict and first & 0x1F > 0x17:
                        require_form(data, start)
                    pos += 1

            if first < 0x18:
                value = first
            elif 0x5F < first < 0x79:
                if first < 0x78:
                    end = pos + first - 0x60
                else:
                    end = pos + 1 + data[pos]
                    pos += 1
                raw = data[pos:end]
                value = words.get(raw)
                if value is None:
                    value = raw.decode()
                    room -= _TEXT + (len(raw) if value.isascii() else _WIDE * len(raw))
                    if len(words) < _WORDS:
                        words[raw] = value
                pos = end
            elif first == 0x1A:
                (value,) = _uint32(data, pos)
                pos += 4
                room -= _NUMBER
            elif 0x7F < first < 0xE0:
                count = first & 0x1F
                if count > 0x17:
                    count, pos = _count(data, start)
                if len(stack) >= depth:
                    raise too_deep(start, depth)
                if strict and first > 0xBF:
                    raise other_form(start, "no tag", "a tag")
                if first > 0xBF:
                    room -= _LIST
                    stack.append((fields, items, label, left, is_open))
                    fields, items, label, left, is_open = None, [], count, 1, False
                    continue
                if count:
                    stack.append((fields, items, label, left, is_open))
                    is_open = count < 0
                    left = _FIRST if is_open else count
                    if first > 0x9F:
                        fields = {}
                        room -= _DICT
                        if left > _SMALL_DICT:
                            room -= _ENTRY * left
                    else:
                        fields, items, label = None, [], None
                        room -= _LIST + _SLOT * left
                    continue
                value = {} if first > 0x9F else []
                room -= _EMPTY
            elif first == 0x18:
                value = data[pos]
                pos += 1
            elif first == 0x19:
                (value,) = _uint16(data, pos)
                pos += 2
                room -= _NUMBER
            elif first == 0x1B:
                (value,) = _uint64(data, pos)
                pos += 8
                room -= _NUMBER
            elif first < 0xFF:
                value, pos = _scalar(data, start, room, budget)
                if strict and (0xDF < first < 0xF4 or first == 0xF7):
                    raise other_form(start, "false, true or null", f"simple value {first & 0x1F}")
                if not 0xDF < first < 0xF9:  # those are there already
                    room -= getsizeof(value) + _ROUNDING
            else:
                is_value = fields is not None or (type(label) is tuple and len(items) % 2 == 1)
                if not is_open or is_value:
                    expected = "the value of the last key" if is_value else "an item"
                    raise _error(Reason.CBOR_MALFORMED, start, expected, "a break", _BREAKS)
                left, is_open = 0, False
                continue

            if fields is not None:
                fields[label] = value
            else:
                items.append(value)
            left -= 1
    except (IndexError, struct.error):
        raise truncated(min(start, size), "an item", size) from None
    except UnicodeDecodeError as error:  # of a short text: _scalar answers for the others
        if end > size:
            raise truncated(start, "a text", size) from None
        raise _not_utf8(error, end - len(raw)) from None


def _head(data: bytes, start: int) -> tuple[int, int]:
    """Return the argument of the head at `start`, -1 for an indefinite length, and its end."""
    info = data[start] & 0x1F
    if info < 24:
        return info, start + 1
    if info < 28:
        end = start + 1 + (1 << (info - 24))
        if end > len(data):
            raise truncated(start, "a head", len(data))
        return int.from_bytes(data[start + 1 : end], "big"), end
    if info == 31:
        return -1, start + 1
    expected, found = "additional information 0 to 27 or 31", f"the reserved {info}"
    raise _error(Reason.CBOR_MALFORMED, start, expected, found, _HEADS)


def _definite(data: bytes, start: int) -> tuple[int, int]:
    """Return the argument of the head at `start`, where a length may not be left open."""
    argument, pos = _head(data, start)
    if argument < 0:
        found = f"an indefinite length on {_KINDS[data[start] >> 5]}"
        raise _error(Reason.CBOR_MALFORMED, start, "a definite head", found, _BREAKS)
    return argument, pos


def _count(data: bytes, start: int) -> tuple[int, int]:
    """Return count or tag number of a container's head, -1 for an indefinite length, and its end.

    The count is compared with the bytes left: an item takes one at least, a pair two.
    """
    major = data[start] >> 5
    if major == 6:
        return _definite(data, start)
    count, pos = _head(data, start)
    if count * (major - 3) > len(data) - pos:
        what = f"{_KINDS[major]} of {count} {'items' if major == 4 else 'pairs'}"
        raise truncated(start, what, len(data))
    return count, pos


def _scalar(data: bytes, start: int, room: int, budget: Budget | None) -> tuple[Any, int]:
    """Return the item at `start`, which is no container, and where it ends."""
    first = data[start]
    major = first >> 5
    if major in (2, 3):
        return (_chunked if first & 0x1F == 0x1F else _string)(data, start, room, budget)
    if first in FLOATS:
        number = FLOATS[first]
        return number.unpack_from(data, start + 1)[0], start + 1 + number.size
    argument, pos = _definite(data, start)
    if major < 2:
        return (-1 - argument if major else argument), pos
    if first in _CONSTANTS:
        return _CONSTANTS[first], pos
    if first == 0xF8 and argument < 32:
        expected = "a simple value of 32 to 255 in the second byte"
        raise _error(Reason.CBOR_MALFORMED, start, expected, str(argument), _SIMPLES)
    return _SIMPLE[argument], pos


def _string(data: bytes, start: int, room: int, budget: Budget | None) -> tuple[bytes | str, int]:
    """Return the byte string or text of definite length at `start`, and where it ends.

    Only what it takes at a time is compared with `room`: it may be longer than all before.
    """
    length, pos = _definite(data, start)
    major = data[start] >> 5
    end = pos + length
    if end > len(data):
        raise truncated(start, f"{_KINDS[major]} of {length} bytes", len(data))
    if budget is not None and 2 * length > room:
        raise budget.exceeded()
    raw = data[pos:end]
    if major == 2:
        return raw, end
    if budget is not None and (1 + _WIDE) * length > room and not raw.isascii():
        raise budget.exceeded()
    try:
        return raw.decode(), end
    except UnicodeDecodeError as error:
        raise _not_utf8(error, pos) from None


def _chunked(data: bytes, start: int, room: int, budget: Budget | None) -> tuple[bytes | str, int]:
    """Return the byte string or text of indefinite length at `start`, and where it ends.

    Each chunk of a text is valid by itself: no character may lie in two. The chunks are put
    together as bytes, since objects for each may take twenty times their length.
    """
    major = data[start] >> 5
    empty = major << 5
    whole = bytearray()
    pos = start + 1
    while (first := data[pos]) != 0xFF:
        if first == empty:  # a file may hold millions, and nothing else
            pos += 1
            continue
        if first >> 5 != major or first & 0x1F == 0x1F:
            expected = f"{_KINDS[major]} of definite length or a break, in the one at byte {start}"
            found = f"byte 0x{first:02x}"
            raise _error(Reason.CBOR_MALFORMED, pos, expected, found, _CHUNKS)
        chunk, pos = _string(data, pos, room, budget)
        whole += chunk if isinstance(chunk, bytes) else chunk.encode()
    if budget is not None and (2 if major == 2 or whole.isascii() else 5) * len(whole) > room:
        raise budget.exceeded()
    return (bytes(whole) if major == 2 else whole.decode()), pos + 1


def _pairs(
    items: list[object],
    label: tuple[int, int],
    identities: _Identities,
    data: bytes,
    depth: int,
    budget: Budget | None,
) -> Pairs:
    """Return the map of alternating keys and values, or raise where a key comes twice."""
    if budget is not None:
        budget.charge_bytes(len(items) // 2 * (_PAIR + _IDENTITY))
    keys = items[::2]
    seen: set[bytes] = set()
    for index, key in enumerate(keys):
        identity = identities.of(key)
        if identity in seen:
            pos, before = label  # walk there a second time; the text keys before are all different
            for _ in range(2 * (index - before)):
                _, pos = _decode(data, pos, depth, None)
            raise duplicate_key(pos, key)
        seen.add(identity)
    if budget is not None:
        budget.release_bytes(len(items) // 2 * _IDENTITY)
    return Pairs(zip(keys, items[1::2], strict=True))


class _Identities:
    """Gives keys that are equal the same bytes, and other keys other bytes.

    A key without items inside is its deterministic form. An array, map or tag has a serial
    number, by what is inside; each is looked at once, though it may lie in a key of a map that is
    in a key itself, and so on down to the depth allowed.
    """

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self._serials: dict[bytes, bytes] = {}
        self._known: dict[int, bytes] = {}  # by id(): all of them live in what is being decoded

    def of(self, key: object) -> bytes:
        """Return the identity of one key."""
        if not is_container(key):
            return encode(key)
        pending: list[Container] = [key]
        while pending:
            item = pending[-1]
            if self._budget is not None:
                self._budget.charge_bytes(_SERIAL + 2 * _TEXT * len(item))
            inside = list(inside_of(item))
            unknown = [x for x in inside if is_container(x) and id(x) not in self._known]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            form = assemble(
                item, [self._known[id(x)] if is_container(x) else encode(x) for x in inside]
            )
            # 0xFF begins no item, so a serial is not the form of anything.
            serial = b"\xff" + len(self._serials).to_bytes(8, "big")
            self._known[id(item)] = self._serials.setdefault(form, serial)
        return self._known[id(key)]


def _error(reason: Reason, offset: int, expected: str, found: str, section: str) -> ManifestError:
    return ManifestError(
        f"the manifest is not valid CBOR at byte {offset}",
        reason=reason,
        expected=expected,
        found=found,
        section=section,
    )


def trailing(offset: int, size: int) -> ManifestError:
    """Return the error for bytes behind the item."""
    found = f"{size - offset} more bytes"
    return _error(Reason.CBOR_TRAILING, offset, "the manifest's end", found, _HEADS)


def truncated(offset: int, expected: str, size: int) -> ManifestError:
    """Return the error for an item that goes on behind the end."""
    found = f"the manifest's end at byte {size}"
    return _error(Reason.CBOR_TRUNCATED, offset, expected, found, _HEADS)


def _not_utf8(error: UnicodeDecodeError, start: int) -> ManifestError:
    found = f"{describe(error.object[error.start : error.end])} ({error.reason})"
    return _error(Reason.CBOR_UTF8, start + error.start, "UTF-8", found, _TEXTS)


def duplicate_key(offset: int, key: object) -> ManifestError:
    """Return the error for a key that a map has twice."""
    if not is_container(key):
        what = describe(key)
    elif isinstance(key, (dict, Pairs)):
        what = "a map"
    else:
        what = "a tag" if isinstance(key, Tag) else "an array"
    found = f"the key {what} a second time"
    return _error(Reason.CBOR_DUPLICATE_KEY, offset, "each key of a map once", found, _KEYS)


def too_deep(offset: int, depth: int) -> LimitError:
    """Return the error for a container inside of `depth` others."""
    return LimitError(
        f"the manifest nests deeper than Limits.depth at byte {offset}",
        reason=Reason.LIMIT_DEPTH,
        expected=f"at most {depth} levels",
        found="one more",
    )
