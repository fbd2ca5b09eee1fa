"""The index of a set: what it says, checked, and turned into paths."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import os
import pathlib
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    SourceError,
    SourceNotFoundError,
    ZTensorError,
    describe,
)
from ztensor.io.source.base import Source, read_bytes
from ztensor.io.source.beneath import Beneath, parts_of
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import absolute_path
from ztensor.io.source.table import open_url
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.showing import counted
from ztensor.spec.wire.json import charge as json_charge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ztensor.io.source.folders import RemoteFiles
    from ztensor.io.source.urls import Remote


_MAP = re.compile(rb'"weight_map"[ \t\r\n]*:[ \t\r\n]*\{')
_TEXT = rb'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*'
_PAIR = re.compile(_TEXT + b":" + _TEXT + b"([,}])")
_MOST_NAME = 1 << 15  # characters: no system has a longer path
_PAIR_BYTES = 240  # of memory at most that a pair of the map takes beside its name


@dataclasses.dataclass(frozen=True, slots=True)
class FileSet:
    """Several files that are read as one.

    Attributes:
        name: what messages call it: the index, the folder, or the first file.
        files: their paths, in order.
        weight_map: names of objects to paths; None where only the files tell.
        metadata: what else the index says; empty where there is none.
        index: the path of the index, or None.
        roots: the folders beneath which the files have to be, links followed; None where the
            caller named each of them.
        remotes: what opens those of the files that are URLs.
        source: the index, where it is a URL.
    """

    name: str
    files: tuple[str, ...]
    weight_map: Mapping[str, str] | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    index: str | None = None
    roots: frozenset[str] | None = None
    remotes: Mapping[str, Remote | RemoteFiles] = dataclasses.field(default_factory=dict)
    source: Source | None = None

    @property
    def is_prefix(self) -> bool:
        """Return whether it is what a folder of a store has, without an index."""
        return bool(self.remotes) and self.index is None and self.name.endswith("/")

    def place(self, file: str) -> Beneath | Remote | RemoteFiles | str:
        """Return what opens one of `files`."""
        if file in self.remotes:
            return self.remotes[file]
        return file if self.roots is None else Beneath(file, self.roots)


def read_index(path: str, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set an index names, every shard there and beneath the index's folder.

    An index reached by a link may name files beside the link and beside the file the link leads
    to, as the cache of the hub has them; nothing else is opened.

    Args:
        path: the index.
        limits: safety caps; of them `index_bytes`.

    Raises:
        FormatError: it is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read, or a shard is missing.
    """
    path = absolute_path(path)
    try:
        index = parse_index(read_data(path, limits), limits)
    except ZTensorError as error:
        error.locate(file=path)
        raise
    folder, weight_map = os.path.dirname(path), index["weight_map"]
    names = sorted(set(weight_map.values()))
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path))}
    there = _names_in(folder)
    # What is not in the folder need not be looked for, name by name: an index may name a million.
    places: dict[str, str] = {}
    for name in names:
        if not _is_plain(name) or name.lower() in there:
            place = _place_of(path, name, roots)
            if os.path.isfile(place):
                places[name] = place
    if len(places) < len(names):
        raise _incomplete(path, names, places, weight_map)
    for name, file in weight_map.items():  # in place: a second table would take as much again
        weight_map[name] = places[file]
    return FileSet(
        path,
        tuple(places.values()),
        weight_map,
        index.get("metadata") or {},
        path,
        frozenset(roots),
    )


def _incomplete(
    path: str, names: list[str], places: dict[str, str], weight_map: dict[str, str]
) -> SourceNotFoundError:
    missing = [name for name in names if name not in places]
    lost = [one for one, name in weight_map.items() if name not in places]
    error = SourceNotFoundError(
        "the index names shards that are not there; fetch them again",
        file=path,
        expected=some_of(missing),
        found=f"{len(missing)} of {counted(len(names), 'shard')} missing, and with them "
        f"{some_of(lost)}",
    )
    error.in_python = "a list of their paths opens those that are there"
    return error


