"""Which files make a set: an index, a folder or a list, turned into paths and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    LimitError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    ZTensorError,
    describe,
)
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.opening import FIRST_OF_GGUF, INDEX_SUFFIX
from ztensor.sharded.naming import SHARD, WAITING, index_path, shard_paths
from ztensor.source.base import read_bytes
from ztensor.source.beneath import Beneath, cache_of
from ztensor.source.local import FileSource
from ztensor.source.paths import path_text
from ztensor.wire.json import charge as json_charge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_SAFETENSORS_INDEX = f".safetensors{INDEX_SUFFIX}"
_MAP = re.compile(r'"weight_map"[ \t\r\n]*:[ \t\r\n]*\{')
_TEXT = r'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*'
_PAIR = re.compile(f"{_TEXT}:{_TEXT}([,}}])")
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
    """

    name: str
    files: tuple[str, ...]
    weight_map: Mapping[str, str] | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    index: str | None = None
    roots: frozenset[str] | None = None

    def place(self, file: str) -> Beneath | str:
        """Return what opens one of `files`."""
        return file if self.roots is None else Beneath(file, self.roots)


def find_set(source: Any, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set a caller means.

    Args:
        source: an index, a folder, a list of paths, the first shard of a GGUF model, or the path
            of a file that is there only as shards beside an index. In a folder an index of `.zt`
            files decides, unless the file it is about is there too: then that one is the model.
            Without an index all `.zt` files are the model, and without those an index of other
            files decides, one of safetensors first; at last all `.safetensors` files are the
            model, or all shards of GGUF.
        limits: safety caps.

    Raises:
        FormatError: the index is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read, or a shard is missing.
        ArgumentTypeError: `source` is none of these.
        ArgumentValueError: a list is empty, or a folder has several indexes.
    """
    if isinstance(source, (list, tuple)):
        return _listed(source)
    path = path_text(source)
    if os.path.isdir(path):
        return _in_folder(path, limits)
    if FIRST_OF_GGUF.search(path):
        return _with_siblings(path)
    return read_index(path if path.endswith("index.json") else index_path(path), limits)


def _listed(source: Sequence[Any]) -> FileSet:
    if not source:
        raise ArgumentValueError("an empty list of files", expected="at least one path", found="[]")
    for item in source:
        if not isinstance(item, (str, os.PathLike)):
            raise ArgumentTypeError(
                "cannot open this as a part of a set", expected="a path", found=describe(item, 40)
            )
    files = tuple(os.path.abspath(path_text(item)) for item in source)
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ArgumentValueError("a list has one file twice", file=twice)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return FileSet(f"{files[0]}{more}", files)


def _in_folder(folder: str, limits: Limits) -> FileSet:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file())
    except OSError as error:
        raise SourceError.from_os(error, "cannot list the folder", folder) from error
    files = [name for name in names if name.endswith(".zt") and not WAITING.fullmatch(name)]
    # A finished save in one file is newer than the shards it replaces; in between both exist. So
    # do they while shards are written that will replace a file.
    files = [
        name
        for name in files
        if not (match := SHARD.fullmatch(name)) or match["stem"] + match["extension"] not in files
    ]
    indexes = [name for name in names if name.endswith(f".zt{INDEX_SUFFIX}")]
    if not files and not indexes:
        indexes = [name for name in names if name.endswith("index.json")]
        # Beside one of safetensors, others are about the same model as pickles.
        indexes = [name for name in indexes if name.endswith(_SAFETENSORS_INDEX)] or indexes
        if not indexes:
            files = [name for name in names if name.endswith(".safetensors")] or [
                name for name in names if name.endswith(".gguf") and SHARD.fullmatch(name)
            ]
    roots = frozenset(filter(None, (os.path.realpath(folder), cache_of(folder))))
    if len(indexes) > 1:
        raise ArgumentValueError(
            "the folder has several indexes; open the one that is meant",
            file=folder,
            found=", ".join(map(describe, indexes[:8])),
        )
    if indexes:
        whole = indexes[0].removesuffix(INDEX_SUFFIX)
        if whole not in files:
            index = os.path.join(folder, indexes[0])
            with contextlib.closing(Beneath(index, roots).open(mapped=False)):
                pass  # a link that leads out of the folder is refused
            return read_index(index, limits)
        files = [whole]
    if not files:
        raise SourceNotRegularError(
            "cannot open the folder",
            file=folder,
            expected="an index, .zt or .safetensors files, or shards of GGUF in it",
        )
    _require_complete(folder, files)
    paths = tuple(os.path.abspath(os.path.join(folder, name)) for name in files)
    return FileSet(folder, paths, roots=roots)


def _with_siblings(path: str) -> FileSet:
    """Return the set whose first shard a path is."""
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    match = SHARD.fullmatch(name)
    if match is None:  # a line break is in it
        return FileSet(path, (path,))
    whole = os.path.join(folder, match["stem"] + match["extension"])
    files = shard_paths(whole, int(match["count"]))
    _require_complete(folder, [name, *map(os.path.basename, filter(os.path.isfile, files))])
    roots = frozenset((os.path.realpath(folder), os.path.dirname(os.path.realpath(path))))
    return FileSet(path, tuple(files), roots=roots)


def _require_complete(folder: str, names: list[str]) -> None:
    """Raise where some of the files are shards of a set that is not there as a whole."""
    numbers: dict[tuple[str, int, str], set[int]] = {}
    for name in names:
        if match := SHARD.fullmatch(name):
            key = match["stem"], int(match["count"]), match["extension"]
            numbers.setdefault(key, set()).add(int(match["number"]))
    for (stem, count, extension), found in numbers.items():
        missing = [number for number in range(1, count + 1) if number not in found]
        if missing:
            raise SourceNotFoundError(
                "the folder has some shards of a set, and no index; a save or a download was "
                "interrupted: repeat it, or open those that are there as a list of paths",
                file=folder,
                expected=f"{describe(stem)}, {count} shards {describe(extension)}",
                found=f"{len(missing)} missing, the first is {missing[0]}",
            )


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
    path = os.path.abspath(path)
    try:
        index = parse_index(read_text(path, limits), limits)
    except ZTensorError as error:
        error.locate(file=path)
        raise
    folder, weight_map = os.path.dirname(path), index["weight_map"]
    names = sorted(set(weight_map.values()))
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path))}
    there = _names_in(folder)
    # What is not in the folder need not be looked for, name by name: an index may name a million.
    gone = {name for name in names if _is_plain(name) and name.lower() not in there}
    places = {name: _place_of(path, name, roots) for name in names if name not in gone}
    gone.update(name for name, place in places.items() if not os.path.isfile(place))
    if gone:
        missing = sorted(gone)
        lost = [one for one, name in weight_map.items() if name in gone]
        raise SourceNotFoundError(
            "the index names shards that are not there; fetch them again, or open those that are "
            "there as a list of paths",
            file=path,
            expected=some_of(missing),
            found=f"{len(missing)} of {len(names)} shards missing, and with them {some_of(lost)}",
        )
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


def read_text(path: str, limits: Limits) -> str:
    """Return what an index says, as text.

    Raises:
        FormatError: it is not UTF-8.
        LimitError: it is longer than the caps allow.
        SourceError: it cannot be read.
    """
    source = FileSource(path, mapped=False)
    with contextlib.closing(source):
        if source.size > limits.index_bytes:
            raise LimitError(
                "the index is longer than Limits.index_bytes; pass a larger one",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {limits.index_bytes} bytes",
                found=str(source.size),
            )
        data = read_bytes(source, 0, source.size)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise broken_index("the index is not UTF-8", found=str(error)) from error


def parse_index(text: str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return an index whose `weight_map` has a file's name for every object.

    Args:
        text: the index.
        limits: safety caps.

    Raises:
        FormatError: it is not JSON, has a name twice, or is of another shape.
        LimitError: it is nested too deeply, or would take far more memory than its length.
    """
    budget = Budget(limits, len(text))
    budget.charge_bytes(2 * len(text))
    try:
        index = _regular(text, budget)
        if index is None:
            json_charge(text.encode(errors="surrogatepass"), budget)
            index = json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise LimitError("the index is nested too deeply", reason=Reason.LIMIT_DEPTH) from error
    except (FormatError, LimitError):
        raise
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
        if not isinstance(file, str):
            raise broken_index(
                "the index gives no file for an object",
                expected="a file's name",
                found=f"{describe(file)} for {describe(name)}",
            )
    return index


def _regular(text: str, budget: Budget) -> Any:
    """Return an index as writers write it, None for any other.

    Its map is the most of it, and is read pair by pair: a file's name is one text then, however
    many objects are in the file. What is around the map is read as any JSON.
    """
    found = _MAP.search(text)
    if found is None or text.count('"weight_map"') != 1:
        return None
    stop = text.find("}", found.end())
    around = f"{text[: found.end()]}{text[stop:]}"
    if stop < 0 or "\\" in around:
        return None
    before = budget.bytes_left
    json_charge(around.encode(errors="surrogatepass"), budget)
    budget.charge_bytes(stop - found.end() + _PAIR_BYTES * text.count(":", found.end(), stop))
    weight_map: dict[str, str] = {}
    files: dict[str, str] = {}
    at, count = found.end(), 0
    while (pair := _PAIR.match(text, at)) is not None:
        name, file, mark = pair.groups()
        weight_map[name] = files.setdefault(file, file)
        count += 1
        at = pair.end()
        if mark == "}":
            break
    if at != stop + 1 or len(weight_map) < count:
        budget.release_to(before)
        return None
    index = json.loads(around, object_pairs_hook=_unique)
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
    raise broken_index(
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
    return f"{', '.join(map(describe, names[:3]))}{more}"


def state_of(path: str | None) -> tuple[int, ...] | None:
    """Return what differs between a file and the one that takes its name; None for no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
