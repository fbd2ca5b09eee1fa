"""The guard around code that reads a stranger's bytes.

Parsers raise what their rules say. What no rule foresees, Python raises: an index behind the end, a
number that is too large, text that is none. Where bytes enter, this guard turns that into an error
of ours, so that any bytes give a right result or one error of the family. It is a net: a file that
reaches it shows that a rule is missing, and the fuzzers count it (`Reason.UNFORESEEN`).

Every other exception passes unchanged: an error of the system, which `io/source/` translates, an
exception of the caller's own code, a bug.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, LimitError, Reason, ZTensorError, describe

if TYPE_CHECKING:
    from types import TracebackType

# A UnicodeDecodeError is a ValueError, KeyError and IndexError are LookupErrors, and OverflowError
# is an ArithmeticError.
ON_BAD_BYTES = (struct.error, ValueError, LookupError, ArithmeticError)


class foreign_bytes:  # it reads as a phrase: with foreign_bytes("the file"): ...
    """Turn what Python raises on bad bytes into an error of ours, and tell errors their file.

    Args:
        what: the bytes, as they are called in a sentence: "the file".
        file: path or name of the file, where it is known.
        object_name: the object's name, where it is known.
        component: the component's role, where it is known.
        is_ours: whether the file is of our format, so that errors may cite its specification.
    """

    __slots__ = ("_is_ours", "_place", "_what")

    def __init__(
        self,
        what: str,
        file: str | None = None,
        object_name: str | None = None,
        component: str | None = None,
        *,
        is_ours: bool = True,
    ) -> None:
        self._what = what
        self._place = file, object_name, component
        self._is_ours = is_ours

    def __enter__(self) -> None:
        """Begin; nothing is done."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        ours = error if isinstance(error, ZTensorError) else error_of(error, self._what)
        if ours is None:
            return
        self.locate(ours)
        if ours is not error:
            raise ours from error

    def locate(self, error: ZTensorError) -> None:
        """Fill in where an error comes from."""
        file, object_name, component = self._place
        error.locate(file=file, object_name=object_name, component=component)
        if not self._is_ours:
            error.forget_sections()


def error_of(error: BaseException, what: str) -> ZTensorError | None:
    """Return the error of ours for an exception that bad bytes cause; None for any other."""
    if isinstance(error, RecursionError):
        deep = LimitError(f"{what} needs a deeper stack than is left", reason=Reason.LIMIT_STACK)
        deep.hint = "read it where fewer calls are open, or raise sys.setrecursionlimit"
        return deep
    if isinstance(error, MemoryError):
        import traceback  # which takes a millisecond to load

        traceback.clear_frames(error.__traceback__)  # gives back what they had allocated
        message = f"{what} needs more memory than there is"
        return LimitError(message, reason=Reason.LIMIT_MEMORY, found=describe(str(error)))
    if isinstance(error, ON_BAD_BYTES):
        return FormatError(
            f"{what} is malformed in a way that no rule names",
            reason=Reason.UNFORESEEN,
            found=f"{type(error).__name__} {describe(str(error), 200)}",
        )
    return None
