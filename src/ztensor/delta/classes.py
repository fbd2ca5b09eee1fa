"""Classes of elements by the exponent of the old state, and the numbers of their members.

An update changes the bits of an element only if it exceeds half a unit of the element's last place,
so small elements change more often than large ones. Gaps of positions are shorter if they count
within classes of elements with similar exponents, which a receiver finds in its old state.

The class byte is bits 14..7 of the top 16 bits of f64, f32, bf16 and f16, bits 6..0 of fp8. Class k
has the elements with limit[k - 1] < byte <= limit[k]. Other elements have one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ztensor.ext import cached_property
from ztensor.typing import Array

MOST_CLASSES = 4  # the writer's; more gain less than 2 percent
LAST = 255  # the largest class byte

_HEAD_BITS = 30 * 8  # a class costs a head and its streams' heads and tables
_SAMPLED = 61  # every so many elements are counted; a prime, as rows are multiples of small numbers
_GATHERED = 16  # where more than one member in so many changed, the flags of all are gathered
_SEARCHED = 64  # where fewer than one member in so many changed, each rank is searched
_BLOCK_WORDS = 1 << 15  # positions of 2^18 elements fit a CPU's cache
_ONES = np.uint64(0x0101010101010101)  # a word of eight flags; times it, byte i is the sum of 0..i
_BELOW = np.array([(1 << 8 * i) - 1 for i in range(8)], np.uint64)
_TOP = np.uint64(56)


def has_classes(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of this dtype have class bytes: all floats, with fp8."""
    return dtype.kind not in "biu"


def class_bytes(bits: Array) -> Array:
    """Return the class bytes of elements, (count,) uint8.

    Args:
        bits: the elements, (count,) unsigned integers of their width.
    """
    out: Array = np.empty(bits.size, np.uint8)
    if bits.itemsize == 1:
        np.bitwise_and(bits, 0x7F, out=out)
        return out
    np.right_shift(bits, bits.itemsize * 8 - 9, out=out, dtype=bits.dtype, casting="unsafe")
    return out


def indices_of(flags: Array) -> Array:
    """Return the indices of the true flags, ascending, int64.

    Args:
        flags: (count,) bool.
    """
    if flags.size % 8 or np.count_nonzero(flags) * 10 > flags.size:
        return np.flatnonzero(flags)
    # NumPy's loop over flags of which 1 to 10 percent are true mispredicts branches.
    words = flags.view(np.uint64)
    hit = np.flatnonzero(words != 0)
    within = np.flatnonzero(words[hit].view(bool))
    hit <<= 3
    indices: Array = hit[within >> 3]
    indices += within & 7
    return indices


class Members:
    """The elements of one class of a segment, and their ranks: numbers in ascending order.

    Args:
        flags: for each word of eight elements, the flags of those in this class and all lower ones;
            and of those in the lower ones, which becomes scratch memory.
        before: the number of such elements before each word and before the end; likewise two.

    Attributes:
        count: the number of elements.
    """

    def __init__(self, flags: tuple[Array, Array], before: tuple[Array, Array]) -> None:
        self._flags, self._below = flags, before
        self.count = int(before[0][-1]) - int(before[1][-1])

    @cached_property
    def _words(self) -> Array:
        words, lower = self._flags
        lower ^= words
        return lower

    @cached_property
    def _before(self) -> Array:
        before, lower = self._below
        return np.subtract(before, lower, out=lower)[:-1]

    def ranks(self, positions: Array) -> Array:
        """Return the ranks of members, int64, by their ascending positions in the segment."""
        if positions.size * _GATHERED > self.count:
            flags = np.zeros(self._words.size * 8, bool)
            flags[positions] = True
            return indices_of(flags[indices_of(self._words.view(bool))])
        word = positions >> 3
        below: Array = self._words[word]
        below &= _BELOW[positions & 7]
        below *= _ONES
        below >>= _TOP
        below += self._before[word]
        ranks: Array = below.view(np.int64)
        return ranks

    def positions(self, ranks: Array) -> Array:
        """Return the positions in the segment of ascending ranks less than `count`, in place.

        Args:
            ranks: (changed,) int64; becomes the result.
        """
        if ranks.size * _SEARCHED < self.count:
            return self._searched(ranks)
        done = 0
        for start in range(0, self._words.size, _BLOCK_WORDS):
            words = self._words[start : start + _BLOCK_WORDS]
            first = int(self._before[start])
            every = indices_of(words.view(bool))
            end = done + int(np.searchsorted(ranks[done:], first + every.size))
            every += start * 8
            ranks[done:end] = every[ranks[done:end] - first]
            done = end
        return ranks

    def _searched(self, ranks: Array) -> Array:
        word = np.searchsorted(self._before, ranks.astype(np.uint32), side="right") - 1
        # Of the eight running sums in a word, as many are at most the rank within the word as there
        # are flags before that member.
        sums = (self._words[word] * _ONES).view(np.uint8).reshape(-1, 8)
        within = (ranks - self._before[word]).astype(np.uint8)
        passed = (sums <= within[:, None]).view(np.uint64).reshape(-1)
        passed *= _ONES
        passed >>= _TOP
        word <<= 3
        word += passed.view(np.int64)
        return word


