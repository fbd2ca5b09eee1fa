"""Damage to bytes as values: bits flipped, ends cut, ranges repeated, blanked, moved and dropped.

A `Damage` fits bytes of any length, since its numbers are taken modulo what there is. So the same
list means something for every file, random draws need not know the file, and a search for a
smaller example stays valid while it shrinks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """One change.

    Attributes:
        kind: one of `KINDS`.
        at: offset of the first byte.
        length: number of bytes; 0 counts as 1.
        value: the number of a bit, the value of a number, or the offset to copy to.
    """

    kind: str
    at: int
    length: int = 1
    value: int = 0


def _flip(data: bytearray, at: int, length: int, value: int) -> None:
    data[at] ^= 1 << value % 8


def _set(data: bytearray, at: int, length: int, value: int) -> None:
    data[at] = value & 0xFF


def _number(data: bytearray, at: int, length: int, value: int) -> None:
    width = 1 << length % 4  # fields and elements are 1, 2, 4 or 8 bytes
    at -= at % width
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _cut(data: bytearray, at: int, length: int, value: int) -> None:
    del data[at:]


def _behead(data: bytearray, at: int, length: int, value: int) -> None:
    del data[:at]


def _drop(data: bytearray, at: int, length: int, value: int) -> None:
    del data[at : at + length]


def _zero(data: bytearray, at: int, length: int, value: int) -> None:
    data[at : at + length] = bytes(min(length, len(data) - at))


def _fill(data: bytearray, at: int, length: int, value: int) -> None:
    data[at : at + length] = bytes([value & 0xFF]) * min(length, len(data) - at)


def _insert(data: bytearray, at: int, length: int, value: int) -> None:
    data[at:at] = bytes([value & 0xFF]) * length


def _repeat(data: bytearray, at: int, length: int, value: int) -> None:
    data[at:at] = data[at : at + length]


def _splice(data: bytearray, at: int, length: int, value: int) -> None:
    piece = data[at : at + length]
    to = value % len(data)
    data[to : to + length] = piece


KINDS: Mapping[str, Callable[[bytearray, int, int, int], None]] = {
    "flip": _flip,
    "set": _set,
    "number": _number,
    "cut": _cut,
    "behead": _behead,
    "drop": _drop,
    "zero": _zero,
    "fill": _fill,
    "insert": _insert,
    "repeat": _repeat,
    "splice": _splice,
}
_NAMES = tuple(KINDS)

# Numbers at which sizes, counts and signs turn.
EDGES = tuple(
    sorted(
        {0, 1, 2, 3, 7, 8, 24, 63, 64, 65, 127, 128, 255, 256}
        | {(1 << bits) + more for bits in (15, 16, 31, 32, 47, 53, 62, 63) for more in (-1, 0, 1)}
        | {(1 << 64) - 65, (1 << 64) - 64, (1 << 64) - 2, (1 << 64) - 1}
    )
)


def damaged(data: bytes, damages: Iterable[Damage]) -> bytes:
    """Return `data` after the damages, one after another; bytes that are gone stay gone."""
    changed = bytearray(data)
    for damage in damages:
        if changed:
            at = damage.at % len(changed)
            length = damage.length % len(changed) or 1
            KINDS[damage.kind](changed, at, length, damage.value)
    return bytes(changed)


def random_damage(random: Random, size: int) -> Damage:
    """Return a random damage for about `size` bytes: mostly small, anywhere in them."""
    kind = _NAMES[int(random.random() * len(_NAMES))]
    length = 1 << int(random.random() * 9) if random.random() < 0.9 else size
    if random.random() < 0.4:
        value = EDGES[int(random.random() * len(EDGES))]
    else:
        value = int(random.random() * (size + 256))
    return Damage(kind, int(random.random() * (size + 1)), length, value)
