"""Which files a caller means by an index, a folder, a list or the first shard of a model.

Of a folder there is one rule, for those on disk, in stores and on hubs.
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
    """Return what finds the set a caller means; None where one file is meant.

    Args:
        source: an index, a folder, a list of paths, the first shard of a GGUF model, or the path
            of a file that is there only as shards beside an index; each of them on disk or as a
            URL. In a folder, these decide, the first that is there: an index of `.zt` files, unless
            the file it is about is there too and so is the model; all `.zt` files; an index of
            `.safetensors` files, likewise; `model.safetensors`; an index of other files, one of
            `.bin` first; all `.safetensors` files; the shards of a GGUF model; the name the hub has
            for a model of another format, such as `pytorch_model.bin`; shards of `.bin` files; the
            one file that can be read.
        limits: safety caps.
        is_missing: whether a store is asked what is there in place of an object: an index of that
            name, or a folder.

    Raises:
        ZTensorError: the finder does, what `ztensor.io.shards.objects.open_set` does.
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
    """Return what finds the set that a URL means: an index, a folder, the first shard of GGUF."""
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
    """Return the set of the shards beside the first of them."""
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
                "cannot open this as a part of a set", expected="a path", found=describe(item, 40)
            )
        url = path_text(item, absolute=True)
        file = without_secrets(url)
        place = Remote(item) if isinstance(item, Remote) or is_remote(url) else url
        if file in places:  # their queries, which may have a secret, tell them apart
            if place in places.values():
                raise ArgumentValueError("a list has one file twice", file=file)
            file = f"{file} ({len(places) + 1})"
        places[file] = place
    first, more = next(iter(places)), len(places) - 1
    return FileSet(f"{first} and {more} more" if more else first, list(places.values()), places)


# --- Folders ------------------------------------------------------------------------------------

# Names under which model hubs keep the one model of a folder, whatever else is beside it.
_SAFETENSORS = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_OTHERS = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin", "tf_model.h5")
# What is looked for where a server does not say what it has.
_SHARDED = ("model.zt", *_SAFETENSORS, *_OTHERS[:2])
_USUAL = (
    *(name + naming.INDEX_SUFFIX for name in _SHARDED),
    *("model.zt", *_SAFETENSORS, "adapter_model.safetensors", *_OTHERS),
)
# What lies in the folder of a pipeline of diffusers, whose models are in folders of their own.
_PIPELINE = "model_index.json"
_MOST_NAMED = 8  # files or folders that a message names
# Of as many files or folders the contents are looked at; those of a store cost requests.
_MOST_LOCAL, _MOST_REMOTE = 100, 16


class Folder(NamedTuple):
    """A folder on disk, or of a store, a hub or an HTTP server.

    Attributes:
        name: what messages call it.
        origin: finds it again.
        names: the files directly in it, in order.
        folders: the folders directly in it.
        place: gives what opens one of its files.
    """

    name: str
    origin: str | Remote
    names: Sequence[str]
    folders: Sequence[str]
    place: Callable[[str], Beneath | Remote]

    @property
    def models_beneath(self) -> list[str]:
        """The folders in it that have files of formats that are read; in a store, all of them."""
        if isinstance(self.origin, Remote):
            return [*self.folders]
        files = {name: names_in(shown_name(self.place(name))) for name in self.folders}
        return [name for name in files if FORMATS.readable(files[name])]

    def told(self, names: Iterable[str]) -> str | None:
        """Return the sentence that says what a caller may name; None where that is nothing."""
        paths = [shown_name(self.place(name)) for name in names]
        return f"name the one that is meant: {some_of(paths, _MOST_NAMED)}" if paths else None


def local_folder(path: str) -> Folder:
    """Return a folder on disk.

    Raises:
        SourceError: it cannot be listed.
    """
    origin, roots = absolute_path(path), Beneath.roots_of(path)  # links followed
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

    Of a server without lists, and of a store that forbids them, only the usual names of models are
    known: each is asked for.

    Args:
        given: the folder, with a slash at its end or not.

    Raises:
        SourceNotFoundError: nothing is in it, or none of the names that are looked for.
        SourcePermissionError: it may not be listed, and has none of these names.
        SourceError: the place cannot be asked.
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
    message = "there is nothing in this folder"
    if tree is None:
        message = (
            "this server does not say what a folder has, and none of the usual names of models is "
            "in it; name a file, or the index of a sharded model"
        )
    raise denied or SourceNotFoundError(message, file=remote.name)


