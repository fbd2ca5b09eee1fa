"""What shards are called, how large they may be, and which objects come into which."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from ztensor.io.source.paths import path_of_file_url, path_text
from ztensor.io.source.stores import Store, is_remote
from ztensor.io.source.urls import Remote

if TYPE_CHECKING:
    from collections.abc import Iterable


# Of the file that tells where the objects of a sharded model are, behind the model's own name.
INDEX_SUFFIX = ".index.json"
_INDEX = re.compile(r"index(\.[^./\\]+)?\.json\Z")  # of a variant it is `.index.fp16.json`
# Shards of GGUF have no index: whoever names the first means all of them.
FIRST_OF_GGUF = re.compile(r"-00001-of-(?!0000[01])\d{5}\.gguf\Z")
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<extension>\.[^.]+)")
# Where a shard waits while an older one has its name.
WAITING = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}\.[0-9a-f]{8}(?P<extension>\.[^.]+)")
# A step of a training run, as `ztensor.training.checkpoints` calls them: a file, or a folder of
# files.
STEP_NAME = re.compile(r"step-([0-9]{8,18})(\.zt)?")


def shard_paths(path: str, count: int) -> list[str]:
    """Return where the shards of a file `model.zt` lie: `model-00001-of-00003.zt` and so on."""
    stem, extension = os.path.splitext(path)
    return [
        f"{stem}-{number:05d}-of-{count:05d}{extension or '.zt'}" for number in range(1, count + 1)
    ]


def index_path(path: str) -> str:
    """Return where the index of a file's shards lies: `model.zt.index.json`."""
    return path + INDEX_SUFFIX


def is_index(path: str) -> bool:
    """Return whether a path is called as the index of a sharded model is."""
    return _INDEX.search(path) is not None


def is_set(source: Any) -> bool:
    """Return whether a caller means several files."""
    if isinstance(source, (list, tuple)):
        return True
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = path_text(source)
    if is_remote(path):
        whole = path.partition("?")[0]
        if is_index(whole) or FIRST_OF_GGUF.search(whole) or Store.of(path).names_folder(path):
            return True
        # What a store has under a name that could be either is asked when it is opened.
        if not path.lower().startswith("file://") or isinstance(source, Remote):
            return False
        return is_set(path_of_file_url(path))
    if path.endswith((".json", ".gguf")) and (is_index(path) or FIRST_OF_GGUF.search(path)):
        return True
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return False
    except OSError:
        return os.path.exists(path + INDEX_SUFFIX)
    from ztensor.io.formats import opened_in  # one file needs none of it

    return opened_in(path) is None


def plan_shards(
    objects: Iterable[tuple[str, int, object]], limit: int
) -> list[tuple[list[str], int]]:
    """Return the names of each shard, and its bytes.

    Objects keep their order, and a shard is over the size only where one object is. Those that
    share their bytes come into one shard, which counts them once.

    Args:
        objects: name, bytes, and what is equal for objects that share their bytes; None where an
            object shares them with no other.
        limit: most bytes in a shard.
    """
    names: list[list[str]] = [[]]
    filled = [0]
    placed: dict[object, int] = {}
    for name, nbytes, sharing in objects:
        if sharing is not None and sharing in placed:
            names[placed[sharing]].append(name)
            continue
        if names[-1] and filled[-1] + nbytes > limit:
            names.append([])
            filled.append(0)
        names[-1].append(name)
        filled[-1] += nbytes
        if sharing is not None:
            placed[sharing] = len(names) - 1
    return list(zip(names, filled, strict=True))
