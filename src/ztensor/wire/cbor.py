"""CBOR (RFC 8949, before that 7049): reads any well-formed item within caps, writes one form.

Nothing is interpreted: a tag stays a `Tag`, on a big integer too. A map with text keys is a
`dict`; one with any other key is a `Pairs`, since the keys 1, 1.0 and true would be one key of a
`dict`, and numbers a file chooses can be made to collide there.

Neither direction recurses: no nesting, and no caller deep in its own stack, exhausts Python's.
"""

from __future__ import annotations

import math
import operator
import struct
from itertools import chain, pairwise
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard, final

from ztensor.errors import LimitError, ManifestError, NotRepresentableError, Reason, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ztensor.limits import Budget

UINT64_MAX = (1 << 64) - 1
ENCODE_DEPTH = 64  # deepest nesting written: the default of Limits.depth, so that we read it back


class Tag(NamedTuple):
    """A tagged item; the tag is kept and never acted upon.

    Attributes:
        number: the tag, 0 to 2^64 - 1.
        value: the item behind it.
    """

    number: int
    value: object


class Simple(NamedTuple):
    """A simple value other than false, true, null and undefined.

    Attributes:
        value: 0 to 19 or 32 to 255.
    """

    value: int


@final
class Undefined:
    """The type of `UNDEFINED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        """Copy and unpickle to the one instance, by its name in this module."""
        return "UNDEFINED"


UNDEFINED: Final = Undefined()


class Pairs(tuple[tuple[object, object], ...]):
    """A map with at least one key that is not text: (key, value) pairs in the order of the file.

    In attributes it is seen only where no `dict` holds the same keys; see `with_dicts`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Pairs({super().__repr__()})"


def with_dicts(value: Any) -> Any:
    """Return a decoded value with a `dict` for each map that one holds as it is.

    That is where no two keys are equal in Python, as 1, 1.0 and true are, and each is found again,
    as NaN is not, nor what cannot be hashed. Other maps stay `Pairs`. The value itself is not
    changed; what has no such map in it is returned.
    """
    containers: list[_Container] = []
    waiting: list[object] = [value]
    has_pairs = False
    while waiting:
        item = waiting.pop()
        if _is_container(item):
            containers.append(item)
            has_pairs = has_pairs or isinstance(item, Pairs)
            waiting += [one for one in _values(item) if _is_container(one)]
    if not has_pairs:
        return value
    made: dict[int, object] = {}  # by id(): what is inside comes before what it is in

    def of(item: object) -> object:
        return made.get(id(item), item)

    for one in reversed(containers):
        if isinstance(one, dict):
            made[id(one)] = {key: of(item) for key, item in one.items()}
        elif isinstance(one, Pairs):
            pairs = Pairs((key, of(item)) for key, item in one)
            made[id(one)] = _as_dict(pairs)
        elif isinstance(one, Tag):
            made[id(one)] = Tag(one.number, of(one.value))
        else:
            made[id(one)] = [of(item) for item in one]
    return made[id(value)]


def _values(container: _Container) -> Iterable[object]:
    if isinstance(container, dict):
        return container.values()
    if isinstance(container, Tag):
        return (container.value,)
    return (item for _, item in container) if isinstance(container, Pairs) else container


def _as_dict(pairs: Pairs) -> dict[object, object] | Pairs:
    for key, _ in pairs:
        if type(key) not in (str, int, bytes, bool, float, type(None)) or key != key:
            return pairs
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


# --- Reading --------------------------------------------------------------------------------

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
_FLOATS = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), 0xFB: struct.Struct(">d")}
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


