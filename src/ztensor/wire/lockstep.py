"""Many CBOR items of one form, read side by side: a cursor in each, and all of them move at once.

The items a manifest describes its objects with differ in a few numbers and words. Where
`cbor.decode` takes them one after the other, here one NumPy operation reads the same field of
thousands of them. What comes next is said by the caller; an item of any other form, or a damaged
one, only ends up with `ok` false: nothing is raised, since `cbor.decode` reads everything and
says what is wrong.

Every reading is linear in the number of lanes, whatever the bytes are: cursors that go astray
stop behind the end of their window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
    Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
    Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

UNSIGNED, TEXT, ARRAY, MAP = 0, 3, 4, 5  # major types

MOST_CHOICE = 15  # bytes of the longest word `Lanes.choice` can tell

_WORD = 8
_PAD = 128  # bytes behind a window that may be looked at: the longest literal and a word
_STRIDE = 96 << 10  # bytes searched at a time: what that takes is used again and again

# By the low five bits of a head: where the word begins whose first bytes are the argument, how
# far they are to be shifted, what is left of them, and how long the head is. 28 to 31 are no
# arguments; they are refused before any of this counts.
_INFO = np.arange(32)
_WIDTHS = np.select([_INFO < 24, _INFO < 28], [0, 1 << (_INFO & 3)], 0)
_FROM = (_WIDTHS > 0).astype(np.int64)
_SHIFTS = (64 - 8 * np.maximum(_WIDTHS, 1)).astype(np.uint64)
_MASKS = np.where(_WIDTHS > 0, np.uint64((1 << 64) - 1), np.uint64(0x1F))
_LENGTHS = (1 + _WIDTHS).astype(np.int64)
# The least argument that a head of this length is the shortest for.
_LEAST = np.zeros(32, np.uint64)
_LEAST[24:28] = (24, 1 << 8, 1 << 16, 1 << 32)

_ONES = np.uint64(0x0101_0101_0101_0101)
_IS_DIGIT = np.zeros(256, np.uint8)
_IS_DIGIT[list(b"0123456789abcdefABCDEF")] = 1
_IS_LOWER_DIGIT = np.zeros(256, np.uint8)
_IS_LOWER_DIGIT[list(b"0123456789abcdef")] = 1


def _word(text: bytes) -> np.uint64:
    """Return up to eight bytes as the word that is gathered where they stand."""
    return np.uint64(int.from_bytes(text, "little"))


def _below(count: int) -> np.uint64:
    """Return the mask of a word's first `count` bytes."""
    return np.uint64((1 << 8 * count) - 1)


def find_all(data: bytes, start: int, pattern: bytes, *, most: int) -> Positions | None:
    """Return where `pattern` stands in `data`, in order.

    Args:
        data: the bytes to search.
        start: where the search begins.
        pattern: three to eight bytes, the first of them a rare one.
        most: give up beyond this many.

    Returns:
        The positions, or None where there are more than `most`. Occurrences in the last eight
        bytes are not looked for.
    """
    whole = np.frombuffer(data, np.uint8)
    stop = max(0, len(data) - _WORD)
    words = np.ndarray((stop,), "<u8", data, 0, (1,))
    expected, mask = _word(pattern), _below(len(pattern))
    found = []
    for low in range(start, stop, _STRIDE):
        candidates = np.flatnonzero(whole[low : min(low + _STRIDE, stop)] == pattern[0]) + low
        hits = candidates[words[candidates] & mask == expected]
        most -= len(hits)
        if most < 0:
            return None
        found.append(hits)
    return np.concatenate(found) if found else np.empty(0, np.int64)


class Vocabulary:
    """Words a text may be, each of at most `MOST_CHOICE` bytes; see `Lanes.choice`.

    Args:
        words: no two of which begin with the same seven bytes and are of the same length.
    """

    __slots__ = ("first", "places", "second")

    def __init__(self, words: Sequence[str]) -> None:
        encoded = [cbor.encode_text(word) for word in words]
        first = np.array([_word(text[:_WORD]) for text in encoded], np.uint64)
        second = np.array([_word(text[_WORD:]) for text in encoded], np.uint64)
        self.places = np.argsort(first)
        self.first, self.second = first[self.places], second[self.places]


