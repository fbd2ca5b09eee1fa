"""Which files a caller means by an index, a folder, a list or the first shard of a model."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    SourceNotFoundError,
    UsageError,
    describe,
    without_secrets,
)
from ztensor.io.formats import opened_in
from ztensor.io.shards.choosing import (
    PIPELINE,
    Folder,
    LocalFolder,
    RemoteFolder,
    chosen,
    require_complete,
)
from ztensor.io.shards.index import FileSet, read_index, shown_name
from ztensor.io.shards.naming import FIRST_OF_GGUF, SHARD, index_path, is_index, shard_paths
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.folders import RemoteFiles, folder_of, listed
from ztensor.io.source.paths import absolute_path, path_of_file_url, path_text
from ztensor.io.source.stores import Store, is_remote
from ztensor.io.source.urls import Remote, is_option_store
from ztensor.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_set(source: Any, limits: Limits = DEFAULT_LIMITS) -> FileSet:
    """Return the set a caller means.

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
        return _remote(Remote(source), limits)
    if os.path.isdir(path):
        return _in_folder(LocalFolder(path), limits)
    path = absolute_path(path)
    if FIRST_OF_GGUF.search(path):
        return _with_siblings(path)
    if os.path.basename(path) == PIPELINE and os.path.isfile(path):
        return _in_folder(LocalFolder(os.path.dirname(path)), limits)
    return read_index(path if is_index(path) else index_path(path), limits)


def _remote(remote: Remote, limits: Limits) -> FileSet:
    """Return the set that a URL means: an index, a folder, or the first shard of a GGUF model."""
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return find_set(path_of_file_url(remote.url), limits)
    name = remote.name.rpartition("/")[2]
    is_folder = Store.of(remote.url).names_folder(remote.url)
    if is_folder or name == PIPELINE:
        folder = RemoteFolder(remote if is_folder else remote.beside(""))
        place = opened_in(folder.remote, list(folder.names))
        if place is not None and not isinstance(place, str):
            return FileSet(folder.name, [place], {place.name: place})
        return _in_folder(folder, limits)
    if FIRST_OF_GGUF.search(name):
        return _with_siblings(remote)
    if is_index(name):
        return read_index(remote, limits)
    instead = set_instead(remote)
    if instead is None:
        raise SourceNotFoundError(
            "no such object, and none beneath it; nor is there an index of that name",
            file=remote.name,
        )
    return _remote(instead, limits)


def set_instead(source: Any) -> Remote | None:
    """Return the index or the folder that is there where a URL names no object; None for neither.

    Args:
        source: what a caller passed, which could not be found.
    """
    if not isinstance(source, (str, os.PathLike)) or not is_remote(path_text(source)):
        return None
    remote = Remote(source)
    store = Store.of(remote.url)
    if "?" in remote.url or store.names_folder(remote.url):
        return None
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return None
    index = Remote(index_path(remote.url), remote.storage, remote.cache)
    folder = folder_of(remote)
    with contextlib.suppress(SourceError):
        if store.look(index) is not None:
            return index
    with contextlib.suppress(SourceError, UsageError):
        if any(listed(folder) or ()):
            return folder
    return None


def _in_folder(folder: Folder, limits: Limits) -> FileSet:
    files = chosen(folder)
    if isinstance(files, str):
        return read_index(folder.place(files), limits)
    require_complete(folder.name, files)
    return _of_places(folder.name, folder.origin, list(map(folder.place, files)))


def _with_siblings(first: str | Remote) -> FileSet:
    """Return the set of the shards beside the first of them."""
    name = shown_name(first)
    folder, base = os.path.split(name)
    match = SHARD.fullmatch(base)
    if match is None:  # a line break is in it
        return FileSet(name, first, {name: first})
    files = shard_paths(match["stem"] + match["extension"], int(match["count"]))
    if isinstance(first, Remote):
        return _of_places(name, first, list(map(first.beside, files)))
    paths = [os.path.join(folder, file) for file in files]
    require_complete(folder, [base, *map(os.path.basename, filter(os.path.isfile, paths))])
    roots = frozenset((os.path.realpath(folder), os.path.dirname(os.path.realpath(first))))
    return _of_places(name, first, [Beneath(path, roots) for path in paths])


def _of_places(name: str, origin: Any, places: Sequence[Beneath | Remote]) -> FileSet:
    return FileSet(name, origin, {shown_name(place): place for place in places})


def _listed(source: Sequence[Any]) -> FileSet:
    if not source:
        raise ArgumentValueError("an empty list of files", expected="at least one path")
    for item in source:
        if not isinstance(item, (str, os.PathLike)):
            raise ArgumentTypeError(
                "cannot open this as a part of a set", expected="a path", found=describe(item, 40)
            )
    places: dict[str, Any] = {}
    urls: set[str] = set()
    for item in source:
        url = path_text(item, absolute=True)
        file = without_secrets(url)
        if url in urls:
            raise ArgumentValueError("a list has one file twice", file=file)
        urls.add(url)
        if file in places:  # their queries, which may have a secret, tell them apart
            file = f"{file} ({len(places) + 1})"
        places[file] = url
        if isinstance(item, RemoteFiles):
            places[file] = item
        elif isinstance(item, Remote) or is_remote(path_text(item)):
            places[file] = Remote(item)
    first, more = next(iter(places)), len(places) - 1
    return FileSet(f"{first} and {more} more" if more else first, list(places.values()), places)
