"""Which names patterns choose."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def keeps(
    include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> Callable[[str], bool]:
    """Return a name filter: a name matches one of `include` and none of `exclude`.

    Args:
        include: patterns with `*`, `?` and `[...]`; `*` matches dots and slashes too. None lets
            all names in, no pattern none.
        exclude: likewise; None and no pattern leave none out.

    Raises:
        ArgumentTypeError: a pattern is no text.
    """
    included = None if include is None else [_compiled(pattern) for pattern in include]
    excluded = [_compiled(pattern) for pattern in exclude or ()]

    def keep(name: str) -> bool:
        if included is not None and not any(pattern.match(name) for pattern in included):
            return False
        return not any(pattern.match(name) for pattern in excluded)

    return keep


def _compiled(pattern: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):  # also what an iterator gives, which nobody saw before
        raise ArgumentTypeError(
            "a pattern of names is no text",
            expected="a str, such as 'model.*'",
            found=type(pattern).__name__,
        )
    return re.compile(fnmatch.translate(pattern))
