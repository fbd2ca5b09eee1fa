"""CBOR, written: the deterministic form of a value (RFC 8949 section 4.2.1).

`Tag`, `Simple` and `Pairs` are the CBOR values that Python has no type for.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from ztensor.errors import NotRepresentableError, describe

UINT64_MAX = (1 << 64) - 1
UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, OTHER = range(8)
FLOATS = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), 0xFB: struct.Struct(">d")}
ENCODE_DEPTH = 64  # deepest nesting written: the default of Limits.depth, so that it is read back


class Tag(NamedTuple):
    """A tagged item; the tag is kept and not interpreted.

    Attributes:
        number: the tag, 0 to 2^64 - 1.
        value: the tagged item.
    """

    number: int
    value: object


class Simple(NamedTuple):
    """A simple value other than false, true and null.

    Attributes:
        value: 0 to 19, 23 (undefined) or 32 to 255.
    """

    value: int


class Fields(dict[str, object]):
    """A map that is written in its own order, not sorted."""


class Encoded(bytes):
    """An item that is already encoded, and written unchanged."""


class Pairs(tuple[tuple[object, object], ...]):
    """A map with at least one key that is not text: (key, value) pairs in the order of the file.

    Attributes contain it only if a `dict` cannot hold the same keys; see `with_dicts`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Pairs({super().__repr__()})"


Container: TypeAlias = dict[object, object] | list[object] | tuple[object, ...]
UNDEFINED = Simple(23)


def is_container(value: object) -> TypeGuard[Container]:
    """Return whether a value contains other values."""
    return isinstance(value, (dict, list, tuple)) and type(value) is not Simple


def shown(key: object) -> str:
    """Return the key of a map for a message."""
    return "that is an array, map or tag" if is_container(key) else describe(key)


def with_dicts(value: Any) -> Any:
    """Return a decoded value with `Pairs` replaced by `dict` wherever that loses nothing.

    A `dict` loses keys that are equal in Python (1, 1.0 and true), and cannot look up NaN or keys
    that are not hashable: such maps stay `Pairs`. Returns the same value if nothing is replaced.
    """
    if not is_container(value):
        return value
    if isinstance(value, Tag):
        inside = with_dicts(value.value)
        return value if inside is value.value else Tag(value.number, inside)
    if isinstance(value, Pairs):
        pairs = Pairs((key, with_dicts(item)) for key, item in value)
        plain = (str, int, bytes, bool, float, type(None))
        if any(type(key) not in plain or key != key for key, _ in pairs):
            return pairs
        as_dict = dict(pairs)
        return as_dict if len(as_dict) == len(pairs) else pairs
    old = list(value.values() if isinstance(value, dict) else value)
    new = list(map(with_dicts, old))
    if all(map(operator.is_, old, new)):
        return value
    return dict(zip(value, new, strict=True)) if isinstance(value, dict) else new


def encode(value: object, depth: int = ENCODE_DEPTH) -> bytes:
    """Encode `value` in its deterministic form (RFC 8949 section 4.2.1).

    Heads are the shortest, lengths definite, keys in the order of their encoded bytes (except in
    `Fields`), floats the shortest of half, single and double that keeps the value. Every NaN is
    written as 0x7e00: a NaN's sign and payload are not kept.

    Args:
        value: None, bool, int, float, str, bytes-like, list, tuple, dict, and any value that
            `decode` returns. A scalar of an array library is written as its number, as is any
            object with `__index__` or, failing that, `__float__`.
        depth: deepest nesting.

    Raises:
        NotRepresentableError: a type or number without a CBOR form, text with a lone surrogate,
            two keys of one map with the same form, or too deep nesting (also of a value that
            contains itself).
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if not is_container(value):
        return _encode_other(value)
    if depth == 0:
        raise NotRepresentableError(
            "the value nests too deep, or contains itself",
            expected=f"at most {ENCODE_DEPTH} levels of list, tuple, dict and Tag",
            found="one more",
        )
    if isinstance(value, Tag):
        return head(TAG, value.number) + encode(value.value, depth - 1)
    if not isinstance(value, (dict, Pairs)):
        return head(ARRAY, len(value)) + b"".join([encode(item, depth - 1) for item in value])
    forms: dict[bytes, bytes] = {}
    for key, item in value.items() if isinstance(value, dict) else value:
        form = encode_text(key) if type(key) is str else encode(key, depth - 1)
        if form in forms:
            raise NotRepresentableError(
                "two keys of a map have the same encoded form",
                expected="distinct keys",
                found=shown(key),
            )
        forms[form] = encode(item, depth - 1)
    pairs = forms.items() if type(value) is Fields else sorted(forms.items())
    return head(MAP, len(forms)) + b"".join(chain.from_iterable(pairs))


def head(major: int, argument: int) -> bytes:
    """Encode the shortest head of an item.

    Args:
        major: the major type, 0 to 6.
        argument: value, length, count or tag number, 0 to 2^64 - 1.

    Raises:
        NotRepresentableError: the argument is out of range.
    """
    first = major << 5
    if 0 <= argument < 24:
        return bytes((first + argument,))
    if not 0 <= argument <= UINT64_MAX:
        raise _no_number("the head of an item", "0 to 2^64 - 1", argument)
    if argument < 1 << 8:
        return bytes((first + 24, argument))
    width = 2 if argument < 1 << 16 else 4 if argument < 1 << 32 else 8
    return bytes((first + 23 + width.bit_length(),)) + argument.to_bytes(width, "big")


def encode_text(text: str) -> bytes:
    """Encode a text.

    Raises:
        NotRepresentableError: it has a lone surrogate, which UTF-8 cannot encode.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise NotRepresentableError(
            f"text with a lone surrogate at position {error.start} cannot be stored",
            expected="text that UTF-8 can encode",
            found=describe(text),
        ) from None
    return head(TEXT, len(raw)) + raw


