"""A tree to its shape and its leaves: one loop with a stack, so that no depth is too deep."""

from __future__ import annotations

import io
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor import Tensor
from ztensor.errors import NotRepresentableError, ZTensorError, describe
from ztensor.ext import FRAMEWORKS, no_collection, spell
from ztensor.training.tree.adapters import tree_adapter_beside
from ztensor.training.tree.columns import Columns, Node
from ztensor.training.tree.keys import KEY_DEPTH, MOST_ALIKE, are_spread
from ztensor.training.tree.kinds import Leaf, Made, form_of
from ztensor.training.tree.names import ROOT, Place, key_step, named, unique
from ztensor.training.tree.record import fields_of
from ztensor.training.tree.stored import ATTRIBUTE, stored_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# From here on numbers of one type are told together.
_LEAST_PACKED = 4
_INT64 = range(-(1 << 63), 1 << 63)

_LEAF = int(Node.LEAF)
_SINGLE = {type(None): Node.NONE, bool: Node.FALSE, int: Node.INT, float: Node.FLOAT}
_BUILTIN = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_SETS: dict[type, str] = {set: "set", frozenset: "frozenset"}
_PACKED: dict[tuple[type, type], Node] = {
    (list, int): Node.INT_LIST,
    (tuple, int): Node.INT_TUPLE,
    (list, float): Node.FLOAT_LIST,
    (tuple, float): Node.FLOAT_TUPLE,
}


class Encoded(NamedTuple):
    """A tree as it is saved.

    Attributes:
        shape: the bytes of `columns.py`.
        leaves: names of objects to what is stored under them.
    """

    shape: bytes
    leaves: dict[str, Any]

    @property
    def attribute(self) -> dict[str, object]:
        """Return the attribute that a file of the leaves has, by its key."""
        return {ATTRIBUTE: stored_shape(self.shape)}


@no_collection()
def encode(tree: object) -> Encoded:
    """Return a tree's shape and leaves. Arrays are kept as they are, without a copy.

    Leaves over the same elements (same memory, shape, strides and type) are one object. The same
    tree gives the same bytes: entries of dicts keep their order, elements of sets are sorted.

    Raises:
        NotRepresentableError: a value of a type that is not listed in `kinds.py`, a container that
            contains itself, or a leaf that no version can hold; the message has its place.
    """
    return _Encoder().encoded(tree)


