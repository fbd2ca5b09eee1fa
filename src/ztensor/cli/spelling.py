"""How values read: for people, where no file may steer the terminal, and as strict JSON."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from ztensor.errors import counted
from ztensor.ext import cbor
from ztensor.insight import text as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

count_text = counted
element_text = shared.element_text
_ITEMS = 8  # of a longer list; --json has all
shape_text, size_text, visible = shared.shape_text, shared.size_text, shared.visible


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, and how long it was where that is less."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def parameters_text(count: int) -> str:
    """Return a number of parameters for people, in powers of 1000.

    >>> parameters_text(6_738_415_616), parameters_text(999)
    ('6.7 B parameters', '999 parameters')
    """
    if count < 1000:
        return f"{count} parameter{'' if count == 1 else 's'}"
    if count >= 10**18:  # what claims more is no model
        return "over 1,000,000 T parameters"
    amount, unit = count / 1000, "k"
    for larger in "MBT":
        if amount < 999.95:  # else it would be rounded to 1000.0
            break
        amount, unit = amount / 1000, larger
    return f"{amount:,.1f} {unit} parameters"


def named_text(names: Sequence[str]) -> str:
    """Return how many objects there are, and the first names."""
    return counted(len(names), "object", names, cut=60)


def as_json(value: object) -> Any:
    """Return what `json.dumps` takes and any JSON parser reads, without a loss.

    What JSON lacks is a map with one key that begins with `$`: `$bytes` (hexadecimal), `$float`
    (`nan`, `inf`, `-inf`), `$tag` (number and value), `$simple`, `$undefined`, `$int` (of more
    digits than parsers read, hexadecimal), and `$map` (pairs) for a map with keys that are no
    text or begin with `$` themselves.
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
    return visible(str(value))  # nothing a file can hold, or what stands for it


def value_text(value: object, limit: int) -> str:
    """Return a value of a saved tree for people: on one line, cut; a tensor by its name."""
    told = as_json(value)
    if isinstance(told, str) and not isinstance(value, str):  # it stands for what it says
        return cut(told, limit)
    return json_text(told, limit)


def listed_text(value: object, limit: int) -> str:
    """Return what `as_json` gave for people as `json_text` does, of a long list the first items."""
    if not isinstance(value, list) or len(value) <= _ITEMS:
        return json_text(value, limit)
    first = json_text(value[:_ITEMS], sys.maxsize)[:-1]
    return cut(f"{first}, ... {len(value):,} items]", limit)


def json_text(value: object, limit: int) -> str:
    """Return what `as_json` gave for people: on one line, letters as they are, cut."""
    return cut(visible(json.dumps(value, ensure_ascii=False)), limit)
