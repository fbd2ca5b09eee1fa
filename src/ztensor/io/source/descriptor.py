"""The number of an open file, counted: given back when the last call that uses it is done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import ClosedError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Descriptor:
    """An open file's number, closed with the last reference to this object.

    References are the count of its users: who reads or writes holds one for as long as the call,
    and whoever closes beside him takes away only his own. So the system gives the number to
    another file no sooner than the last call is done. References are counted right in every
    thread, with a GIL or without, in signal handlers, and behind a fork; under a lock they would
    not be.

    Hold one as a local name, and delete that in a `finally`: the traceback of an error would keep
    the file open.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Close it now, whoever uses it: the only way to learn that it failed.

        Raises:
            OSError: as `os.close`.
        """
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        """Close it, unless that was done."""
        try:  # noqa: SIM105  # a context takes longer than the rest
            self.close()
        except (AttributeError, OSError):  # an interpreter at its end has no os
            pass


class OpenFile:
    """A file that is open until it is closed, perhaps by another thread.

    Attributes:
        name: its path, for messages.
    """

    name: str
    _descriptor: Descriptor | None = None

    def in_use(self) -> Descriptor:
        """Return what keeps the file open as long as it is referred to; see `Descriptor`.

        Raises:
            ClosedError: it is closed.
        """
        descriptor = self._descriptor
        if descriptor is None:
            raise ClosedError("the file is closed", file=self.name)
        return descriptor

    def _ask(self, ask: Callable[[int], _T], doing: str = "cannot look at the file") -> _T:
        """Return what a call says that takes the number of the open file.

        Raises:
            ClosedError: it is closed.
            SourceError: the system refused.
        """
        descriptor = self.in_use()
        try:
            return ask(descriptor.number)
        except OSError as error:
            raise SourceError.from_os(error, doing, self.name) from error
        finally:
            del descriptor  # an error's traceback would keep the file open
