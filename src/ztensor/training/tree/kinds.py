"""The table of the types of Python and NumPy that trees keep.

A type is looked up exactly, never by `isinstance`: a bool is an int, a Counter a dict and NumPy's
float64 a float, and each must keep its type. A value that is not a kind of node is `Made` of
another value. Types of a framework are in the framework's adapter.
"""

from __future__ import annotations

import collections
import datetime
import functools
import io
import pathlib
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import NotRepresentableError, UnsupportedError, ZTensorError, describe
from ztensor.ext import numpy_dtype, spell
from ztensor.training.tree.columns import malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# Hashing recurses, and keys of one hash take quadratic time. So both are limited, for saving and
# for loading. This is the limit of nested nodes in a key: the tuple of a set is the first, and a
# value that is made of a tuple counts twice.
KEY_DEPTH = 33
# Keys of a dict that may have one hash; up to eight 64-bit integers do.
MOST_ALIKE = 64


def are_spread(keys: Collection[Any]) -> bool:
    """Return whether a dict of these keys is made in linear time.

    Raises:
        TypeError: a key cannot be hashed.
    """
    if len(keys) <= MOST_ALIKE:
        return True
    hashes = collections.Counter(map(hash, keys))
    return len(hashes) == len(keys) or max(hashes.values()) <= MOST_ALIKE


class Leaf(NamedTuple):
    """A value that is saved as an object.

    Attributes:
        stored: the value to write, or from which an adapter makes it.
        memory: a key that is equal for leaves over the same elements; None compares identity.
        framework: name of its framework in `ztensor.io.frameworks`, "numpy", or "" for a
            `ztensor.Tensor`.
        name: name of an existing object; None makes a name from the keys that lead to it.
    """

    stored: Any
    memory: object
    framework: str
    name: str | None = None


class Made(NamedTuple):
    """A value that is saved as the name of its type and another value.

    Attributes:
        name: the type's name in `MAKERS` or a framework's adapter.
        of: the value that it is made of.
    """

    name: str
    of: Any


class Kind(NamedTuple):
    """A type whose values are `Made` of others.

    Attributes:
        name: the type's name in files.
        split: returns the value that a value is made of.
        takes: the exact type of that value; for a tuple the types of its items, `object` for any.
        join: makes the value again, from that value or from the items of that tuple.
    """

    name: str
    split: Callable[[Any], Any]
    takes: type | tuple[type, ...]
    join: Callable[..., Any]

    def make(self, of: Any) -> Any:
        """Make a value from the value in a file.

        Raises:
            FormatError: that has another type.
        """
        items, kinds = (of, self.takes) if type(self.takes) is tuple else ((of,), (self.takes,))
        is_right = type(items) is tuple and len(items) == len(kinds)
        if not is_right or not all(
            kind is object or type(item) is kind for item, kind in zip(items, kinds, strict=True)
        ):
            raise malformed("a value is made of a wrong type", describe(of))
        return self.join(*items)


# Factories of defaultdicts; a file cannot name any other.
_FACTORIES: dict[str | None, Any] = {
    None: None,
    **{
        kind.__name__: kind
        for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set)
    },
}


def _state_dict(entries: dict[Any, Any], metadata: object) -> Any:
    result: Any = OrderedDict(entries)
    result._metadata = metadata  # torch reads the versions of its modules there
    return result


def _state_dict_parts(value: OrderedDict[Any, Any]) -> tuple[object, object]:
    extra = vars(value)
    if extra.keys() != {"_metadata"}:
        raise NotRepresentableError(
            "an OrderedDict with attributes of its own cannot be kept",
            expected="no attribute, or the _metadata of a state dict",
            found=describe(sorted(map(str, extra)), 60),
        )
    return dict(value), extra["_metadata"]


def _defaulting_parts(value: collections.defaultdict[Any, Any]) -> tuple[object, object]:
    factory: Any = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if _FACTORIES.get(name, ...) is not factory:
        raise NotRepresentableError(
            "a defaultdict with a factory that is code cannot be kept; save dict(value)",
            expected=f"one of {', '.join(map(str, _FACTORIES))}",
            found=describe(factory, 60),
        )
    return name, dict(value)


def _defaulting(name: str | None, entries: dict[Any, Any]) -> Any:
    if name not in _FACTORIES:
        raise malformed("a defaultdict has an unknown factory", describe(name))
    return collections.defaultdict(_FACTORIES[name], entries)


def _buffered(value: io.BytesIO) -> bytes:
    if value.closed or vars(value):
        raise NotRepresentableError(
            "a BytesIO that is closed, or has attributes of its own, cannot be kept; save "
            "value.getvalue()",
            expected="an open io.BytesIO without attributes",
            found="a closed one" if value.closed else describe(sorted(vars(value))),
        )
    return value.getvalue()


def _moment_parts(value: datetime.datetime | datetime.time) -> tuple[str, int]:
    if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone:
        raise NotRepresentableError(
            "a time in a zone by name cannot be kept; save value.astimezone(datetime.UTC)",
            expected="no zone, or a fixed offset",
            found=describe(value.tzinfo, 40),
        )
    return value.isoformat(), value.fold


def _moment(kind: Any, text: str, fold: int) -> Any:
    return kind.fromisoformat(text).replace(fold=fold)


