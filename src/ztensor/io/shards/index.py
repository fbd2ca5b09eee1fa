"""The index of a set: what it says, checked, and turned into what opens each file."""

from __future__ import annotations

import codecs
import collections
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    SourceNotFoundError,
    UnsupportedError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.source.base import Source
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.stores import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.showing import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAP = re.compile(rb'"weight_map"[ \t\r\n]*:[ \t\r\n]*\{')
_TEXT = rb'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*'
_PAIR = re.compile(_TEXT + b":" + _TEXT + b"[,}]")
_MOST_NAME = 1 << 15  # characters: no system has a longer path
_PAIR_BYTES = 240  # of memory at most that a pair of the map takes beside its name


class FileSet(NamedTuple):
    """Several files that are read as one.

    Attributes:
        name: what messages call it: the index, the folder, or the first file.
        origin: what finds it again: the index, the folder, the first file, or a list.
        places: the names of its files, absolute paths or URLs, and what opens each, in order.
        weight_map: names of objects to names of files; None where only the files tell.
        metadata: what else the index says; empty where there is none.
        source: the index; it stays open where it is a URL.
    """

    name: str
    origin: Any
    places: Mapping[str, Any]
    weight_map: Mapping[str, str] | None = None
    metadata: Mapping[str, Any] = {}
    source: Source | None = None