def members_of(classes: Array, limits: Sequence[int]) -> Iterator[Members]:
    """Yield the members of each class of a segment.

    Memory: four bytes an element. Each result is valid until the next one.

    Args:
        classes: the class bytes, (elements,) uint8.
        limits: the upper limits of the classes, rising, the last 255.
    """
    size = -(-classes.size // 8)
    words, lower = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
    before, lower_before = np.zeros(size + 1, np.uint32), np.zeros(size + 1, np.uint32)
    for limit in limits:
        flags = words.view(bool)[: classes.size]
        if limit == LAST:
            flags[:] = True
            before[:-1] = np.arange(0, size * 8, 8)
            before[-1] = classes.size
        else:
            before[0] = 0
            for start in range(0, size, _BLOCK_WORDS):
                part = slice(start * 8, (start + _BLOCK_WORDS) * 8)
                np.less_equal(classes[part], limit, out=flags[part])
                sums = words[start : start + _BLOCK_WORDS] * _ONES
                sums >>= _TOP
                before[start + 1 : start + 1 + sums.size] = sums
            np.add.accumulate(before, out=before)
        yield Members((words, lower), (before, lower_before))
        words, lower = lower, words
        before, lower_before = lower_before, before


def choose_limits(classes: Array, changed: Array) -> list[int]:
    """Return the upper limits of the classes with which a segment's positions are shortest.

    Args:
        classes: the class bytes of the segment, (elements,) uint8.
        changed: the class bytes of the changed elements, (changed,) uint8.
    """
    changes = np.bincount(changed, minlength=256)
    members = np.bincount(classes[::_SAMPLED], minlength=256) * _SAMPLED
    edges = np.flatnonzero(changes + members)
    if edges.size < 2:
        return [LAST]
    changed_sums = np.concatenate([[0], np.cumsum(changes[edges])])
    member_sums = np.concatenate([[0], np.cumsum(members[edges])])
    c = np.maximum(changed_sums[None, 1:] - changed_sums[:-1, None], 0)
    bits = _position_bits(c, member_sums[None, 1:] - member_sums[:-1, None]) + _HEAD_BITS
    bits[np.tri(edges.size, k=-1, dtype=bool)] = np.inf
    best, cuts = bits[0], []
    shortest, chosen = best[-1], [edges.size - 1]
    for _ in range(MOST_CLASSES - 1):  # best[j]: of the first j + 1 edges, in one class more
        totals = best[:-1, None] + bits[1:]
        cuts.append(np.argmin(totals, axis=0))
        best = np.min(totals, axis=0)
        if best[-1] < shortest:
            shortest, chosen = best[-1], [edges.size - 1]
            for cut in reversed(cuts):
                chosen.append(int(cut[chosen[-1]]))
    return [*(int(edges[i]) for i in chosen[:0:-1]), LAST]


def _position_bits(changed: Array, members: Array) -> Array:
    """Return the entropy of the positions of changes among members, bits."""
    members = np.maximum(members, changed)
    rest = members - changed

    def of(count: Array) -> Array:
        return count * np.log2(np.maximum(count, 1))

    bits: Array = of(members) - of(changed) - of(rest)
    return bits
