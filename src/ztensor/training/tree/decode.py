"""A tree's shape and its leaves to the tree: one loop with a stack, whatever the file says.

Nothing is imported or called by a name that the file has: what a value is made of is looked up in
the table of `kinds.py`, in a framework's adapter, and among the classes that the caller handed in.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import FormatError, UsageError, describe
from ztensor.ext import foreign_bytes, no_collection
from ztensor.limits import Budget
from ztensor.training.tree.columns import Cursor, Node, malformed, several
from ztensor.training.tree.kinds import HASHING, KEY_DEPTH, MAKERS, are_spread
from ztensor.training.tree.names import named
from ztensor.training.tree.record import DATACLASS, ENUM, NAMEDTUPLE, OTHER, Classes, Record

if TYPE_CHECKING:
    from collections.abc import Callable

_SORTS = frozenset([NAMEDTUPLE, DATACLASS, ENUM, OTHER])
# In place of what was not asked for.
_ABSENT: Any = object()

# Those whose inside is nodes.
_OPEN = frozenset(
    [Node.LIST, Node.TUPLE, Node.DICT, Node.TEXT_DICT, Node.INT_DICT, Node.MADE, Node.RECORD]
)
_DICTS = frozenset([Node.TEXT_DICT, Node.INT_DICT])
_WITH_KEYS = frozenset([Node.DICT, Node.MADE])  # among what follows


class LeafAt(NamedTuple):
    """A leaf as the shape has it.

    Attributes:
        name: that of its object.
        framework: whose value it was: "numpy", "" for a `ztensor.Tensor`, or another's name.
    """

    name: str
    framework: str


@dataclasses.dataclass(slots=True)
class _Frame:
    """A container whose inside is being read.

    Attributes:
        node: its kind.
        left: how many values follow.
        name: the keys on the way to it.
        hashed: how deep it is in a key; 0 outside of keys.
        is_material: whether it is the tuple that something is made of, which adds no key to names
            and is read as a whole.
        is_kept: whether it was asked for as a whole.
        is_found: whether anything in it was asked for.
        keys: of a dict and a record the keys.
        words: of a record its sort and its class's name, of what is made its type's name.
        values: those that were read.
    """

    node: int
    left: int
    name: str
    hashed: int
    is_material: bool
    is_kept: bool
    is_found: bool
    keys: Any = ()
    words: Any = ()
    values: list[Any] = dataclasses.field(default_factory=list)

    def depth_of_next(self) -> int:
        """Return how deep in a key the next value is; 0 where it is in none."""
        if self.hashed:
            return self.hashed + 1
        if self.node == Node.MADE:
            return int(self.words[0] in HASHING)
        return int(self.node == Node.DICT and not len(self.values) % 2)

    def name_of_next(self) -> str:
        """Return the keys on the way to the next value."""
        at = len(self.values)
        if self.node in (Node.MADE, Node.NONE) or self.is_material:
            return self.name
        if self.node == Node.DICT:
            return named(self.name, self.values[-1])
        return named(self.name, self.keys[at] if self.keys else at)


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
) -> Any:
    """Return the tree that a shape tells of, with what `leaf` gave in the place of each leaf.

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
    try:
        return _Decoder(cursor, leaf, keep, Classes(types), maker_of).decoded()
    except StopIteration:
        raise malformed("a column ends too early") from None


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
        if len(set(cursor.leaves)) != len(cursor.leaves):
            raise malformed("two leaves have one name")
        self._seen = 0  # leaves
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

    def decoded(self) -> Any:
        """Return the whole tree."""
        cursor = self._cursor
        stack: list[_Frame] = []
        # The root is the one value of a frame that is never closed.
        is_kept = self._keep is None
        frame = _Frame(Node.NONE, 1, "", 0, is_material=False, is_kept=is_kept, is_found=is_kept)
        for kind in cursor.kinds:
            if not frame.left:
                raise malformed("nodes follow its root")
            opened = self._opened(kind, frame)
            if opened is not None:
                stack.append(frame)
                frame = opened
            while not frame.left and stack:
                value = self._closed(frame) if frame.is_found or frame.hashed else _ABSENT
                stack[-1].is_found |= frame.is_found and not frame.hashed
                frame = stack.pop()
                frame.values.append(value)
                frame.left -= 1
        if frame.left or stack:
            raise malformed("its nodes end too early")
        cursor.require_end()
        if self._seen != len(cursor.leaves):
            raise malformed("a leaf is nowhere in it")
        tree = frame.values[0]
        return None if tree is _ABSENT else tree

    def _opened(self, kind: int, outer: _Frame) -> _Frame | None:
        """Read one node: append what is whole to its container, return one that has an inside."""
        hashed = outer.depth_of_next() if outer.hashed or outer.node in _WITH_KEYS else 0
        is_kept, name = True, ""
        if self._keep is not None and not hashed:
            name = outer.name_of_next()
            is_kept = outer.is_kept or self._keep(name)
        if kind in _OPEN:
            return self._container(kind, name, hashed, outer, is_kept=is_kept or hashed > 0)
        if kind == Node.LEAF:
            if hashed:
                raise malformed("a key is a tensor")
            value = self._leaf_value(is_kept=is_kept)
        else:
            make = self._values.get(kind)
            if make is None:
                raise malformed("a kind of node is unknown", str(kind))
            value = make()
        # What something is made of goes with it: the factory of a defaultdict, a device.
        outer.values.append(value if is_kept or outer.is_material else _ABSENT)
        outer.is_found |= is_kept and not hashed
        outer.left -= 1
        return None

    def _container(
        self, kind: int, name: str, hashed: int, outer: _Frame, *, is_kept: bool
    ) -> _Frame:
        if hashed > KEY_DEPTH:
            raise malformed("a key is nested too deep")
        if hashed and kind not in (Node.TUPLE, Node.MADE, Node.RECORD):
            raise malformed("a key cannot be hashed")
        cursor, left = self._cursor, 1
        if kind != Node.MADE:
            left = next(cursor.counts) * (2 if kind == Node.DICT else 1)
            if left > len(cursor.kinds):
                raise malformed("a container is said to have more than there is", str(left))
        is_material = outer.node == Node.MADE and kind == Node.TUPLE
        frame = _Frame(kind, left, name, hashed, is_material, is_kept, is_kept)
        if kind == Node.MADE:
            frame.words = (next(cursor.words),)
        elif kind == Node.TEXT_DICT:
            frame.keys = several(cursor.words, left)
        elif kind == Node.INT_DICT:
            frame.keys = several(cursor.ints, left)
        elif kind == Node.RECORD:
            frame.words = several(cursor.words, 2)
            frame.keys = several(cursor.words, left)
        return frame

    def _closed(self, frame: _Frame) -> Any:
        """Return the value of a container whose inside was read."""
        values, node = frame.values, frame.node
        if node == Node.MADE:
            return self._made(frame.words[0], values[0])
        if node in _DICTS:
            return self._dict(frame.keys, values)
        if node == Node.DICT:
            return self._dict(values[0::2], values[1::2])
        if not frame.is_kept:  # positions stay
            values = [None if value is _ABSENT else value for value in values]
        if node == Node.LIST:
            return values
        if node == Node.TUPLE:
            return tuple(values)
        sort, class_name = frame.words
        if sort not in _SORTS:
            raise malformed("a record is of an unknown sort", describe(sort))
        if len(set(frame.keys)) != len(frame.keys):
            raise malformed("a record has a field twice")
        fields = dict(zip(frame.keys, values, strict=True))
        return self._classes.made(Record(class_name, fields, sort=sort))

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

    def _leaf_value(self, *, is_kept: bool) -> Any:
        leaves, number = self._cursor.leaves, next(self._cursor.counts)
        framework = next(self._cursor.words)
        if number > self._seen or number >= len(leaves):
            raise malformed("a leaf comes before its turn, or is not there", str(number))
        if number == self._seen:
            self._seen += 1
        return self._leaf(LeafAt(leaves[number], framework)) if is_kept else None
