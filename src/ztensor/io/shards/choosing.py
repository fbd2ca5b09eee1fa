"""Which files of a folder are its model: one rule for folders on disk, in stores and on hubs."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NoReturn, TypeAlias, Union

from ztensor.errors import (
    ArgumentValueError,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
    ZTensorError,
    describe,
)
from ztensor.io.formats import FORMATS, recognised
from ztensor.io.shards.naming import INDEX_SUFFIX, SHARD, STEP_NAME, WAITING, is_index
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.folders import folder_of, listed
from ztensor.io.source.paths import absolute_path
from ztensor.io.source.stores import Store
from ztensor.io.source.table import source_of
from ztensor.io.source.urls import Remote
from ztensor.showing import counted
from ztensor.spec.container.framing import MAGIC_1, MAGIC_2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Folder: TypeAlias = Union["LocalFolder", "RemoteFolder"]

# Names under which model hubs keep the one model of a folder, whatever else is beside it.
_SAFETENSORS = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_OTHERS = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin", "tf_model.h5")
# What is looked for where a server does not say what it has.
_SHARDED = ("model.zt", *_SAFETENSORS, *_OTHERS[:2])
_USUAL = (
    *(name + INDEX_SUFFIX for name in _SHARDED),
    *("model.zt", *_SAFETENSORS, "adapter_model.safetensors", *_OTHERS),
)
# What lies in the folder of a pipeline of diffusers, whose models are in folders of their own.
PIPELINE = "model_index.json"
_MOST_NAMED = 8  # files or folders that a message names


def chosen(folder: Folder) -> list[str] | str:
    """Return the files of a folder that are its model, or the index that tells them.

    Raises:
        ArgumentValueError: it has several models; the message names them.
        SourceNotRegularError: it has none.
        SourceError: a file in it could not be looked into.
    """
    names = folder.names
    ours = _finished(names, ".zt")
    if len(ours) > 1 and all(map(STEP_NAME.fullmatch, ours)):
        _refuse_steps(folder, ours)
    if ours or any(name.endswith(f".zt{INDEX_SUFFIX}") for name in names):
        return _by_index(folder, ".zt") or ours
    if PIPELINE in names:
        message = f"the folder is a pipeline of several models, as its {PIPELINE} says"
        _refuse_several(folder, filter(FORMATS.reads, names), message, folder.models_beneath())
    by_index = _by_index(folder, ".safetensors")
    if by_index:
        return by_index
    for name in _SAFETENSORS:
        if name in names and any(map(is_index, names)):
            return [name]  # the index is about the same model as pickles
    by_index = _by_index(folder, ".bin") or _by_index(folder, "")
    if by_index:
        return by_index
    shards = [name for name in names if SHARD.fullmatch(name)]
    files = _finished(names, ".safetensors") or [n for n in shards if n.endswith(".gguf")]
    files = files or next(([name] for name in _OTHERS if name in names), [])
    return files or [n for n in shards if n.endswith(".bin")] or [_only_one(folder)]


def _finished(names: Sequence[str], suffix: str) -> list[str]:
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


def _by_index(folder: Folder, suffix: str) -> list[str] | str | None:
    """Return the index of files of a suffix, or the file that replaces them; None without one."""
    names = folder.names
    indexes = [name for name in names if is_index(name) and name != PIPELINE]
    if suffix:
        indexes = [name for name in indexes if f"{suffix}.index." in name]
    else:  # those of formats that are not read are no help
        indexes = [
            name for name in indexes if FORMATS.reads(name.partition(".index.")[0])
        ] or indexes
    # Others are of a variant, such as model.safetensors.index.fp16.json.
    indexes = [name for name in indexes if name.endswith(INDEX_SUFFIX)] or indexes
    if len(indexes) > 1:
        _refuse_several(folder, indexes, "the folder has several indexes")
    if not indexes:
        return None
    whole = indexes[0].removesuffix(INDEX_SUFFIX)
    return [whole] if whole != indexes[0] and whole in names else indexes[0]


def _only_one(folder: Folder) -> str:
    """Return the only file of a folder that can be read."""
    visible = [name for name in folder.names if not name.startswith(".")]
    found: list[str] = []
    for some in (
        [name for name in visible if FORMATS.reads(name)],
        [name for name in visible if not FORMATS.reads(name)],
    ):
        looked_into = some[: folder.most_looked_into]
        found = [name for name in looked_into if _is_model(folder.place(name))]
        if found:
            break
    if len(found) > 1:
        _refuse_several(folder, found, "the folder has several files that can be read")
    if not found:
        beneath = list(folder.models_beneath())
        if beneath and all(map(STEP_NAME.fullmatch, beneath)):
            _refuse_steps(folder, beneath)
        error = SourceNotRegularError(
            "the folder has no file that can be read",
            file=folder.name,
            expected="an index of shards, or files of a format such as .zt, .safetensors or .bin",
        )
        error.hint = _hint_at([], beneath, folder)
        raise error
    return found[0]


def _is_model(place: Beneath | Remote) -> bool:
    """Return whether a file's first bytes are those of a format that is read."""
    try:
        with contextlib.closing(source_of(place, mapped=False)) as source:
            head = bytes(source.read(0, min(4, source.size)))
            return head in (MAGIC_1[:4], MAGIC_2[:4]) or recognised(source) is not None
    except ZTensorError:
        return False


