"""A schema for the fields of one decoded map; violations become problems, not exceptions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.wire.cbor import UINT64_MAX, Pairs

# The type of a field: `int` is a uint64, `list` an array of uint64, `object` anything. `ATTRIBUTES`
# is a map whose pairs with keys other than text are dropped: users cannot name them, and they must
# not make the tensors unreadable.
ATTRIBUTES = Pairs
_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a uint64",
    list: "an array of uint64",
    dict: "a map with text keys",
}


class Record(NamedTuple):
    """The schema of one map.

    Attributes:
        description: the map in messages, such as "a map describing one object".
        section: the specification's section.
        fields: name to type, in the order of the values that `read_fields` returns.
        optional: names of fields that may be absent.
        is_exact: the rules of 2.x apply: null does not mean absent, and pairs whose key is not
            text are ignored like unknown fields.
    """

    description: str
    section: str
    fields: Mapping[str, type]
    optional: Collection[str] = ()
    is_exact: bool = False


def read_fields(
    value: object, record: Record, path: tuple[str | int, ...], problems: list[Problem]
) -> list[Any]:
    """Return the values of a map in the order of the schema, then a dict of its unknown fields.

    An absent optional field is None; so is the dict if there are no unknown fields. If the map
    breaks the schema, problems are added and the result is empty.

    Args:
        value: the decoded value.
        record: the schema.
        path: steps from the manifest's root to the map.
        problems: receives the problems.
    """
    description, section, fields, optional, is_exact = record
    start = len(problems)
    if is_exact:
        value = _with_text_keys(value)
    if type(value) is not dict:
        message = f"expected {description}, found {kind_of(value)}"
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
    """Return reason and message for the value of a field that breaks its type, else None."""
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
    """Return a decoded value for a message: its kind, and the value of a scalar."""
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


class ManifestForm(NamedTuple):
    """The encoded form of a version's root and of its plain objects (one component, no attributes).

    Attributes:
        root: the schema of the root.
        object: the schema of an object.
        objects: the name of the root's field of objects.
        start: the first bytes of a plain object, at most eight; empty if objects are always read
            one by one.
        place: the bytes before the offset of the blob, at most eight.
        between: the bytes between offset and length, at most eight.
        has_tail: the shape follows the component.
        alignment: the alignment of offsets, and the least offset.
        packed: the encoding other than `raw`.
        are_names: returns whether a list of texts, in order, may be the names of all objects.
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
