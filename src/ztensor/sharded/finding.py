"""Which files a caller means by an index, a folder, a list or the first shard of a model."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NoReturn

from ztensor.container.framing import MAGIC_1, MAGIC_2
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    ZTensorError,
    describe,
    without_secrets,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.model.formats import is_read_suffix
from ztensor.sharded.index import FileSet, read_index, read_remote_index
from ztensor.sharded.naming import (
    FIRST_OF_GGUF,
    INDEX_SUFFIX,
    SHARD,
    WAITING,
    index_path,
    is_index,
    shard_paths,
)
from ztensor.source.base import read_bytes
from ztensor.source.beneath import Beneath, cache_of
from ztensor.source.paths import path_text
from ztensor.source.table import absolute, is_remote
from ztensor.source.urls import Remote, remote_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# What lies in the folder of a pipeline of diffusers, whose models are in folders of their own.
PIPELINE = "model_index.json"
# Names under which model hubs keep the one model of a folder, whatever else is beside it.
_SAFETENSORS = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_OTHERS = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin", "tf_model.h5")
_MOST_NAMED = 8  # files or folders that a message names
_MOST_LOOKED_INTO = 100  # files whose first bytes are read, or folders that are searched
_MOST_DEEP = 3


def find_set(source: Any, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set a caller means.

    Args:
        source: an index, a folder, a list of paths, the first shard of a GGUF model, or the path
            of a file that is there only as shards beside an index. In a folder, these decide, the
            first that is there: an index of `.zt` files, unless the file it is about is there too
            and so is the model; all `.zt` files; an index of `.safetensors` files, likewise;
            `model.safetensors`; an index of other files, one of `.bin` first; all `.safetensors`
            files; the shards of a GGUF model; the name the hub has for a model of another
            format, such as `pytorch_model.bin`; shards of `.bin` files; the one file that can be
            read.
        limits: safety caps.

    Raises:
        FormatError: the index is damaged, or leads out of its folder.
        LimitError: it is larger or deeper than the caps allow.
        SourceError: it cannot be read, or a shard is missing, or the folder has no model.
        ArgumentTypeError: `source` is none of these.
        ArgumentValueError: a list is empty, or a folder has several models; the message names them.
    """
    if isinstance(source, (list, tuple)):
        return _listed(source)
    path = path_text(source)
    if is_remote(path) or isinstance(source, Remote):
        return _remote(remote_of(source), limits)
    if os.path.isdir(path):
        return _in_folder(path, limits)
    if FIRST_OF_GGUF.search(path):
        return _with_siblings(path)
    if os.path.basename(path) == PIPELINE and os.path.isfile(path):
        return _in_folder(os.path.dirname(path) or os.curdir, limits)
    return read_index(path if is_index(path) else index_path(path), limits)


def _listed(source: Sequence[Any]) -> FileSet:
    if not source:
        raise ArgumentValueError("an empty list of files", expected="at least one path")
    for item in source:
        if not isinstance(item, (str, os.PathLike)):
            raise ArgumentTypeError(
                "cannot open this as a part of a set", expected="a path", found=describe(item, 40)
            )
    remotes = {}
    for item in source:
        if isinstance(item, Remote) or is_remote(path_text(item)):
            remote = remote_of(item)
            remotes[remote.name] = remote
    files = tuple(without_secrets(absolute(path_text(item))) for item in source)
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ArgumentValueError("a list has one file twice", file=twice)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return FileSet(f"{files[0]}{more}", files, remotes=remotes)


def _remote(remote: Remote, limits: Limits) -> FileSet:
    """Return the set that the URL of an index means, or of the first shard of a GGUF model."""
    name = remote.name.rpartition("/")[2]
    match = SHARD.fullmatch(name)
    if match is None or not FIRST_OF_GGUF.search(name):
        return read_remote_index(remote, limits)
    files = shard_paths(match["stem"] + match["extension"], int(match["count"]))
    remotes = {place.name: place for place in map(remote.beside, files)}
    return FileSet(remote.name, tuple(remotes), remotes=remotes)


def _in_folder(folder: str, limits: Limits) -> FileSet:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file())
    except OSError as error:
        raise SourceError.from_os(error, "cannot list the folder", folder) from error
    roots = frozenset(filter(None, (os.path.realpath(folder), cache_of(folder))))
    chosen = _chosen(folder, names, roots)
    if isinstance(chosen, str):
        index = os.path.join(folder, chosen)
        with contextlib.closing(Beneath(index, roots).open(mapped=False)):
            pass  # a link that leads out of the folder is refused
        return read_index(index, limits)
    _require_complete(folder, chosen)
    paths = tuple(os.path.abspath(os.path.join(folder, name)) for name in chosen)
    return FileSet(folder, paths, roots=roots)


def _chosen(folder: str, names: list[str], roots: frozenset[str]) -> list[str] | str:
    """Return the files of a folder that are its model, or the index that tells them."""
    ours = _finished(names, ".zt")
    if ours or any(name.endswith(f".zt{INDEX_SUFFIX}") for name in names):
        return _by_index(folder, names, ".zt") or ours
    if PIPELINE in names:
        _refuse_pipeline(folder, names)
    by_index = _by_index(folder, names, ".safetensors")
    if by_index:
        return by_index
    for name in _SAFETENSORS:
        if name in names and any(map(is_index, names)):
            return [name]  # the index is about the same model as pickles
    by_index = _by_index(folder, names, ".bin") or _by_index(folder, names, "")
    if by_index:
        return by_index
    shards = [name for name in names if SHARD.fullmatch(name)]
    files = _finished(names, ".safetensors") or [n for n in shards if n.endswith(".gguf")]
    files = files or next(([name] for name in _OTHERS if name in names), [])
    return files or [n for n in shards if n.endswith(".bin")] or [_only_one(folder, names, roots)]


