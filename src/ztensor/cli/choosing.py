"""Which objects a verb is about: the patterns every verb takes that can be about many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.errors import ObjectNotFoundError, describe, near_names
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
        every = [name for source in sources for name in source]
        raise nothing_matches(every, include, getattr(sources[0], "name", None))
    return names


def nothing_matches(
    names: Sequence[str], patterns: Sequence[str] | None, file: str | None = None
) -> ObjectNotFoundError:
    """Return the error for patterns that choose none of the names there are.

    Args:
        names: what there is.
        patterns: what they should match; none where all that matches is excluded.
        file: the path of the file.
    """
    error = ObjectNotFoundError(
        f"no name among {len(names)} matches",
        file=file,
        found=", ".join(map(describe, patterns or ())) or "everything is excluded",
    )
    near = [one for pattern in patterns or () for one in near_names(pattern, names)[0]]
    if near:
        error.hint = f"did you mean {' or '.join(map(describe, dict.fromkeys(near)))}?"
    return error
