"""Values as text for people, and as strict JSON."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.errors import counted
from ztensor.ext import cbor
from ztensor.insight import text as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

count_text = counted
element_text = shared.element_text
_ITEMS = 8  # items shown of a longer list
shape_text, size_text, visible = shared.shape_text, shared.size_text, shared.visible


def object_facts(metadata: ztensor.TensorMetadata) -> dict[str, Any]:
    """Return the fields that every verb prints of an object in JSON."""
    return {
        "name": metadata.name,
        "shape": list(metadata.shape),
        "dtype": metadata.dtype,
        "type": metadata.type,
        "elements": element_text(metadata),
        "format": metadata.format,
    }


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text; a cut text ends with its length."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def parameters_text(count: int) -> str:
    """Return a number of parameters for people, in powers of 1000.

    >>> parameters_text(6_738_415_616), parameters_text(999)
    ('6.7 B parameters', '999 parameters')
    """
    if count < 1000:
        return f"{count} parameter{'' if count == 1 else 's'}"
    if count >= 10**18:  # only a wrong shape claims more
        return "over 1,000,000 T parameters"
    amount, unit = count / 1000, "k"
    for larger in "MBT":
        if amount < 999.95:  # else it would be rounded to 1000.0
            break
        amount, unit = amount / 1000, larger
    return f"{amount:,.1f} {unit} parameters"


def named_text(names: Sequence[str]) -> str:
    """Return the number of objects and the first names."""
    return counted(len(names), "object", names, cut=60)


def as_json(value: object) -> Any:
    """Return a value as strict JSON that keeps all of it.

    A value that JSON lacks becomes a map with one key that begins with `$`: `$bytes` (hexadecimal),
    `$float` (`nan`, `inf`, `-inf`), `$tag` (number and value), `$simple`, `$undefined`, `$int` (too
    large for parsers, hexadecimal), and `$map` (pairs) for a map with keys that are not text or
    begin with `$`.
    """
    match value:
        case bytes():
            return {"$bytes": value.hex()}
        case io.BytesIO():
            return {"$bytes": value.getvalue().hex()}
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case int() if value.bit_length() > 1024:
            return {"$int": hex(value)}
        case None | str() | bool() | int() | float():
            return value
        case cbor.Tag():
            return {"$tag": [value.number, as_json(value.value)]}
        case cbor.Simple(23):
            return {"$undefined": True}
        case cbor.Simple():
            return {"$simple": value.value}
        case cbor.Pairs():
            return {"$map": [[as_json(key), as_json(item)] for key, item in value]}
        case complex():
            return [as_json(value.real), as_json(value.imag)]
        case dict():
            if any(not isinstance(key, str) or key.startswith("$") for key in value):
                return as_json(cbor.Pairs(value.items()))
            return {key: as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
    return visible(str(value))  # a type, or a value no file can hold


def value_text(value: object, limit: int) -> str:
    """Return a value of a saved tree for people: on one line, cut; a tensor by its name."""
    spelled = as_json(value)
    if isinstance(spelled, str) and not isinstance(value, str):  # the name of a type or tensor
        return cut(spelled, limit)
    return json_text(spelled, limit)


def listed_text(value: object, limit: int) -> str:
    """Return a result of `as_json` as `json_text` does; a long list is cut to its first items."""
    if not isinstance(value, list) or len(value) <= _ITEMS:
        return json_text(value, limit)
    first = json_text(value[:_ITEMS], sys.maxsize)[:-1]
    return cut(f"{first}, ... {len(value):,} items]", limit)


def json_text(value: object, limit: int) -> str:
    """Return a result of `as_json` as one line of text, cut to `limit` characters."""
    return cut(visible(json.dumps(value, ensure_ascii=False)), limit)
