"""Checks of arguments, called by the function that acts on them before it does anything.

What Python says well by itself (`TypeError: 'int' object is not iterable`) is left to Python.
"""

from __future__ import annotations

from collections.abc import Collection

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise if an argument is not one of a few values.

    Raises:
        ArgumentValueError: verify must be None, True or False, not 'yes'.
    """
    # 1 == True, and is not what was asked for.
    for one in choices:
        if type(value) is type(one) and value == one:
            return
    *most, last = map(repr, choices)
    raise ArgumentValueError(
        f"{name} must be {', '.join(most)} or {last}, not {describe(value, 40)}"
    )


def require_kind(name: str, value: object, kind: type, kind_name: str) -> None:
    """Raise if an argument is of another class.

    Raises:
        ArgumentTypeError: limits must be a ztensor.Limits, not 3.
    """
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be {kind_name}, not {describe(value, 40)}")


def require_function(name: str, value: object) -> None:
    """Raise if an argument is neither None nor something that can be called.

    Raises:
        ArgumentTypeError: progress must be a function, not 3.
    """
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be a function, not {describe(value, 40)}")
