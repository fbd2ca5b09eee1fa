"""The guard around code that parses untrusted bytes.

Parsers raise the errors of their rules. For a fault without a rule Python raises its own exception:
an index out of range, a number too large, invalid text. Wherever bytes enter, this guard turns such
exceptions into ours, so that any bytes give a right result or an error of the family. A file that
reaches the guard shows a missing rule; fuzzers count it (`Reason.UNFORESEEN`).

All other exceptions pass unchanged: errors of the system (translated in `io/source/`), exceptions
of the caller's code, and bugs.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, LimitError, Reason, ZTensorError, describe

if TYPE_CHECKING:
    from types import TracebackType

# A UnicodeDecodeError is a ValueError, KeyError and IndexError are LookupErrors, and OverflowError
# is an ArithmeticError. The last two are of decompressors in encodings of other packages.
ON_BAD_BYTES = (struct.error, ValueError, LookupError, ArithmeticError, zlib.error, EOFError)


class foreign_bytes:  # lower case, as it is used: with foreign_bytes("the file"): ...
    """A context that turns Python's exceptions for bad bytes into ours, and adds their place.

    Args:
        noun: the bytes, for the message: "the file".
        file: path or name of the file; None if unknown.
        object_name: the object's name; None if unknown.
        component: the component's role; None if unknown.
        is_ours: whether the file is a zTensor file; only then errors cite its specification.
    """

    __slots__ = ("_is_ours", "_noun", "_place")

    def __init__(
        self,
        noun: str,
        file: str | None = None,
        object_name: str | None = None,
        component: str | None = None,
        *,
        is_ours: bool = True,
    ) -> None:
        self._noun = noun
        self._place = file, object_name, component
        self._is_ours = is_ours

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        ours = error if isinstance(error, ZTensorError) else error_of(error, self._noun)
        if ours is None:
            return
        self.locate(ours)
        if ours is not error:
            raise ours from error

    def locate(self, error: ZTensorError) -> None:
        """Add file, object and component to an error."""
        file, object_name, component = self._place
        error.locate(file=file, object_name=object_name, component=component)
        if not self._is_ours:
            error.forget_sections()


def error_of(error: BaseException, noun: str) -> ZTensorError | None:
    """Return our error for an exception that bad bytes cause; None for any other exception."""
    if isinstance(error, RecursionError):
        deep = LimitError(f"{noun} needs a deeper stack than is left", reason=Reason.LIMIT_STACK)
        deep.hint = "read it from a shallower call, or raise sys.setrecursionlimit"
        return deep
    if isinstance(error, MemoryError):
        import traceback  # takes a millisecond to import

        traceback.clear_frames(error.__traceback__)  # frees the memory of their variables
        message = f"{noun} needs more memory than there is"
        return LimitError(message, reason=Reason.LIMIT_MEMORY, found=describe(str(error)))
    if isinstance(error, ON_BAD_BYTES):
        return FormatError(
            f"{noun} is malformed in a way that no rule names",
            reason=Reason.UNFORESEEN,
            found=f"{type(error).__name__} {describe(str(error), 200)}",
        )
    return None
