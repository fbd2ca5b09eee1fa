"""Read and check the index of a set, and find its files."""

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
_PAIR_BYTES = 240  # upper bound of the memory of a map entry without its name


class FileSet(NamedTuple):
    """Several files that are read as one.

    Attributes:
        name: the name in messages: the index, the folder, or the first file.
        origin: the argument that finds the set again: index, folder, first file, or list.
        places: names of the files (absolute paths or URLs) to their openable places, in order.
        weight_map: object names to file names; None without an index.
        metadata: the `metadata` of the index; empty without an index.
        source: the source of the index, open if it is a URL; None without an index.
    """

    name: str
    origin: Any
    places: Mapping[str, Any]
    weight_map: Mapping[str, str] | None = None
    metadata: Mapping[str, Any] = {}
    source: Source | None = None


def read_index(place: str | Beneath | Remote, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set of an index. Its files must be in the folder or subfolders, and not hidden.

    On disk every shard must exist. A symlinked index may name files next to the link and next to
    its target, as in the hub's cache. Remote shards are checked when they are opened: each check
    would cost a request.

    Args:
        place: the index: an absolute path, or a URL.
        limits: safety caps, such as `index_bytes`.

    Raises:
        FormatError: the index is damaged, or a name leads out of its folder.
        LimitError: the index is longer or deeper than the caps allow.
        SourceError: the index cannot be read, or a shard is missing.
        UsageError: the URL is signed, and opens no other file.
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
    names = {file: shown_name(opening) for file, opening in places.items()}
    for name, file in weight_map.items():  # in place: a second dict would double the memory
        weight_map[name] = names[file]
    return FileSet(
        source.name,
        os.fspath(place) if isinstance(place, Beneath) else place,
        {names[file]: opening for file, opening in places.items()},
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
    """Return the name of a file for messages: its path, or its URL without secrets."""
    return os.fspath(place) if isinstance(place, (str, Beneath)) else place.name


def _places(
    place: str | Beneath | Remote, name: str, weight_map: Mapping[str, str]
) -> dict[str, Beneath | Remote]:
    """Return the places of the files that an index names; on disk they exist."""
    folder = os.path.dirname(name)
    roots = frozenset((os.path.realpath(folder), os.path.dirname(os.path.realpath(name))))
    places: dict[str, Beneath | Remote] = {}
    missing: list[str] = []
    for file in sorted(set(weight_map.values())):
        try:
            os.fsencode(file)
            parts = Beneath.parts_of(file)  # the same on every system
            if isinstance(place, Remote):
                places[file] = place.beside("/".join(parts))
                continue
            path = places[file] = Beneath(os.path.join(folder, *parts), roots)
            if os.path.isfile(path.path):
                path.require_beneath()
            else:
                missing.append(file)
        except (FormatError, UnsupportedError, UnicodeEncodeError):
            raise broken_index(
                "the index leads out of its folder, or to a hidden file",
                expected="files in the index's folder or its subfolders, not hidden",
                found=describe(file, 200),
            ) from None
    if missing:
        raise _incomplete(missing, len(places), weight_map)
    return places


def _incomplete(
    missing: Sequence[str], count: int, weight_map: Mapping[str, str]
) -> SourceNotFoundError:
    """Return the error for missing shards: raised here, it would form a cycle with its frame."""
    gone = frozenset(missing)
    lost = [name for name, file in weight_map.items() if file in gone]
    share = f"{len(missing)} of {counted(count, 'shard')} missing"
    error = SourceNotFoundError(
        "shards of the index are missing; fetch them again",
        expected=some_of(missing),
        found=f"{share}, and with them {some_of(lost)}",
    )
    error.in_python = "a list of their paths opens the shards that exist"
    return error


# --- The text of an index -------------------------------------------------------------------


def parse_index(data: bytes | bytearray, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return a parsed index, in which `weight_map` has a file name for every object.

    Args:
        data: the text of the index.
        limits: safety caps.

    Raises:
        FormatError: the text is not UTF-8 JSON, repeats a name, or has another structure.
        LimitError: the text is nested too deeply, or needs far more memory than its length.
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
    except ValueError as error:  # also raised for a number with thousands of digits
        message = describe(str(error), 120)
        raise broken_index("the index is not JSON in UTF-8", found=message) from error
    root: dict[str, Any] = index if isinstance(index, dict) else {}
    fields = root.get("weight_map"), root.get("metadata") or {}
    if not all(isinstance(field, dict) for field in fields):
        raise broken_index(
            "the index has another structure",
            expected='{"metadata": {...}, "weight_map": {name: file}}',
            found=describe(index),
        )
    for name, file in root["weight_map"].items():
        if not isinstance(file, str) or len(file) > _MOST_NAME:
            raise broken_index(
                "the index has no file name for an object",
                expected="a file name",
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
    """Return an index in the form that writers use; None for any other form.

    The map is read pair by pair, with one string per file name instead of one per object. The rest
    is parsed as JSON.
    """
    head = _MAP.search(data)
    if head is None or data.count(b'"weight_map"') != 1 or b"\\" in data:
        return None
    start, stop = head.end(), data.find(b"}", head.end())
    budget.charge_bytes(stop - start + _PAIR_BYTES * data.count(b":", start, stop))
    weight_map: dict[str, str] = {}
    files: dict[bytes, str] = {}
    at, count = start, 0
    while (pair := _PAIR.match(data, at)) is not None:
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
            "duplicate name in the index", reason=Reason.DUPLICATE_NAME, found=describe(twice)
        )
    return result


def broken_index(message: str, **details: Any) -> FormatError:
    """Return the error for an index that breaks a rule of its format."""
    return FormatError(message, reason=Reason.SHARD_INDEX, **details)


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names of a list and the number of further ones, for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(describe(name, 200) for name in names[:most])}{more}"