class _Encoder:
    def __init__(self, alones: dict[int, bytes] | None = None) -> None:
        self._alones = {} if alones is None else alones  # by ids of keys, which the tree holds
        self._columns = Columns()
        self._leaves: dict[str, Any] = {}
        self._numbers: dict[object, int] = {}
        self._tries: dict[str, int] = {}
        self._held: list[object] = []  # an id says nothing once its object is gone
        self._forms: dict[type, Callable[[Any], Leaf | Made | None]] = {}

    def encoded(self, tree: object) -> Encoded:
        """Return the whole tree as it is saved."""
        stack: list[tuple[Any, Place, int]] = []
        inside: set[int] = set()
        entries: Any = iter(((None, None, tree),))
        place, identity = ROOT, 0
        while True:
            for key, step, value in entries:
                inner = self._node(value, key, step, place)
                if inner is None:
                    continue
                stack.append((entries, place, identity))
                # What is made of a value is new; what contains itself is what comes again.
                identity = id(value)
                if identity in inside:
                    place = _inner(place, key, step)
                    raise _refused(place, "it contains itself", value)
                inside.add(identity)
                entries, place = inner, _inner(place, key, step)
                break
            else:
                inside.discard(identity)
                if not stack:
                    break
                entries, place, identity = stack.pop()
        try:
            return Encoded(self._columns.packed(), self._leaves)
        except UnicodeEncodeError as error:
            raise NotRepresentableError(
                "a text of the tree has a lone surrogate, which no file can hold",
                found=describe(error.object[error.start : error.start + 20]),
            ) from error

    def _node(self, value: Any, key: object, step: str | None, place: Place) -> Any:
        """Append one node; return an iterator over what is in it, None where nothing follows."""
        columns, kind = self._columns, type(value)
        if kind is np.ndarray:
            self._leaf(_array_leaf(value, place, key, step), key, place)
        elif kind is str:
            columns.kinds.append(Node.TEXT)
            columns.words.append(columns.word(value))
        elif kind in _SINGLE and (kind is not int or value in _INT64):
            self._number(value, kind)
        elif kind is dict:
            return self._entries(value, place, key, step)
        elif kind is list or kind is tuple:
            return self._items(value, kind)
        elif kind in _SETS:
            self._set(value, kind, _inner(place, key, step))
        elif kind is bytes:
            columns.kinds.append(Node.BYTES)
            columns.byte_strings.append(value)
        else:
            return self._other(value, key, step, place)
        return None

    def _number(self, value: Any, kind: type) -> None:
        columns = self._columns
        if kind is int:
            columns.ints.append(value)
        elif kind is float:
            columns.floats.append(value)
        columns.kinds.append(Node.TRUE if value is True else _SINGLE[kind])

    def _entries(self, value: dict[Any, Any], place: Place, key: object, step: str | None) -> Any:
        columns = self._columns
        columns.counts.append(len(value))
        kinds = set(map(type, value))
        if kinds <= {str}:
            columns.kinds.append(Node.TEXT_DICT)
            columns.words.extend(map(columns.word, value))
        elif kinds == {int} and min(value) in _INT64 and max(value) in _INT64:
            columns.kinds.append(Node.INT_DICT)
            columns.ints.extend(value)
        else:
            columns.kinds.append(Node.DICT)
            return self._with_keys(value, _inner(place, key, step))
        return zip(value, repeat(None), value.values())

    def _with_keys(self, value: dict[Any, Any], place: Place) -> Any:
        _require_spread(value, place)
        seen: set[bytes] = set()
        for key, item in value.items():
            self._whole_key(key, place, 1, seen)
            yield key, None, item

    def _items(self, value: Any, kind: type) -> Any:
        columns = self._columns
        columns.counts.append(len(value))
        kinds = set(map(type, value)) if len(value) >= _LEAST_PACKED else set()
        packed = _PACKED.get((kind, *kinds)) if len(kinds) == 1 else None  # type: ignore[arg-type]
        if packed is Node.FLOAT_LIST or packed is Node.FLOAT_TUPLE:
            columns.kinds.append(packed)
            columns.floats.extend(value)
            return None
        if packed is not None and min(value) in _INT64 and max(value) in _INT64:
            columns.kinds.append(packed)
            columns.ints.extend(value)
            return None
        columns.kinds.append(Node.LIST if kind is list else Node.TUPLE)
        return ((at, f"[{at}]", item) for at, item in enumerate(value))

    def _set(self, value: Any, kind: type, place: Place) -> None:
        self._made(_SETS[kind])
        self._columns.kinds.append(Node.TUPLE)
        self._columns.counts.append(len(value))
        _require_spread(value, place)
        seen: set[bytes] = set()
        for item in self._sorted(value, place, 2):
            self._whole_key(item, place, 2, seen)

    def _made(self, name: str) -> None:
        self._columns.kinds.append(Node.MADE)
        self._columns.words.append(self._columns.word(name))

    def _other(self, value: Any, key: object, step: str | None, place: Place) -> Any:
        """Append a node of a type that is looked up: by ours, by its framework, by its fields."""
        columns = self._columns
        kind = type(value)
        try:
            told = self._forms.get(kind)
            if told is None:
                told = self._forms[kind] = _told_by(value)
            form = told(value)
        except ZTensorError as error:
            where = str(_inner(place, key, step))
            error.message = f"{where}: {error.message}"
            raise
        if type(form) is Leaf:
            self._held.append(value)
            self._leaf(form, key, place)
            return None
        if isinstance(form, Made):
            self._made(form.name)
            if type(form.of) is not tuple:
                return iter(((None, None, form.of),))
            columns.kinds.append(Node.TUPLE)
            columns.counts.append(len(form.of))
            return ((None, None, item) for item in form.of)  # no key of its own is on the way
        fields = fields_of(value)
        if fields is None:
            raise _refused(_inner(place, key, step), "no file can hold a value of its type", value)
        columns.kinds.append(Node.RECORD)
        columns.counts.append(len(fields.values))
        columns.words.extend(map(columns.word, (fields.sort, fields.class_name, *fields.values)))
        return ((name, f".{name}", item) for name, item in fields.values.items())

    def _leaf(self, leaf: Leaf, key: object, place: Place) -> None:
        columns = self._columns
        memory = id(leaf.stored) if leaf.memory is None else leaf.memory
        number = self._numbers.get(memory)
        if number is None:
            number = self._numbers[memory] = len(self._leaves)
            name = leaf.name
            if name is None:
                name = place.name if key is None else named(place.name, key)
                name = unique(name, self._leaves, self._tries)
            self._leaves[name] = leaf.stored
            columns.leaves.append(columns.word(name))
        columns.kinds.append(_LEAF)
        columns.counts.append(number)
        columns.words.append(columns.word(leaf.framework))

    def _whole_key(self, key: Any, place: Place, depth: int, seen: set[bytes]) -> None:
        """Append a key that no other of the dict or set is like once it is loaded.

        Args:
            key: the key.
            place: where the dict or set is.
            depth: as `_key` takes it.
            seen: what keys with records were encoded as, which is added to.
        """
        kinds = self._columns.kinds
        start = len(kinds)
        self._key(key, place, depth)
        if Node.RECORD in kinds[start:]:  # a class may tell values apart that have equal fields
            alone = self._alone(key, place, depth)
            if alone in seen:
                raise _refused(place, "two keys are one once they are saved", key)
            seen.add(alone)

    def _key(self, key: Any, place: Place, depth: int) -> None:
        """Append a key of a dict or an element of a set, which recurses as its hash does.

        Args:
            key: the key, or what is in one.
            place: where the dict or set is.
            depth: which open node of the key it is, as `KEY_DEPTH` counts them.
        """
        columns, kind = self._columns, type(key)
        inner: Iterable[Any]
        if kind is tuple:
            _require_depth(depth, key, place)
            columns.kinds.append(Node.TUPLE)
            columns.counts.append(len(key))
            inner, depth = key, depth + 1
        elif kind is frozenset:
            _require_depth(depth, key, place)
            self._made("frozenset")
            self._key(tuple(self._sorted(key, place, depth + 2)), place, depth + 1)
            return
        else:
            start = len(columns.kinds)
            entries = self._node(key, None, key_step(key), place)
            if columns.kinds[-1] == Node.LEAF:
                raise _refused(place, "a key cannot be a tensor", key)
            if entries is None:
                return
            depth += len(columns.kinds) - start
            _require_depth(depth - 1, key, place)
            inner = [item for _, _, item in entries]
            _require_hashed(inner, place)
        for item in inner:
            self._key(item, place, depth)

    def _sorted(self, elements: Any, place: Place, depth: int) -> list[Any]:
        """Return the elements of a set in an order that is the same for equal sets."""
        kinds = set(map(type, elements))
        if len(kinds) == 1 and kinds <= {int, str, bytes}:
            return sorted(elements)
        return sorted(elements, key=lambda element: self._alone(element, place, depth))

    def _alone(self, key: Any, place: Place, depth: int) -> bytes:
        """Return what a key is encoded as by itself; each once, as sets are in one another."""
        found = self._alones.get(id(key))
        if found is None:
            encoder = _Encoder(self._alones)
            encoder._key(key, place, depth)
            found = self._alones[id(key)] = encoder._columns.packed()
        return found


