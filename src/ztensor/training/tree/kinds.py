"""What a tree keeps of each exact type: one table, with NumPy and the standard library only.

A type is looked up exactly, never by `isinstance`: a bool is an int, a Counter a dict and NumPy's
float64 a float, and each has to come back as what it was. What is not a kind of node by itself is
`Made` of something that is. A type of a framework is told by the framework's adapter.
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

# Keys are hashed, which recurses, and keys of one hash take quadratic time. So both are limited,
# for saving and for loading. So many nodes may be open within a key, one in the other: what a set
# is made of, its tuple, is the first; a value that is made of a tuple counts twice.
KEY_DEPTH = 33
# So many keys of one dict may have one hash: the integers of 64 bits have eight at most.
MOST_ALIKE = 64


def are_spread(keys: Collection[Any]) -> bool:
    """Return whether keys have hashes that a dict of them is made from in linear time.

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
        stored: what is written, or what the writer asks an adapter for.
        memory: equal for two leaves over the same elements; None where only the same object is.
        framework: whose value it is, as `ztensor.io.frameworks` calls it; "numpy", and "" for a
            `ztensor.Tensor`.
        name: the object it is already; None names it by the keys on the way to it.
    """

    stored: Any
    memory: object
    framework: str
    name: str | None = None


class Made(NamedTuple):
    """A value that is told by the name of its type, and by another value.

    Attributes:
        name: the type's name, by which `MAKERS` or a framework's adapter finds it again.
        of: what it is made of.
    """

    name: str
    of: Any


class Kind(NamedTuple):
    """A type whose values are `Made` of others.

    Attributes:
        name: the type's name in files.
        split: gives what a value is made of.
        takes: the exact type of that; of a tuple the types of its items, `object` for any.
        join: gives the value again, of that or of the items of that tuple.
    """

    name: str
    split: Callable[[Any], Any]
    takes: type | tuple[type, ...]
    join: Callable[..., Any]

    def make(self, of: Any) -> Any:
        """Return a value of what a file says that it is made of.

        Raises:
            FormatError: that is something else.
        """
        items, kinds = (of, self.takes) if type(self.takes) is tuple else ((of,), (self.takes,))
        is_right = type(items) is tuple and len(items) == len(kinds)
        if not is_right or not all(
            kind is object or type(item) is kind for item, kind in zip(items, kinds, strict=True)
        ):
            raise malformed("a value is made of something else", describe(of, 60))
        return self.join(*items)


# What a defaultdict may make: nothing of a file is ever called by a name that is not here.
_FACTORIES: dict[str | None, Any] = {
    None: None,
    **{
        kind.__name__: kind
        for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set)
    },
}


def _state_dict(entries: dict[Any, Any], metadata: object) -> Any:
    result: Any = OrderedDict(entries)
    result._metadata = metadata  # where torch looks for the versions of its modules
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
            "a defaultdict whose factory is code of its own cannot be kept; save dict(value)",
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
            found="a closed one" if value.closed else describe(sorted(vars(value)), 60),
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
        raise malformed("a namespace has a name that is no text", describe(list(names), 60))
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
    return int(text, 16)  # which is read in linear time, unlike decimals


# Those of an exact type. None of them imports, or calls what a file names.
KINDS: dict[type, Kind] = {
    int: Kind("int", hex, str, _from_hex),  # those of more than 64 bits: others are nodes
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

# Name to what makes the value again.
MAKERS: dict[str, Callable[[Any], Any]] = {
    kind.name: kind.make for kind in (*KINDS.values(), _ARGUMENTS, _STATE_DICT, _SCALAR, _DTYPE)
}
# Those whose items are looked up by their hash.
HASHING = frozenset(["set", "frozenset"])


def form_of(value: object) -> Made | None:
    """Return what a value is made of, or None where neither Python's nor NumPy's types tell.

    Raises:
        NotRepresentableError: its type is known, but not all that it holds can be kept.
    """
    type_ = type(value)
    kind = KINDS.get(type_)
    if type_ is OrderedDict and vars(value):
        kind = _STATE_DICT
    elif (type_.__module__, type_.__qualname__) == ("argparse", "Namespace"):  # loaded where used
        kind = _ARGUMENTS
    elif isinstance(value, np.generic) and type_.__module__ in ("numpy", "ml_dtypes"):
        kind = _SCALAR
    elif isinstance(value, np.dtype):
        kind = _DTYPE
    return None if kind is None else Made(kind.name, kind.split(value))
