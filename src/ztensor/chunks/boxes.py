"""Boxes in arrays: which overlap, and whether some of them fill a shape, each element once.

A box is where it begins along each axis and how long it is there. All functions take many boxes as
NumPy columns and make no object for one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Two primes below 2^31, so that products of residues fit into 64 bits.
_PRIMES = (2147483647, 2147483629)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BATCH = 1 << 16  # boxes whose numbers are mixed at a time: memory stays small
_MOST_COMPARED = 2000  # boxes among which an overlapping pair is looked for, to be named


class Overlap(NamedTuple):
    """The common part of two boxes.

    Attributes:
        source: which part of the first it is, counted from that one's corner.
        target: which part of the second.
        sizes: how long it is along each axis.
    """

    source: tuple[slice, ...]
    target: tuple[slice, ...]
    sizes: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether there is none."""
        return 0 in self.sizes

    @property
    def in_target(self) -> Any:
        """Return `target` as an index that gives a view: without dots, no axes give a copy."""
        return (*self.target, ...)


def overlap(
    offsets: Sequence[int], sizes: Sequence[int], others: Sequence[int], lengths: Sequence[int]
) -> Overlap:
    """Return the common part of a box and another one.

    Args:
        offsets: where the first begins along each axis.
        sizes: how long it is.
        others: where the second begins.
        lengths: how long that is.
    """
    source, target, common = [], [], []
    for offset, size, other, length in zip(offsets, sizes, others, lengths, strict=True):
        start = max(offset, other)
        count = max(0, min(offset + size, other + length) - start)
        source.append(slice(start - offset, start - offset + count))
        target.append(slice(start - other, start - other + count))
        common.append(count)
    return Overlap(tuple(source), tuple(target), tuple(common))


def touching(offsets: Array, sizes: Array, others: Sequence[int], lengths: Sequence[int]) -> Array:
    """Return which boxes have an element in common with one.

    Args:
        offsets: (boxes, axes) where they begin.
        sizes: (boxes, axes) how long they are.
        others: where the one begins.
        lengths: how long it is.

    Returns:
        Rising numbers of boxes, int64.
    """
    hits = np.ones(len(offsets), np.bool_)
    for axis, (other, length) in enumerate(zip(others, lengths, strict=True)):
        starts, counts = offsets[:, axis], sizes[:, axis]
        hits &= (starts < other + length) & (counts > 0)
        hits &= starts.astype(np.int64) + counts.astype(np.int64) > other
        if length <= 0:
            hits[:] = False
    return np.flatnonzero(hits)


class Fill:
    """Tells whether boxes fill shapes, each element exactly once, in time that is linear.

    Each corner along an axis gets a random residue; of a box the differences between both ends are
    multiplied over all axes. The sum over boxes that fill a shape equals that of the whole shape,
    as its inner corners cancel. If they do not fill it, both are equal with a chance below
    rank^2 / 2^61, whatever the boxes are: the residues are of a key that is new in each process.
    """

    primes = np.array(_PRIMES, np.uint64)  # sums are equal but for multiples of these

    def __init__(self, key: bytes | None = None) -> None:
        found = np.frombuffer(os.urandom(16) if key is None else key, np.uint64)
        self._keys = [int(one) for one in found]

    def sums(self, offsets: Array, sizes: Array, groups: Array, count: int) -> Array:
        """Return the sums of the boxes of each group.

        Args:
            offsets: (boxes, axes) where they begin, not negative.
            sizes: (boxes, axes) how long they are, not negative; both within int64 together.
            groups: the group of each box.
            count: how many groups there are.

        Returns:
            (groups, 2) uint64: one residue for each prime.
        """
        found = np.zeros((count, 2), np.uint64)
        for start in range(0, len(offsets), _BATCH):
            some = slice(start, start + _BATCH)
            for number, (prime, key) in enumerate(zip(_PRIMES, self._keys, strict=True)):
                values = _products(offsets[some], sizes[some], prime, key)
                np.add.at(found[:, number], groups[some].astype(np.intp), values)
        found[:, 0] %= np.uint64(_PRIMES[0])
        found[:, 1] %= np.uint64(_PRIMES[1])
        return found

    def fills(self, offsets: Array, sizes: Array, shape: Sequence[int]) -> bool:
        """Return whether boxes that lie in a shape fill it, each element once."""
        whole = np.array(shape, np.int64).reshape(1, -1)
        zeros = np.zeros(len(offsets), np.intp)
        expected = self.sums(np.zeros_like(whole), whole, np.zeros(1, np.intp), 1)
        return bool((self.sums(offsets, sizes, zeros, 1) == expected).all())


def _products(offsets: Array, sizes: Array, prime: int, key: int) -> Array:
    """Return of each box the product over its axes of the difference of both ends' residues."""
    p = np.uint64(prime)
    product = np.ones(len(offsets), np.uint64)
    for axis in range(offsets.shape[1]):
        starts = offsets[:, axis].astype(np.uint64)
        ends = starts + sizes[:, axis].astype(np.uint64)
        salt = np.uint64((key + axis * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
        difference = _residues(ends, salt, p) + p - _residues(starts, salt, p)
        product = product * (difference % p) % p
    return product


def _residues(numbers: Array, salt: np.uint64, prime: np.uint64) -> Array:
    """Return a residue for each number that looks random to who does not know the salt."""
    mixed = numbers ^ salt
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
        mixed = (mixed ^ (mixed >> np.uint64(31))) + salt
    residues: Array = mixed % prime
    return residues


def overlapping_pair(offsets: Array, sizes: Array) -> tuple[int, int] | None:
    """Return two boxes with a common element, None where there are none among the first ones.

    Args:
        offsets: (boxes, axes) where they begin.
        sizes: (boxes, axes) how long they are.
    """
    for first in range(min(len(offsets), _MOST_COMPARED)):
        rest = slice(first + 1, _MOST_COMPARED)
        hits = touching(offsets[rest], sizes[rest], offsets[first].tolist(), sizes[first].tolist())
        if len(hits):
            return first, first + 1 + int(hits[0])
    return None


def is_in_order(strides: tuple[int, ...], sizes: tuple[int, ...], width: int) -> bool:
    """Return whether elements follow one another in C's order, without gaps."""
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != width:
            return False
        width *= size
    return True


def is_run(part: tuple[slice, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether a part of a box is one run of its elements."""
    is_cut = False
    for one, size in zip(reversed(part), reversed(sizes), strict=True):
        count = one.stop - one.start
        if is_cut and count != 1:
            return False
        is_cut = is_cut or count != size
    return True


def c_strides(sizes: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return the bytes between neighbours of an array in C's order."""
    strides: list[int] = []
    for size in reversed(sizes):
        strides.append(width)
        width *= size
    return tuple(reversed(strides))
