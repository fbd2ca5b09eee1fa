"""Which objects patterns choose, and the error where they choose none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ObjectNotFoundError, describe, near_names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ztensor.cli.options import Choice


def chosen(sources: Sequence[Collection[str]], choice: Choice) -> list[str]:
    """Return the names that patterns choose, of one reader or several, or of what has names.

    Raises:
        ObjectNotFoundError: none does, so that a slip of the pen is no success.
    """
    keep = choice.keep
    names = list(dict.fromkeys(name for source in sources for name in source if keep(name)))
    if choice.is_given and not names:
        every = [name for source in sources for name in source]
        raise nothing_matches(every, choice.include, getattr(sources[0], "name", None))
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
