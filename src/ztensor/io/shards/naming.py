"""Names of shards and indexes, and the distribution of objects to shards."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# The suffix of an index, after the name of the model's file.
INDEX_SUFFIX = ".index.json"
# Variants have `.index.fp16.json`. `model_index.json` describes a pipeline of diffusers.
_INDEX = re.compile(r"(?:\A|[./\\])index(\.[^./\\]+)?\.json\Z")
# GGUF shards have no index: the name of the first stands for all.
FIRST_OF_GGUF = re.compile(r"(?P<stem>.+)-00001-of-(?P<count>(?!0000[01])\d{5})\.gguf")
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<extension>\.[^.]+)")
# The temporary name of a new shard while an older one has its final name.
WAITING = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}\.[0-9a-f]{8}(?P<extension>\.[^.]+)")
# The name of a step of a training run in `ztensor.training.checkpoints`: a file or a folder.
STEP_NAME = re.compile(r"step-([0-9]{8,18})(\.zt)?")


def shard_paths(path: str, count: int) -> list[str]:
    """Return the paths of the shards of `model.zt`: `model-00001-of-00003.zt` and so on."""
    stem, extension = os.path.splitext(path)
    return [
        f"{stem}-{number:05d}-of-{count:05d}{extension or '.zt'}" for number in range(1, count + 1)
    ]


def is_index(path: str) -> bool:
    """Return whether a path has the name of an index."""
    return _INDEX.search(path) is not None


def plan_shards(
    objects: Iterable[tuple[str, int, object]], limit: int
) -> list[tuple[list[str], int]]:
    """Distribute objects to shards. Return (names, bytes) of each shard.

    Objects keep their order. A shard exceeds the limit only if a single object does. Objects that
    share their bytes go to one shard and count once.

    Args:
        objects: (name, bytes, key); equal keys mean shared bytes, None means not shared.
        limit: the most bytes of a shard.
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
