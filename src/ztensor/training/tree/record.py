"""Classes that a file only names: namedtuples, dataclasses and enums.

A file has the name of a class and of its fields, and never imports one. A loaded tree has a
`Record` in its place, unless the caller passes the class.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import ArgumentTypeError, ObjectNotFoundError, UsageError, describe
from ztensor.ext import Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAMEDTUPLE, DATACLASS, ENUM, OTHER = "namedtuple", "dataclass", "enum", "type"
_NAME = "name"  # the one field of an enum's member


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Record(Shown, Mapping[str, Any]):
    """A value of a class that was not passed to the loader: its fields as attributes and items.

    Two records are equal if their class names and fields are. It is immutable.

    Args:
        class_name: the class's module and qualified name.
        fields: names to values, in order.
        sort: `"namedtuple"`, `"dataclass"`, `"enum"`, or `"type"` for a framework's type.

    Attributes:
        class_name: as given.
        sort: as given.
    """

    class_name: str
    _pairs: tuple[tuple[str, object], ...]
    sort: str = dataclasses.field(compare=False)

    def __init__(
        self, class_name: str, fields: Mapping[str, Any], *, sort: str = NAMEDTUPLE
    ) -> None:
        if not isinstance(fields, Mapping):
            raise ArgumentTypeError(
                f"fields must be a mapping from names to values, not {describe(fields, 40)}"
            )
        object.__setattr__(self, "class_name", class_name)
        object.__setattr__(self, "_pairs", tuple(fields.items()))
        object.__setattr__(self, "sort", sort)

    def __getitem__(self, name: str) -> Any:
        """Return a field.

        Raises:
            ObjectNotFoundError: the record lacks it; also a `KeyError`.
        """
        for own, value in self._pairs:
            if own == name:
                return value
        raise ObjectNotFoundError("the record has no such field", found=describe(name, 60))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields."""
        return (name for name, _ in self._pairs)

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(self._pairs)

    def __getattr__(self, name: str) -> Any:
        """Return a field, unless a method has its name."""
        for own, value in self.__dict__.get("_pairs", ()):
            if own == name:
                return value
        raise AttributeError(f"the record has no field {describe(name)}")

    def __repr__(self) -> str:
        """Return the class's name and the fields."""
        fields = ", ".join(
            f"{describe(name)}: {describe(value, 40)}" for name, value in self._pairs
        )
        return f"Record({describe(self.class_name)}, {{{fields}}})"


class Fields(NamedTuple):
    """The data of a value of a named class.

    Attributes:
        sort: sort of the class.
        class_name: module and qualified name.
        values: the fields, in order.
    """

    sort: str
    class_name: str
    values: dict[str, Any]


def fields_of(value: Any) -> Fields | None:
    """Return the fields of a namedtuple, a dataclass or an enum's member; None for other values.

    Fields of a dataclass that are marked as not data (`pytree_node=False` of Flax) are left out:
    they come from the live tree.
    """
    kind = type(value)
    if kind is Record:
        return Fields(value.sort, value.class_name, dict(value))
    name = class_name_of(kind)
    if isinstance(value, enum.Enum):
        return None if value.name is None else Fields(ENUM, name, {_NAME: value.name})
    if isinstance(value, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make"):
        return Fields(NAMEDTUPLE, name, dict(zip(kind._fields, value, strict=True)))
    if dataclasses.is_dataclass(value) and not isinstance(value, (dict, list, tuple, set)):
        return Fields(DATACLASS, name, {field: getattr(value, field) for field in _data(kind)})
    return None


def class_name_of(kind: type) -> str:
    """Return a class's module and qualified name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _data(kind: Any) -> list[str]:
    fields = dataclasses.fields(kind)
    return [field.name for field in fields if field.metadata.get("pytree_node", True)]


class Classes:
    """The classes that a caller passes, by their names in files.

    Args:
        types: namedtuples, dataclasses and enums.

    Raises:
        ArgumentTypeError: a type is none of these.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        if isinstance(types, type) or not hasattr(types, "__iter__"):
            raise ArgumentTypeError("types are classes in a list", found=describe(types, 40))
        self._by_name: dict[str, type] = {}
        for kind in types:
            if not isinstance(kind, type) or not (
                issubclass(kind, enum.Enum)
                or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
                or dataclasses.is_dataclass(kind)
            ):
                raise ArgumentTypeError(
                    "a tree has no values of this type under a name",
                    expected="a namedtuple, a dataclass or an enum",
                    found=describe(kind, 60),
                )
            self._by_name[class_name_of(kind)] = kind

    def made(self, record: Record) -> Any:
        """Return a value of the class that a record names, or the record if the class is unknown.

        Raises:
            UsageError: the class has other fields.
        """
        kind = self._by_name.get(record.class_name)
        return record if kind is None else of_class(kind, record)


def of_class(kind: Any, record: Record, static: Any = None) -> Any:
    """Return a value of a class with a record's fields.

    Args:
        kind: the class.
        record: the fields.
        static: a value of the class, from which fields that are not data are taken.

    Raises:
        UsageError: the class has other fields, or refuses these.
    """
    try:
        if issubclass(kind, enum.Enum):
            return kind[record[_NAME]]
        if issubclass(kind, tuple):
            _require_fields(kind, kind._fields, record)
            return kind(**record)
        _require_fields(kind, _data(kind), record)
        if static is not None:
            return dataclasses.replace(static, **record)
        given = {field.name: record[field.name] for field in dataclasses.fields(kind) if field.init}
        value = kind(**given)
        for name in record.keys() - given.keys():
            object.__setattr__(value, name, record[name])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{describe(class_name_of(kind))} cannot be made of the fields in the file: "
            f"{describe(str(error), 120)}"
        ) from error
    return value


def _require_fields(kind: type, own: Iterable[str], record: Record) -> None:
    names = list(own)
    if set(names) != set(record):
        raise UsageError(
            f"{describe(class_name_of(kind))} has other fields than the value in the file",
            expected=", ".join(map(describe, names)) or "none",
            found=", ".join(map(describe, record)) or "none",
        )
