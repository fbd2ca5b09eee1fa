"""Translate our errors to classes that callers of the 2.x releases catch.

The releases raise `ValueError` for any fault of a file or a call, `KeyError` for names,
`TypeError` for arguments, `OSError` for the system's errors. Most of our classes derive from the
same one; the others are raised as a subclass that does.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, NoReturn, TypeVar

from ztensor.errors import ClosedError, LimitError, UnsupportedError, UsageError, ZTensorError

_Raising = TypeVar("_Raising")


class ReleaseClosedError(ClosedError, ValueError):
    """The source or writer is closed."""


class ReleaseUnsupportedError(UnsupportedError, ValueError):
    """The file has an unknown encoding, type or version."""


class ReleaseUsageError(UsageError, ValueError):
    """The call is impossible."""


_ALSO: tuple[tuple[type[ZTensorError], type[ZTensorError]], ...] = (
    (ClosedError, ReleaseClosedError),
    (UnsupportedError, ReleaseUnsupportedError),
    (UsageError, ReleaseUsageError),
)
_AS_THEY_ARE = (ValueError, KeyError, TypeError, BufferError, ImportError, LimitError)


def raise_as_release(error: ZTensorError) -> NoReturn:
    """Raise an error as a class that callers of the releases catch."""
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
