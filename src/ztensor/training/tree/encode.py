"""A tree to its shape and its leaves: one loop with a stack, so that no depth is too deep."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor import Tensor
from ztensor.errors import NotRepresentableError, ZTensorError, describe
from ztensor.ext import FRAMEWORKS, no_collection, spell
from ztensor.training.tree.adapters import tree_adapter
from ztensor.training.tree.columns import Columns, Node
from ztensor.training.tree.kinds import (
    KEY_DEPTH,
    KINDS,
    MOST_ALIKE,
    Leaf,
    Made,
    are_spread,
    form_of,
)
from ztensor.training.tree.names import ROOT, Place, named, unique
from ztensor.training.tree.record import fields_of
from ztensor.training.tree.stored import ATTRIBUTE, stored_shape

if TYPE_CHECKING:
    from collections.abc import Callable

# Shorter lists of numbers are not packed.
_LEAST_PACKED = 4
_INT64 = range(-(1 << 63), 1 << 63)

_SINGLE = {type(None): Node.NONE, bool: Node.FALSE, int: Node.INT, float: Node.FLOAT}
_BUILTIN = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_PACKED: dict[tuple[type, type], Node] = {
    (list, int): Node.INT_LIST,
    (tuple, int): Node.INT_TUPLE,
    (list, float): Node.FLOAT_LIST,
    (tuple, float): Node.FLOAT_TUPLE,
}


class Encoded(NamedTuple):
    """An encoded tree.

    Attributes:
        shape: the bytes of `columns.py`.
        leaves: arrays and tensors by object name.
    """

    shape: bytes
    leaves: dict[str, Any]

    @property
    def attribute(self) -> dict[str, object]:
        """Return the attribute for a file of the leaves, by its key."""
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
        self._held: list[object] = []  # kept alive, so that ids stay valid
        self._forms: dict[type, Callable[[Any], Leaf | Made | None]] = {}

    def encoded(self, tree: object) -> Encoded:
        """Return the encoded tree."""
        self._walk(tree)
        try:
            return Encoded(self._columns.packed(), self._leaves)
        except UnicodeEncodeError as error:
            raise NotRepresentableError(
                "a text of the tree has a lone surrogate, which no file can hold",
                found=describe(error.object[error.start : error.start + 20]),
            ) from error

    def _walk(self, tree: Any, depth: int = 0) -> None:
        """Append a value with its contents.

        Args:
            tree: the value.
            depth: its depth in a key, as `KEY_DEPTH` counts; 0 outside of keys. Errors then have
                the place of the value.
        """
        kinds = self._columns.kinds
        stack: list[tuple[Any, Place, int, int]] = []
        inside: set[int] = set()
        entries: Any = iter(((None, tree),))
        place, identity, within = ROOT, 0, depth
        key: object = None
        try:
            while True:
                for step, value in entries:
                    key = step
                    if depth:
                        _require_hashed(value)
                    count = len(kinds)
                    inner = self._node(value, key, place, within)
                    if inner is None:
                        key = None  # errors of the iterator are about the container
                        continue
                    # A value that contains itself comes again; the parts of made values are new.
                    if id(value) in inside:
                        raise _refused("it contains itself", value)
                    stack.append((entries, place, identity, within))
                    if depth:
                        within += len(kinds) - count
                        _require_depth(within - 1, value)
                    identity = id(value)
                    inside.add(identity)
                    entries, place = inner, place.inner(key, is_record=kinds[-1] == Node.RECORD)
                    key = None
                    break
                else:
                    inside.discard(identity)
                    if not stack:
                        return
                    entries, place, identity, within = stack.pop()
        except ZTensorError as error:
            if not depth:
                error.message = f"{place.inner(key)}: {error.message}"
            raise

    def _node(self, value: Any, key: object, place: Place, depth: int) -> Any:
        """Append one node; return an iterator over its contents, or None."""
        columns, kind = self._columns, type(value)
        if kind is np.ndarray:
            spell(value.dtype)
            self._leaf(Leaf(value, memory_of(value, "numpy"), "numpy"), key, place, depth)
        elif kind is str:
            columns.kinds.append(Node.TEXT)
            columns.words.append(columns.word(value))
        elif kind in _SINGLE and (kind is not int or value in _INT64):
            if kind is int:
                columns.ints.append(value)
            elif kind is float:
                columns.floats.append(value)
            columns.kinds.append(Node.TRUE if value is True else _SINGLE[kind])
        elif kind is dict:
            return self._entries(value)
        elif kind is list or kind is tuple:
            return self._items(value, kind, is_key=depth > 0)
        elif kind is set or kind is frozenset:
            self._set(value, KINDS[kind].name, depth)
        elif kind is bytes:
            columns.kinds.append(Node.BYTES)
            columns.byte_strings.append(value)
        else:
            return self._other(value, key, place, depth)
        return None

    def _entries(self, value: dict[Any, Any]) -> Any:
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
            return self._with_keys(value)
        return iter(value.items())

    def _with_keys(self, value: dict[Any, Any]) -> Any:
        _require_spread(value)
        seen: set[bytes] = set()
        for key, item in value.items():
            self._key(key, 1, seen)
            yield key, item

    def _items(self, value: Any, kind: type, *, is_key: bool) -> Any:
        columns = self._columns
        columns.counts.append(len(value))
        can_be_packed = len(value) >= _LEAST_PACKED and not is_key
        kinds = set(map(type, value)) if can_be_packed else set()
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
        return enumerate(value)

    def _set(self, value: Any, name: str, depth: int) -> None:
        _require_depth(depth + 1, value)
        _require_spread(value)
        self._made(name, is_tuple=True, count=len(value))
        seen: set[bytes] = set()
        for item in self._sorted(value, depth + 2):
            self._key(item, depth + 2, seen)

    def _made(self, name: str, *, is_tuple: bool, count: int = 0) -> None:
        columns = self._columns
        columns.kinds.append(Node.MADE)
        columns.words.append(columns.word(name))
        if is_tuple:
            columns.kinds.append(Node.TUPLE)
            columns.counts.append(count)

    def _other(self, value: Any, key: object, place: Place, depth: int) -> Any:
        """Append a node of another type: of our table, of a framework, or with fields."""
        columns, kind = self._columns, type(value)
        form_of_kind = self._forms.get(kind)
        if form_of_kind is None:
            form_of_kind = self._forms[kind] = _form_function(value)
        form = form_of_kind(value)
        if type(form) is Leaf:
            self._held.append(value)
            self._leaf(form, key, place, depth)
            return None
        if isinstance(form, Made):  # the part of a made value has no key
            if type(form.of) is not tuple:
                self._made(form.name, is_tuple=False)
                return iter(((None, form.of),))
            self._made(form.name, is_tuple=True, count=len(form.of))
            return ((None, item) for item in form.of)
        fields = fields_of(value)
        if fields is None:
            raise _refused("no file can hold a value of its type", value)
        columns.kinds.append(Node.RECORD)
        columns.counts.append(len(fields.values))
        columns.words.extend(map(columns.word, (fields.sort, fields.class_name, *fields.values)))
        return iter(fields.values.items())

    def _leaf(self, leaf: Leaf, key: object, place: Place, depth: int) -> None:
        if depth:
            raise _refused("a key cannot be a tensor", leaf.stored)
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
        columns.kinds.append(Node.LEAF)
        columns.counts.append(number)
        columns.words.append(columns.word(leaf.framework))

    def _key(self, key: Any, depth: int, seen: set[bytes]) -> None:
        """Append a key; raise if another key of the dict or set would be equal once loaded.

        Args:
            key: the key of a dict, or an element of a set.
            depth: as for `_walk`.
            seen: encoded keys with records; this one is added.
        """
        kinds = self._columns.kinds
        start = len(kinds)
        self._walk(key, depth)
        if Node.RECORD in kinds[start:]:  # a class may distinguish values with equal fields
            alone = self._alone(key, depth)
            if alone in seen:
                raise _refused("two keys would be equal once they are loaded", key)
            seen.add(alone)

    def _sorted(self, elements: Any, depth: int) -> list[Any]:
        """Return the elements of a set in an order that is the same for equal sets."""
        kinds = set(map(type, elements))
        if len(kinds) == 1 and kinds <= {int, str, bytes}:
            return sorted(elements)
        return sorted(elements, key=lambda element: self._alone(element, depth))

    def _alone(self, key: Any, depth: int) -> bytes:
        """Return a key encoded by itself; cached, since sets may be nested."""
        encoded = self._alones.get(id(key))
        if encoded is None:
            encoder = _Encoder(self._alones)
            encoder._walk(key, depth)
            encoded = self._alones[id(key)] = encoder._columns.packed()
        return encoded


def _form_function(value: Any) -> Callable[[Any], Leaf | Made | None]:
    """Return the function that returns the form of values of this exact type."""
    kind = type(value)
    if kind is Leaf or kind is Made:
        return lambda form: form
    if kind is Tensor:
        return lambda tensor: Leaf(tensor, None, "")
    if form_of(value) is not None:
        return form_of
    trees = tree_adapter(FRAMEWORKS.name_of(value))
    return _array_form if trees is None else trees.tree_form


def _array_form(value: Any) -> Leaf | None:
    # Arrays of a framework without a tree adapter become NumPy arrays.
    home = FRAMEWORKS.adapter_of(value)
    return None if home is None else Leaf(home.stored(value), ("", id(value)), "numpy")


def memory_of(array: Any, framework: str) -> object:
    """Return a key that is equal for arrays over the same elements; None for empty arrays."""
    if not array.size:
        return None
    place = array.__array_interface__["data"][0]
    return place, array.shape, array.strides, array.dtype, framework == "numpy"


def _require_depth(depth: int, key: object) -> None:
    if depth > KEY_DEPTH:
        raise _refused(f"a key is nested deeper than {KEY_DEPTH} levels", key)


def _require_hashed(value: object) -> None:
    """Raise if a key could not be hashed once loaded, when its fields are hashed."""
    try:
        hash(value)
    except TypeError:
        raise _refused("a key has a value in it that cannot be hashed", value) from None


def _require_spread(keys: Any) -> None:
    if not are_spread(keys):
        raise _refused(f"more than {MOST_ALIKE} of its keys have one hash", keys)


def _refused(why: str, value: object) -> NotRepresentableError:
    kind = type(value)
    error = NotRepresentableError(
        why,
        expected="tensors, arrays, plain values of Python and NumPy, and containers of them",
        found=describe(value, 60)
        if kind.__module__ == "builtins"
        else f"a {kind.__module__}.{kind.__qualname__}",
    )
    if hasattr(kind, "state_dict"):  # a model, an optimizer, a scheduler, a data loader
        error.hint = "save the result of its state_dict()"
    elif isinstance(value, io.BytesIO):
        error.hint = "save an io.BytesIO of its getvalue()"
    elif isinstance(value, np.random.Generator):
        error.hint = "save its bit_generator.state"
    elif isinstance(value, _BUILTIN):
        base = next(kind for kind in _BUILTIN if isinstance(value, kind))
        error.hint = f"types are kept exactly: save {base.__name__}(value), and make it again"
    return error
