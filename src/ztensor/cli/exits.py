"""The exit codes, and a table from families of errors to codes."""

from __future__ import annotations

import enum

from ztensor.errors import FormatError, LimitError, UnsupportedError, UsageError, ZTensorError


class ExitCode(enum.IntEnum):
    """How a command ended. Codes are stable; with several files the highest one counts."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNSUPPORTED = 3
    CORRUPT = 4
    UNCHECKED = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @property
    def meaning(self) -> str:
        """Return the sentence that help and documentation give."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "damage, differences or NaN found; or a file cannot be read or written",
    ExitCode.USAGE: "wrong arguments, or no object of that name",
    ExitCode.UNSUPPORTED: "a version, type, encoding or layout this release does not know",
    ExitCode.CORRUPT: "input that is damaged, unsafe or of no known format",
    ExitCode.UNCHECKED: "with --require-digests: some bytes have no digest",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
    ExitCode.BROKEN_PIPE: "the program that reads the output ended, as `head` does",
}

# The first family that matches decides; the code of other errors is FAILED.
_FAMILIES: tuple[tuple[type[ZTensorError], ExitCode], ...] = (
    (FormatError, ExitCode.CORRUPT),
    (LimitError, ExitCode.CORRUPT),
    (UnsupportedError, ExitCode.UNSUPPORTED),
    (UsageError, ExitCode.USAGE),
)


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    for family, code in _FAMILIES:
        if isinstance(error, family):
            return code
    return ExitCode.FAILED