def _require_depth(depth: int, key: object, place: Place) -> None:
    if depth > KEY_DEPTH:
        raise _refused(place, f"a key is nested deeper than {KEY_DEPTH} levels", key)


def _require_hashed(items: Iterable[Any], place: Place) -> None:
    """Raise where a loaded key could not be hashed, which is hashed by its fields."""
    for item in items:
        try:
            hash(item)
        except TypeError:
            raise _refused(place, "a key has a value in it that cannot be hashed", item) from None


def _require_spread(keys: Any, place: Place) -> None:
    if not are_spread(keys):
        raise _refused(place, f"more than {MOST_ALIKE} of its keys have one hash", keys)


def _told_by(value: Any) -> Callable[[Any], Leaf | Made | None]:
    """Return what tells the form of all values of one's exact type."""
    kind = type(value)
    if kind is Leaf or kind is Made:
        return lambda told: told
    if kind is Tensor:
        return lambda tensor: Leaf(tensor, None, "")
    if form_of(value) is not None:
        return form_of
    trees = tree_adapter_beside(value)
    return _array_form if trees is None else trees.tree_form


def _array_form(value: Any) -> Leaf | None:
    # Of a framework without types of its own in trees the arrays are NumPy's.
    home = FRAMEWORKS.adapter_of(value)
    return None if home is None else Leaf(home.stored(value), ("", id(value)), "numpy")


def _array_leaf(array: Any, place: Place, key: object, step: str | None) -> Leaf:
    try:
        spell(array.dtype)
    except ZTensorError as error:
        error.message = f"{_inner(place, key, step)}: {error.message}"
        raise
    return Leaf(array, memory_of(array, "numpy"), "numpy")


def memory_of(array: Any, framework: str) -> object:
    """Return what is equal for arrays over the same elements; None for one without elements."""
    if not array.size:
        return None
    place = array.__array_interface__["data"][0]
    return place, array.shape, array.strides, array.dtype, framework == "numpy"


def _inner(place: Place, key: object, step: str | None) -> Place:
    if key is None and step is None:
        return place
    return place.inner(key, step)


def _refused(place: Place, why: str, value: object) -> NotRepresentableError:
    error = NotRepresentableError(
        f"{place}: {why}",
        expected="tensors, arrays, plain values of Python and NumPy, and containers of them",
        found=describe(value, 60) if type(value).__module__ == "builtins" else _type_of(value),
    )
    if hasattr(type(value), "state_dict"):  # a model, an optimizer, a scheduler, a data loader
        error.hint = "save what its state_dict() returns"
    elif isinstance(value, io.BytesIO):
        error.hint = "save an io.BytesIO of its getvalue()"
    elif isinstance(value, np.random.Generator):
        error.hint = "save its bit_generator.state"
    elif isinstance(value, _BUILTIN):
        base = next(kind for kind in _BUILTIN if isinstance(value, kind))
        error.hint = f"types are kept exactly: save {base.__name__}(value), and make it again"
    return error


def _type_of(value: object) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}"