def _names_in(folder: str) -> set[str]:
    """Return the names in a folder in lower case: some systems do not tell the cases apart."""
    try:
        return {name.lower() for name in os.listdir(folder)}
    except OSError as error:
        raise SourceError.from_os(error, "cannot list the folder", folder) from error


def _is_plain(name: str) -> bool:
    """Return whether a name can only be that of a file in the index's own folder."""
    return (
        name.isascii()
        and name.strip(".") != ""
        and name.replace("_", "").replace("-", "").replace(".", "a").isalnum()
    )


def read_remote_index(remote: Remote, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set that an index behind a URL names: files beneath its own prefix, no others.

    Whether they are there is seen when they are opened: each would cost a request.

    Args:
        remote: the index.
        limits: safety caps; of them `index_bytes`.

    Raises:
        FormatError: it is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read.
        UsageError: its URL is signed, and so opens no other file.
    """
    source = open_url(remote)
    try:
        index = parse_index(_data_of(source, limits), limits)
        weight_map = index["weight_map"]
        places = {name: _beside(remote, name) for name in sorted(set(weight_map.values()))}
    except ZTensorError as error:
        error.locate(file=remote.name)
        raise
    for name, file in weight_map.items():
        weight_map[name] = places[file].name
    remotes = {place.name: place for place in places.values()}
    metadata = index.get("metadata") or {}
    return FileSet(
        remote.name,
        tuple(remotes),
        weight_map,
        metadata,
        remote.name,
        remotes=remotes,
        source=source,
    )


def _beside(remote: Remote, name: str) -> Remote:
    """Return the place of a file that an index names, which must lie beneath its folder."""
    try:
        return remote.beside("/".join(parts_of(name)))
    except FormatError:
        raise _leads_out(remote.name, name) from None


def read_data(path: str, limits: Limits) -> bytes | bytearray:
    """Return the bytes of an index.

    Raises:
        LimitError: it is longer than the caps allow.
        SourceError: it cannot be read.
    """
    with contextlib.closing(FileSource(path, mapped=False)) as source:
        return _data_of(source, limits)


def _data_of(source: Source, limits: Limits) -> bytes | bytearray:
    if source.size > limits.index_bytes:
        raise LimitError(
            "the index is longer than Limits.index_bytes",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {limits.index_bytes} bytes",
            found=str(source.size),
        )
    return read_bytes(source, 0, source.size)


def parse_index(data: bytes | bytearray, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return an index whose `weight_map` has a file's name for every object.

    Args:
        data: the index.
        limits: safety caps.

    Raises:
        FormatError: it is not JSON in UTF-8, has a name twice, or is of another shape.
        LimitError: it is nested too deeply, or would take far more memory than its length.
    """
    budget = Budget(limits, len(data))
    budget.charge_bytes(2 * len(data))
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    try:
        index = _regular(data, budget)
        if index is None:
            index = _parsed(data, budget)
    except RecursionError as error:
        raise LimitError("the index is nested too deeply", reason=Reason.LIMIT_DEPTH) from error
    except (FormatError, LimitError):
        raise
    except UnicodeDecodeError as error:
        raise broken_index("the index is not UTF-8", found=str(error)) from error
    except ValueError as error:  # also of a number with thousands of digits
        raise broken_index("the index is not JSON", found=describe(str(error), 120)) from error
    if not isinstance(index, dict) or not isinstance(index.get("weight_map"), dict):
        raise broken_index(
            "the index has no weight_map",
            expected='{"metadata": {...}, "weight_map": {name: file}}',
            found=describe(index),
        )
    if not isinstance(index.get("metadata") or {}, dict):
        raise broken_index(
            "the metadata of the index are no object", found=describe(index["metadata"])
        )
    for name, file in index["weight_map"].items():
        if not isinstance(file, str) or len(file) > _MOST_NAME:
            raise broken_index(
                "the index gives no file for an object",
                expected="a file's name",
                found=f"{describe(file)} for {describe(name)}",
            )
    return index


def _parsed(data: bytes | bytearray, budget: Budget) -> Any:
    json_charge(data, budget)
    return json.loads(budget.text(data), object_pairs_hook=_unique)


def _regular(data: bytes | bytearray, budget: Budget) -> Any:
    """Return an index as writers write it, None for any other.

    Its map is the most of it, and is read pair by pair: a file's name is one text then, however
    many objects are in the file. What is around the map is read as any JSON.
    """
    found = _MAP.search(data)
    if found is None or data.count(b'"weight_map"') != 1:
        return None
    start, stop = found.end(), data.find(b"}", found.end())
    if stop < 0 or data.find(b"\\", 0, start) >= 0 or data.find(b"\\", stop) >= 0:
        return None
    before = budget.bytes_left
    budget.charge_bytes(stop - start + _PAIR_BYTES * data.count(b":", start, stop))
    weight_map: dict[str, str] = {}
    files: dict[bytes, str] = {}
    at, count = start, 0
    while (pair := _PAIR.match(data, at)) is not None:
        name, file, mark = pair.groups()
        if (path := files.get(file)) is None:
            path = files[file] = budget.text(file)
        weight_map[name.decode() if name.isascii() else budget.text(name)] = path
        count += 1
        at = pair.end()
        if mark == b"}":
            break
    if at != stop + 1 or len(weight_map) < count:
        budget.release_to(before)
        return None
    budget.charge_bytes(2 * (len(data) - (stop - start)))
    index = _parsed(data[:start] + data[stop:], budget)
    if not isinstance(index, dict) or index.get("weight_map") != {}:
        budget.release_to(before)
        return None
    return {**index, "weight_map": weight_map}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise FormatError(
            "the index has a name twice", reason=Reason.DUPLICATE_NAME, found=describe(twice)
        )
    return result


def broken_index(message: str, **details: Any) -> FormatError:
    """Return the error for an index that breaks a rule of its own."""
    return FormatError(message, reason=Reason.SHARD_INDEX, **details)


def _place_of(index: str, name: str, roots: set[str]) -> str:
    """Return the path of a file an index names, which must lie beneath one of `roots`."""
    steps = re.split(r"[\\/]", name)
    # Names of Windows count everywhere: what an index may say depends on no machine.
    is_hidden = any(step.startswith(".") and step != "." for step in steps)  # also by `..`
    if name and "\0" not in name and not is_hidden and not _has_root(name):
        with contextlib.suppress(UnicodeEncodeError):
            os.fsencode(name)
            place = os.path.join(os.path.dirname(index), name)
            real = os.path.realpath(place)
            if any(real.startswith(os.path.join(root, "")) for root in roots):
                return place
    raise _leads_out(index, name)


def _leads_out(index: str, name: str) -> FormatError:
    return broken_index(
        "the index leads out of its folder, or to a hidden file",
        file=index,
        expected="files beneath the index's folder, none of them hidden",
        found=describe(name, 200),
    )


def _has_root(name: str) -> bool:
    return bool(pathlib.PureWindowsPath(name).anchor or pathlib.PurePosixPath(name).anchor)


def some_of(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are, for a message."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(describe(name, 200) for name in names[:3])}{more}"


def state_of(path: str | None) -> tuple[int, ...] | None:
    """Return what differs between a file and the one that takes its name; None for no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def index_bytes(
    weight_map: Mapping[str, str],
    files: Sequence[str],
    total_size: int,
    digests: Sequence[str] | None,
) -> bytes:
    """Return the index of a new set.

    Args:
        weight_map: names of objects to names of files, in the order of the index.
        files: the names of all files.
        total_size: bytes of all tensors.
        digests: of each file, where they are wanted.
    """
    metadata: dict[str, Any] = {"total_size": total_size}
    if digests is not None:
        metadata["digests"] = dict(zip(files, digests, strict=True))
    text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2) + "\n"
    return text.encode("ascii")