def chosen(folder: Folder) -> list[str] | str:
    """Return the files of a folder that are its model, or the index that tells them.

    Raises:
        ArgumentValueError: it has several models; the message names them.
        SourceNotRegularError: it has none.
        SourceError: a file in it could not be looked into.
    """
    names = folder.names
    ours = _finished(names, ".zt")
    if len(ours) > 1 and all(map(naming.STEP_NAME.fullmatch, ours)):
        raise _steps(folder, ours)
    if ours or any(name.endswith(f".zt{naming.INDEX_SUFFIX}") for name in names):
        return _by_index(folder, ".zt") or ours
    if _PIPELINE in names:
        message = f"the folder is a pipeline of several models, as its {_PIPELINE} says"
        models = [*folder.models_beneath, *FORMATS.readable(names)]
        raise _several(folder, message, models)
    shards = [name for name in names if naming.SHARD.fullmatch(name)]
    has_index = any(map(naming.is_index, names))
    return (
        _by_index(folder, ".safetensors")
        # An index beside them is about the same model as pickles.
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
    """Return the files of a suffix but for shards of a model that is there as one file, too.

    A finished save in one file is newer than the shards it replaces; in between both exist. So do
    they while shards are written that will replace a file.
    """
    files = [name for name in names if name.endswith(suffix) and not naming.WAITING.fullmatch(name)]
    shards = filter(None, map(naming.SHARD.fullmatch, files))
    replaced = {shard[0] for shard in shards if shard["stem"] + shard["extension"] in files}
    return [name for name in files if name not in replaced]


def _by_index(folder: Folder, suffix: str) -> list[str] | str | None:
    """Return the index of files of a suffix, or the file that replaces them; None without one."""
    names = folder.names
    indexes = [name for name in filter(naming.is_index, names) if f"{suffix}.index." in f".{name}"]
    # Those of formats that are not read are no help; others are of a variant, such as
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
    """Return the only file of a folder that can be read."""
    visible = [name for name in folder.names if not name.startswith(".")]
    readable = dict.fromkeys(FORMATS.readable(visible))
    others = [name for name in visible if name not in readable]
    found = _models(folder, readable) or _models(folder, others)
    if len(found) > 1:
        raise _several(folder, "the folder has several files that can be read", found)
    if found:
        return found[0]
    beneath = folder.models_beneath
    if beneath and all(map(naming.STEP_NAME.fullmatch, beneath)):
        raise _steps(folder, beneath)
    error = SourceNotRegularError(
        "the folder has no file that can be read",
        file=folder.name,
        expected="an index of shards, or files of a format such as .zt, .safetensors or .bin",
    )
    error.hint = folder.told(beneath)
    raise error


def _models(folder: Folder, names: Iterable[str]) -> list[str]:
    """Return the files whose first bytes are those of a format that is read."""
    most = _MOST_REMOTE if isinstance(folder.origin, Remote) else _MOST_LOCAL
    found = []
    for name in [*names][:most]:
        with (
            contextlib.suppress(ZTensorError),
            contextlib.closing(source_of(folder.place(name), mapped=False)) as source,
        ):
            head = bytes(source.read(0, min(4, source.size)))
            if head in (MAGIC_1[:4], MAGIC_2[:4]) or recognised(source) is not None:
                found.append(name)
    return found


def _several(folder: Folder, message: str, names: Iterable[str]) -> ArgumentValueError:
    error = ArgumentValueError(message, file=folder.name)
    error.hint = folder.told(names)
    return error


def _steps(folder: Folder, steps: Sequence[str]) -> ArgumentValueError:
    message = "the folder has the steps of a training run, each with a state of its own"
    newest = max(steps, key=lambda name: int(name[5:].removesuffix(".zt")))
    error = _several(folder, f"{message}; here is the newest", [newest])
    error.in_python = "ztensor.CheckpointManager(folder).restore() gives the newest that is right"
    return error


def _require_complete(folder: str, names: Iterable[str]) -> None:
    """Raise where some of the files are shards of a set that is not there as a whole.

    Raises:
        SourceNotFoundError: so it is.
    """
    numbers: dict[tuple[str, ...], set[int]] = {}
    for match in filter(None, map(naming.SHARD.fullmatch, names)):
        key = match.group("stem", "extension", "count")
        numbers.setdefault(key, set()).add(int(match["number"]))
    for (stem, extension, count), found in numbers.items():
        missing = [number for number in range(1, int(count) + 1) if number not in found]
        if missing:
            error = SourceNotFoundError(
                "the folder has some shards of a set, and no index; a save or a download was "
                "interrupted: repeat it, or name one of those that are there",
                file=folder,
                expected=f"{describe(stem)}, {int(count)} shards {describe(extension)}",
                found=f"{len(missing)} missing, the first is {missing[0]}",
            )
            error.in_python = "a list of their paths opens those that are there"
            raise error