def key_order(key: str) -> tuple[int, str]:
    """Return a sort key that orders texts as their encoded forms: shorter ones first."""
    # UTF-8 keeps the order of code points, in which Python compares `str`.
    return (len(key) if key.isascii() else len(key.encode())), key


def _encode_int(value: int) -> bytes:
    if -1 - UINT64_MAX <= value <= UINT64_MAX:
        return head(UINT, value) if value >= 0 else head(NEGATIVE, -1 - value)
    raise _no_number("an integer", "-2^64 to 2^64 - 1; text or bytes hold more", value)


def _encode_float(value: float) -> bytes:
    if math.isnan(value):
        return b"\xf9\x7e\x00"
    for first in (0xF9, 0xFA):
        number = FLOATS[first]
        try:
            raw = number.pack(value)
        except OverflowError:  # too large for this width
            continue
        if number.unpack(raw)[0] == value:
            return bytes((first,)) + raw
    return b"\xfb" + FLOATS[0xFB].pack(value)


def _encode_bytes(value: bytes | bytearray | memoryview) -> bytes:
    raw = bytes(value)
    return head(BYTES, len(raw)) + raw


def _encode_simple(value: Simple) -> bytes:
    number = value.value
    if not (0 <= number < 20 or number == 23 or 32 <= number < 256):
        raise _no_number("a simple value", "0 to 19, 23 or 32 to 255", number)
    return head(OTHER, number)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: encode_text,
    int: _encode_int,
    float: _encode_float,
    bool: lambda value: b"\xf5" if value else b"\xf4",
    type(None): lambda _: b"\xf6",
    Simple: _encode_simple,
    bytes: _encode_bytes,
    Encoded: bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
}


def _encode_other(value: object) -> bytes:
    """Encode a value whose type is not in `_ENCODERS`: a subclass, or an array library's scalar."""
    for kind in (str, int, float, bytes, bytearray):
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    try:
        plain = _plain_number(value)
    except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError):
        plain = None  # an object with the methods of a number that does not convert
    if plain is None:
        raise NotRepresentableError(
            "a value of this type cannot be stored",
            expected="None, bool, int, float, str, bytes, or a list, tuple or dict of these "
            "(of an array, its tolist())",
            found=type(value).__name__,
        )
    return encode(plain)


def _plain_number(value: Any) -> int | float | None:
    """Return the bool, int or float of a scalar object; None if it is not a number.

    Array libraries need not be loaded: their scalars have the shape () and a method `item()`, which
    also distinguishes bools. An array of shape (1,) is not a scalar.
    """
    kind = type(value)
    if hasattr(kind, "shape"):
        # Complex numbers and times are refused, although some convert to an int or float.
        if value.shape != () or getattr(value.dtype, "kind", None) in ("c", "m", "M"):
            return None
        plain: object = value.item()
        if isinstance(plain, (int, float)):
            return plain
        return float(value) if type(plain) is kind else None  # longdouble.item() is a longdouble
    if hasattr(kind, "__index__"):
        return operator.index(value)
    return float(value) if hasattr(kind, "__float__") else None


def _no_number(place: str, expected: str, found: object) -> NotRepresentableError:
    return NotRepresentableError(
        f"the number does not fit {place}", expected=expected, found=describe(found)
    )
