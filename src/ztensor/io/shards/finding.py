"""Find the files for an index, a folder, a list of paths, or the first shard of a model.

One rule chooses the model of a folder, on disk, in stores and on hubs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
    UsageError,
    ZTensorError,
    describe,
    without_secrets,
)
from ztensor.io.formats import FORMATS, opened_in, recognised
from ztensor.io.shards import naming
from ztensor.io.shards.index import FileSet, read_index, shown_name, some_of
from ztensor.io.source.beneath import Beneath, folder_of, listed, names_in
from ztensor.io.source.paths import absolute_path, path_of_file_url, path_text
from ztensor.io.source.stores import Store, is_remote, source_of
from ztensor.io.source.urls import Remote, is_option_store
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.container.framing import MAGIC_1, MAGIC_2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Finder = Callable[[], FileSet]


def finder_of(
    source: Any, limits: Limits = DEFAULT_LIMITS, *, is_missing: bool = False
) -> Finder | None:
    """Return a function that finds the set of files for an argument; None for a single file.

    Args:
        source: an index, a folder, a list of paths, the first shard of a GGUF model, or the path
            of a model that exists only as shards with an index; on disk or as a URL. In a folder
            the first of these that exists is chosen: an index of `.zt` files (or the complete file
            if that exists too); all `.zt` files; an index of `.safetensors` files, likewise;
            `model.safetensors`; another index, preferring `.bin`; all `.safetensors` files; the
            shards of a GGUF model; a model name of the hub such as `pytorch_model.bin`; shards of
            `.bin` files; the only readable file.
        limits: safety caps.
        is_missing: True asks a store for an index of that name, or a folder, since it has no object
            of the name.

    Raises:
        ZTensorError: only the returned function raises, as `open_set`.
    """
    if isinstance(source, (list, tuple)):
        return functools.partial(_listed, source)
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = path_text(source)
    if isinstance(source, Remote) or is_remote(path):
        remote = Remote(source)
        is_local = path.lower().startswith("file://") and is_option_store(remote.storage)
        if not is_local:
            return _remote(remote, limits, is_missing=is_missing)
        path = path_of_file_url(path)
    if os.path.isdir(path):
        return None if opened_in(path) else functools.partial(_in_folder, path, limits)
    if first := naming.FIRST_OF_GGUF.fullmatch(os.path.basename(path)):
        return functools.partial(_with_siblings, absolute_path(path), first)
    if not naming.is_index(path):
        if os.path.exists(path) or not os.path.exists(path + naming.INDEX_SUFFIX):
            return None
        path += naming.INDEX_SUFFIX
    return functools.partial(read_index, absolute_path(path), limits)


def _remote(remote: Remote, limits: Limits, *, is_missing: bool) -> Finder | None:
    """Return a function that finds the set of a URL; see `finder_of`."""
    store, name = Store.of(remote.url), remote.name.rpartition("/")[2]
    if store.names_folder(remote.url):
        return functools.partial(_in_folder, remote, limits)
    if first := naming.FIRST_OF_GGUF.fullmatch(name):
        return functools.partial(_with_siblings, remote, first)
    if naming.is_index(name):
        return functools.partial(read_index, remote, limits)
    if not is_missing or "?" in remote.url:
        return None
    index = Remote(remote.url + naming.INDEX_SUFFIX, remote.storage, remote.cache)
    with contextlib.suppress(SourceError):
        if store.look(index) is not None:
            return functools.partial(read_index, index, limits)
    folder = folder_of(remote)
    with contextlib.suppress(SourceError, UsageError):
        if any(listed(folder) or ()):
            return functools.partial(_in_folder, folder, limits)
    return None


def _in_folder(given: str | Remote, limits: Limits) -> FileSet:
    if isinstance(given, Remote):
        folder = remote_folder(given)
        whole = opened_in(folder.origin, [*folder.names])
        if whole is not None:
            return FileSet(folder.name, given, {shown_name(whole): whole})
    else:
        folder = local_folder(given)
    files = chosen(folder)
    if isinstance(files, str):
        return read_index(folder.place(files), limits)
    _require_complete(folder.name, files)
    return _of_places(folder.name, folder.origin, list(map(folder.place, files)))


def _with_siblings(first: str | Remote, match: re.Match[str]) -> FileSet:
    """Return the set of all shards in the folder of the first."""
    files = naming.shard_paths(f"{match['stem']}.gguf", int(match["count"]))
    if isinstance(first, Remote):
        return _of_places(first.name, first, list(map(first.beside, files)))
    folder = os.path.dirname(first)
    _require_complete(folder, [f for f in files if os.path.isfile(os.path.join(folder, f))])
    return _of_places(first, first, [Beneath.beside(first, (file,)) for file in files])


def _of_places(name: str, origin: Any, places: Sequence[Beneath | Remote]) -> FileSet:
    return FileSet(name, origin, {shown_name(place): place for place in places})


def _listed(source: Sequence[Any]) -> FileSet:
    if not source:
        raise ArgumentValueError("an empty list of files", expected="at least one path")
    places: dict[str, Any] = {}
    for item in source:
        if not isinstance(item, (str, os.PathLike)):
            raise ArgumentTypeError(
                "cannot open this as a file of a set", expected="a path", found=describe(item, 40)
            )
        url = path_text(item, absolute=True)
        file = without_secrets(url)
        place = Remote(item) if isinstance(item, Remote) or is_remote(url) else url
        if file in places:  # URLs that differ only in their queries, which may have secrets
            if place in places.values():
                raise ArgumentValueError("the list has this file twice", file=file)
            file = f"{file} ({len(places) + 1})"
        places[file] = place
    first, more = next(iter(places)), len(places) - 1
    return FileSet(f"{first} and {more} more" if more else first, list(places.values()), places)


# --- Folders ------------------------------------------------------------------------------------

# Names that model hubs use for the model of a folder, whatever else the folder has.
_SAFETENSORS = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_OTHERS = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin", "tf_model.h5")
# Names to try on a server that cannot list a folder.
_SHARDED = ("model.zt", *_SAFETENSORS, *_OTHERS[:2])
_USUAL = (
    *(name + naming.INDEX_SUFFIX for name in _SHARDED),
    *("model.zt", *_SAFETENSORS, "adapter_model.safetensors", *_OTHERS),
)
# Marks the folder of a diffusers pipeline, whose models are in subfolders.
_PIPELINE = "model_index.json"
_MOST_NAMED = 8  # files or folders that a message names
# The most files or subfolders to examine; in a store each costs a request.
_MOST_LOCAL, _MOST_REMOTE = 100, 16


class Folder(NamedTuple):
    """A folder on disk, or of a store, a hub or an HTTP server.

    Attributes:
        name: the name in messages.
        origin: the path or URL.
        names: the names of its files, sorted; subfolders not included.
        folders: the names of its subfolders.
        place: returns the openable place of one of its files.
    """

    name: str
    origin: str | Remote
    names: Sequence[str]
    folders: Sequence[str]
    place: Callable[[str], Beneath | Remote]

    @property
    def model_folders(self) -> list[str]:
        """Return the subfolders with readable files; in a store, all subfolders."""
        if isinstance(self.origin, Remote):
            return [*self.folders]
        files = {name: names_in(shown_name(self.place(name))) for name in self.folders}
        return [name for name in files if FORMATS.readable(files[name])]

    def hint(self, names: Iterable[str]) -> str | None:
        """Return a hint to open one of these files or subfolders; None without names."""
        paths = [shown_name(self.place(name)) for name in names]
        return f"open one of them: {some_of(paths, _MOST_NAMED)}" if paths else None


def local_folder(path: str) -> Folder:
    """Return a folder on disk.

    Raises:
        SourceError: the folder cannot be listed.
    """
    origin, roots = absolute_path(path), Beneath.roots_of(path)  # with links resolved
    try:
        with os.scandir(path) as entries:
            here = sorted(entries, key=lambda entry: entry.name)
        files = [entry.name for entry in here if entry.is_file()]
        folders = [entry.name for entry in here if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise SourceError.from_os(error, "cannot list the folder", path) from error
    folders = [name for name in folders if not name.startswith(".")][:_MOST_LOCAL]
    return Folder(
        path, origin, files, folders, lambda name: Beneath(os.path.join(origin, name), roots)
    )


def remote_folder(given: Remote) -> Folder:
    """Return a folder of a store, a hub or an HTTP server.

    If the server cannot list or the store forbids it, the usual names of models are requested one
    by one.

    Args:
        given: the folder, with or without a slash at its end.

    Raises:
        SourceNotFoundError: the folder is empty, or has none of the usual names.
        SourcePermissionError: listing is forbidden, and none of the usual names exists.
        SourceError: the server does not answer.
    """
    remote = folder_of(given)
    denied: SourcePermissionError | None = None
    try:
        tree = listed(remote)
    except SourcePermissionError as error:
        tree, denied = None, error
    names, folders = tree or (sorted(Store.of(remote.url).there(remote, _USUAL)), [])
    if names or folders:
        return Folder(remote.name, remote, names, folders, remote.beside)
    message = "the folder is empty or missing"
    if tree is None:
        message = (
            "this server cannot list folders, and none of the usual names of models exists; "
            "name a file, or the index of a sharded model"
        )
    raise denied or SourceNotFoundError(message, file=remote.name)


def chosen(folder: Folder) -> list[str] | str:
    """Return the files of a folder's model, or the name of its index.

    Raises:
        ArgumentValueError: the folder has several models; the message names them.
        SourceNotRegularError: the folder has no model.
        SourceError: a file in it could not be read.
    """
    names = folder.names
    ours = _finished(names, ".zt")
    if len(ours) > 1 and all(map(naming.STEP_NAME.fullmatch, ours)):
        raise _steps(folder, ours)
    if ours or any(name.endswith(f".zt{naming.INDEX_SUFFIX}") for name in names):
        return _by_index(folder, ".zt") or ours
    if _PIPELINE in names:
        message = f"the folder is a pipeline of several models, according to {_PIPELINE}"
        models = [*folder.model_folders, *FORMATS.readable(names)]
        raise _several(folder, message, models)
    shards = [name for name in names if naming.SHARD.fullmatch(name)]
    has_index = any(map(naming.is_index, names))
    return (
        _by_index(folder, ".safetensors")
        # Another index in the folder describes the same model as pickles.
        or [name for name in _SAFETENSORS if has_index and name in names][:1]
        or _by_index(folder, ".bin")
        or _by_index(folder, "")
        or _finished(names, ".safetensors")
        or [name for name in shards if name.endswith(".gguf")]
        or [name for name in _OTHERS if name in names][:1]
        or [name for name in shards if name.endswith(".bin")]
        or [_only_one(folder)]
    )


def _finished(names: Sequence[str], suffix: str) -> list[str]:
    """Return the files of a suffix, without the shards of a model that also exists as one file.

    Both exist while a save replaces shards by a file, or a file by shards. The file is complete.
    """
    files = [name for name in names if name.endswith(suffix) and not naming.WAITING.fullmatch(name)]
    shards = filter(None, map(naming.SHARD.fullmatch, files))
    replaced = {shard[0] for shard in shards if shard["stem"] + shard["extension"] in files}
    return [name for name in files if name not in replaced]


def _by_index(folder: Folder, suffix: str) -> list[str] | str | None:
    """Return the index for files of a suffix, or the complete file; None without an index."""
    names = folder.names
    indexes = [name for name in filter(naming.is_index, names) if f"{suffix}.index." in f".{name}"]
    # Prefer indexes of readable formats, then those without a variant, such as
    # model.safetensors.index.fp16.json.
    indexes = [n for n in indexes if FORMATS.readable([n.partition(".index.")[0]])] or indexes
    indexes = [name for name in indexes if name.endswith(naming.INDEX_SUFFIX)] or indexes
    if len(indexes) > 1:
        raise _several(folder, "the folder has several indexes", indexes)
    if not indexes:
        return None
    whole = indexes[0].removesuffix(naming.INDEX_SUFFIX)
    return [whole] if whole != indexes[0] and whole in names else indexes[0]


def _only_one(folder: Folder) -> str:
    """Return the only readable file of a folder."""
    visible = [name for name in folder.names if not name.startswith(".")]
    readable = dict.fromkeys(FORMATS.readable(visible))
    others = [name for name in visible if name not in readable]
    models = _models(folder, readable) or _models(folder, others)
    if len(models) > 1:
        raise _several(folder, "the folder has several readable files", models)
    if models:
        return models[0]
    subfolders = folder.model_folders
    if subfolders and all(map(naming.STEP_NAME.fullmatch, subfolders)):
        raise _steps(folder, subfolders)
    error = SourceNotRegularError(
        "the folder has no readable file",
        file=folder.name,
        expected="an index of shards, or files of a format such as .zt, .safetensors or .bin",
    )
    error.hint = folder.hint(subfolders)
    raise error


def _models(folder: Folder, names: Iterable[str]) -> list[str]:
    """Return the files whose content is of a readable format."""
    most = _MOST_REMOTE if isinstance(folder.origin, Remote) else _MOST_LOCAL
    models = []
    for name in [*names][:most]:
        with (
            contextlib.suppress(ZTensorError),
            contextlib.closing(source_of(folder.place(name), mapped=False)) as source,
        ):
            head = bytes(source.read(0, min(4, source.size)))
            if head in (MAGIC_1[:4], MAGIC_2[:4]) or recognised(source) is not None:
                models.append(name)
    return models


def _several(folder: Folder, message: str, names: Iterable[str]) -> ArgumentValueError:
    error = ArgumentValueError(message, file=folder.name)
    error.hint = folder.hint(names)
    return error


def _steps(folder: Folder, steps: Sequence[str]) -> ArgumentValueError:
    newest = max(steps, key=lambda name: int(name[5:].removesuffix(".zt")))
    error = _several(folder, "the folder has the steps of a training run", [newest])
    error.in_python = "ztensor.CheckpointManager(folder).restore() loads the newest valid step"
    return error


def _require_complete(folder: str, names: Iterable[str]) -> None:
    """Require that sets of shards among the files are complete.

    Raises:
        SourceNotFoundError: a shard is missing.
    """
    numbers: dict[tuple[str, ...], set[int]] = {}
    for match in filter(None, map(naming.SHARD.fullmatch, names)):
        key = match.group("stem", "extension", "count")
        numbers.setdefault(key, set()).add(int(match["number"]))
    for (stem, extension, count), present in numbers.items():
        missing = [number for number in range(1, int(count) + 1) if number not in present]
        if missing:
            error = SourceNotFoundError(
                "shards are missing, and there is no index; a save or a download was interrupted: "
                "repeat it, or open one of the files",
                file=folder,
                expected=f"{describe(stem)}, {int(count)} shards {describe(extension)}",
                found=f"{len(missing)} missing, the first is {missing[0]}",
            )
            error.in_python = "a list of their paths opens the shards that exist"
            raise error
