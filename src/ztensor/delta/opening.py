"""`open`: a delta of any dialect, found by its content."""

from __future__ import annotations

import os
from typing import Any

from ztensor.delta.changes import Delta
from ztensor.delta.dialects import DIALECTS
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.file import read
from ztensor.ext import path_text
from ztensor.options import require_choice
from ztensor.typing import Openable

_BY_CONTENT = ("slime", "trl")  # deltas of arc have no mark


def open(path: Openable, *, dialect: str | None = None) -> Delta:
    """Return a delta: a mapping from names of tensors to their changes.

    Args:
        path: a delta file, or the folder of a version of slime.
        dialect: `"zt"`, `"slime"`, `"trl"` or `"arc"`; None finds it by content, except `"arc"`,
            which has no mark.

    Raises:
        DeltaError: it is not a delta, or malformed.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    delta = find(path, dialect)
    if delta is not None:
        return delta
    text = path_text(path)
    error = DeltaError("the file is not a delta", reason=DeltaReason.DIALECT, file=text)
    if DIALECTS["arc"].is_one(text):
        error.hint = "it may be one of arc: dialect='arc' (`--dialect arc`) reads it"
    raise error


def find(path: Any, dialect: str | None = None) -> Delta | None:
    """Return a delta, or None if the file or folder is none; see `open`."""
    require_choice("dialect", dialect, (None, "zt", *DIALECTS))
    text = path_text(path)
    if dialect not in (None, "zt"):
        return DIALECTS[str(dialect)].read(text)
    is_folder = os.path.isdir(text)
    delta = None if is_folder else read(path)
    for word in _BY_CONTENT if delta is None and dialect is None else ():
        if DIALECTS[word].is_one(text):
            return DIALECTS[word].read(text)
    return delta
