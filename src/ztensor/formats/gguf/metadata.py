"""The metadata of a GGUF file: keys and typed values."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.formats.gguf.cursor import TEXT_COST, Cursor
from ztensor.formats.gguf.types import (
    ALIGNMENT,
    ARRAY,
    ARRAYS,
    DEFAULT_ALIGNMENT,
    DTYPES,
    TYPES,
    WORDS,
    broken,
    is_alignment,
)
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_OF_SHARDS = ("split.no", "split.count", "split.tensors.count")
# In bytes of memory: a place in a list; a number; a key with its type; an array in an array.
_PLACE_COST, _NUMBER_COST, _KEY_COST, _ARRAY_COST = 9, 41, 400, 176
_SMALL = ("u8", "bool")  # Python shares the objects of their values
_ROUNDED = 16  # bytes by which the allocation of a text may exceed its size
# Strings decoded at once, their bytes, and the memory for each byte meanwhile.
_BATCH, _BATCH_BYTES, _WORST = 1024, 1 << 18, 7


def read_metadata(
    cursor: Cursor, count: int, spans: dict[str, slice] | None = None
) -> dict[str, object]:
    """Return the next keys with their values, and their types under `GGUF.types`.

    Args:
        cursor: the file, at the first key; afterwards behind the last value.
        count: the number of keys.
        spans: takes the bytes of each key with its value, as a slice of `cursor.data`.
    """
    attributes: dict[str, object] = {}
    types: list[object] = []
    for _ in range(count):
        start = cursor.at
        key = cursor.name("key")
        if key in attributes:
            raise broken("duplicate key", reason=Reason.DUPLICATE_NAME, found=describe(key))
        (number,) = cursor.take("I")
        cursor.budget.charge_bytes(_KEY_COST)
        kind, value = _value(cursor, number, key, 1)
        attributes[key] = value
        if spans is not None:
            spans[key] = slice(start, cursor.at)
        types.append([key, kind])
    if TYPES in attributes:
        raise broken("a key has the name of an attribute of this library", found=describe(TYPES))
    if types:
        attributes[TYPES] = types
    return attributes


def _value(cursor: Cursor, number: int, key: str, depth: int) -> tuple[object, object]:
    """Return the type and the value of the next item, by the number of its type."""
    if number != ARRAY:
        word = _word(number, key)
        return word, _items(cursor, word, 1, key)[0]
    if depth >= cursor.limits.depth:
        raise LimitError(
            "an array is nested deeper than Limits.depth",
            reason=Reason.LIMIT_DEPTH,
            expected=f"at most {cursor.limits.depth} levels",
            found=f"more, under the key {describe(key)}",
        )
    number, count = cursor.take("IQ")
    if number != ARRAY:
        word = _word(number, key)
        return ARRAYS[word], _items(cursor, word, count, key)
    cursor.require_left(count, 12, "arrays in an array")
    cursor.budget.charge_bytes(_ARRAY_COST * count)
    pairs = [_value(cursor, number, key, depth + 1) for _ in range(count)]
    return [kind for kind, _ in pairs], [value for _, value in pairs]


def _word(number: int, key: str) -> str:
    word = WORDS.get(number)
    if word is None:
        raise broken(
            f"the value of the key {describe(key)} is of an unknown type",
            reason=Reason.FIELD_TYPE,
            expected=f"a number from 0 to {max(WORDS)}",
            found=str(number),
        )
    return word


def _items(cursor: Cursor, word: str, count: int, key: str) -> list[Any]:
    """Return the next values, of a type other than array."""
    if word == "str":
        return _strings(cursor, count)
    dtype = np.dtype(cursor.order + DTYPES[word])
    cursor.require_left(count, dtype.itemsize, "values in an array")
    length = count * dtype.itemsize
    cursor.budget.charge_bytes(count * (_PLACE_COST if word in _SMALL else _NUMBER_COST))
    cursor.need(length)
    array = np.frombuffer(cursor.data, dtype, count, cursor.at)
    cursor.at += length
    if word == "bool":
        if array.max(initial=0) > 1:
            raise broken(
                f"a bool of the key {describe(key)} is neither 0 nor 1",
                reason=Reason.BOOL_VALUE,
                found=str(array.max()),
            )
        array = array.astype(np.bool_)
    values: list[Any] = array.tolist()
    return values


def _strings(cursor: Cursor, count: int) -> list[str | bytes]:
    """Return the next strings; a vocabulary has hundreds of thousands."""
    cursor.require_left(count, 8, "strings in an array")
    budget, length_at = cursor.budget, struct.Struct(cursor.order + "Q").unpack_from
    budget.charge_bytes(_PLACE_COST * count)
    texts: list[str | bytes] = []
    data, at, have = cursor.data, cursor.at, len(cursor.data)
    while count:
        strings: list[bytes] = []
        append, begin = strings.append, at
        for _ in range(min(_BATCH, count)):
            start = at + 8
            if start > have:
                cursor.at = at
                cursor.need(8)
                data, have = cursor.data, len(cursor.data)
            stop = start + length_at(data, at)[0]
            if stop > have:
                cursor.at = start
                cursor.need(stop - start)
                data, have = cursor.data, len(cursor.data)
            append(data[start:stop])
            at = stop
            if at - begin > _BATCH_BYTES:
                break
        count -= len(strings)
        texts += _decoded(strings, budget)
    cursor.at = at
    return texts


def _decoded(strings: list[bytes], budget: Budget) -> Sequence[str | bytes]:
    """Return strings as text if they are UTF-8, else as bytes."""
    worst = _WORST * sum(map(len, strings)) + TEXT_COST * len(strings)
    budget.charge_bytes(worst)
    texts: list[str | bytes]
    try:
        texts = list(map(bytes.decode, strings))
    except UnicodeDecodeError:
        texts = [as_text(data) for data in strings]
    budget.release_bytes(worst - sum(map(sys.getsizeof, texts)) - _ROUNDED * len(texts))
    return texts


def as_text(data: bytes) -> str | bytes:
    """Return a string as text if it is UTF-8, else as bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def alignment_of(attributes: Mapping[str, Any]) -> int:
    """Return the alignment of tensors."""
    alignment = attributes.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    if ALIGNMENT in attributes and [ALIGNMENT, "u32"] not in attributes[TYPES]:
        raise broken(
            f"{ALIGNMENT} is of another type",
            reason=Reason.FIELD_TYPE,
            expected="u32",
            found=describe(alignment),
        )
    if not is_alignment(alignment):
        raise broken(
            f"{ALIGNMENT} is invalid", expected="a power of two", found=describe(alignment)
        )
    return int(alignment)


def known_types(pairs: object) -> Iterator[tuple[str, Any]]:
    """Yield the keys and types in a value of `GGUF.types`, which may be malformed."""
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], pair[1]


def attributes_of_whole(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attributes of a model in shards, without `split.*`; earlier shards win.

    Args:
        shards: the attributes of each file, the first one first.
    """
    whole: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for attributes in shards:
        for key, value in attributes.items():
            whole.setdefault(key, value)
        for key, kind in known_types(attributes.get(TYPES)):
            types.setdefault(key, kind)
    for key in _OF_SHARDS:
        whole.pop(key, None)
    if TYPES in whole:
        whole[TYPES] = [[key, kind] for key, kind in types.items() if key in whole]
    return whole
