"""The one deterministic form of CBOR (RFC 8949 section 4.2.1), as a strict reading asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ManifestError, Reason
from ztensor.wire.cbor.encoding import FLOATS, encode

if TYPE_CHECKING:
    from ztensor.wire.cbor.values import Pairs

_SECTION = "RFC 8949 section 4.2.1"
_LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}  # what a head of so many bytes is for


def require_form(data: bytes, start: int) -> None:
    """Raise unless an item's head, and a float, are the shortest, and its length is definite.

    Malformed and truncated items pass; reading the item is an error then.

    Raises:
        ManifestError: they are not, or it is a simple value of two bytes.
    """
    first = data[start]
    info = first & 0x1F
    if first in FLOATS:
        number = FLOATS[first]
        stop = start + 1 + number.size
        if stop <= len(data) and encode(number.unpack_from(data, start + 1)[0]) != data[start:stop]:
            raise other_form(start, "the shortest float that keeps the value", "another")
    elif info == 0x1F and first < 0xE0:
        raise other_form(start, "a definite length", "an open one")
    elif first == 0xF8:
        raise other_form(start, "false, true or null", "a simple value of two bytes")
    elif info in _LEAST and first < 0xE0:
        size = 1 << (info - 24)
        argument = int.from_bytes(data[start + 1 : start + 1 + size], "big")
        if start + 1 + size <= len(data) and argument < _LEAST[info]:
            expected = f"the shortest head for {argument}"
            raise other_form(start, expected, f"one of {1 + size} bytes")


def key_order(key: str) -> tuple[int, str]:
    """Return what text keys compare by as their encoded forms do: shorter ones first."""
    # UTF-8 keeps the order of code points, which is that of `str`.
    return (len(key) if key.isascii() else len(key.encode())), key


def require_rising(pairs: Pairs, start: int) -> None:
    """Raise unless the keys of a map of any keys are in the order of their encoded bytes.

    Raises:
        ManifestError: they are not.
    """
    last = b""
    for key, _ in pairs:
        form = encode(key)
        if form < last:
            raise unsorted(start)
        last = form


def unsorted(start: int) -> ManifestError:
    """Return the error for a key that comes too late."""
    return other_form(
        start, "keys in the order of their encoded bytes", "a key behind a larger one"
    )


def other_form(start: int, expected: str, found: str) -> ManifestError:
    """Return the error for an item that is well-formed, and written otherwise than it has to be."""
    return ManifestError(
        f"the manifest is not in deterministic form at byte {start}",
        reason=Reason.CBOR_FORM,
        expected=expected,
        found=found,
        section=_SECTION,
    )
