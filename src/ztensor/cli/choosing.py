"""Which objects a verb is about: the patterns every verb takes that can be about many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.errors import ObjectNotFoundError, describe
from ztensor.reading.names import keeps

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Only names that match, * being any text; may be repeated."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="No names that match; may be repeated.")
]


def chosen(
    sources: Sequence[Collection[str]],
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[str]:
    """Return the names that patterns choose, of one reader or several, or of what has names.

    Raises:
        ObjectNotFoundError: none does, so that a slip of the pen is no success.
    """
    keep = keeps(include or None, exclude)
    names = list(dict.fromkeys(name for source in sources for name in source if keep(name)))
    if not names and (include or exclude):
        raise ObjectNotFoundError(
            f"no name among {sum(map(len, sources))} matches",
            file=getattr(sources[0], "name", None),
            found=", ".join(map(describe, include or ())) or "everything excluded",
        )
    return names
