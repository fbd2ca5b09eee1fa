"""The objects that `--include` and `--exclude` choose, and the error if no object matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ObjectNotFoundError, describe, near_names
from ztensor.options import keeps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Sequence


def name_filter(options: argparse.Namespace) -> Callable[[str], bool]:
    """Return a function that returns whether the patterns choose a name."""
    return keeps(options.include or None, options.exclude)


def chosen(sources: Sequence[Collection[str]], options: argparse.Namespace) -> list[str]:
    """Return the names in one collection or several that patterns choose.

    Raises:
        ObjectNotFoundError: no name matches, so that a misspelt pattern is not a success.
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
    """Return the names that patterns choose, or None if no patterns are given.

    Raises:
        ObjectNotFoundError: no name matches.
    """
    return chosen(sources, options) if options.include or options.exclude else None


def nothing_matches(
    names: Sequence[str], patterns: Sequence[str], file: str | None = None
) -> ObjectNotFoundError:
    """Return the error for patterns that match no name.

    Args:
        names: the names to choose from.
        patterns: the patterns; empty if every match is excluded.
        file: the path of the file.
    """
    error = ObjectNotFoundError(
        f"no name among {len(names)} matches",
        file=file,
        found=", ".join(map(describe, patterns)) or "everything is excluded",
    )
    near = [name for pattern in patterns for name in near_names(pattern, names)[0]]
    if near:
        error.hint = f"did you mean {' or '.join(map(describe, dict.fromkeys(near)))}?"
    return error