def read_index(place: str | Beneath | Remote, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set an index names: files beneath its folder, none of them hidden.

    On disk every shard has to be there. An index reached by a link may name files beside the link
    and beside the file the link leads to, as the cache of the hub has them. Whether those behind a
    URL are there is seen when they are opened: each would cost a request.

    Args:
        place: the index: an absolute path, or a URL.
        limits: safety caps; of them `index_bytes`.

    Raises:
        FormatError: it is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read, or a shard is missing.
        UsageError: its URL is signed, and so opens no other file.
    """
    source = source_of(place, mapped=False)
    try:
        with foreign_bytes("the index", source.name):
            index = parse_index(_data_of(source, limits), limits)
            weight_map: dict[str, str] = index["weight_map"]
            places = _places(place, source.name, weight_map)
    except BaseException:
        source.close()
        raise
    if not isinstance(place, Remote):
        source.close()
    names = {file: shown_name(found) for file, found in places.items()}
    for one, file in weight_map.items():  # in place: a second table would take as much again
        weight_map[one] = names[file]
    return FileSet(
        source.name,
        os.fspath(place) if isinstance(place, Beneath) else place,
        {names[file]: found for file, found in places.items()},
        weight_map,
        index.get("metadata") or {},
        source,
    )


def _data_of(source: Source, limits: Limits) -> bytes | bytearray:
    if source.size > limits.index_bytes:
        raise LimitError(
            "the index is longer than Limits.index_bytes",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {limits.index_bytes} bytes",
            found=str(source.size),
        )
    return source.read(0, source.size)


def shown_name(place: Any) -> str:
    """Return what messages call a file: its path, or its URL without secrets."""
    return os.fspath(place) if isinstance(place, (str, Beneath)) else place.name


def _places(
    place: str | Beneath | Remote, name: str, weight_map: Mapping[str, str]
) -> dict[str, Beneath | Remote]:
    """Return what opens each file that an index names; on disk, each is there."""
    folder = os.path.dirname(name)
    roots = frozenset((os.path.realpath(folder), os.path.dirname(os.path.realpath(name))))
    places: dict[str, Beneath | Remote] = {}
    missing: list[str] = []
    for file in sorted(set(weight_map.values())):
        try:
            os.fsencode(file)
            parts = Beneath.parts_of(file)  # alike on every system
            if isinstance(place, Remote):
                places[file] = place.beside("/".join(parts))
                continue
            found = places[file] = Beneath(os.path.join(folder, *parts), roots)
            if os.path.isfile(found.path):
                found.require_beneath()
            else:
                missing.append(file)
        except (FormatError, UnsupportedError, UnicodeEncodeError):
            raise broken_index(
                "the index leads out of its folder, or to a hidden file",
                expected="files beneath the index's folder, none of them hidden",
                found=describe(file, 200),
            ) from None
    if missing:
        raise _incomplete(missing, len(places), weight_map)
    return places


def _incomplete(
    missing: Sequence[str], count: int, weight_map: Mapping[str, str]
) -> SourceNotFoundError:
    """Return the error; one that is raised where it is a variable is in a circle with its frame."""
    gone = frozenset(missing)
    lost = [name for name, file in weight_map.items() if file in gone]
    share = f"{len(missing)} of {counted(count, 'shard')} missing"
    error = SourceNotFoundError(
        "the index names shards that are not there; fetch them again",
        expected=some_of(missing),
        found=f"{share}, and with them {some_of(lost)}",
    )
    error.in_python = "a list of their paths opens those that are there"
    return error


# --- The text of an index -------------------------------------------------------------------


def parse_index(data: bytes | bytearray, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return an index whose `weight_map` has a file's name for every object.

    Args:
        data: the index.
        limits: safety caps.

    Raises:
        FormatError: it is not JSON in UTF-8, has a name twice, or is of another shape.
        LimitError: it is nested too deeply, or would take far more memory than its length.
    """
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    try:
        index = _regular(data, _budget(data, limits))
        if index is None:
            index = _parsed(data, _budget(data, limits))
    except (FormatError, LimitError):
        raise
    except RecursionError as error:
        raise LimitError("the index is nested too deeply", reason=Reason.LIMIT_DEPTH) from error
    except ValueError as error:  # also of a number with thousands of digits
        message = describe(str(error), 120)
        raise broken_index("the index is not JSON in UTF-8", found=message) from error
    root: dict[str, Any] = index if isinstance(index, dict) else {}
    if not all(
        isinstance(one, dict) for one in (root.get("weight_map"), root.get("metadata") or {})
    ):
        raise broken_index(
            "the index is of another shape",
            expected='{"metadata": {...}, "weight_map": {name: file}}',
            found=describe(index),
        )
    for name, file in root["weight_map"].items():
        if not isinstance(file, str) or len(file) > _MOST_NAME:
            raise broken_index(
                "the index gives no file for an object",
                expected="a file's name",
                found=f"{describe(file)} for {describe(name)}",
            )
    return root


def _budget(data: bytes | bytearray, limits: Limits) -> Budget:
    budget = Budget(limits, len(data))
    budget.charge_bytes(2 * len(data))
    return budget


def _parsed(data: bytes | bytearray, budget: Budget) -> Any:
    budget.charge_json(data)
    return json.loads(budget.text(data), object_pairs_hook=_unique)


def _regular(data: bytes | bytearray, budget: Budget) -> Any:
    """Return an index as writers write it, None for any other.

    Its map is the most of it, and is read pair by pair: a file's name is one text then, however
    many objects are in the file. What is around the map is read as any JSON.
    """
    found = _MAP.search(data)
    if found is None or data.count(b'"weight_map"') != 1 or b"\\" in data:
        return None
    start, stop = found.end(), data.find(b"}", found.end())
    budget.charge_bytes(stop - start + _PAIR_BYTES * data.count(b":", start, stop))
    weight_map: dict[str, str] = {}
    files: dict[bytes, str] = {}
    at, count = start, 0
    while at <= stop and (pair := _PAIR.match(data, at)) is not None:
        name, file = pair.groups()
        if file not in files:
            files[file] = budget.text(file)
        weight_map[name.decode() if name.isascii() else budget.text(name)] = files[file]
        count += 1
        at = pair.end()
    if at != stop + 1 or len(weight_map) < count:
        return None
    budget.charge_bytes(2 * (len(data) - (stop - start)))
    index = _parsed(data[:start] + data[stop:], budget)
    if not isinstance(index, dict) or index.get("weight_map") != {}:
        return None
    return {**index, "weight_map": weight_map}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise FormatError(
            "the index has a name twice", reason=Reason.DUPLICATE_NAME, found=describe(twice)
        )
    return result


def broken_index(message: str, **details: Any) -> FormatError:
    """Return the error for an index that breaks a rule of its own."""
    return FormatError(message, reason=Reason.SHARD_INDEX, **details)


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names of a list, and how many more there are, for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(describe(name, 200) for name in names[:most])}{more}"
