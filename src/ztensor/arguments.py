"""Checks of arguments, for the function that acts on them, before it does anything.

Mistakes with a good message of Python (`TypeError: 'int' object is not iterable`) need no check.
"""

from __future__ import annotations

from collections.abc import Collection

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise if an argument is not one of a few values.

    Raises:
        ArgumentValueError: verify must be None, True or False, not 'yes'.
    """
    # Compare types as well: 1 == True.
    for choice in choices:
        if type(value) is type(choice) and value == choice:
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
    """Raise if an argument is neither None nor callable.

    Raises:
        ArgumentTypeError: progress must be a function, not 3.
    """
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be a function, not {describe(value, 40)}")