def decode(data: bytes | memoryview, *, depth: int = 64, budget: Budget | None = None) -> object:
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

    Raises:
        ManifestError: not exactly one well-formed item (CBOR_TRUNCATED, CBOR_MALFORMED,
            CBOR_TRAILING), a key twice in a map (CBOR_DUPLICATE_KEY), or text that is not UTF-8
            (CBOR_UTF8).
        LimitError: it nests deeper than `depth`, or costs more than the budget has.
    """
    data = bytes(data)  # no copy where it is bytes already
    value, end = _decode(data, 0, depth, budget)
    if end < len(data):
        found = f"{len(data) - end} more bytes"
        raise _error(Reason.CBOR_TRAILING, end, "the manifest's end", found, _HEADS)
    return value


def decode_item(
    data: bytes,
    start: int,
    *,
    depth: int = 64,
    budget: Budget | None = None,
    words: dict[bytes, str] | None = None,
) -> tuple[object, int]:
    """Return the item at `start`, as `decode` gives it, and where it ends; anything may follow.

    Items that are decoded one after the other share short texts by the same `words`, {} at first.

    Raises:
        ManifestError: as `decode`.
        LimitError: as `decode`.
    """
    return _decode(data, start, depth, budget, words)


def map_head(data: bytes, start: int) -> tuple[int, int]:
    """Return how many pairs the map at `start` has, and where the first of them begins.

    Raises:
        ManifestError: no map of definite length begins there, or it is cut.
    """
    if not 0 <= start < len(data):
        raise _truncated(start, "a map", len(data))
    if data[start] >> 5 != 5:
        found = _KINDS[data[start] >> 5]
        raise _error(Reason.CBOR_MALFORMED, start, "a map", found, _HEADS)
    return _definite(data, start)


def _decode(
    data: bytes,
    pos: int,
    depth: int,
    budget: Budget | None,
    words: dict[bytes, str] | None = None,
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
                            raise _truncated(start, "a text", size)
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
                        raise _duplicate(start, label)
                    start = pos
                    first = data[pos]
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
                    raise _too_deep(start, depth)
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
        raise _truncated(min(start, size), "an item", size) from None
    except UnicodeDecodeError as error:  # of a short text: _scalar answers for the others
        if end > size:
            raise _truncated(start, "a text", size) from None
        raise _not_utf8(error, end - len(raw)) from None


def _head(data: bytes, start: int) -> tuple[int, int]:
    """Return the argument of the head at `start`, -1 for an indefinite length, and its end."""
    info = data[start] & 0x1F
    if info < 24:
        return info, start + 1
    if info < 28:
        end = start + 1 + (1 << (info - 24))
        if end > len(data):
            raise _truncated(start, "a head", len(data))
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
        raise _truncated(start, what, len(data))
    return count, pos


def _scalar(data: bytes, start: int, room: int, budget: Budget | None) -> tuple[Any, int]:
    """Return the item at `start`, which is no container, and where it ends."""
    first = data[start]
    major = first >> 5
    if major in (2, 3):
        return (_chunked if first & 0x1F == 0x1F else _string)(data, start, room, budget)
    if first in _FLOATS:
        number = _FLOATS[first]
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
        raise _truncated(start, f"{_KINDS[major]} of {length} bytes", len(data))
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
            raise _duplicate(pos, key)
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
        if not _is_container(key):
            return encode(key)
        pending: list[_Container] = [key]
        while pending:
            item = pending[-1]
            if self._budget is not None:
                self._budget.charge_bytes(_SERIAL + 2 * _TEXT * len(item))
            inside = list(_inside(item))
            unknown = [x for x in inside if _is_container(x) and id(x) not in self._known]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            form = _assemble(
                item, [self._known[id(x)] if _is_container(x) else encode(x) for x in inside]
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


def _truncated(offset: int, expected: str, size: int) -> ManifestError:
    found = f"the manifest's end at byte {size}"
    return _error(Reason.CBOR_TRUNCATED, offset, expected, found, _HEADS)


def _not_utf8(error: UnicodeDecodeError, start: int) -> ManifestError:
    found = f"{describe(error.object[error.start : error.end])} ({error.reason})"
    return _error(Reason.CBOR_UTF8, start + error.start, "UTF-8", found, _TEXTS)


def _duplicate(offset: int, key: object) -> ManifestError:
    if not _is_container(key):
        what = describe(key)
    elif isinstance(key, (dict, Pairs)):
        what = "a map"
    else:
        what = "a tag" if isinstance(key, Tag) else "an array"
    found = f"the key {what} a second time"
    return _error(Reason.CBOR_DUPLICATE_KEY, offset, "each key of a map once", found, _KEYS)


def _too_deep(offset: int, depth: int) -> LimitError:
    return LimitError(
        f"the manifest nests deeper than Limits.depth at byte {offset}",
        reason=Reason.LIMIT_DEPTH,
        expected=f"at most {depth} levels",
        found="one more",
    )


# --- Writing --------------------------------------------------------------------------------

_BYTES = [bytes((value,)) for value in range(256)]
_pack16 = struct.Struct(">BH").pack
_pack32 = struct.Struct(">BI").pack
_pack64 = struct.Struct(">BQ").pack


def encode(value: object) -> bytes:
    """Return the one deterministic form of `value` (RFC 8949 section 4.2.1).

    Heads are the shortest, lengths definite, keys in the order of their encoded bytes, floats the
    shortest of half, single and double that keeps the value. Every NaN is written as 0x7e00: a
    NaN's sign and payload are not kept.

    Args:
        value: None, bool, int, float, str, bytes-like, list, tuple, dict, and what else `decode`
            returns. A scalar of an array library is the number it holds, as is any object with
            `__index__`, or failing that `__float__`.

    Raises:
        NotRepresentableError: a type or number that has no CBOR form here, text with a lone
            surrogate, two keys of one map that are written alike, or more than 64 levels, which is
            where a list that contains itself ends up.
    """
    stack: list[tuple[Iterator[object], _Container, list[bytes]]] = []
    container: _Container = ()
    source: Iterator[object] = iter((value,))
    parts: list[bytes] = []
    while True:
        for item in source:
            encoder = _ENCODERS.get(type(item))
            if encoder is not None:
                parts.append(encoder(item))
            elif not _is_container(item):
                parts.append(_encode_other(item))
            elif len(stack) < ENCODE_DEPTH:
                stack.append((source, container, parts))
                source, container, parts = _inside(item), item, []
                break
            else:
                raise NotRepresentableError(
                    "the value nests too deep, or contains itself",
                    expected=f"at most {ENCODE_DEPTH} levels of list, tuple, dict and Tag",
                    found="one more",
                )
        else:
            if not stack:
                return parts[0]
            encoded = _assemble(container, parts)
            source, container, parts = stack.pop()
            parts.append(encoded)


def head(major: int, argument: int) -> bytes:
    """Return the shortest head of an item.

    Args:
        major: the major type, 0 to 6.
        argument: value, length, count or tag number, 0 to 2^64 - 1.

    Raises:
        NotRepresentableError: either is out of range.
    """
    initial = major << 5
    if not 0 <= initial < 0xE0:
        raise _no_number("the major type of an item", "0 to 6", major)
    if 0 <= argument < 24:
        return _BYTES[initial + argument]
    if not 0 <= argument <= UINT64_MAX:
        raise _no_number("the head of an item", "0 to 2^64 - 1", argument)
    if argument < 1 << 8:
        return _BYTES[initial + 24] + _BYTES[argument]
    if argument < 1 << 16:
        return _pack16(initial + 25, argument)
    if argument < 1 << 32:
        return _pack32(initial + 26, argument)
    return _pack64(initial + 27, argument)


def encode_uint(n: int) -> bytes:
    """Return an unsigned integer.

    Raises:
        NotRepresentableError: it is not 0 to 2^64 - 1.
    """
    return head(0, n)


def encode_text(text: str) -> bytes:
    """Return a text.

    Raises:
        NotRepresentableError: it has a lone surrogate, which UTF-8 cannot say.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise NotRepresentableError(
            f"text with a lone surrogate at position {error.start} cannot be stored",
            expected="text that UTF-8 can say",
            found=describe(text),
        ) from None
    length = len(raw)
    return (_BYTES[0x60 + length] if length < 24 else head(3, length)) + raw