def _finished(names: list[str], suffix: str) -> list[str]:
    """Return the files of a suffix but for shards of a model that is there as one file, too.

    A finished save in one file is newer than the shards it replaces; in between both exist. So do
    they while shards are written that will replace a file.
    """
    files = [name for name in names if name.endswith(suffix) and not WAITING.fullmatch(name)]
    return [
        name
        for name in files
        if not (match := SHARD.fullmatch(name)) or match["stem"] + match["extension"] not in files
    ]


def _by_index(folder: str, names: list[str], suffix: str) -> list[str] | str | None:
    """Return the index of files of a suffix, or the file that replaces them; None without one."""
    indexes = [name for name in names if is_index(name) and name != PIPELINE]
    if suffix:
        indexes = [name for name in indexes if f"{suffix}.index." in name]
    else:  # those of formats that are not read are no help
        indexes = [
            name for name in indexes if is_read_suffix(name.partition(".index.")[0])
        ] or indexes
    # Others are of a variant, such as model.safetensors.index.fp16.json.
    indexes = [name for name in indexes if name.endswith(INDEX_SUFFIX)] or indexes
    if len(indexes) > 1:
        _refuse_several(folder, indexes, "the folder has several indexes")
    if not indexes:
        return None
    whole = indexes[0].removesuffix(INDEX_SUFFIX)
    return [whole] if whole != indexes[0] and whole in names else indexes[0]


def _only_one(folder: str, names: list[str], roots: frozenset[str]) -> str:
    """Return the only file of a folder that can be read."""
    visible = [name for name in names if not name.startswith(".")]
    found: list[str] = []
    for some in (
        [name for name in visible if is_read_suffix(name)],
        [name for name in visible if not is_read_suffix(name)],
    ):
        looked_into = some[:_MOST_LOOKED_INTO]
        found = [name for name in looked_into if _is_model(Beneath(_in(folder, name), roots))]
        if found:
            break
    if len(found) > 1:
        _refuse_several(folder, found, "the folder has several files that can be read")
    if not found:
        error = SourceNotRegularError(
            "the folder has no file that can be read",
            file=folder,
            expected="an index of shards, or files of a format such as .zt, .safetensors or .bin",
        )
        error.hint = _hint_at([], _models_beneath(folder), folder)
        raise error
    return found[0]


def _is_model(place: Beneath) -> bool:
    """Return whether a file's first bytes are those of a format that is read."""
    from ztensor.foreign import recognised

    try:
        with contextlib.closing(place.open(mapped=False)) as source:
            head = bytes(read_bytes(source, 0, min(4, source.size)))
            return head in (MAGIC_1[:4], MAGIC_2[:4]) or recognised(source) is not None
    except ZTensorError:
        return False


def _refuse_several(folder: str, files: list[str], message: str) -> NoReturn:
    error = ArgumentValueError(message, file=folder)
    error.hint = _hint_at(files, [], folder)
    raise error


def _refuse_pipeline(folder: str, names: list[str]) -> NoReturn:
    error = ArgumentValueError(
        f"the folder is a pipeline of several models, as its {PIPELINE} says", file=folder
    )
    files = [name for name in names if is_read_suffix(name)]
    error.hint = _hint_at(files, _models_beneath(folder), folder)
    raise error


def _hint_at(files: list[str], folders: list[str], folder: str) -> str | None:
    """Return the sentence that says what a caller may name."""
    named = [describe(_in(folder, name), 200) for name in (*folders, *files)]
    if not named:
        return None
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"name the one that is meant: {', '.join(named[:_MOST_NAMED])}{more}"


def _in(folder: str, name: str) -> str:
    return os.path.join(folder, name)


def _models_beneath(folder: str) -> list[str]:
    """Return the folders beneath a folder that have files of formats that are read."""
    found: list[str] = []
    waiting = [("", 0)]
    visited = 0
    while waiting and visited < _MOST_LOOKED_INTO:
        within, depth = waiting.pop(0)
        visited += 1
        with contextlib.suppress(OSError), os.scandir(_in(folder, within)) as entries:
            here = sorted(entries, key=lambda entry: entry.name)
            if within and any(is_read_suffix(entry.name) and entry.is_file() for entry in here):
                found.append(within)
            elif depth < _MOST_DEEP:
                waiting += [
                    (os.path.join(within, entry.name), depth + 1)
                    for entry in here
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                ]
    return found


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
            error = SourceNotFoundError(
                "the folder has some shards of a set, and no index; a save or a download was "
                "interrupted: repeat it, or name one of those that are there",
                file=folder,
                expected=f"{describe(stem)}, {count} shards {describe(extension)}",
                found=f"{len(missing)} missing, the first is {missing[0]}",
            )
            error.in_python = "a list of their paths opens those that are there"
            raise error
