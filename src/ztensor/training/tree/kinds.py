"""What a tree keeps of each exact type: one table, with NumPy and the standard library only.

A type is looked up exactly, never by `isinstance`: a bool is an int, a Counter a dict and NumPy's
float64 a float, and each has to come back as what it was. What is not a kind of node by itself is
`Made` of something that is. A type of a framework is told by the framework's adapter.
"""

from __future__ import annotations

import collections
import datetime
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
    from collections.abc import Callable


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


# What a defaultdict may make: nothing of a file is ever called by a name that is not here.
_FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set)
}


def _large_int(value: int) -> Made:
    return Made("int", hex(value))  # which is read in linear time, unlike decimals


def _ordered(value: OrderedDict[Any, Any]) -> Made:
    extra = vars(value)
    if not extra:
        return Made("collections.OrderedDict", dict(value))
    if extra.keys() != {"_metadata"}:
        raise NotRepresentableError(
            "an OrderedDict with attributes of its own cannot be kept",
            expected="no attribute, or the _metadata of a state dict",
            found=describe(sorted(map(str, extra)), 60),
        )
    return Made("torch state dict", (dict(value), extra["_metadata"]))


def _defaulting(value: collections.defaultdict[Any, Any]) -> Made:
    factory: Any = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise NotRepresentableError(
            "a defaultdict whose factory is code of its own cannot be kept; save dict(value)",
            expected=f"None or one of {', '.join(_FACTORIES)}",
            found=describe(factory, 60),
        )
    return Made("collections.defaultdict", (name, dict(value)))


def _buffer(value: io.BytesIO) -> Made:
    if value.closed or vars(value):
        raise NotRepresentableError(
            "a BytesIO that is closed, or has attributes of its own, cannot be kept; save "
            "value.getvalue()",
            expected="an open io.BytesIO without attributes",
            found="a closed one" if value.closed else describe(sorted(vars(value)), 60),
        )
    return Made("io.BytesIO", value.getvalue())


def _scalar(value: np.generic) -> Made:
    spell(value.dtype)
    return Made(
        "numpy scalar", (value.dtype.name, value.astype(value.dtype.newbyteorder("<")).tobytes())
    )


def _dtype(value: np.dtype[Any]) -> Made:
    spell(value)
    return Made("numpy.dtype", value.name)


def _zone(value: datetime.datetime | datetime.time) -> None:
    if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone:
        raise NotRepresentableError(
            "a time in a zone by name cannot be kept; save value.astimezone(datetime.UTC)",
            expected="no zone, or a fixed offset",
            found=describe(value.tzinfo, 40),
        )


def _moment(value: datetime.datetime) -> Made:
    _zone(value)
    return Made("datetime.datetime", (value.isoformat(), value.fold))


def _time(value: datetime.time) -> Made:
    _zone(value)
    return Made("datetime.time", (value.isoformat(), value.fold))


_ARGUMENTS, _NAMESPACE = "argparse.Namespace", "types.SimpleNamespace"

# Exact type to what makes a node of a value.
PLAIN: dict[type, Callable[[Any], Made]] = {
    complex: lambda value: Made("complex", (value.real, value.imag)),
    bytearray: lambda value: Made("bytearray", bytes(value)),
    io.BytesIO: _buffer,
    OrderedDict: _ordered,
    collections.Counter: lambda value: Made("collections.Counter", dict(value)),
    collections.defaultdict: _defaulting,
    range: lambda value: Made("range", (value.start, value.stop, value.step)),
    slice: lambda value: Made("slice", (value.start, value.stop, value.step)),
    datetime.datetime: _moment,
    datetime.date: lambda value: Made("datetime.date", value.isoformat()),
    datetime.time: _time,
    datetime.timedelta: lambda value: Made(
        "datetime.timedelta", (value.days, value.seconds, value.microseconds)
    ),
    type(pathlib.Path()): lambda value: Made("pathlib.Path", value.as_posix()),
    pathlib.PurePosixPath: lambda value: Made("pathlib.PurePosixPath", str(value)),
    pathlib.PureWindowsPath: lambda value: Made("pathlib.PureWindowsPath", str(value)),
    types.SimpleNamespace: lambda value: Made(_NAMESPACE, dict(vars(value))),
}


def form_of(value: object) -> Made | None:
    """Return what a value is made of, or None where neither Python's nor NumPy's types tell.

    Raises:
        NotRepresentableError: its type is known, but not all that it holds can be kept.
    """
    kind = type(value)
    if kind is int:
        return _large_int(value)  # type: ignore[arg-type]  # those of 64 bits are nodes
    plain = PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    if (kind.__module__, kind.__qualname__) == ("argparse", "Namespace"):  # loaded where it is used
        return Made(_ARGUMENTS, dict(vars(value)))
    if isinstance(value, np.generic) and kind.__module__ in ("numpy", "ml_dtypes"):
        return _scalar(value)
    return _dtype(value) if isinstance(value, np.dtype) else None