def _attributes(value: object) -> dict[str, object]:
    return dict(vars(value))


def _arguments(names: dict[Any, Any]) -> Any:
    import argparse

    return _with_names(argparse.Namespace, names)


def _with_names(kind: Any, names: dict[Any, Any]) -> Any:
    if not all(type(name) is str for name in names):
        raise malformed("a namespace has a name that is not text", describe(list(names), 60))
    result = kind()
    vars(result).update(names)
    return result


def _scalar_parts(value: np.generic) -> tuple[str, bytes]:
    spell(value.dtype)
    return value.dtype.name, value.astype(value.dtype.newbyteorder("<")).tobytes()


def _scalar(name: str, data: bytes) -> Any:
    dtype = _dtype(name)
    if len(data) != dtype.itemsize:
        raise malformed("a scalar has another width than its type", f"{len(data)} bytes")
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)[0]


def _dtype_name(value: np.dtype[Any]) -> str:
    spell(value)
    return value.name


def _dtype(name: str) -> Any:
    try:
        dtype = numpy_dtype(name) if name.isidentifier() else None
        if dtype is not None and dtype.name == name and spell(dtype):
            return dtype
    except ZTensorError as error:
        raise _no_dtype(name) from error
    raise _no_dtype(name)


def _no_dtype(name: str) -> UnsupportedError:
    return UnsupportedError(
        "the tree has an element type that is unknown here", found=describe(name)
    )


def _bounds(value: Any) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def _from_hex(text: str) -> int:
    return int(text, 16)  # parsed in linear time, unlike decimals


# By exact type. None of them imports or calls anything that a file names.
KINDS: dict[type, Kind] = {
    int: Kind("int", hex, str, _from_hex),  # of more than 64 bits; shorter ones are nodes
    complex: Kind("complex", lambda value: (value.real, value.imag), (float, float), complex),
    bytearray: Kind("bytearray", bytes, bytes, bytearray),
    io.BytesIO: Kind("io.BytesIO", _buffered, bytes, io.BytesIO),
    set: Kind("set", tuple, tuple, set),
    frozenset: Kind("frozenset", tuple, tuple, frozenset),
    OrderedDict: Kind("collections.OrderedDict", dict, dict, OrderedDict),
    collections.Counter: Kind("collections.Counter", dict, dict, collections.Counter),
    collections.defaultdict: Kind(
        "collections.defaultdict", _defaulting_parts, (object, dict), _defaulting
    ),
    range: Kind("range", _bounds, (int, int, int), range),
    slice: Kind("slice", _bounds, (object, object, object), slice),
    datetime.datetime: Kind(
        "datetime.datetime",
        _moment_parts,
        (str, int),
        functools.partial(_moment, datetime.datetime),
    ),
    datetime.date: Kind("datetime.date", datetime.date.isoformat, str, datetime.date.fromisoformat),
    datetime.time: Kind(
        "datetime.time", _moment_parts, (str, int), functools.partial(_moment, datetime.time)
    ),
    datetime.timedelta: Kind(
        "datetime.timedelta",
        lambda value: (value.days, value.seconds, value.microseconds),
        (int, int, int),
        datetime.timedelta,
    ),
    type(pathlib.Path()): Kind("pathlib.Path", pathlib.Path.as_posix, str, pathlib.Path),
    pathlib.PurePosixPath: Kind("pathlib.PurePosixPath", str, str, pathlib.PurePosixPath),
    pathlib.PureWindowsPath: Kind("pathlib.PureWindowsPath", str, str, pathlib.PureWindowsPath),
    types.SimpleNamespace: Kind(
        "types.SimpleNamespace",
        _attributes,
        dict,
        functools.partial(_with_names, types.SimpleNamespace),
    ),
}
_ARGUMENTS = Kind("argparse.Namespace", _attributes, dict, _arguments)
_STATE_DICT = Kind("torch state dict", _state_dict_parts, (dict, object), _state_dict)
_SCALAR = Kind("numpy scalar", _scalar_parts, (str, bytes), _scalar)
_DTYPE = Kind("numpy.dtype", _dtype_name, str, _dtype)

# Functions that make values, by name of the type.
MAKERS: dict[str, Callable[[Any], Any]] = {
    kind.name: kind.make for kind in (*KINDS.values(), _ARGUMENTS, _STATE_DICT, _SCALAR, _DTYPE)
}
# Types with hashed items.
HASHING = frozenset(["set", "frozenset"])


def form_of(value: object) -> Made | None:
    """Return the form of a value of Python's or NumPy's types, or None.

    Raises:
        NotRepresentableError: its type is known, but not all of its data can be kept.
    """
    type_ = type(value)
    kind = KINDS.get(type_)
    if type_ is OrderedDict and vars(value):
        kind = _STATE_DICT
    elif (type_.__module__, type_.__qualname__) == (
        "argparse",
        "Namespace",
    ):  # not imported here
        kind = _ARGUMENTS
    elif isinstance(value, np.generic) and type_.__module__ in ("numpy", "ml_dtypes"):
        kind = _SCALAR
    elif isinstance(value, np.dtype):
        kind = _DTYPE
    return None if kind is None else Made(kind.name, kind.split(value))
