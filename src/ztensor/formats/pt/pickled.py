"""Values of pickles: names that stay names, dicts as pairs, and the table of calls."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ztensor.errors import FormatError, Reason, UnsupportedError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Global:
    """A name in a pickle: a class, a function, a constant. It is never looked up.

    Attributes:
        module: the module's name in the file.
        name: the name in the module.
    """

    module: str
    name: str

    def __str__(self) -> str:
        """Return the dotted name."""
        return f"{self.module}.{self.name}"


_T = TypeVar("_T")
_TEXT = frozenset({str})


class Buildable:
    """A value that gets a state after it is made. Not an `abc.ABC`, as its checks are slower."""

    __slots__ = ()

    def build(self, state: object) -> None:
        """Set the state.

        Raises:
            FormatError: it is not valid for this value.
            UnsupportedError: it is unknown to this release.
        """
        raise NotImplementedError


class Items(Buildable):
    """A dict of the pickle, as pairs in the order of the file; keys are not hashed.

    Args:
        flat: keys and values in turn. Attributes of the dict object itself come last.
    """

    __slots__ = ("_flat",)

    def __init__(self, flat: Sequence[object] = ()) -> None:
        self._flat = flat

    @property
    def pairs(self) -> Iterator[tuple[object, object]]:
        """Return the keys and values."""
        return zip(self._flat[::2], self._flat[1::2], strict=True)

    def by_name(self) -> dict[str, object] | None:
        """Return the values by their keys, or None if a key is not text."""
        names = self._flat[::2]
        if set(map(type, names)) - _TEXT:
            return None
        return dict(zip(names, self._flat[1::2], strict=True))  # type: ignore[arg-type]

    def build(self, state: object) -> None:
        """Add the attributes of an `OrderedDict` object, such as `_metadata` of torch."""
        self.add(list(require(state, Items, "the state of a dict", "a dict")._flat))

    def add(self, flat: list[object]) -> None:
        """Append keys and values in turn; the dict owns the list afterwards."""
        if isinstance(self._flat, list):
            self._flat.extend(flat)
        elif not self._flat:  # a list for each empty dict would cost memory in hostile pickles
            self._flat = flat
        else:
            self._flat = [*self._flat, *flat]

    def copied(self) -> Items:
        """Return a dict of the same pairs."""
        return Items(tuple(self._flat))

    def __len__(self) -> int:
        return len(self._flat) // 2


class Call(NamedTuple):
    """An allowed call.

    Attributes:
        make: the function that makes the value; it may copy its arguments once.
        least: fewest arguments.
        most: most arguments.
        becomes_plain: the kind of value that is converted to a plainer one; empty if it is not.
    """

    make: Callable[..., object]
    least: int
    most: int
    becomes_plain: str = ""


class Vocabulary(NamedTuple):
    """The calls and persistent ids of one format's pickles.

    Attributes:
        calls: the allowed calls, by dotted name.
        persistent: returns the object of a persistent id.
        plainer: called with the kind of each value that is converted to a plainer one.
    """

    calls: Mapping[str, Call]
    persistent: Callable[[object], object]
    plainer: Callable[[str], object] = str


def kind_of(value: object) -> str:
    """Return a description of a value for a message: the value if it is short, else its type."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return describe(value)
    if isinstance(value, Global):
        return describe(str(value))
    return "a dict" if isinstance(value, Items) else f"a {type(value).__name__}"


def misfit(subject: str, expected: str, found: object, *, is_type: bool = True) -> FormatError:
    """Return the error for an invalid value of a pickle."""
    return FormatError(
        f"{subject} in the pickle is wrong",
        reason=Reason.FIELD_TYPE if is_type else Reason.FIELD_VALUE,
        expected=expected,
        found=kind_of(found),
    )


def require(value: object, kind: type[_T], subject: str, expected: str) -> _T:
    """Return a value of a pickle, which must be an instance of `kind`.

    Raises:
        FormatError: it is not.
    """
    if not isinstance(value, kind):
        raise misfit(subject, expected, value)
    return value


def refused(name: object) -> UnsupportedError:
    """Return the error for a call that is not allowed."""
    error = UnsupportedError(
        "the pickle calls a name that is not among the few that make tensors and plain data; "
        "the file was refused, nothing in it was imported or executed",
        reason=Reason.PICKLE_CALL,
        found=kind_of(name),
    )
    error.hint = "if you trust it, load it with the program that wrote it and save its tensors only"
    return error