class Lanes:
    """Cursors that read the same things at the same time, each in an item of its own.

    Args:
        data: what the items lie in.
        starts: where each cursor begins, in order.
        stop: where the last item ends at the latest.
        strict: whether heads have to be the shortest.

    Attributes:
        ok: whether a lane has met what was expected all the way; what others gave means nothing.
        index: for lanes split from others, which of them these are.
    """

    __slots__ = (
        "_base",
        "_bytes",
        "_last",
        "_parent",
        "_position",
        "_strict",
        "_window",
        "_words",
        "index",
        "ok",
    )

    def __init__(self, data: bytes, starts: Positions, stop: int, *, strict: bool = False) -> None:
        self._strict = strict
        self._base = low = int(starts[0])
        self._last = stop - low + 1  # behind the end: where no cursor comes back from
        room = self._last + _PAD
        if low + room > len(data):
            data, low = data[low:].ljust(room, b"\0"), 0
        self._bytes: Bytes = np.frombuffer(data, np.uint8, room, low)
        self._words: Words = np.ndarray((room - _WORD,), "<u8", data, low, (1,))
        self._window = data, low
        self._position = starts - self._base
        self.ok: Bools = np.ones(len(starts), np.bool_)
        self.index: Positions | slice = slice(None)
        self._parent: Lanes | None = None  # not itself: a circle would keep the data

    @property
    def count(self) -> int:
        """Return how many lanes there are."""
        return len(self._position)

    def position(self) -> Positions:
        """Return where the cursors stand in the data."""
        return self._position + self._base

    # --- Some of the lanes ------------------------------------------------------------------

    def split(self, mask: Bools) -> Lanes:
        """Return some of the lanes: `with lanes.split(mask) as some:` moves only these."""
        some = object.__new__(Lanes)
        some._base, some._last, some._parent = self._base, self._last, self
        some._strict = self._strict
        some._window, some._bytes, some._words = self._window, self._bytes, self._words
        some.index = slice(None) if mask.all() else np.flatnonzero(mask)
        some._position, some.ok = self._position[some.index], self.ok[some.index]
        return some

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._parent is not None:
            self._parent._position[self.index] = self._position
            self._parent.ok[self.index] = self.ok

    # --- Reading ----------------------------------------------------------------------------

    def skip(self, count: int | Positions) -> None:
        """Move by so many bytes."""
        self._position += count
        np.minimum(self._position, self._last, out=self._position)
        self.ok &= self._position < self._last

    def sees(self, expected: bytes) -> Bools:
        """Return which cursors stand before these bytes, at most 100; none moves."""
        count = -(-len(expected) // _WORD)
        runs = np.ndarray((self._last + 1,), f"V{_WORD * count}", *self._window, (1,))
        words = runs[self._position].view("<u8").reshape(-1, count)
        same: Bools = np.ones(len(words), np.bool_)
        for at in range(count):
            part = expected[_WORD * at : _WORD * (at + 1)]
            same &= words[:, at] & _below(len(part)) == _word(part)
        return same

    def literal(self, expected: bytes) -> None:
        """Read these bytes, at most 100."""
        self.ok &= self.sees(expected)
        self.skip(len(expected))

    def head(self, major: int) -> Words:
        """Read heads of one major type in any length, and return their arguments."""
        info = self._bytes[self._position] - np.uint8(major << 5)
        largest = info.max(initial=0)
        if largest < 24:
            self.skip(1)
            return info.astype(np.uint64)
        if largest > 27:  # another major type, or no argument
            self.ok &= info < 28
            info &= np.uint8(0x1F)
        words: Words = self._words[self._position + _FROM.take(info)].byteswap()
        self.skip(_LENGTHS.take(info))
        words >>= _SHIFTS.take(info)
        words &= _MASKS.take(info)
        if self._strict:
            self.ok &= words >= _LEAST.take(info)
        return words

    def choice(self, vocabulary: Vocabulary) -> Positions:
        """Read texts with shortest heads, and return which word of a vocabulary each one is."""
        size = self._bytes[self._position] - np.uint8(0x60)
        self.ok &= size <= MOST_CHOICE
        size &= np.uint8(0x0F)
        low = self._words[self._position] & _LOW_MASKS.take(size)
        place = np.searchsorted(vocabulary.first, low)
        np.minimum(place, len(vocabulary.first) - 1, out=place)
        self.ok &= vocabulary.first[place] == low
        if size.max(initial=0) >= _WORD:
            high = self._words[self._position + _WORD] & _HIGH_MASKS.take(size)
            self.ok &= vocabulary.second[place] == high
        self.skip(size + np.int64(1))
        places: Positions = vocabulary.places[place]
        return places

    def hexadecimal(self, digits: int, *, lower: bool = False) -> None:
        """Read hexadecimal digits, of either case or of the lower one, a multiple of eight."""
        table = _IS_LOWER_DIGIT if lower else _IS_DIGIT
        for _ in range(0, digits, _WORD):
            words = self._words[self._position]
            self.ok &= table.take(words.view(np.uint8)).view(np.uint64) == _ONES
            self.skip(_WORD)


# By the length of a text: what its head and bytes leave of two words.
_LOW_MASKS = np.array([_below(min(size + 1, 8)) for size in range(MOST_CHOICE + 1)], np.uint64)
_HIGH_MASKS = np.array([_below(max(size - 7, 0)) for size in range(MOST_CHOICE + 1)], np.uint64)
