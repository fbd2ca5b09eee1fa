"""Which files a caller means by an index, a folder, a list or the first shard of a model."""

from __future__ import annotations

import collections
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
from ztensor.io.shards.choosing import PIPELINE, chosen, require_complete
from ztensor.io.shards.folders import LocalFolder, RemoteFolder
from ztensor.io.shards.index import FileSet, read_index, read_remote_index
from ztensor.io.shards.naming import FIRST_OF_GGUF, SHARD, index_path, is_index, shard_paths
from ztensor.io.source.folders import RemoteFiles, folder_of, listed
from ztensor.io.source.paths import absolute_path, path_text
from ztensor.io.source.stores import absolute, is_remote, store_of
from ztensor.io.source.table import source_of
from ztensor.io.source.urls import Remote, is_option_store, path_of_file_url, remote_of
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.digest import ALGORITHMS, digest_of

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
    remotes: dict[str, Remote | RemoteFiles] = {}
    urls = [absolute(path_text(item)) for item in source]
    names = [without_secrets(url) for url in urls]
    counts = collections.Counter(names)
    files = tuple(
        f"{name}?id={_id(url)}" if counts[name] > 1 and url != name else name
        for name, url in zip(names, urls, strict=True)  # a query may choose the object
    )
    for file, item in zip(files, source, strict=True):
        if isinstance(item, RemoteFiles):
            remotes[file] = item
        elif isinstance(item, Remote) or is_remote(path_text(item)):
            remotes[file] = remote_of(item)
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ArgumentValueError("a list has one file twice", file=twice)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return FileSet(f"{files[0]}{more}", files, remotes=remotes)


def _id(url: str) -> str:
    """Return what tells a URL from others, but for a signature, and nothing of a secret in it."""
    text = store_of(url).unsigned(url)
    digest = digest_of(ALGORITHMS["sha256"], [text.encode("utf-8", "surrogateescape")])
    return digest.rpartition(":")[2][:16]


def _remote(remote: Remote, limits: Limits) -> FileSet:
    """Return the set that a URL means: an index, a folder, or the first shard of a GGUF model."""
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return find_set(path_of_file_url(remote.url), limits)
    if store_of(remote.url).names_folder(remote.url):
        return _in_remote_folder(remote, limits)
    name = remote.name.rpartition("/")[2]
    match = SHARD.fullmatch(name)
    if match is not None and FIRST_OF_GGUF.search(name):
        files = shard_paths(match["stem"] + match["extension"], int(match["count"]))
        remotes = {place.name: place for place in map(remote.beside, files)}
        return FileSet(remote.name, tuple(remotes), remotes=remotes)
    if name == PIPELINE:
        return _in_remote_folder(remote.beside(""), limits)
    if is_index(name):
        return read_remote_index(remote, limits)
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
    if not isinstance(source, (str, os.PathLike)):
        return None
    if not is_remote(path_text(source)):
        return None
    remote = remote_of(source)
    store = store_of(remote.url)
    if "?" in remote.url or store.names_folder(remote.url):
        return None
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return None
    index = Remote(index_path(remote.url), remote.storage, remote.cache)
    folder = folder_of(remote)
    with contextlib.suppress(SourceError):
        if store.is_there(index):
            return index
    with contextlib.suppress(SourceError, UsageError):
        if any(listed(folder) or ()):
            return folder
    return None


def _in_remote_folder(remote: Remote, limits: Limits) -> FileSet:
    folder = RemoteFolder(remote)
    place = opened_in(folder.remote, list(folder.names))
    if place is not None and not isinstance(place, str):
        return FileSet(folder.name, (place.name,), remotes={place.name: place})
    files = chosen(folder)
    if isinstance(files, str):
        return read_remote_index(folder.place(files), limits)
    require_complete(folder.name, files)
    remotes = {place.name: place for place in map(folder.place, files)}
    return FileSet(folder.name, tuple(remotes), remotes=remotes)


def _in_folder(path: str, limits: Limits) -> FileSet:
    folder = LocalFolder(path)
    files = chosen(folder)
    if isinstance(files, str):
        with contextlib.closing(source_of(folder.place(files), mapped=False)):
            pass  # a link that leads out of the folder is refused
        return read_index(folder.path(files), limits)
    require_complete(path, files)
    paths = tuple(os.path.abspath(folder.path(name)) for name in files)
    return FileSet(path, paths, roots=folder.roots)


def _with_siblings(path: str) -> FileSet:
    """Return the set whose first shard a path is."""
    path = absolute_path(path)
    folder, name = os.path.split(path)
    match = SHARD.fullmatch(name)
    if match is None:  # a line break is in it
        return FileSet(path, (path,))
    whole = os.path.join(folder, match["stem"] + match["extension"])
    files = shard_paths(whole, int(match["count"]))
    require_complete(folder, [name, *map(os.path.basename, filter(os.path.isfile, files))])
    roots = frozenset((os.path.realpath(folder), os.path.dirname(os.path.realpath(path))))
    return FileSet(path, tuple(files), roots=roots)