# --- And back -------------------------------------------------------------------------------


def _parts(value: object, *kinds: type | tuple[type, ...]) -> Any:
    """Return a tuple whose items are of these exact types; whatever else is not what was saved."""
    if type(value) is not tuple or len(value) != len(kinds):
        raise malformed("a value is made of something else", describe(value, 60))
    for item, kind in zip(value, kinds, strict=True):
        if type(item) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise malformed("a value is made of something else", describe(value, 60))
    return value


def _one(value: object, kind: type) -> Any:
    return _parts((value,), kind)[0]


def _int(value: object) -> int:
    return int(_one(value, str), 16)


def _complex(value: object) -> complex:
    return complex(*_parts(value, float, float))


def _made_ordered(value: object) -> Any:
    return OrderedDict(_one(value, dict))


def _made_state_dict(value: object) -> Any:
    if type(value) is not tuple or len(value) != 2 or type(value[0]) is not dict:
        raise malformed("a state dict is made of something else", describe(value, 60))
    result: Any = OrderedDict(value[0])
    result._metadata = value[1]  # where torch looks for the versions of its modules
    return result


def _made_defaulting(value: object) -> Any:
    name, entries = _parts(value, (str, type(None)), dict)
    if name is not None and name not in _FACTORIES:
        raise malformed("a defaultdict has an unknown factory", describe(name))
    return collections.defaultdict(None if name is None else _FACTORIES[name], entries)


def _made_arguments(value: object) -> Any:
    import argparse

    return _with_names(argparse.Namespace(), value)


def _with_names(namespace: Any, value: object) -> Any:
    names = _one(value, dict)
    if not all(type(name) is str for name in names):
        raise malformed("a namespace has a name that is no text", describe(list(names), 60))
    vars(namespace).update(names)
    return namespace


def _made_scalar(value: object) -> Any:
    name, data = _parts(value, str, bytes)
    dtype = _made_dtype(name)
    if len(data) != dtype.itemsize:
        raise malformed("a scalar has another width than its type", f"{len(data)} bytes")
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)[0]


def _made_dtype(value: object) -> Any:
    name = _one(value, str)
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


def _made_moment(kind: Any) -> Callable[[object], Any]:
    def made(value: object) -> Any:
        text, fold = _parts(value, str, int)
        return kind.fromisoformat(text).replace(fold=fold)

    return made


def _made_range(value: object) -> range:
    return range(*_parts(value, int, int, int))


def _made_slice(value: object) -> slice:
    if type(value) is not tuple or len(value) != 3:
        raise malformed("a slice is made of something else", describe(value, 60))
    return slice(*value)


def _made_set(kind: Any) -> Callable[[object], Any]:
    def made(value: object) -> Any:
        if type(value) is not tuple:
            raise malformed("a set is made of something else", describe(value, 60))
        result = kind(value)
        if len(result) != len(value):
            raise malformed("a set has an element twice")
        return result

    return made


# Name to what makes the value again. None of them imports, or calls what a file names.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "complex": _complex,
    "bytearray": lambda value: bytearray(_one(value, bytes)),
    "io.BytesIO": lambda value: io.BytesIO(_one(value, bytes)),
    "set": _made_set(set),
    "frozenset": _made_set(frozenset),
    "collections.OrderedDict": _made_ordered,
    "collections.Counter": lambda value: collections.Counter(_one(value, dict)),
    "collections.defaultdict": _made_defaulting,
    "torch state dict": _made_state_dict,
    "range": _made_range,
    "slice": _made_slice,
    "numpy scalar": _made_scalar,
    "numpy.dtype": _made_dtype,
    "datetime.datetime": _made_moment(datetime.datetime),
    "datetime.date": lambda value: datetime.date.fromisoformat(_one(value, str)),
    "datetime.time": _made_moment(datetime.time),
    "datetime.timedelta": lambda value: datetime.timedelta(*_parts(value, int, int, int)),
    "pathlib.Path": lambda value: pathlib.Path(_one(value, str)),
    "pathlib.PurePosixPath": lambda value: pathlib.PurePosixPath(_one(value, str)),
    "pathlib.PureWindowsPath": lambda value: pathlib.PureWindowsPath(_one(value, str)),
    _ARGUMENTS: _made_arguments,
    _NAMESPACE: lambda value: _with_names(types.SimpleNamespace(), value),
}
# Those whose items are looked up by their hash.
HASHING = frozenset(["set", "frozenset"])