def array_of(items: Iterable[bytes]) -> bytes:
    """Return an array of items that are encoded already."""
    items = list(items)
    return head(4, len(items)) + b"".join(items)


def map_of(items: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a map of text keys, in the given order, to values that are encoded already.

    Raises:
        NotRepresentableError: a key comes twice, or has a lone surrogate.
    """
    return b"".join(map_parts(items))


def map_parts(items: Iterable[tuple[str, bytes | list[bytes]]]) -> list[bytes]:
    """Return what `map_of` returns in parts; the values may be in parts, too.

    Raises:
        NotRepresentableError: a key comes twice, or has a lone surrogate.
    """
    fields = list(items)
    if len(dict(fields)) < len(fields):
        keys = sorted(key for key, _ in fields)
        raise _same_keys(next(a for a, b in pairwise(keys) if a == b))
    parts = [head(5, len(fields))]
    for key, value in fields:
        parts.append(encode_text(key))
        if isinstance(value, bytes):
            parts.append(value)
        else:
            parts += value
    return parts


_Container: TypeAlias = dict[object, object] | list[object] | tuple[object, ...]


def _is_container(value: object) -> TypeGuard[_Container]:
    return isinstance(value, (dict, list, tuple)) and type(value) is not Simple


def _inside(container: _Container) -> Iterator[object]:
    """Return the items of a container: of a map, keys and values in turn."""
    if isinstance(container, dict):
        return chain.from_iterable(container.items())
    if isinstance(container, Tag):
        return iter((container.value,))
    if isinstance(container, Pairs):
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in container):
            raise NotRepresentableError(
                "Pairs that are not pairs cannot be stored", expected="tuples (key, value)"
            )
        return chain.from_iterable(container)
    return iter(container)


def _assemble(container: _Container, parts: list[bytes]) -> bytes:
    """Return a container's form from the forms of what is inside, given as `_inside` orders it."""
    if isinstance(container, Tag):
        if not isinstance(container.number, int):
            raise _no_number("a tag", "an integer, 0 to 2^64 - 1", container.number)
        return head(6, container.number) + parts[0]
    if isinstance(container, (dict, Pairs)):
        pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
        if len(dict(pairs)) < len(pairs):
            raise _same_keys(next(decode(a) for (a, _), (b, _) in pairwise(pairs) if a == b))
        return head(5, len(pairs)) + b"".join(chain.from_iterable(pairs))
    return array_of(parts)


def _encode_int(value: int) -> bytes:
    if -1 - UINT64_MAX <= value <= UINT64_MAX:
        return head(0, value) if value >= 0 else head(1, -1 - value)
    raise _no_number("an integer", "-2^64 to 2^64 - 1; text or bytes hold more", value)


def _encode_float(value: float) -> bytes:
    if math.isnan(value):
        return b"\xf9\x7e\x00"
    for initial in (0xF9, 0xFA):
        number = _FLOATS[initial]
        try:
            raw = number.pack(value)
        except OverflowError:  # too large for this width
            continue
        if number.unpack(raw)[0] == value:
            return _BYTES[initial] + raw
    return _BYTES[0xFB] + _FLOATS[0xFB].pack(value)


def _encode_bytes(value: bytes | bytearray | memoryview) -> bytes:
    raw = bytes(value)
    return head(2, len(raw)) + raw


def _encode_simple(value: Simple) -> bytes:
    number = value.value
    if not isinstance(number, int) or not (0 <= number < 20 or 32 <= number < 256):
        raise _no_number("a simple value", "0 to 19 or 32 to 255", number)
    return _BYTES[0xE0 + number] if number < 24 else _BYTES[0xF8] + _BYTES[number]


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: encode_text,
    int: _encode_int,
    float: _encode_float,
    bool: lambda value: b"\xf5" if value else b"\xf4",
    type(None): lambda _: b"\xf6",
    Undefined: lambda _: b"\xf7",
    Simple: _encode_simple,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
}


