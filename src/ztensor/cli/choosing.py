"""Which objects a verb is about: the patterns every verb takes that can be about many."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.errors import ObjectNotFoundError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Only names that match, * being any text; may be repeated."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="No names that match; may be repeated.")
]


def keeps(
    include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> Callable[[str], bool]:
    """Return what says of a name whether it matches one of `include`, if any, and no `exclude`.

    Args:
        include: patterns with `*`, `?` and `[...]`; `*` matches dots and slashes too.
        exclude: likewise.
    """
    included = [re.compile(fnmatch.translate(pattern)) for pattern in include or ()]
    excluded = [re.compile(fnmatch.translate(pattern)) for pattern in exclude or ()]

    def keep(name: str) -> bool:
        if included and not any(pattern.match(name) for pattern in included):
            return False
        return not any(pattern.match(name) for pattern in excluded)

    return keep


def chosen(
    sources: Sequence[Collection[str]],
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[str]:
    """Return the names that patterns choose, of one reader or several, or of what has names.

    Raises:
        ObjectNotFoundError: none does, so that a slip of the pen is no success.
    """
    keep = keeps(include, exclude)
    names = list(dict.fromkeys(name for source in sources for name in source if keep(name)))
    if not names and (include or exclude):
        raise ObjectNotFoundError(
            f"no name among {sum(map(len, sources))} matches",
            file=getattr(sources[0], "name", None),
            found=", ".join(map(describe, include or ())) or "everything excluded",
        )
    return names
