"""How results show themselves at a prompt: in a few lines, however much they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMED = 3


def short_repr(kind: str, facts: Iterable[str], ways: str = "") -> str:
    """Return what a result is and holds, and how to see all of it.

    Args:
        kind: the public name of its class.
        facts: what it holds, as phrases.
        ways: expressions that give all.
    """
    shown = f"<ztensor.{kind}: {', '.join(facts)}"
    return f"{shown}; all: {ways}>" if ways else f"{shown}>"


def counted(count: int, noun: str, names: Iterable[object] = (), *, cut: int = 40) -> str:
    """Return how many there are, and the first names: `5 objects ('a', 'b', 'c', ...)`.

    Args:
        count: how many.
        noun: what one is called.
        names: the names of all, or none.
        cut: most characters of a name.
    """
    text = f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
    first = [describe(name, cut) for name, _ in zip(names, range(_NAMED), strict=False)]
    if not first:
        return text
    return f"{text} ({', '.join(first)}{', ...' if count > len(first) else ''})"
