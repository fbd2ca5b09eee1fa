"""Which objects the patterns of `--include` and `--exclude` choose, and the error for none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ObjectNotFoundError, describe, near_names
from ztensor.options import keeps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Sequence


def name_filter(options: argparse.Namespace) -> Callable[[str], bool]:
    """Return the function that says of a name whether the patterns choose it."""
    return keeps(options.include or None, options.exclude)


def chosen(sources: Sequence[Collection[str]], options: argparse.Namespace) -> list[str]:
    """Return the names that patterns choose, of one reader or several, or of what has names.

    Raises:
        ObjectNotFoundError: none does, so that a slip of the pen is no success.
    """
    keep = name_filter(options)
    names = list(dict.fromkeys(name for source in sources for name in source if keep(name)))
    if (options.include or options.exclude) and not names:
        every = [name for source in sources for name in source]
        raise nothing_matches(every, options.include, getattr(sources[0], "name", None))
    return names


def chosen_or_all(
    sources: Sequence[Collection[str]], options: argparse.Namespace
) -> list[str] | None:
    """Return the names that patterns choose, or None where there are no patterns.

    Raises:
        ObjectNotFoundError: no name is chosen.
    """
    return chosen(sources, options) if options.include or options.exclude else None


def nothing_matches(
    names: Sequence[str], patterns: Sequence[str], file: str | None = None
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
        found=", ".join(map(describe, patterns)) or "everything is excluded",
    )
    near = [one for pattern in patterns for one in near_names(pattern, names)[0]]
    if near:
        error.hint = f"did you mean {' or '.join(map(describe, dict.fromkeys(near)))}?"
    return error
