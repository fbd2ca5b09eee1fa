"""A place in the header of a GGUF file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ztensor.errors import ContainerError, LimitError, Reason, describe
from ztensor.ext import Source
from ztensor.formats.gguf.types import SECTION, broken
from ztensor.limits import Budget

if TYPE_CHECKING:
    from typing import Literal


TEXT_COST = 64  # bytes of memory of a text, without its characters
# The header of a model is a few MiB, most of it its vocabulary.
_FIRST_READ = 1 << 20
_GROWTH = 4


class Cursor:
    """A position in a header, which is read on demand.

    Attributes:
        at: the offset.
        data: the file's first bytes, as far as they were read.
        order: `<` or `>`, for struct and NumPy.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self.budget, self.limits = source, budget, budget.limits
        self.data = b""
        self.at = 0
        self.order: Literal["<", ">"] = "<"

    def need(self, length: int) -> None:
        """Read at least `length` bytes from `at` into `data`.

        Raises:
            ContainerError: the file is shorter.
            LimitError: the header exceeds `Limits.manifest_bytes`.
        """
        end, have = self.at + length, len(self.data)
        if end <= have:
            return
        source, most = self.source, self.limits.manifest_bytes
        if end > source.size:
            raise ContainerError(
                "the file ends inside its header; it was cut, or a length in it is wrong",
                reason=Reason.TRUNCATED,
                expected=f"{describe(length)} bytes at offset {self.at}",
                found=f"{source.size - self.at}",
                section=SECTION,
            )
        if end > most:
            raise LimitError(
                "the header is longer than Limits.manifest_bytes",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {most} bytes",
                found=f"at least {end}",
            )
        stop = min(max(end, _GROWTH * have, _FIRST_READ), source.size, most)
        self.budget.charge_bytes(2 * stop)  # both halves, and the whole
        self.data += source.read(have, stop - have)
        self.budget.release_bytes(stop + have)

    def require_left(self, count: int, least: int, items: str) -> None:
        """Raise if the rest of the file is too short for `count` items of `least` bytes each.

        Raises:
            ContainerError: it is too short.
        """
        left = self.source.size - self.at
        if count * least > left:
            raise ContainerError(
                f"the file is too short for the {items} that its header counts",
                reason=Reason.TRUNCATED,
                expected=f"at least {count * least} bytes for {count}",
                found=f"{left}",
                section=SECTION,
            )

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next fields, in the file's byte order."""
        record = self.order + form
        return struct.unpack(record, self.raw(struct.calcsize(record)))

    def raw(self, length: int) -> bytes:
        """Return the next bytes."""
        self.need(length)
        self.at += length
        return self.data[self.at - length : self.at]

    def name(self, owner: str) -> str:
        """Return the next string, which must be UTF-8."""
        (length,) = self.take("Q")
        self.need(length)
        with self.budget.lent(TEXT_COST + length):
            text = self.raw(length)
            try:
                return self.budget.text(text)
            except UnicodeDecodeError as error:
                raise broken(f"the name of a {owner} is not UTF-8", found=describe(text)) from error
