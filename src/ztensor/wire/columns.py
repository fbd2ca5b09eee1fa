"""Many items at once to CBOR, as text of one character a byte.

Text, since joining it takes half the time that joining bytes does; `encode("latin-1")` makes bytes
of it in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Bytes = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
    Ints = np.ndarray[Any, np.dtype[np.intp]]
    Uints = np.ndarray[Any, np.dtype[np.uint64]]

# Width of an unsigned integer behind its first byte, that byte, and the first number too large.
_UINTS = ((0, 0, 24), (1, 0x18, 1 << 8), (2, 0x19, 1 << 16), (4, 0x1A, 1 << 32), (8, 0x1B, 1 << 64))


def encode_texts(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the heads of texts, and the texts as they follow them.

    Raises:
        NotRepresentableError: one has a lone surrogate.
    """
    if not all(map(str.isascii, texts)):
        return [""] * len(texts), [cbor.encode_text(text).decode("latin-1") for text in texts]
    longest = max(map(len, texts), default=0)
    heads = [cbor.head(3, length).decode("latin-1") for length in range(longest + 1)]
    return [heads[len(text)] for text in texts], list(texts)


def encode_uints(numbers: Uints) -> Iterator[tuple[Ints, Bytes]]:
    """Yield unsigned integers by the length they are encoded in: their places, and a row of each.

    Args:
        numbers: (count,) integers.
    """
    done = np.zeros(len(numbers), np.bool_)
    for width, first, bound in _UINTS:
        places = np.flatnonzero(~done & (numbers <= np.uint64(bound - 1)))
        done[places] = True
        if len(places):
            rows = np.empty((len(places), 1 + width), np.uint8)
            tails = numbers[places].astype(">u8").view(np.uint8).reshape(-1, 8)
            rows[:, 0] = first if width else tails[:, 7]
            rows[:, 1:] = tails[:, 8 - width :]
            yield places, rows


def side_by_side(count: int, parts: Iterable[bytes | Bytes]) -> list[str]:
    """Return rows of which each is made of a row of every part.

    Args:
        count: how many rows there are.
        parts: bytes that all rows have, or (count, length) bytes that each has of its own.
    """
    tables = [
        np.frombuffer(part, np.uint8)[np.newaxis] if isinstance(part, bytes) else part
        for part in parts
    ]
    whole = np.empty((count, sum(table.shape[1] for table in tables)), np.uint8)
    start = 0
    for table in tables:
        stop = start + table.shape[1]
        whole[:, start:stop] = table
        start = stop
    text = str(whole.data, "latin-1")
    return [text[start : start + stop] for start in range(0, len(text), stop)]
