"""CBOR, written: one deterministic form."""

from __future__ import annotations

import math
import operator
import struct
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from ztensor.errors import NotRepresentableError, describe
from ztensor.spec.wire.cbor.values import (
    UINT64_MAX,
    Container,
    Pairs,
    Simple,
    Tag,
    Undefined,
    is_container,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


ENCODE_DEPTH = 64  # deepest nesting written: the default of Limits.depth, so that we read it back

FLOATS = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), 0xFB: struct.Struct(">d")}
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
    stack: list[tuple[Iterator[object], Container, list[bytes]]] = []
    container: Container = ()
    source: Iterator[object] = iter((value,))
    parts: list[bytes] = []
    while True:
        for item in source:
            encoder = _ENCODERS.get(type(item))
            if encoder is not None:
                parts.append(encoder(item))
            elif not is_container(item):
                parts.append(_encode_other(item))
            elif len(stack) < ENCODE_DEPTH:
                stack.append((source, container, parts))
                source, container, parts = inside_of(item), item, []
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
            encoded = assemble(container, parts)
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


def key_order(key: str) -> tuple[int, str]:
    """Return what text keys compare by as their encoded forms do: shorter ones first."""
    # UTF-8 keeps the order of code points, which is that of `str`.
    return (len(key) if key.isascii() else len(key.encode())), key


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


def inside_of(container: Container) -> Iterator[object]:
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


def assemble(container: Container, parts: list[bytes]) -> bytes:
    """Return a container's form from the forms of what is inside, in the order of `inside_of`."""
    if isinstance(container, Tag):
        if not isinstance(container.number, int):
            raise _no_number("a tag", "an integer, 0 to 2^64 - 1", container.number)
        return head(6, container.number) + parts[0]
    if isinstance(container, (dict, Pairs)):
        pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
        if len(dict(pairs)) < len(pairs):
            forms, keys = parts[::2], list(inside_of(container))[::2]
            raise _same_keys(
                next(k for f, k in zip(forms, keys, strict=True) if forms.count(f) > 1)
            )
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
        number = FLOATS[initial]
        try:
            raw = number.pack(value)
        except OverflowError:  # too large for this width
            continue
        if number.unpack(raw)[0] == value:
            return _BYTES[initial] + raw
    return _BYTES[0xFB] + FLOATS[0xFB].pack(value)


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
    what = "which holds others" if is_container(key) else describe(key)
    return NotRepresentableError(
        "two keys of a map are the same once written", expected="each key once", found=what
    )