def _encode_other(value: object) -> bytes:
    """Return the form of a value of no exact type above: of a subclass, or a foreign scalar."""
    for kind in (str, int, float, bytes, bytearray):
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    try:
        plain = _plain_number(value)
    except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError):
        plain = None  # it only looked like a number
    if plain is None:
        raise NotRepresentableError(
            "a value of this type cannot be stored",
            expected="None, bool, int, float, str, bytes, or a list, tuple or dict of these "
            "(of an array, its tolist())",
            found=type(value).__name__,
        )
    return encode(plain)


def _plain_number(value: Any) -> int | float | None:
    """Return the bool, int or float a scalar stands for, or None where it stands for none.

    Array libraries need not be loaded: their scalars have the shape (), and an `item()`, which
    is how a bool among them shows. An array is no scalar, not even one of a single element.
    """
    kind = type(value)
    if hasattr(kind, "shape"):
        # Complex numbers and times are no numbers here, though some turn into one when asked.
        if value.shape != () or getattr(value.dtype, "kind", None) in ("c", "m", "M"):
            return None
        plain: object = value.item()
        if isinstance(plain, (int, float)):
            return plain
        return float(value) if type(plain) is kind else None  # numpy.longdouble gives itself
    if hasattr(kind, "__index__"):
        return operator.index(value)
    return float(value) if hasattr(kind, "__float__") else None


def _no_number(what: str, expected: str, found: object) -> NotRepresentableError:
    return NotRepresentableError(
        f"the number does not fit {what}", expected=expected, found=describe(found)
    )


def _same_keys(key: object) -> NotRepresentableError:
    what = "which holds others" if _is_container(key) else describe(key)
    return NotRepresentableError(
        "two keys of a map are the same once written", expected="each key once", found=what
    )
