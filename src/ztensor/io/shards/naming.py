"""What shards are called, and which objects come into which."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# Of the file that tells where the objects of a sharded model are, behind the model's own name.
INDEX_SUFFIX = ".index.json"
# Of a variant it is `.index.fp16.json`; `model_index.json` is of a pipeline of diffusers.
_INDEX = re.compile(r"(?:\A|[./\\])index(\.[^./\\]+)?\.json\Z")
# Shards of GGUF have no index: whoever names the first means all of them.
FIRST_OF_GGUF = re.compile(r"(?P<stem>.+)-00001-of-(?P<count>(?!0000[01])\d{5})\.gguf")
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


def is_index(path: str) -> bool:
    """Return whether a path is called as the index of a sharded model is."""
    return _INDEX.search(path) is not None


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
        home = None if sharing is None else placed.get(sharing)
        if home is None:
            if names[-1] and filled[-1] + nbytes > limit:
                names.append([])
                filled.append(0)
            home = placed[sharing] = len(names) - 1
            filled[home] += nbytes
        names[home].append(name)
    return list(zip(names, filled, strict=True))
