"""What CBOR has and Python has not: tags, simple values, undefined, maps of any keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard, final

if TYPE_CHECKING:
    from collections.abc import Iterable


UINT64_MAX = (1 << 64) - 1


class Tag(NamedTuple):
    """A tagged item; the tag is kept and never acted upon.

    Attributes:
        number: the tag, 0 to 2^64 - 1.
        value: the item behind it.
    """

    number: int
    value: object


class Simple(NamedTuple):
    """A simple value other than false, true, null and undefined.

    Attributes:
        value: 0 to 19 or 32 to 255.
    """

    value: int


@final
class Undefined:
    """The type of `UNDEFINED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        """Copy and unpickle to the one instance, by its name in this module."""
        return "UNDEFINED"


UNDEFINED: Final = Undefined()


class Pairs(tuple[tuple[object, object], ...]):
    """A map with at least one key that is not text: (key, value) pairs in the order of the file.

    In attributes it is seen only where no `dict` holds the same keys; see `with_dicts`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Pairs({super().__repr__()})"


def with_dicts(value: Any) -> Any:
    """Return a decoded value with a `dict` for each map that one holds as it is.

    That is where no two keys are equal in Python, as 1, 1.0 and true are, and each is found again,
    as NaN is not, nor what cannot be hashed. Other maps stay `Pairs`. The value itself is not
    changed; what has no such map in it is returned.
    """
    containers: list[Container] = []
    waiting: list[object] = [value]
    has_pairs = False
    while waiting:
        item = waiting.pop()
        if is_container(item):
            containers.append(item)
            has_pairs = has_pairs or isinstance(item, Pairs)
            waiting += [one for one in _values(item) if is_container(one)]
    if not has_pairs:
        return value
    made: dict[int, object] = {}  # by id(): what is inside comes before what it is in

    def of(item: object) -> object:
        return made.get(id(item), item)

    for one in reversed(containers):
        if isinstance(one, dict):
            made[id(one)] = {key: of(item) for key, item in one.items()}
        elif isinstance(one, Pairs):
            pairs = Pairs((key, of(item)) for key, item in one)
            made[id(one)] = _as_dict(pairs)
        elif isinstance(one, Tag):
            made[id(one)] = Tag(one.number, of(one.value))
        else:
            made[id(one)] = [of(item) for item in one]
    return made[id(value)]


def _values(container: Container) -> Iterable[object]:
    if isinstance(container, dict):
        return container.values()
    if isinstance(container, Tag):
        return (container.value,)
    return (item for _, item in container) if isinstance(container, Pairs) else container


def _as_dict(pairs: Pairs) -> dict[object, object] | Pairs:
    for key, _ in pairs:
        if type(key) not in (str, int, bytes, bool, float, type(None)) or key != key:
            return pairs
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


Container: TypeAlias = dict[object, object] | list[object] | tuple[object, ...]


def is_container(value: object) -> TypeGuard[Container]:
    """Return whether a value holds others."""
    return isinstance(value, (dict, list, tuple)) and type(value) is not Simple
