"""Whether a file is what the index of an older set says of it: only such files are removed."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, ZTensorError
from ztensor.io.contents import may_be_of_ours, open_file
from ztensor.io.shards.index import parse_index
from ztensor.io.shards.naming import SHARD, WAITING
from ztensor.io.source.base import read_bytes
from ztensor.io.source.removal import remove_file, remove_object
from ztensor.io.source.table import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import BinaryIO


def shards_named(data: bytes | bytearray, stem: str) -> dict[str, list[str]]:
    """Return the files that an index names and that are called as shards of a model are.

    Args:
        data: the index.
        stem: what the model is called.

    Returns:
        The names of each file's objects; empty where the index cannot be read.
    """
    shards: dict[str, list[str]] = {}
    with contextlib.suppress(ZTensorError):
        for name, file in parse_index(data)["weight_map"].items():
            match = SHARD.fullmatch(file) or WAITING.fullmatch(file)
            if match and match["stem"] == stem:
                shards.setdefault(file, []).append(name)
    return {file: shards[file] for file in sorted(shards)}


def remove_index(place: str | Remote) -> None:
    """Remove an index, where the file is one.

    Raises:
        OSError: it could not be removed.
    """
    if isinstance(place, Remote):
        remove_object(place, _is_index)
    else:
        remove_file(place, _is_index)


def remove_shard(place: str | Remote, names: Collection[str]) -> None:
    """Remove a shard, where the file has the objects that its index says.

    Raises:
        OSError: it could not be removed.
    """
    is_ours = functools.partial(_is_shard, names=names)
    if isinstance(place, Remote):
        remove_object(place, is_ours)
    else:
        remove_file(place, is_ours)


def _is_index(given: BinaryIO | Remote) -> bool:
    with (
        contextlib.suppress(ZTensorError),
        contextlib.closing(source_of(given, mapped=False)) as source,
    ):
        size = min(source.size, DEFAULT_LIMITS.index_bytes)
        parse_index(read_bytes(source, 0, size))
        return True
    return False


def _is_shard(given: BinaryIO | Remote, names: Collection[str]) -> bool:
    try:
        with contextlib.closing(open_file(given, mmap=False)) as file:
            objects = file.manifest.objects
            return all(name in objects for name in names)
    except FormatError:
        return may_be_of_ours(given)
    except ZTensorError:
        return False
