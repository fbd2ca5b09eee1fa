"""How values, names and counts read in messages and in what results show of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

_NAMED = 3


def describe(value: object, limit: int = 80) -> str:
    """Return `repr(value)` made safe to print: ASCII escapes only, at most `limit` characters.

    Bytes are shown by their first sixteen, since a message is read, not parsed.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        head = bytes(value[:16])
        return f"{head!r}{'...' if len(value) > len(head) else ''}"
    if isinstance(value, str):
        value = value if len(value) <= limit else value[:limit] + "..."
        return ascii(value)
    if isinstance(value, int) and value.bit_length() > 256:  # str() of a huge int is quadratic
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict)):  # its whole text may take ten times what it takes
        value = _first_of(value, limit)
    text = ascii(value)
    text = text if len(text) <= limit else text[:limit] + "..."
    return printable(text)  # the repr of a stranger's class may have more than one line


def _first_of(value: Any, count: int, depth: int = 6) -> Any:
    """Return a list, tuple or dict cut to what its text begins with, and all in it."""
    if isinstance(value, str):
        return value if len(value) <= count else value[:count]
    if isinstance(value, (bytes, bytearray)):
        return value if len(value) <= count else value[:count]
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if type(value) is dict:
        if not depth:
            return {}
        some = list(islice(value.items(), count))
        return {_first_of(k, count): _first_of(v, count, depth - 1) for k, v in some}
    if type(value) in (list, tuple):
        some = [_first_of(one, count, depth - 1) for one in value[:count]] if depth else []
        return type(value)(some)
    return value


def printable(text: str) -> str:
    """Return text with an escape for each character that is not printable."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://)([^/?#]*@)?([^?]*)(\?.*)?", re.DOTALL)


def without_secrets(name: str) -> str:
    """Return a file's name, of a URL without its user, its password and what signs it."""
    for secret in secrets_of(name):
        name = name.replace(secret, "", 1)
    return name


def secrets_of(name: str) -> list[str]:
    """Return what is never shown of a URL: `user:password@`, and a query, which may sign it."""
    parts = _URL.fullmatch(name) if "://" in name else None
    if parts is None:
        return []
    scheme, user, _, query = parts.groups()
    is_http = scheme.lower().startswith("http")
    found = []
    if user and (is_http or ":" in user):  # that of abfs://container@account is none
        found.append(user)
    if query and (is_http or "=" in query):  # a key may have a question mark
        found.append(query)
    return found


def near_names(name: str, names: Iterable[str]) -> tuple[list[str], int]:
    """Return the names most like one that is not there, and how many names there are."""
    import difflib  # seldom needed

    # The comparison is quadratic in lengths: a stranger's file may have very long names.
    every = list(names)
    short = [key for key in every if len(key) <= 256][:2000]
    near = difflib.get_close_matches(name[:256], short, n=3)
    if not near:  # the last part alone, or in other case
        folded = name.casefold()
        near = [key for key in short if folded and folded in key.casefold()][:3]
    return near, len(every)


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
