"""The header of a safetensors file, for changes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping

from ztensor.errors import (
    ArgumentValueError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.ext import Component, ObjectReader, Source, TensorObject
from ztensor.formats.editing.header import Header, Item, is_text
from ztensor.formats.editing.plan import BLOCK_BYTES
from ztensor.formats.parts import Part
from ztensor.formats.safetensors.exporting import header_of, written_parts
from ztensor.formats.safetensors.projecting import objects_of, read_header
from ztensor.formats.safetensors.types import METADATA, width_of, word_of
from ztensor.limits import Budget

# Data that moves by whole blocks can be shared with the old file, which is worth some blanks in a
# file of this length.
_LEAST_SHARED = 1 << 20
_FIELDS = "dtype", "shape", "data_offsets"


class SafetensorsHeader(Header):
    """`__metadata__` and the tensors; see `Header`. The order of both is kept."""

    format, alignment, start_alignment = "safetensors", 1, 8

    def __init__(self, source: Source, budget: Budget, *, are_checked: bool = True) -> None:
        self.size = source.size
        self.attributes, entries, self.start, left = read_header(source, budget)
        if losses := left():
            raise UnsupportedError(
                "a tensor has fields that an edit would lose",
                reason=Reason.FIELD_VALUE,
                object_name=losses[0].where,
                expected=", ".join(_FIELDS),
                found=_field_of(source.read(8, self.start - 8), losses[0].where, budget),
            )
        length = source.size - self.start if are_checked else None
        self.objects = objects_of(entries, self.start, length)
        is_large = source.size >= _LEAST_SHARED and self.start % 8 == 0
        self._first, self._step = (self.start, BLOCK_BYTES) if is_large else (8, 8)

    def set(self, key: str, value: object, kind: str | None) -> None:
        """Set a text; other values are refused."""
        if kind not in (None, "str"):
            raise ArgumentValueError("safetensors holds text only", found=describe(kind))
        if value is None:
            self.attributes.pop(key, None)
            return
        for text in (key, value):
            if not isinstance(text, str) or not is_text(text):
                raise NotRepresentableError(
                    f"safetensors holds text only; {describe(key)} has another value",
                    expected="text; JSON can be stored as text",
                    found=describe(text),
                )
        self.attributes[key] = value

    def require_name(self, name: str) -> None:
        """Refuse `__metadata__`, and names that are not Unicode."""
        if name == METADATA or not is_text(name):
            raise NotRepresentableError("safetensors cannot store this name", object_name=name)

    def written(
        self, reader: ObjectReader, lose: Callable[[str | None, str], None]
    ) -> list[tuple[TensorObject, Part]]:
        """Return one tensor for a dense object, and one for each component of another one."""
        return [
            (
                TensorObject(
                    part.shape, "dense", {"data": Component(part.dtype, 0, part.nbytes, part.type)}
                ),
                part,
            )
            for part in written_parts(reader, lose)
        ]

    def ordered(self, items: Mapping[str, Item]) -> list[str]:
        """Return the old order; if a change made an element unaligned, the widest first."""
        names = sorted(items, key=lambda name: items[name].place)
        widths = {name: width_of(_word(items[name])) for name in names}
        offsets = itertools.accumulate((items[name].length for name in names), initial=0)
        is_aligned = all(at % widths[name] == 0 for name, at in zip(names, offsets, strict=False))
        if not is_aligned and (
            len(items) != len(self.objects) or any(item.part for item in items.values())
        ):
            names.sort(key=widths.__getitem__, reverse=True)
        return names

    def emit(self, items: Mapping[str, Item], offsets: Mapping[str, int]) -> bytes:
        """Return the header; it is filled up to where the old data began if it fits there."""
        rows = [
            (name, _word(item), item.tensor.shape, at, at + item.length)
            for name, item in items.items()
            for at in (offsets[name],)
        ]
        return header_of(self.attributes, rows, self._first, self._step)


def _field_of(data: bytes | bytearray | memoryview, name: str, budget: Budget) -> str:
    """Return the quoted name of the first unknown field of a tensor, by a parsed header."""
    budget.charge_json(bytes(data))
    fields = json.loads(bytes(data)).get(name, {})
    return describe(next((field for field in fields if field not in _FIELDS), None))


def _word(item: Item) -> str:
    return word_of(item.tensor.components["data"])


HEADER = SafetensorsHeader
