"""Decode a tree from its shape and leaves, in one loop with a stack, for any file.

Nothing is imported or called by a name in the file: types are looked up in the table of `kinds.py`,
in a framework's adapter, and among the classes that the caller passed.
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
# In place of values that were not requested.
_ABSENT: Any = object()

# Kinds that contain nodes.
_OPEN = frozenset(
    [Node.LIST, Node.TUPLE, Node.DICT, Node.TEXT_DICT, Node.INT_DICT, Node.MADE, Node.RECORD]
)
_DICTS = frozenset([Node.TEXT_DICT, Node.INT_DICT])
_WITH_KEYS = frozenset([Node.DICT, Node.MADE])  # whose nodes may be keys


class LeafAt(NamedTuple):
    """A leaf in a shape.

    Attributes:
        name: name of its object.
        framework: framework of its value: "numpy", "" for a `ztensor.Tensor`, or another name.
    """

    name: str
    framework: str


@dataclasses.dataclass(slots=True)
class _Frame:
    """A container that is being read.

    Attributes:
        node: its kind.
        left: number of values that follow.
        name: the keys that lead to it, joined by dots.
        hashed: its depth in a key, 0 outside of keys.
        is_material: True for the tuple that a value is made of, which adds no key to names and is
            read as a whole.
        is_kept: whether all of it was requested.
        is_found: whether anything in it was requested.
        keys: keys of a dict or record.
        words: sort and class name of a record, or the type of a made value.
        values: the values read so far.
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
        """Return the depth in a key of the next value, 0 outside of keys."""
        if self.hashed:
            return self.hashed + 1
        if self.node == Node.MADE:
            return int(self.words[0] in HASHING)
        return int(self.node == Node.DICT and not len(self.values) % 2)

    def name_of_next(self) -> str:
        """Return the keys that lead to the next value."""
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
    """Return the tree of a shape.

    Args:
        data: the bytes of the shape.
        budget: charged for the tree without its leaves.
        leaf: returns the value of a leaf; it may be called several times for one.
        stored: bytes of the file that the shape takes; it may be compressed there.
        keep: returns whether a value is requested, by its keys joined by dots; a container includes
            its contents. Other values are left out of dicts, and are None in lists, tuples and
            records, so that positions stay. None requests all.
        types: classes of namedtuples, dataclasses and enums; others become `Record`.
        maker_of: returns the function that makes a value of a type, by its name; None for unknown
            types, whose values become `Record`.

    Raises:
        FormatError: the shape is malformed.
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
            raise malformed("a listed leaf is not in the tree")
        tree = frame.values[0]
        return None if tree is _ABSENT else tree

    def _opened(self, kind: int, outer: _Frame) -> _Frame | None:
        """Read a node: append its value to the container, or return the container that it opens."""
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
        # The parts of a made value stay with it: the factory of a defaultdict, a device.
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
                raise malformed("a container claims more entries than there are", str(left))
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
        """Return the value of a container that has been read."""
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
            self._dict(list(value), list(value))  # as keys: no element twice, few of one hash
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
            raise malformed("a leaf is out of order or not listed", str(number))
        if number == self._seen:
            self._seen += 1
        return self._leaf(LeafAt(leaves[number], framework)) if is_kept else None
