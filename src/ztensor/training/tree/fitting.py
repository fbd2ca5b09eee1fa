"""Fit a loaded tree to a live one, which has the classes and the fields that are not data."""

from __future__ import annotations

import enum
from typing import Any

from ztensor.errors import ArgumentValueError, UsageError, describe
from ztensor.training.tree.names import ROOT, Place
from ztensor.training.tree.record import Record, class_name_of, fields_of, of_class

_NUMBERS = (bool, int, float, complex)


def fit(into: Any, loaded: Any) -> Any:
    """Return a tree of the classes of `into` with the leaves and values of `loaded`.

    Dicts must have the same keys, lists and tuples the same length, arrays the same shape and
    element type. A number of `into` may be an array without dimensions in the file. Neither tree is
    changed.

    Raises:
        ArgumentValueError: the trees differ; the message has the place.
        UsageError: a class refuses the fields.
    """
    return _fitted(into, loaded, ROOT)


def _fitted(into: Any, loaded: Any, place: Place) -> Any:
    kind = type(into)
    if isinstance(loaded, Record):
        return _record(into, loaded, place)
    if hasattr(into, "shape") and hasattr(into, "dtype"):
        _require_alike(into, loaded, place)
        return loaded
    if isinstance(into, dict):
        _require_type(kind, loaded, place)
        if set(into) != set(loaded):
            missing, more = set(into) - set(loaded), set(loaded) - set(into)
            raise ArgumentValueError(
                f"{place}: the file has other keys",
                expected=_some(missing) if missing else "no more",
                found=_some(more) if more else "no such key",
            )
        for key in into:
            loaded[key] = _fitted(into[key], loaded[key], place.inner(key))
        return loaded
    if isinstance(into, (list, tuple)) and not hasattr(kind, "_fields"):
        _require_type(kind, loaded, place)
        if len(into) != len(loaded):
            raise ArgumentValueError(
                f"{place}: the file has another length",
                expected=str(len(into)),
                found=str(len(loaded)),
            )
        pairs = enumerate(zip(into, loaded, strict=True))
        return kind(_fitted(one, other, place.inner(at)) for at, (one, other) in pairs)
    is_number = kind in _NUMBERS and getattr(loaded, "shape", None) == ()
    if not is_number:
        _require_type(kind, loaded, place)
    return loaded


def _record(into: Any, loaded: Record, place: Place) -> Any:
    fields = fields_of(into)
    if fields is None or fields.class_name != loaded.class_name:
        raise ArgumentValueError(
            f"{place}: the file has a value of another class",
            expected=describe(class_name_of(type(into))),
            found=describe(loaded.class_name),
        )
    if set(fields.values) != set(loaded):
        raise ArgumentValueError(
            f"{place}: the file has other fields",
            expected=_some(fields.values) or "none",
            found=_some(loaded) or "none",
        )
    within = place._replace(is_record=True)
    values = {
        name: _fitted(value, loaded[name], within.inner(name))
        for name, value in fields.values.items()
    }
    static = None if isinstance(into, (tuple, enum.Enum)) else into
    try:
        return of_class(type(into), Record(loaded.class_name, values, sort=loaded.sort), static)
    except UsageError as error:
        error.message = f"{place}: {error.message}"
        raise


def _require_type(kind: type, loaded: Any, place: Place) -> None:
    if type(loaded) is not kind:
        raise ArgumentValueError(
            f"{place}: the file has a value of another type",
            expected=class_name_of(kind),
            found=describe(loaded, 40),
        )


def _require_alike(into: Any, loaded: Any, place: Place) -> None:
    shown = [
        f"{getattr(value, 'dtype', type(value).__name__)} {list(getattr(value, 'shape', ()))}"
        for value in (into, loaded)
    ]
    if shown[0] != shown[1]:
        raise ArgumentValueError(
            f"{place}: the file has another shape or element type",
            expected=shown[0],
            found=shown[1],
        )


def _some(keys: Any) -> str:
    shown = sorted(map(describe, keys))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
