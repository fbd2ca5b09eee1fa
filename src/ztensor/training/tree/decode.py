"""A tree's shape and its leaves to the tree: one loop with a stack, whatever the file says.

Nothing is imported or called by a name that the file has: what a value is made of is looked up in
the table of `kinds.py`, in a framework's adapter, and among the classes that the caller handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import FormatError, UsageError, describe
from ztensor.ext import foreign_bytes, no_collection
from ztensor.limits import Budget
from ztensor.training.tree.columns import Cursor, Node, malformed, several
from ztensor.training.tree.keys import KEY_DEPTH, are_spread
from ztensor.training.tree.kinds import HASHING, MAKERS
from ztensor.training.tree.names import named
from ztensor.training.tree.record import DATACLASS, ENUM, NAMEDTUPLE, OTHER, Classes, Record

if TYPE_CHECKING:
    from collections.abc import Callable


_SORTS = frozenset([NAMEDTUPLE, DATACLASS, ENUM, OTHER])
# In place of what was not asked for.
_ABSENT: Any = object()

_CONSTANTS = {Node.NONE: None, Node.FALSE: False, Node.TRUE: True}
# Those whose inside is nodes.
_OPEN = frozenset(
    [Node.LIST, Node.TUPLE, Node.DICT, Node.TEXT_DICT, Node.INT_DICT, Node.MADE, Node.RECORD]
)
_DICTS = frozenset([Node.TEXT_DICT, Node.INT_DICT])


class LeafAt(NamedTuple):
    """A leaf as the shape has it.

    Attributes:
        name: that of its object.
        framework: whose value it was: "numpy", "" for a `ztensor.Tensor`, or another's name.
    """

    name: str
    framework: str


class Decoded(NamedTuple):
    """What a shape says.

    Attributes:
        tree: the tree, with what `leaf` gave in the place of each leaf.
        leaves: the names of all objects that the shape tells of, asked for or not.
    """

    tree: Any
    leaves: tuple[str, ...]


class _Frame:
    """A container whose inside is being read.

    Attributes:
        node: its kind.
        left: how many values follow.
        keys: of a dict and a record the keys, else empty.
        values: those that were read.
        word: of what is made or a record, the type's name.
        sort: of a record, which sort of class it is.
        name: the keys on the way to it.
        hashed: how deep it is in a key; 0 outside of keys.
        may_hash: whether a key of a dict, or the elements of a set, may come next.
        is_made: whether it is what something is made of, and adds no key to names.
        kept: whether it was asked for as a whole.
        found: whether anything in it was asked for.
    """

    __slots__ = (
        "found",
        "hashed",
        "is_made",
        "kept",
        "keys",
        "left",
        "may_hash",
        "name",
        "node",
        "sort",
        "values",
        "word",
    )

    def __init__(
        self, node: int, left: int, name: str, hashed: int, *, is_made: bool, kept: bool
    ) -> None:
        self.node = node
        self.left = left
        self.keys: Any = ()
        self.values: list[Any] = []
        self.word = self.sort = ""
        self.name = name
        self.hashed = hashed
        self.is_made = is_made
        self.may_hash = False
        self.kept = self.found = kept


@no_collection()
def decode(
    data: bytes | memoryview,
    budget: Budget,
    leaf: Callable[[LeafAt], Any],
    *,
    stored: int = 0,
    keep: Callable[[str], bool] | None = None,
    types: Any = (),
    maker_of: Callable[[str], Callable[[Any], Any] | None] = MAKERS.get,
) -> Decoded:
    """Return the tree that a shape tells of.

    Args:
        data: the shape's bytes.
        budget: is charged what the tree takes beside its leaves.
        leaf: gives the value of a leaf; it may be asked for one several times.
        stored: how many bytes of the file the shape takes, which may be compressed.
        keep: whether a value is asked for, by its keys joined by dots; with a container all that is
            in it is. What is not asked for is left out of dicts, and None in lists, tuples and
            records, so that positions stay; None asks for all.
        types: classes of namedtuples, dataclasses and enums; others become `Record`.
        maker_of: what makes a value of its type's name; None where the type is unknown, which
            makes a `Record`.

    Raises:
        FormatError: the shape is not what an encoder wrote.
        LimitError: it would take more memory than the budget has.
        UsageError: a class of `types` has other fields than the file.
    """
    with foreign_bytes("the tree"):
        cursor = Cursor(data, budget, stored or len(data))
    return _Decoder(cursor, leaf, keep, Classes(types), maker_of).decoded()


class _Decoder:
    def __init__(
        self,
        cursor: Cursor,
        leaf: Callable[[LeafAt], Any],
        keep: Callable[[str], bool] | None,
        classes: Classes,
        maker_of: Callable[[str], Callable[[Any], Any] | None],
    ) -> None:
        self._classes = classes
        self._cursor = cursor
        self._leaf = leaf
        self._keep = keep
        self._maker_of = maker_of
        self._names = self._cursor.leaves
        if len(set(self._names)) != len(self._names):
            raise malformed("two leaves have one name")
        self._seen = 0
        self._values: dict[int, Callable[[], Any]] = {
            Node.TEXT: cursor.words.__next__,
            Node.INT: cursor.ints.__next__,
            Node.FLOAT: cursor.floats.__next__,
            Node.BYTES: cursor.byte_strings.__next__,
            Node.NONE: lambda: None,
            Node.FALSE: lambda: False,
            Node.TRUE: lambda: True,
            Node.INT_LIST: lambda: several(cursor.ints, next(cursor.counts)),
            Node.INT_TUPLE: lambda: tuple(several(cursor.ints, next(cursor.counts))),
            Node.FLOAT_LIST: lambda: several(cursor.floats, next(cursor.counts)),
            Node.FLOAT_TUPLE: lambda: tuple(several(cursor.floats, next(cursor.counts))),
        }

    def decoded(self) -> Decoded:
        """Return the whole tree."""
        try:
            return self._decoded()
        except StopIteration:
            raise malformed("a column ends too early") from None

    def _decoded(self) -> Decoded:
        cursor, kinds = self._cursor, self._cursor.kinds
        stack: list[_Frame] = []
        # The root is the one value of a frame that is never closed.
        frame = _Frame(Node.NONE, 1, "", 0, is_made=False, kept=self._keep is None)
        for kind in kinds:
            if not frame.left:
                raise malformed("nodes follow its root")
            opened = self._opened(kind, frame)
            if opened is not None:
                stack.append(frame)
                frame = opened
            while not frame.left and stack:
                value = self._closed(frame) if frame.found or frame.hashed else _ABSENT
                stack[-1].found |= frame.found and not frame.hashed
                frame = stack.pop()
                frame.values.append(value)
                frame.left -= 1
        if frame.left or stack:
            raise malformed("its nodes end too early")
        cursor.require_end()
        if self._seen != len(self._names):
            raise malformed("a leaf is nowhere in it")
        tree = frame.values[0]
        return Decoded(None if tree is _ABSENT else tree, self._names)

    def _opened(self, kind: int, outer: _Frame) -> _Frame | None:
        """Read one node: append what is whole to its container, return one that has an inside."""
        hashed = self._depth_in_key(outer) if outer.hashed or outer.may_hash else 0
        kept, name = True, ""
        if self._keep is not None and not hashed:
            name = self._name(outer)
            kept = outer.kept or self._keep(name)
        value: Any
        if kind in _OPEN:
            return self._container(kind, name, hashed, is_made=outer.node == Node.MADE, kept=kept)
        if kind == Node.LEAF:
            if hashed:
                raise malformed("a key is a tensor")
            value = self._leaf_value(kept=kept)
        else:
            make = self._values.get(kind)
            if make is None:
                raise malformed("a kind of node is unknown", str(kind))
            value = make()
        # What something is made of goes with it: the factory of a defaultdict, a device.
        outer.values.append(value if kept or _is_material(outer) else _ABSENT)
        outer.found |= kept and not hashed
        outer.left -= 1
        return None

    def _depth_in_key(self, outer: _Frame) -> int:
        if outer.hashed:
            return outer.hashed + 1
        return int(outer.node == Node.MADE or not len(outer.values) % 2)

    def _name(self, outer: _Frame) -> str:
        at, node = len(outer.values), outer.node
        if node in (Node.MADE, Node.NONE) or _is_material(outer):
            return outer.name
        if node == Node.DICT:
            return named(outer.name, outer.values[-1])
        return named(outer.name, outer.keys[at] if outer.keys else at)

    def _container(self, kind: int, name: str, hashed: int, *, is_made: bool, kept: bool) -> _Frame:
        if hashed > KEY_DEPTH:
            raise malformed("a key is nested too deep")
        if hashed and kind not in (Node.TUPLE, Node.MADE, Node.RECORD):
            raise malformed("a key cannot be hashed")
        cursor = self._cursor
        left = 1 if kind == Node.MADE else self._count(2 if kind == Node.DICT else 1)
        frame = _Frame(kind, left, name, hashed, is_made=is_made, kept=kept or bool(hashed))
        if kind == Node.MADE:
            frame.word = next(cursor.words)
            frame.may_hash = frame.word in HASHING
        elif kind == Node.TEXT_DICT:
            frame.keys = several(cursor.words, left)
        elif kind == Node.INT_DICT:
            frame.keys = several(cursor.ints, left)
        elif kind == Node.DICT:
            frame.may_hash = True
        elif kind == Node.RECORD:
            frame.sort, frame.word, *frame.keys = several(cursor.words, left + 2)
            if frame.sort not in _SORTS:
                raise malformed("a record is of an unknown sort", describe(frame.sort))
        return frame

    def _closed(self, frame: _Frame) -> Any:
        """Return the value of a container whose inside was read."""
        values, node = frame.values, frame.node
        if node == Node.MADE:
            return self._made(frame.word, values[0])
        if node in _DICTS:
            return self._dict(frame.keys, values)
        if node == Node.DICT:
            return self._dict(values[0::2], values[1::2])
        if not frame.kept:  # positions stay
            values = [None if value is _ABSENT else value for value in values]
        if node == Node.LIST:
            return values
        if node == Node.TUPLE:
            return tuple(values)
        if len(set(frame.keys)) != len(frame.keys):
            raise malformed("a record has a field twice")
        record = Record(frame.word, dict(zip(frame.keys, values, strict=True)), sort=frame.sort)
        return self._classes.made(record)

    def _dict(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        try:
            if not are_spread(keys):
                raise malformed("its keys were chosen to have one hash")
            result = dict(zip(keys, values, strict=True))
        except TypeError as error:
            raise malformed("a key cannot be hashed") from error
        if len(result) != len(keys):
            raise malformed("a dict has a key twice")
        if self._keep is not None and any(value is _ABSENT for value in values):
            return {key: value for key, value in result.items() if value is not _ABSENT}
        return result

    def _made(self, name: str, value: Any) -> Any:
        if name in HASHING and type(value) is tuple:
            self._dict(list(value), list(value))  # as keys: no element twice, not too many alike
        maker = self._maker_of(name)
        if maker is None:
            return Record(name, {"of": value}, sort=OTHER)
        try:
            return maker(value)
        except (FormatError, UsageError):
            raise
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise malformed(
                f"a value of type {describe(name)} cannot be made", describe(str(error), 60)
            ) from error

    def _leaf_value(self, *, kept: bool) -> Any:
        number = next(self._cursor.counts)
        framework = next(self._cursor.words)
        if number > self._seen or number >= len(self._names):
            raise malformed("a leaf comes before its turn, or is not there", str(number))
        if number == self._seen:
            self._seen += 1
        return self._leaf(LeafAt(self._names[number], framework)) if kept else None

    def _count(self, each: int) -> int:
        """Return how many nodes follow in a container, which has so many for each entry."""
        count = next(self._cursor.counts) * each
        if count > len(self._cursor.kinds):
            raise malformed("a container is said to have more than there is", str(count))
        return count


def _is_material(frame: _Frame) -> bool:
    """Return whether it is the tuple that something is made of."""
    return frame.is_made and frame.node == Node.TUPLE
