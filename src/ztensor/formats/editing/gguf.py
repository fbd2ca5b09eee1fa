"""The header of a GGUF file, for changes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ztensor.errors import ArgumentValueError, NotRepresentableError, describe
from ztensor.ext import ObjectReader, Source, TensorObject
from ztensor.formats.editing.header import Header, Item, is_text
from ztensor.formats.gguf.cursor import Cursor
from ztensor.formats.gguf.exporting import (
    MOST_ALIGNMENT,
    MOST_NAME,
    fits,
    inferred,
    packed_info,
    packed_pair,
    row_of,
)
from ztensor.formats.gguf.metadata import alignment_of
from ztensor.formats.gguf.projecting import number_of, object_of, objects_of, read_header
from ztensor.formats.gguf.types import (
    ALIGNMENT,
    ARRAYS,
    DEFAULT_ALIGNMENT,
    DTYPES,
    MAGIC,
    NUMBERS,
    TYPES,
)
from ztensor.formats.gguf.types import HEADER as RECORD
from ztensor.formats.parts import Part
from ztensor.limits import Budget

_ALIGNMENTS = [1 << n for n in range(3, MOST_ALIGNMENT.bit_length())]
_MOST_KEY = (1 << 16) - 1  # bytes, by the format's text
_OWN_KEYS = "GGUF."


class GgufHeader(Header):
    """Keys with typed values, and the tensors; see `Header`.

    Version and byte order are kept, and so are the bytes of each key that is not set.
    """

    format = "gguf"

    def __init__(self, source: Source, budget: Budget, *, are_checked: bool = True) -> None:
        cursor, self.size = Cursor(source, budget), source.size
        spans: dict[str, slice] = {}
        self._version, attributes, infos = read_header(cursor, spans)
        self._order = cursor.order
        self._pairs = {key: cursor.data[span] for key, span in spans.items()}
        self._kinds: dict[str, Any] = dict(attributes.get(TYPES, ()))  # type: ignore[call-overload]
        alignment = alignment_of(attributes)
        self.start = -(-cursor.at // alignment) * alignment
        self.objects, _ = objects_of(infos, alignment, cursor, are_checked=are_checked)
        self.attributes = {key: value for key, value in attributes.items() if key != TYPES}
        if self.alignment > MOST_ALIGNMENT:
            raise _unfit(ALIGNMENT, f"at most {MOST_ALIGNMENT}", self.alignment)

    @property
    def alignment(self) -> int:  # type: ignore[override]
        """Return the alignment, which is a key."""
        return int(self.attributes.get(ALIGNMENT, DEFAULT_ALIGNMENT))

    def set(self, key: str, value: object, kind: str | None) -> None:
        """Set a value; text for a key of another type is parsed as JSON."""
        if value is None:
            for each in (self.attributes, self._pairs, self._kinds):
                each.pop(key, None)
            return
        if not 0 < len(key.encode("utf-8", "replace")) <= _MOST_KEY or key.startswith(_OWN_KEYS):
            raise _unfit(key, f"a key of 1 to {_MOST_KEY} bytes, not of {_OWN_KEYS}*", value)
        known = (*NUMBERS, *ARRAYS.values())
        if kind is None:
            kind = self._kinds.get(key, "u32" if key == ALIGNMENT else None)
        elif kind not in known:
            message = "unknown type of a GGUF key"
            raise ArgumentValueError(message, expected=", ".join(known), found=describe(kind))
        if isinstance(value, str) and kind not in (None, "str"):
            try:
                value = json.loads(value, parse_float=_finite)
            except (ValueError, RecursionError):
                raise _unfit(key, f"a value of {kind}", value) from None
        kind = kind or inferred(value)
        value = _coerced(value, kind)
        if not fits(value, kind):
            raise _unfit(key, f"a value of {kind or 'a type of GGUF'}", value)
        if key == ALIGNMENT and (kind != "u32" or value not in _ALIGNMENTS):
            raise _unfit(key, f"a power of two from 8 to {MOST_ALIGNMENT}, as u32", value)
        self._pairs[key] = packed_pair(key, kind, value, self._order)
        self._kinds[key], self.attributes[key] = kind, value

    def require_name(self, name: str) -> None:
        """Refuse names that ggml cuts off."""
        length = len(name.encode("utf-8", "replace"))
        if length > MOST_NAME or not is_text(name):
            raise NotRepresentableError(
                "GGUF cannot store this name",
                object_name=name,
                expected=f"at most {MOST_NAME} bytes of UTF-8",
                found=describe(length),
            )

    def written(
        self, reader: ObjectReader, lose: Callable[[str | None, str], None]
    ) -> list[tuple[TensorObject, Part]]:
        """Return dense objects and objects of blocks; others are lost."""
        if self._order == ">":
            raise NotRepresentableError("tensors cannot be added to a big-endian GGUF file")
        rows = filter(None, (row_of(reader, name, lose) for name in reader))
        return [
            (object_of(row.part.shape, row.number, 0, row.part.nbytes, "<"), row.part)
            for row in rows
        ]

    def ordered(self, items: Mapping[str, Item]) -> list[str]:
        """Return the order of the header: ggml reads no other."""
        return list(items)

    def emit(self, items: Mapping[str, Item], offsets: Mapping[str, int]) -> bytes:
        """Return the header, in the version and byte order of the old one."""
        for name, item in [*items.items()][:-1]:
            if item.tensor.is_opaque and item.length % self.alignment:
                raise NotRepresentableError(
                    "a tensor of an unknown type must stay the last one", object_name=name
                )
        order, pairs = self._order, self._pairs.values()
        head = struct.pack(f"{order}{RECORD}", MAGIC, self._version, len(items), len(pairs))
        infos = [
            packed_info(name, tensor.shape, number_of(tensor), offsets[name], order)
            for name, (tensor, _, _) in items.items()
        ]
        data = b"".join((head, *pairs, *infos))
        return data + bytes(-len(data) % self.alignment)


def _finite(text: str) -> float:
    """Return the number of a text.

    Raises:
        ValueError: it is too large.
    """
    number = float(text)
    if np.isinf(number):
        raise ValueError(text)
    return number


def _coerced(value: Any, kind: object) -> Any:
    """Return a number, or a list of numbers, rounded to a type of floats; others unchanged."""
    if not isinstance(kind, str) or kind.strip("[]")[:1] != "f":
        return value
    if isinstance(value, list):
        return [_coerced(item, kind.strip("[]")) for item in value]
    if type(value) not in (int, float):
        return value
    try:
        with np.errstate(over="ignore"):
            rounded = float(np.array(value, np.float64).astype(DTYPES[kind.strip("[]")]))
    except OverflowError:  # an integer beyond all floats
        return value
    return value if np.isinf(rounded) else rounded


def _unfit(key: str, expected: str, value: object) -> NotRepresentableError:
    return NotRepresentableError(
        f"GGUF cannot store {describe(key)}", expected=expected, found=describe(value, 60)
    )


HEADER = GgufHeader
