"""Fields of one decoded map by a table; what is wrong becomes problems, not exceptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.wire.cbor import UINT64_MAX, Pairs


class Kind(NamedTuple):
    """What a field holds.

    Attributes:
        word: what messages call it.
        type: of the decoded value; `object` for anything.
        is_required: whether the field has to be there.
        drops_keys: whether pairs of a map whose key is no text are dropped, where they else are
            wrong: an attribute that cannot be named must not cost the tensors.
    """

    word: str
    type: type
    is_required: bool = True
    drops_keys: bool = False

    def optional(self) -> Kind:
        """Return the kind of a field that may be absent."""
        return self._replace(is_required=False)


TEXT = Kind("text", str)
UINT = Kind("a uint64", int)
SHAPE = Kind("an array of uint64", list)
MAP = Kind("a map with text keys", dict)
ATTRIBUTES = Kind("a map", dict, is_required=False, drops_keys=True)
ANYTHING = Kind("anything", object, is_required=False)


class Record(NamedTuple):
    """A map of a schema.

    Attributes:
        what: what messages call it.
        section: the specification's section that describes it.
        fields: its fields, in the order they are looked at.
        has_nulls: whether null stands for an optional field that is absent, as in 1.x.
        drops_keys: whether pairs whose key is no text are ignored, as unknown fields are.
    """

    what: str
    section: str
    fields: Mapping[str, Kind]
    has_nulls: bool = True
    drops_keys: bool = False


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
    start = len(problems)

    def wrong(reason: Reason, message: str, *steps: str) -> None:
        problems.append(Problem(reason, message, (*path, *steps), record.section))

    if record.drops_keys:
        value = _with_text_keys(value)
    if type(value) is not dict:
        wrong(Reason.FIELD_TYPE, f"expected {record.what}, found {kind_of(value)}")
        return []
    values: list[Any] = []
    count = 0
    for name, kind in record.fields.items():
        word, wanted, is_required, drops_keys = kind
        item: Any = value.get(name)
        if item is not None or name in value:
            count += 1
            if drops_keys:
                item = _with_text_keys(item)
            is_right = type(item) is wanted and wanted is not list
            if not is_right or (wanted is int and not 0 <= item <= UINT64_MAX):
                fault = _fault(item, kind, may_be_null=record.has_nulls and not is_required)
                if fault is not None:
                    wrong(*fault, name)
                elif wanted is list and item is not None:
                    item = tuple(item)
        elif is_required:
            wrong(Reason.FIELD_MISSING, f"expected {word}, found no such field", name)
        values.append(item)
    if len(problems) > start:
        return []
    others = None
    if count < len(value):
        others = {key: item for key, item in value.items() if key not in record.fields}
    values.append(others)
    return values


def _fault(item: Any, kind: Kind, *, may_be_null: bool) -> tuple[Reason, str] | None:
    """Return what is wrong with the value of a field."""
    if kind.type is object or (item is None and may_be_null):
        return None
    if type(item) is not kind.type:
        word = f"{kind.word} or null" if may_be_null else kind.word
        return Reason.FIELD_TYPE, f"expected {word}, found {kind_of(item)}"
    for index, number in enumerate(item if type(item) is list else [item]):
        if type(number) is not int or not 0 <= number <= UINT64_MAX:
            reason = Reason.FIELD_VALUE if type(number) is int else Reason.FIELD_TYPE
            place = f" at position {index}" if type(item) is list else ""
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
        start: the first bytes of such an object, at most eight.
        place: what is before the offset of the blob, at most eight bytes.
        between: what is between offset and length, at most eight bytes.
        has_tail: whether the shape follows the component, so that bytes follow the length.
        alignment: of offsets, and the least of them.
        packed: the encoding beside `raw`.
        are_names: whether texts may be the names of all objects, in their order.
    """

    root: Record
    start: bytes
    place: bytes
    between: bytes
    has_tail: bool
    alignment: int
    packed: str
    are_names: Callable[[list[str]], bool]
