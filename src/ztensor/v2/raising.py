"""Errors of ours that are also what the 2.x releases raise in their place.

They raise `ValueError` for all that is wrong with a file or a call, `KeyError` for names,
`TypeError` for arguments, `OSError` for the system's errors. Most classes of ours are these, too;
those that are not become one that is.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, NoReturn, TypeVar

from ztensor.errors import ClosedError, LimitError, UnsupportedError, UsageError, ZTensorError

_Raising = TypeVar("_Raising")


class ReleaseClosedError(ClosedError, ValueError):
    """What is used was closed or finished before."""


class ReleaseUnsupportedError(UnsupportedError, ValueError):
    """The bytes are of an encoding, a type or a version that is not known."""


class ReleaseUsageError(UsageError, ValueError):
    """The call asks for what cannot be."""


_ALSO: tuple[tuple[type[ZTensorError], type[ZTensorError]], ...] = (
    (ClosedError, ReleaseClosedError),
    (UnsupportedError, ReleaseUnsupportedError),
    (UsageError, ReleaseUsageError),
)
_AS_THEY_ARE = (ValueError, KeyError, TypeError, BufferError, ImportError, LimitError)


def raise_as_release(error: ZTensorError) -> NoReturn:
    """Raise an error as one that the releases' callers catch."""
    if not isinstance(error, _AS_THEY_ARE):
        for kind, also in _ALSO:
            if isinstance(error, kind):
                raised = also.__new__(also)
                raised.args = error.args
                vars(raised).update(vars(error))
                raise raised from error
    raise error


def releasing(thing: _Raising) -> _Raising:
    """Let a function, or all methods and properties of a class, raise as the releases do."""
    if not inspect.isclass(thing):
        wrapped: _Raising = _wrapped(thing)
        return wrapped
    for name, member in list(vars(thing).items()):
        if isinstance(member, property):
            setattr(thing, name, property(_wrapped(member.fget), doc=member.__doc__))
        elif inspect.isfunction(member) and name not in ("__new__", "__del__"):
            setattr(thing, name, _wrapped(member))
    return thing


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except ZTensorError as error:
            raise_as_release(error)

    return call
