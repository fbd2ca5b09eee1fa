"""Fields of one decoded map by a table; what is wrong becomes problems, not exceptions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.wire.cbor import UINT64_MAX, Pairs

# What a field holds is a type: of a list unsigned integers, as any `int` is; of `ATTRIBUTES` a map
# of which pairs with other keys than text are dropped, since what cannot be named must not cost the
# tensors; of `object` anything.
ATTRIBUTES = Pairs
_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a uint64",
    list: "an array of uint64",
    dict: "a map with text keys",
}


class Record(NamedTuple):
    """A map of a schema.

    Attributes:
        what: what messages call it.
        section: the specification's section that describes it.
        fields: what each of its fields holds, in the order they are looked at.
        optional: those that may be absent.
        is_exact: as in 2.x: null is no way to leave a field out, and pairs whose key is no text
            are ignored, as unknown fields are.
    """

    what: str
    section: str
    fields: Mapping[str, type]
    optional: Collection[str] = ()
    is_exact: bool = False


def read_fields(
    value: object, record: Record, path: tuple[str | int, ...], problems: list[Problem]
) -> list[Any]:
    """Return the values of a map in the order of the schema, and a dict of its other fields.

    None stands for each optional field that is absent, and for other fields where there are none.
    The result is empty, and problems are added, where something is wrong.

    Args:
        value: what was decoded.
        record: the schema.
        path: steps from the manifest's root to the map.
        problems: takes what is wrong.
    """
    what, section, fields, optional, is_exact = record
    start = len(problems)
    if is_exact:
        value = _with_text_keys(value)
    if type(value) is not dict:
        message = f"expected {what}, found {kind_of(value)}"
        problems.append(Problem(Reason.FIELD_TYPE, message, path, section))
        return []
    values: list[Any] = []
    known = 0
    for name, wanted in fields.items():
        item: Any = value.get(name)
        fault = None
        if item is not None or name in value:
            known += 1
            kind = wanted
            if wanted is ATTRIBUTES:
                item, kind = _with_text_keys(item), dict
            is_right = type(item) is kind and kind is not list
            if not is_right or (kind is int and not 0 <= item <= UINT64_MAX):
                fault = _fault(item, kind, may_be_null=not is_exact and name in optional)
                if kind is list and not fault:
                    item = tuple(item)
        elif name not in optional:
            fault = Reason.FIELD_MISSING, f"expected {_WORDS[wanted]}, found no such field"
        if fault is not None:
            problems.append(Problem(fault[0], fault[1], (*path, name), section))
        values.append(item)
    if len(problems) > start:
        return []
    others = None
    if known < len(value):
        others = {key: item for key, item in value.items() if key not in fields}
    return [*values, others]


def _fault(item: Any, wanted: type, *, may_be_null: bool) -> tuple[Reason, str] | None:
    """Return what is wrong with the value of a field."""
    if wanted is object or (item is None and may_be_null):
        return None
    if type(item) is not wanted:
        word = f"{_WORDS[wanted]} or null" if may_be_null else _WORDS[wanted]
        return Reason.FIELD_TYPE, f"expected {word}, found {kind_of(item)}"
    numbers: Any = item if wanted is list else [item]
    for index, number in enumerate(numbers):
        if type(number) is not int or not 0 <= number <= UINT64_MAX:
            reason = Reason.FIELD_VALUE if type(number) is int else Reason.FIELD_TYPE
            place = f" at position {index}" if wanted is list else ""
            return reason, f"expected a uint64{place}, found {kind_of(number)}"
    return None


def _with_text_keys(value: object) -> object:
    if type(value) is not Pairs:
        return value
    return {key: item for key, item in value if isinstance(key, str)}


def kind_of(value: object) -> str:
    """Return how messages call a decoded value: its kind, and itself where it is short."""
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float, str, bytes)):
        return f"{_KINDS[type(value)]} {describe(value, 40)}"
    return _KINDS.get(type(value), type(value).__name__.lower())


_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "float",
    str: "text",
    bytes: "byte string",
    list: "an array",
    dict: "a map",
    Pairs: "a map with keys that are not text",
}


class Form(NamedTuple):
    """How a version writes its root, and an object with one component and no attributes.

    Attributes:
        root: the schema of the root.
        object: that of an object.
        objects: the field with the objects.
        start: the first bytes of such an object, at most eight; none where objects are read one by
            one, however many there are.
        place: what is before the offset of the blob, at most eight bytes.
        between: what is between offset and length, at most eight bytes.
        has_tail: whether the shape follows the component, so that bytes follow the length.
        alignment: of offsets, and the least of them.
        packed: the encoding beside `raw`.
        are_names: whether texts may be the names of all objects, in their order.
    """

    root: Record
    object: Record
    objects: str = "objects"
    start: bytes = b""
    place: bytes = b""
    between: bytes = b""
    has_tail: bool = False
    alignment: int = 64
    packed: str = "zstd"
    are_names: Callable[[list[str]], bool] = bool
