"""What is beneath a prefix of a store: one level of it, or all that `s3://run/**/*.zt` matches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

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
from ztensor.remote.upload import found_at, place_to_write
from ztensor.remote.urls import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# HTTP servers and hubs have no lists, and `?` begins a query there.
_LISTED = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_WILD = re.compile(r"[*?\[]")
MOST_LISTED = 100_000
_KEY_CHARACTERS = 4 << 10
_PAGE = 1000  # objects that a store lists at once
_LEVEL_SECONDS = 60
_PART = re.compile(r"(?P<deep>\*\*/?)|(?P<any>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^\]/]+)\]")


def expanded(paths: Iterable[str]) -> list[str]:
    """Return paths, each URL that is a pattern replaced by those of the objects that match it.

    Args:
        paths: paths and URLs. In one of a store `*` and `?` match within a part, `**` any number
            of parts, `[...]` one character of several.

    Raises:
        SourceNotFoundError: nothing matches.
        UsageError: more objects than can be looked through begin as the pattern does, or it is
            no pattern.
        SourceError: the store cannot be asked.
    """
    found: list[str] = []
    for path in paths:
        if path.partition("://")[0].lower() in _LISTED and _WILD.search(path):
            found += _matching(path)
        else:
            found.append(path)
    return found


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


class Listed(NamedTuple):
    """An object of a store, as a list of them has it, or what lies deeper.

    Attributes:
        name: its key behind the prefix, up to the next slash.
        nbytes: its length; -1 where there are objects beneath the name.
        version: another text once the object was replaced; None where the store tells none.
        modified: seconds since 1970.
    """

    name: str
    nbytes: int
    version: str | None
    modified: float


def listed(prefix: Remote) -> list[Listed]:
    """Return what lies beneath a prefix of a store, one level deep.

    Args:
        prefix: a URL that ends with a slash.

    Raises:
        UsageError: the URL is of a place that is only read.
        SourceError: the store cannot be asked.
    """
    place = place_to_write(prefix.beside("-"))  # whoever writes can list
    key = place.key.rpartition("/")[0]

    def name(path: str) -> str:
        return path.removeprefix(key).strip("/")

    def ask(library: Any) -> list[Listed]:
        found = one_level(library, place.store, key, prefix.name)
        deeper = [Listed(name(one), -1, None, 0.0) for one in found["common_prefixes"]]
        return deeper + [_listed(name(one["path"]), one) for one in found["objects"]]

    found: list[Listed] = asked(ask, "cannot list", prefix.name)
    return found


def look(remote: Remote) -> Listed | None:
    """Return what a store says of an object, None where there is none.

    Raises:
        SourceError: it could not be asked.
    """
    place = place_of(remote)
    found = found_at(place)
    return None if found is None else _listed(place.key, found)


def _listed(name: str, one: Any) -> Listed:
    return Listed(name, int(one["size"]), one.get("e_tag"), one["last_modified"].timestamp())


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
