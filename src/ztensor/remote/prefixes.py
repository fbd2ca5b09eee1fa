"""Lists of a store: one level below a prefix, or the matches of `s3://run/**/*.zt`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ztensor import Remote
from ztensor.errors import (
    ArgumentValueError,
    SourceError,
    SourceNotFoundError,
    UsageError,
    describe,
)
from ztensor.ext import Pool
from ztensor.remote.failures import asked
from ztensor.remote.hub import MOST_LISTED
from ztensor.remote.urls import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# HTTP servers and hubs have no lists, and `?` begins a query there.
_LISTED = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss")
_WILD = re.compile(r"[*?\[]")
_KEY_CHARACTERS = 4 << 10
_PAGE = 1000  # objects that a store lists at once
_LEVEL_SECONDS = 60
_PART = re.compile(r"(?P<deep>\*\*/?)|(?P<any>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^\]/]+)\]")


def expanded(url: str) -> list[str]:
    """Return the URLs of the objects that a pattern matches; for a plain URL, the URL itself.

    Args:
        url: in the key, `*` and `?` match within a part, `**` any number of parts, `[...]` one
            character of several.

    Raises:
        SourceNotFoundError: nothing matches.
        UsageError: the pattern is malformed, or more than `MOST_LISTED` objects match its fixed
            beginning.
        SourceError: the store cannot be asked.
    """
    if url.partition("://")[0].lower() in _LISTED and _WILD.search(url):
        return _matching(url)
    return [url]


def _matching(pattern: str) -> list[str]:
    place = place_of(Remote(pattern))
    start = _WILD.search(place.key)
    if start is None:
        raise UsageError("a pattern is in the key, not in the bucket", file=pattern)
    prefix = place.key[: start.start()].rpartition("/")[0]
    matches = expression(place.key)
    base = pattern.removesuffix(place.key)
    keys = asked(
        lambda library: list(_keys(library, place.store, prefix, pattern)),
        "cannot list",
        pattern,
    )
    found = sorted(base + key for key in keys if matches.fullmatch(key))
    if not found:
        raise SourceNotFoundError(
            "no object matches",
            file=pattern,
            found=f"{len(keys):,} below {prefix!r}",
        )
    return found


def _keys(library: Any, store: Any, prefix: str, pattern: str) -> Iterator[str]:
    count = 0
    for page in library.list(store, prefix=prefix or None, chunk_size=1000):
        count += len(page)
        if count > MOST_LISTED:
            raise UsageError(
                f"more than {MOST_LISTED:,} objects are below the pattern's fixed part; "
                "give it a longer one",
                file=pattern,
            )
        for one in page:
            if len(one["path"]) > _KEY_CHARACTERS:
                raise SourceError(
                    "the store lists a key that is longer than any store takes",
                    file=pattern,
                    expected=f"at most {_KEY_CHARACTERS} characters",
                    found=str(len(one["path"])),
                )
            yield one["path"]


def one_level(library: Any, store: Any, key: str, name: str) -> dict[str, Any]:
    """List one level below a prefix.

    obstore gives a list of one level only at once, of any length. So all objects below the prefix
    are listed first, page by page. If many of them are deeper, one level is requested instead, for
    a minute at most.

    Args:
        library: obstore.
        store: an obstore store.
        key: the prefix, without a slash at its end; empty for the whole store.
        name: its URL without secrets.

    Returns:
        As obstore has it: `objects`, and `common_prefixes`, the paths of subfolders.

    Raises:
        UsageError: the level has more than `MOST_LISTED` entries.
    """
    start = f"{key}/" if key else ""
    direct: list[Any] = []
    deeper: set[str] = set()
    for page in library.list(store, prefix=key or None, chunk_size=_PAGE):
        for one in page:
            name_here, slash, _ = one["path"][len(start) :].partition("/")
            if slash:
                deeper.add(start + name_here)
            else:
                direct.append(one)
        # An empty object may mark a folder: obstore reports its name without the slash.
        if not all(one["size"] for one in page) or (deeper and len(page) == _PAGE):
            break
        if len(direct) > MOST_LISTED:
            raise _too_many(name)
    else:
        return {"objects": direct, "common_prefixes": sorted(deeper)}
    import asyncio  # seldom needed

    async def ask() -> Any:
        waiting = library.list_with_delimiter_async(store, key or None)
        return await asyncio.wait_for(waiting, _LEVEL_SECONDS)

    with Pool(1) as pool:  # this thread may have a loop
        try:
            found: dict[str, Any] = pool.submit(asyncio.run, ask()).result()
        except TimeoutError:
            raise _too_many(name) from None
    if len(found["objects"]) + len(found["common_prefixes"]) > MOST_LISTED:
        raise _too_many(name)
    return found


def _too_many(name: str) -> UsageError:
    return UsageError(
        f"more than {MOST_LISTED:,} objects are in the folder, or their list does not end; name a "
        "file or an index",
        file=name,
    )


def expression(pattern: str) -> re.Pattern[str]:
    """Translate a pattern over keys to a regular expression.

    Raises:
        ArgumentValueError: it has a range that ends before it begins, such as `[z-a]`.
    """
    parts: list[str] = []
    end, star = 0, -1  # where the last star of this part of the path is in `parts`
    for match in _PART.finditer(pattern):
        parts.append(re.escape(pattern[end : match.start()]))
        end = match.end()
        if match["deep"] or "/" in parts[-1]:
            star = -1
        if match["deep"]:
            parts.append("(?:.*/)?" if match["deep"].endswith("/") else ".*")
        elif match["any"]:
            # The text between two stars matches only at its first place (an atomic group). Keys
            # come from the server, and backtracking would be exponential.
            if star >= 0:
                parts[star:] = f"(?>[^/]*?{''.join(parts[star + 1 :])})", ""
            star = len(parts)
            parts.append("[^/]*")
        elif match["one"]:
            parts.append("[^/]")
        else:
            ranges = re.sub(r"([\\^\[&~|])", r"\\\1", match["set"])
            parts.append(f"[{'^/' if match['not'] else ''}{ranges}]")
    parts.append(re.escape(pattern[end:]))
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise ArgumentValueError("not a pattern", found=describe(pattern, 200)) from error
