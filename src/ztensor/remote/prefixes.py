"""What is beneath a prefix of a store: one level of it, or all that `s3://run/**/*.zt` matches."""

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
_LISTED = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_WILD = re.compile(r"[*?\[]")
_KEY_CHARACTERS = 4 << 10
_PAGE = 1000  # objects that a store lists at once
_LEVEL_SECONDS = 60
_PART = re.compile(r"(?P<deep>\*\*/?)|(?P<any>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^\]/]+)\]")


def expanded(url: str) -> list[str]:
    """Return the URLs of the objects that a pattern matches; of no pattern the URL itself.

    Args:
        url: in that of a store `*` and `?` match within a part, `**` any number of parts, `[...]`
            one character of several.

    Raises:
        SourceNotFoundError: nothing matches.
        UsageError: more objects than can be looked through begin as the pattern does, or it is
            no pattern.
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
            found=f"{len(keys):,} beneath {prefix!r}",
        )
    return found


def _keys(library: Any, store: Any, prefix: str, pattern: str) -> Iterator[str]:
    count = 0
    for page in library.list(store, prefix=prefix or None, chunk_size=1000):
        count += len(page)
        if count > MOST_LISTED:
            raise UsageError(
                f"more than {MOST_LISTED:,} objects are beneath the pattern's fixed part; "
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
    """Return what lies beneath a prefix, one level deep, as the library has it.

    A list of one level is given as a whole only, however long it is, so the objects beneath are
    asked for first, page by page. Where deeper ones are among many, their level is asked for, for
    a minute at most.

    Args:
        library: obstore.
        store: a store of it.
        key: the prefix, without a slash at its end; empty for all.
        name: its URL without secrets.

    Returns:
        `objects`, and `common_prefixes`, the paths of what is deeper.

    Raises:
        UsageError: it is more than can be looked through.
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
        # An empty object may be the mark of a folder: its name is told without the slash.
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
    """Return what matches the keys that a pattern means.

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
            # What is between two stars is matched where it is first, and never again: keys come
            # from the server, and several stars would take a power of their length.
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
        raise ArgumentValueError("this is no pattern", found=describe(pattern, 200)) from error
