"""The one place where what a caller calls a file becomes text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe

if TYPE_CHECKING:
    from typing import TypeGuard


def is_path(value: object) -> TypeGuard[str | bytes | os.PathLike[str] | os.PathLike[bytes]]:
    """Return whether a caller names a file with a value, and does not pass the file itself."""
    return isinstance(value, (str, bytes, os.PathLike))


def path_text(path: Any) -> str:
    """Return a path as text.

    Args:
        path: text, bytes, or an object that has one as its path.

    Raises:
        ArgumentTypeError: it is none of these.
        ArgumentValueError: it is empty, or no system has a file of that name.
    """
    try:
        text = os.fsdecode(path)
    except (TypeError, UnicodeDecodeError) as error:
        raise ArgumentTypeError(
            "this is no path", expected="text, or an object with a path", found=describe(path, 40)
        ) from error
    fault = "a NUL" if "\0" in text else "" if text else "nothing"
    if not fault:
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            fault = "a character that is no text: a lone surrogate"
    if fault:
        raise ArgumentValueError(
            "no file can have this path", expected="the name of a file", found=fault, file=text
        )
    return text
