"""The edge of the library: whatever leaves a public call is one error of our family.

Inside, code raises errors of ours for what it foresees, and lets the rest fly: memory that ran out,
a call of the system that failed, a bug. Where the public call began they become ours, once, with
what was raised as their cause. `@public` marks those calls, on a function or on a whole class.

Left as it is: what the caller's own code raised that we called (a progress function, an array of
another library, a file object), Python's `TypeError` of a call with a wrong signature, warnings
that were made errors, `StopIteration`, and all that is no `Exception`, such as `KeyboardInterrupt`.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor.errors import (
    InternalError,
    LimitError,
    MissingDependencyError,
    Reason,
    SourceError,
    ZTensorError,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

_Public = TypeVar("_Public")

_PASSING = (ZTensorError, Warning, StopIteration)
# Libraries that the package itself calls: what is raised in their code is raised by ours.
_LIBRARIES = frozenset(
    [
        "ztensor",
        "PIL",
        "backports",
        "crc32c",
        "flax",
        "h5py",
        "jax",
        "jaxlib",
        "ml_dtypes",
        "numpy",
        "rich",
        "scipy",
        "torch",
        "typer",
        "xxhash",
        "zstandard",
    ]
)
# How libraries say that memory ran out where they do not raise a `MemoryError`.
_NO_MEMORY = (
    "allocate memory",
    "error return without exception set",  # CPython, where there is none for one more frame
    "not enough memory",
    "out of memory",
    "can't start new thread",
    "RESOURCE_EXHAUSTED",
)
# Methods that raise nothing, or what Python's protocols ask for.
_EXEMPT = frozenset(
    [
        "__array_interface__",
        "__class_getitem__",
        "__contains__",
        "__del__",
        "__delattr__",
        "__eq__",
        "__getattr__",
        "__hash__",
        "__init_subclass__",
        "__new__",
        "__setattr__",
    ]
)
_GENERATED = "<string>"  # what dataclasses give as the file of the methods they write
# Flags of a code object, as in `inspect`, which takes longer to load than all of this.
_VARIADIC = 0x04 | 0x08
_GENERATOR = 0x20


def public(thing: _Public) -> _Public:
    """Mark a function, or the public methods and properties of a class, as the library's edge.

    Signature, name and documentation stay those of what is marked. A function that has the edge
    inside itself, since it is called too often for a second one around it, is marked with
    `public_inside` and left alone.
    """
    if not isinstance(thing, type):
        marked: Any = _guarded(thing)
        return marked  # type: ignore[no-any-return]
    for name, member in list(vars(thing).items()):
        if name in _EXEMPT or (name.startswith("_") and not name.endswith("__")):
            continue
        if isinstance(member, (classmethod, staticmethod)):
            setattr(thing, name, type(member)(_guarded(member.__func__)))
        elif isinstance(member, property):
            setattr(thing, name, member.getter(_guarded(member.fget)))
        elif isinstance(member, FunctionType) and member.__code__.co_filename != _GENERATED:
            setattr(thing, name, _guarded(member))
    return thing


def public_inside(function: _Public) -> _Public:
    """Mark a function whose body hands what escapes to `turn` by itself."""
    vars(function)["is_public"] = True
    return function


def turn(error: Exception) -> None:
    """Raise the error of ours that something escaping from a public call becomes.

    To be called where it was caught, and followed by `raise`: this returns for what passes as it
    is.

    Raises:
        ZTensorError: what it becomes, with `error` as its cause.
    """
    if isinstance(error, InternalError):  # of a public function that this one called
        mistake = _mistake_of_caller(error.__traceback__)
        if mistake is not None:
            raise mistake from error.__cause__
    if isinstance(error, _PASSING):
        return
    try:
        ours = None if _is_of_caller(error) else _ours(error)
    except RecursionError:  # one frame was left, for this function: no other can be called
        ours = LimitError.__new__(LimitError, *_TOO_DEEP.args)
        vars(ours).update(vars(_TOO_DEEP))
    if ours is not None:
        raise ours from error


def _guarded(function: Any) -> Any:
    """Return the function with the edge around it."""
    if hasattr(function, "is_public"):
        return function
    code = function.__code__
    is_plain = not (code.co_kwonlyargcount or code.co_flags & (_VARIADIC | _GENERATOR))
    edge: Any
    if code.co_flags & _GENERATOR:
        edge = _around_generator(function)
    elif is_plain and code.co_argcount == 1:
        edge = _renamed(_around_one(function), function)
    elif is_plain and code.co_argcount == 2 and not function.__defaults__:
        edge = _renamed(_around_two(function), function)
    else:
        edge = _around(function)
    return public_inside(functools.wraps(function)(edge))


def _renamed(edge: Any, function: Any) -> Any:
    """Give the edge's parameters the function's names, so that they can be passed by name."""
    count, own = function.__code__.co_argcount, edge.__code__.co_varnames
    names = function.__code__.co_varnames[:count] + own[count:]
    edge.__code__ = edge.__code__.replace(co_varnames=names)
    return edge


# One edge for each form of call: passing on `*args` and `**kwargs` costs more than all the rest.


def _around_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def edge(one: Any) -> Any:
        try:
            return function(one)
        except Exception as error:
            turn(error)
            raise

    return edge


def _around_two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def edge(one: Any, two: Any) -> Any:
        try:
            return function(one, two)
        except Exception as error:
            turn(error)
            raise

    return edge


def _around(function: Callable[..., Any]) -> Callable[..., Any]:
    def edge(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            turn(error)
            raise

    return edge


def _around_generator(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def edge(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except Exception as error:
            turn(error)
            raise

    return edge


def _is_of_caller(error: Exception) -> bool:
    """Return whether an exception is the caller's: of code of his that ours called, or of the call.

    Frames say whose code raised it. Python's own modules are nobody's: they stand between ours and
    the caller's where he hands us a mapping, or ours works in threads.
    """
    last, trace = "ztensor", error.__traceback__
    while trace is not None:
        if trace.tb_next is None and trace.tb_frame.f_globals is globals():
            return isinstance(error, TypeError)  # what the edge is around did not begin: signature
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package in _LIBRARIES:
            last = package
        elif package not in sys.stdlib_module_names and last == "ztensor":
            return True
        trace = trace.tb_next
    return False


def _ours(error: Exception) -> ZTensorError:
    """Return what an exception that nobody foresaw is in our family."""
    if isinstance(error, RecursionError):
        ours = LimitError(_TOO_DEEP.message, reason=Reason.LIMIT_STACK)
        ours.hint = _TOO_DEEP.hint
        return ours
    text = describe(str(error), 200)
    call = _name_of_call(error.__traceback__)
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        import traceback

        traceback.clear_frames(error.__traceback__)  # gives back what the call had allocated
        return LimitError(
            f"{call} needs more memory than there is", reason=Reason.LIMIT_MEMORY, found=text
        )
    if isinstance(error, OSError):
        file = error.filename
        return SourceError.from_os(error, f"{call} failed", file if isinstance(file, str) else None)
    mistake = _mistake_of_caller(error.__traceback__)
    if mistake is not None:
        return mistake
    if isinstance(error, ImportError):
        return MissingDependencyError(f"a library that {call} needs cannot be loaded", found=text)
    unforeseen = InternalError(
        f"{call} failed where nothing should fail", found=f"{type(error).__name__} {text}"
    )
    unforeseen.hint = "this is a bug in ztensor: please report it with the traceback"
    return unforeseen


def _mistake_of_caller(trace: TracebackType | None) -> ZTensorError | None:
    """Return the error of a call with an argument that is not what its annotation says, if any."""
    if trace is None:
        return None
    from ztensor.arguments import wrong_argument

    found, code = trace.tb_frame.f_locals, trace.tb_frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if trace.tb_frame.f_globals is not globals():  # a method marked with `public_inside`
        function = getattr(type(found[names[0]]), code.co_name)
        return wrong_argument(function, (), {name: found[name] for name in names})
    args = found.get("args", [found[name] for name in names])
    return wrong_argument(found["function"], args, found.get("kwargs", {}))


_TOO_DEEP = LimitError(
    "the call needs a deeper stack than Python has left", reason=Reason.LIMIT_STACK
)
_TOO_DEEP.hint = "make it where fewer calls are open, or raise sys.setrecursionlimit"


def _name_of_call(trace: TracebackType | None) -> str:
    """Return the name of the outermost function of ours that is not the edge around it."""
    while trace is not None:
        if trace.tb_frame.f_globals is not globals():
            return f"{trace.tb_frame.f_code.co_qualname}()"
        trace = trace.tb_next
    return "the call"
