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
    if isinstance(value, (list, tuple, dict)):  # its text may be ten times as long
        value = _first_of(value, limit)
    text = ascii(value)
    text = text if len(text) <= limit else text[:limit] + "..."
    return printable(text)  # the repr of an unknown class may have several lines


def _first_of(value: Any, count: int, depth: int = 6) -> Any:
    """Return a list, tuple or dict cut to its first values, recursively."""
    if isinstance(value, str):
        return value if len(value) <= count else value[:count]
    if isinstance(value, (bytes, bytearray)):
        return value if len(value) <= count else value[:count]
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if type(value) is dict:
        if not depth:
            return {}
        items = islice(value.items(), count)
        return {_first_of(k, count): _first_of(v, count, depth - 1) for k, v in items}
    if type(value) in (list, tuple):
        return type(value)(
            [_first_of(item, count, depth - 1) for item in value[:count]] if depth else []
        )
    return value


def printable(text: str) -> str:
    """Return text with an escape for each character that is not printable."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://)([^/?#]*@)?([^?]*)(\?.*)?", re.DOTALL)


def without_secrets(name: str) -> str:
    """Return a file's name; of a URL without user, password and signature."""
    for secret in secrets_of(name):
        name = name.replace(secret, "", 1)
    return name


def secrets_of(name: str) -> list[str]:
    """Return the secrets in a URL: `user:password@`, and a query, which may be a signature."""
    parts = _URL.fullmatch(name) if "://" in name else None
    if parts is None:
        return []
    scheme, user, _, query = parts.groups()
    is_http = scheme.lower().startswith("http")
    found = []
    if user and (is_http or ":" in user):  # in abfs://container@account it is not a user
        found.append(user)
    if query and (is_http or "=" in query):  # a key may have a question mark
        found.append(query)
    return found


def near_names(name: str, names: Iterable[str]) -> tuple[list[str], int]:
    """Return the names most similar to a missing one, and the count of all names."""
    import difflib  # seldom needed

    # The comparison is quadratic in lengths: a stranger's file may have very long names.
    all_names = list(names)
    short = [key for key in all_names if len(key) <= 256][:2000]
    near = difflib.get_close_matches(name[:256], short, n=3)
    if not near:  # the last part alone, or in other case
        folded = name.casefold()
        near = [key for key in short if folded and folded in key.casefold()][:3]
    return near, len(all_names)


def counted(count: int, noun: str, names: Iterable[object] = (), *, cut: int = 40) -> str:
    """Return a count with the first names: `5 objects ('a', 'b', 'c', ...)`.

    Args:
        count: the count.
        noun: the noun in the singular.
        names: the names of all, or an empty iterable.
        cut: most characters of a name.
    """
    text = f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
    first = [describe(name, cut) for name, _ in zip(names, range(_NAMED), strict=False)]
    if not first:
        return text
    return f"{text} ({', '.join(first)}{', ...' if count > len(first) else ''})"
