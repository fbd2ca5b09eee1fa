"""What a pickle becomes here: names that stay names, dicts that are pairs, and what it may call."""

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
        module: the module's name as written.
        name: the name in it as written.
    """

    module: str
    name: str

    def __str__(self) -> str:
        """Return both, dotted."""
        return f"{self.module}.{self.name}"


_T = TypeVar("_T")
_TEXT = frozenset({str})


class Buildable:
    """A value that takes a state after it was made; no `abc.ABC`, as very many are looked at."""

    __slots__ = ()

    def build(self, state: object) -> None:
        """Take the state.

        Raises:
            FormatError: it is none for this value.
            UnsupportedError: it is one that this release does not know.
        """
        raise NotImplementedError


class Items(Buildable):
    """A dict of the pickle: its pairs in the order of the file, keys as they are.

    Args:
        flat: keys and values in turn. Attributes that were set on the dict itself come last.
    """

    __slots__ = ("_flat",)

    def __init__(self, flat: Sequence[object] = ()) -> None:
        self._flat = flat

    @property
    def pairs(self) -> Iterator[tuple[object, object]]:
        """Return the keys and values."""
        return zip(self._flat[::2], self._flat[1::2], strict=True)

    def by_name(self) -> dict[str, object] | None:
        """Return the values by their keys; None where a key is no text."""
        names = self._flat[::2]
        if set(map(type, names)) - _TEXT:
            return None
        return dict(zip(names, self._flat[1::2], strict=True))  # type: ignore[arg-type]

    def build(self, state: object) -> None:
        """Take what was set on an `OrderedDict` itself, such as `_metadata` of torch."""
        self.add(list(require(state, Items, "the state of a dict", "a dict")._flat))

    def add(self, flat: list[object]) -> None:
        """Add keys and values in turn behind those that are there; the list is not used after."""
        if isinstance(self._flat, list):
            self._flat.extend(flat)
        elif not self._flat:  # a hostile pickle has an empty dict in every byte, and no list for it
            self._flat = flat
        else:
            self._flat = [*self._flat, *flat]

    def copied(self) -> Items:
        """Return a dict of the same pairs."""
        return Items(tuple(self._flat))

    def __len__(self) -> int:
        return len(self._flat) // 2


class Call(NamedTuple):
    """What a pickle may call, and what is done then.

    Attributes:
        make: our function; it gets what the pickle passes, and may copy it once.
        least: fewest arguments.
        most: most arguments.
        becomes_plain: what a value of the pickle is that becomes one of a plainer kind, else empty.
    """

    make: Callable[..., object]
    least: int
    most: int
    becomes_plain: str = ""


class Vocabulary(NamedTuple):
    """What the pickles of one format may say.

    Attributes:
        calls: by dotted name.
        persistent: what a persistent id stands for.
        plainer: told of each value that becomes one of a plainer kind.
    """

    calls: Mapping[str, Call]
    persistent: Callable[[object], object]
    plainer: Callable[[str], object] = str


def kind_of(value: object) -> str:
    """Return a value of a pickle for a message: itself where it is short, else what it is."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return describe(value)
    if isinstance(value, Global):
        return describe(str(value))
    return "a dict" if isinstance(value, Items) else f"a {type(value).__name__}"


def misfit(what: str, expected: str, found: object, *, is_type: bool = True) -> FormatError:
    """Return the error for a value of a pickle that cannot be there."""
    return FormatError(
        f"{what} in the pickle is wrong",
        reason=Reason.FIELD_TYPE if is_type else Reason.FIELD_VALUE,
        expected=expected,
        found=kind_of(found),
    )


def require(value: object, kind: type[_T], what: str, expected: str) -> _T:
    """Return a value of a pickle that has to be of a kind.

    Raises:
        FormatError: it is none.
    """
    if not isinstance(value, kind):
        raise misfit(what, expected, value)
    return value


def refused(what: object) -> UnsupportedError:
    """Return the error for a name that the pickle calls and we do not."""
    error = UnsupportedError(
        "the pickle calls a name that is not among the few that make tensors and plain data; "
        "the file was refused, nothing in it was imported or executed",
        reason=Reason.PICKLE_CALL,
        found=kind_of(what),
    )
    error.hint = "if you trust it, load it with the program that wrote it and save its tensors only"
    return error
