"""Typed fields of one decoded map; what is wrong becomes problems, not exceptions.

Schemas describe a record as a row of calls on this reader. Each call takes one field out, so
that what remains at the end are the fields no known version names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import Reason, describe
from ztensor.model.problem import Problem
from ztensor.wire.cbor import Pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

UINT64_MAX = (1 << 64) - 1

T = TypeVar("T")


class Record:
    """Reads the fields of one map.

    Args:
        fields: the decoded map.
        problems: where problems are added.
        path: steps from the manifest's root to this map.
        section: the specification's section that describes the map.
        has_nulls: whether null stands for an optional field that is absent, as in 1.x.
    """

    __slots__ = ("_fields", "_has_nulls", "_path", "_problems", "_section", "_taken")

    def __init__(
        self,
        fields: dict[str, object],
        problems: list[Problem],
        path: tuple[str | int, ...],
        section: str,
        *,
        has_nulls: bool = True,
    ) -> None:
        self._has_nulls = has_nulls
        self._fields = fields
        self._problems = problems
        self._path = path
        self._section = section
        self._taken: set[str] = set()

    @staticmethod
    def of(
        value: object, problems: list[Problem], path: tuple[str | int, ...], section: str, what: str
    ) -> Record | None:
        """Return a record over `value`, or None (and a problem) where it is no map of text keys."""
        if type(value) is dict:
            return Record(value, problems, path, section)
        found = "a map with keys that are not text" if isinstance(value, Pairs) else kind_of(value)
        problems.append(
            Problem(Reason.FIELD_TYPE, f"expected {what}, found {found}", path, section)
        )
        return None

    def problem(self, reason: Reason, field: str, message: str) -> None:
        """Add a problem with one field."""
        self._problems.append(Problem(reason, message, (*self._path, field), self._section))

    def _take(self, field: str, kind: type[T], what: str, *, required: bool) -> T | None:
        self._taken.add(field)
        value = self._fields.get(field)
        if type(value) is kind:
            return value
        if value is None and not required and (self._has_nulls or field not in self._fields):
            return None  # absent, or null where the default is null (1.2 section 1)
        if field not in self._fields:
            self.problem(Reason.FIELD_MISSING, field, f"expected {what}, found no such field")
        else:
            self.problem(Reason.FIELD_TYPE, field, f"expected {what}, found {kind_of(value)}")
        return None

    def text(self, field: str) -> str | None:
        """Return a required text."""
        return self._take(field, str, "text", required=True)

    def optional_text(self, field: str) -> str | None:
        """Return an optional text; absent and null are None."""
        return self._take(field, str, "text or null", required=False)

    def uint(self, field: str) -> int | None:
        """Return a required unsigned 64-bit integer."""
        return self._require_uint64(field, self._take(field, int, "a uint64", required=True))

    def optional_uint(self, field: str) -> int | None:
        """Return an optional unsigned 64-bit integer; absent and null are None."""
        value = self._take(field, int, "a uint64 or null", required=False)
        return self._require_uint64(field, value)

    def _require_uint64(self, field: str, value: int | None) -> int | None:
        if value is None or 0 <= value <= UINT64_MAX:
            return value
        self.problem(Reason.FIELD_VALUE, field, f"expected a uint64, found {describe(value)}")
        return None

    def shape(self, field: str) -> tuple[int, ...] | None:
        """Return a required array of unsigned 64-bit integers."""
        value: list[object] | None = self._take(field, list, "an array of uint64", required=True)
        if value is None:
            return None
        for index, dimension in enumerate(value):
            if type(dimension) is not int or not 0 <= dimension <= UINT64_MAX:
                found = describe(dimension) if type(dimension) is int else kind_of(dimension)
                reason = Reason.FIELD_VALUE if type(dimension) is int else Reason.FIELD_TYPE
                self.problem(reason, field, f"expected a uint64 at position {index}, found {found}")
                return None
        return tuple(value)  # type: ignore[arg-type]  # every element was just checked

    def mapping(self, field: str) -> dict[str, object] | None:
        """Return a required map with text keys."""
        return self._take(field, dict, "a map with text keys", required=True)

    def attributes(self, field: str) -> dict[str, object] | None:
        """Return an optional map of any content; absent and null are None.

        A map with other keys than text is kept under its pairs, since an attribute nobody can
        name must not cost the tensors.
        """
        value = self._fields.get(field)
        if isinstance(value, Pairs):
            self._taken.add(field)
            return {key: item for key, item in value if isinstance(key, str)}
        return self._take(field, dict, "a map or null", required=False)

    def ignorable(self, field: str) -> object:
        """Return a field's value whatever it is, None where it is absent."""
        self._taken.add(field)
        return self._fields.get(field)

    def rest(self) -> Mapping[str, object] | None:
        """Return the fields nobody took, or None."""
        if len(self._fields) <= len(self._taken) and self._taken.issuperset(self._fields):
            return None
        return {key: value for key, value in self._fields.items() if key not in self._taken}


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
}