def _refuse_several(
    folder: Folder, files: Iterable[str], message: str, folders: Iterable[str] = ()
) -> NoReturn:
    error = ArgumentValueError(message, file=folder.name)
    error.hint = _hint_at(files, folders, folder)
    raise error


def _refuse_steps(folder: Folder, steps: Sequence[str]) -> NoReturn:
    error = ArgumentValueError(
        "the folder has the steps of a training run, each with a state of its own",
        file=folder.name,
        found=counted(len(steps), "step"),
    )
    newest = max(steps, key=lambda name: int(name[5:].removesuffix(".zt")))
    error.hint = f"`ztensor ckpt ls` lists them; the newest is {describe(folder.path(newest), 200)}"
    error.in_python = "ztensor.CheckpointManager(folder).restore() gives the newest that is right"
    raise error


def _hint_at(files: Iterable[str], folders: Iterable[str], folder: Folder) -> str | None:
    """Return the sentence that says what a caller may name."""
    named = [describe(folder.path(name), 200) for name in (*folders, *files)]
    if not named:
        return None
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"name the one that is meant: {', '.join(named[:_MOST_NAMED])}{more}"


def require_complete(folder: str, names: Iterable[str]) -> None:
    """Raise where some of the files are shards of a set that is not there as a whole.

    Args:
        folder: what messages call it.
        names: of the files that were chosen.

    Raises:
        SourceNotFoundError: so it is.
    """
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


# --- Folders --------------------------------------------------------------------------------
#
# Both kinds have `name` and `path()` for messages, `names` of the files directly in it, in order,
# `place()`, which opens one of them, and `origin`, which finds the folder again. Of as many files
# as `most_looked_into` the first bytes are read.


class LocalFolder:
    """A folder on disk.

    Args:
        path: the folder.

    Raises:
        SourceError: it cannot be listed.
    """

    most_looked_into = 100

    def __init__(self, path: str) -> None:
        self.name = path
        self.origin = absolute_path(path)
        # Where its files may be, links followed.
        self._roots = Beneath.roots_of(path)
        try:
            with os.scandir(path) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
            self.names = [entry.name for entry in here if entry.is_file()]
            folders = [entry.name for entry in here if entry.is_dir(follow_symlinks=False)]
            self._folders = [name for name in folders if not name.startswith(".")]
        except OSError as error:
            raise SourceError.from_os(error, "cannot list the folder", path) from error

    def place(self, name: str) -> Beneath:
        """Return what opens one of its files."""
        return Beneath(os.path.join(self.origin, name), self._roots)

    def path(self, name: str) -> str:
        """Return the path of a file or folder in it."""
        return os.path.join(self.name, name)

    def models_beneath(self) -> list[str]:
        """Return the folders directly in it that have files of formats that are read."""
        found: list[str] = []
        for name in self._folders[: self.most_looked_into]:
            with contextlib.suppress(OSError):
                if any(map(FORMATS.reads, os.listdir(self.path(name)))):
                    found.append(name)
        return found


class RemoteFolder:
    """A folder of a store, a hub or an HTTP server.

    Of a server without lists, and of a store that forbids them, only the usual names of models are
    known: each is asked for.

    Args:
        remote: the folder, with a slash at its end or not.

    Raises:
        SourceNotFoundError: nothing is in it, or none of the names that are looked for.
        SourcePermissionError: it may not be listed, and has none of these names.
        SourceError: the place cannot be asked.
    """

    most_looked_into = 16  # of two requests each

    def __init__(self, remote: Remote) -> None:
        self.remote = self.origin = folder_of(remote)
        self.name = self.remote.name
        denied: SourcePermissionError | None = None
        try:
            tree = listed(self.remote)
        except SourcePermissionError as error:
            tree, denied = None, error
        self.names, self._folders = tree or (
            sorted(Store.of(self.remote.url).there(self.remote, _USUAL)),
            [],
        )
        if self.names or self._folders:
            return
        if denied is not None:
            raise denied
        missing = SourceNotFoundError("there is nothing in this folder", file=self.name)
        if tree is None:
            missing = SourceNotFoundError(
                "this server does not say what a folder has, and none of the usual names of "
                "models is in it",
                file=self.name,
                expected=", ".join(_USUAL),
            )
            missing.hint = "name a file, or the index of a sharded model"
        raise missing

    def place(self, name: str) -> Remote:
        """Return what opens one of its files."""
        return self.remote.beside(name)

    def path(self, name: str) -> str:
        """Return the URL of a file or folder in it."""
        return self.remote.beside(name).name

    def models_beneath(self) -> Sequence[str]:
        """Return the folders directly in it; what they have is not looked at."""
        return self._folders
