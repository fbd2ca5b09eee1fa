"""Quick variations of a file: bytes changed blindly, or a piece of it moved, lost or repeated.

Pieces are what a format's parser takes at a time: the heads of CBOR, the opcodes of a pickle, the
tokens of JSON. They are found once and serve for many variations, which puts most of a case's time
into the reader and little into making it. Fields around the pieces, such as a length before
them, are corrected afterwards.
"""

from __future__ import annotations

import itertools
import pickletools
import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ztensor.testing.damage import EDGES

TOKEN = re.compile(rb"-?[0-9]+|\"[^\"]*\"|'[^']*'|[A-Za-z]+|[^\"'A-Za-z0-9]")
LONGEST = 1 << 16  # bytes a variation may grow to by repeating a piece


class Pieces(NamedTuple):
    """A file cut into pieces.

    Attributes:
        parts: its pieces, in order.
        join: makes a file of pieces again.
        words: other pieces that a file of the format may have, right or wrong in their place.
        row: what stands before, between and behind the elements of a list of any length.
    """

    parts: list[bytes]
    join: Callable[[list[bytes]], bytes]
    words: tuple[bytes, ...] = ()
    row: tuple[bytes, bytes, bytes] | None = None


def varied(rng: Random, data: bytes, pieces: Pieces | None) -> bytes:
    """Return a file with a few changes."""
    if pieces is not None and pieces.parts and rng.random() < 0.6:
        data = pieces.join(rearranged(rng, pieces))
        if rng.random() < 0.8:
            return data
    return blindly(rng, data)


def grown(rng: Random, data: bytes, pieces: Pieces | None, most: int) -> bytes:
    """Return a file with one stretch of it repeated until it is `most` bytes long, or nearly."""
    if pieces is not None and pieces.parts and rng.random() < 0.7:
        parts = list(pieces.parts)
        at = rng.randrange(len(parts))
        count = 1 << rng.randrange(4)
        stretch = parts[at : at + count]
        first, between, last = b"", b"", b""
        if pieces.row is not None and rng.random() < 0.7:
            first, between, last = pieces.row
            stretch = [b"".join(stretch), between]
        times = (most - len(data)) // max(1, sum(map(len, stretch)))
        repeated = stretch * times
        if between:
            del repeated[-1:]
        if rng.random() < 0.5:
            del parts[at : at + count]  # the list stands in its place
        parts[at:at] = [first, *repeated, last]
        return pieces.join(parts)
    at = rng.randrange(len(data) + 1)
    stretch = data[at : at + (1 << rng.randrange(8))] or b"\0"
    return data[:at] + stretch * ((most - len(data)) // len(stretch)) + data[at:]


def blindly(rng: Random, data: bytes) -> bytes:
    """Return other bytes: mostly one place changed, sometimes three."""
    out = bytearray(data)
    for _ in range(1 if rng.random() < 0.7 else 3):
        if not out:
            break
        draw = rng.getrandbits(60)
        at = (draw >> 28) % len(out)
        value = draw & 255
        kind = draw >> 8 & 15
        if kind < 4:
            out[at] ^= 1 << (value & 7)
        elif kind < 7:
            out[at] = value
        elif kind < 11:
            width = 1 << (value & 3)
            number = EDGES[(draw >> 12) % len(EDGES)] & (1 << 8 * width) - 1
            out[at : at + width] = number.to_bytes(width, "big" if value & 4 else "little")
        elif kind == 11:
            del out[at:]
        elif kind == 12:
            del out[at : at + (value & 15) + 1]
        elif kind == 13:
            out[at:at] = out[at : at + (value & 63) + 1]
        elif kind == 14:
            to = (draw >> 12) % len(out)
            length = (value & 31) + 1
            out[to : to + length] = out[at : at + length]
        else:
            stretch = out[at : at + (value & 7) + 1]
            out[at:at] = stretch * (1 << (draw >> 12 & 7))
    return bytes(out)


def rearranged(rng: Random, pieces: Pieces) -> list[bytes]:
    """Return pieces in which one was lost, doubled, moved, exchanged or changed."""
    parts = list(pieces.parts)
    for _ in range(1 if rng.random() < 0.7 else 2):
        if not parts:
            break
        draw = rng.getrandbits(60)
        at, other = draw % len(parts), (draw >> 30) % len(parts)
        kind = draw >> 20 & 15
        if kind < 3:
            del parts[at : at + 1 + (draw >> 25 & 1)]
        elif kind < 5:
            parts.insert(at, parts[other])
        elif kind < 7:
            parts[at], parts[other] = parts[other], parts[at]
        elif kind < 9:
            parts[at] = parts[other]
        elif kind < 12 and pieces.words:
            parts[at] = pieces.words[(draw >> 25) % len(pieces.words)]
        elif kind == 12:
            parts[at] *= min((2, 3, 70, 300)[draw >> 25 & 3], LONGEST // max(1, len(parts[at])))
        else:
            parts[at] = blindly(rng, parts[at])
    return parts


# --- Pieces of each format ----------------------------------------------------------------------


def tokens(text: bytes) -> list[bytes]:
    """Return the tokens of JSON, or of a Python literal; nothing is left out."""
    found = TOKEN.findall(text)
    return found if sum(map(len, found)) == len(text) else [text]


def opcodes(data: bytes) -> list[bytes]:
    """Return the opcodes of one pickle or several, and what follows the last that is understood."""
    starts = [0]
    try:
        while starts[-1] < len(data):
            first = starts[-1]
            for _, _, at in pickletools.genops(data[first:]):
                if at:
                    starts.append(first + at)
            starts.append(starts[-1] + 1)  # behind STOP
    except (ValueError, OverflowError, IndexError):
        pass
    starts = [start for start in starts if start < len(data)]
    return [data[one:two] for one, two in itertools.pairwise([*starts, len(data)])]


def heads(data: bytes) -> list[bytes]:
    """Return the heads of CBOR, each with its text where it has one."""
    found = []
    at = 0
    while at < len(data):
        major, low = data[at] >> 5, data[at] & 31
        width = 1 << (low - 24) if 24 <= low < 28 else 0
        stop = at + 1 + width
        if major in (2, 3) and low < 28:
            stop += int.from_bytes(data[at + 1 : stop], "big") if width else low
        stop = min(stop, len(data))
        found.append(data[at:stop])
        at = stop
    return found
