"""Recognize folders of torch.distributed.checkpoint, and find their roots."""

from __future__ import annotations

import os
import re

from ztensor import Remote
from ztensor.errors import ArgumentValueError, SourceError, describe
from ztensor.ext import Format, Look, Store

ROOT = ".metadata"
DATA = ".distcp"
# Processes that save without collectives write a root each.
_OWN_ROOT = re.compile(r"__\d+\.metadata")
SHARD = re.compile(r"shard-(?P<process>\d{5})-model-\d{5}-of-\d{5}\.safetensors")
# A folder with such a file is opened as another format.
_OTHERS = (".zt", ".safetensors", ".index.json")
_MOST_NAMED = 4
# The first name in the pickle is the class of the outermost record.
_RECORD = re.compile(
    rb"\x80[\2-\5].{0,20}(?:torch\.distributed\.[a-z_.]*checkpoint\.metadata|"
    rb"megatron\.core\.dist_checkpointing\.strategies\.torch).{1,12}(?:MCore)?Metadata",
    re.DOTALL,
)


def is_checkpoint(folder: str) -> bool:
    """Return whether the names of a folder's files are those of a checkpoint of many processes.

    If a zTensor or safetensors file, or an index, is beside `.metadata`, the folder is opened as
    that: with an export of the model beside its checkpoint, most callers want the export.
    """
    return is_checkpoint_of(_names_in(folder))


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def is_checkpoint_of(names: list[str]) -> bool:
    """Return whether files of these names are a checkpoint; see `is_checkpoint`."""
    if has_shards(names):
        return True
    if any(name.endswith(_OTHERS) for name in names):
        return False
    return ROOT in names or any(map(_OWN_ROOT.fullmatch, names))


def has_shards(names: list[str]) -> bool:
    """Return whether all safetensors files among these names are shards of processes."""
    shards = [name for name in names if name.endswith((".safetensors", ".zt"))]
    return bool(shards) and all(map(SHARD.fullmatch, shards))


def _is_dcp(look: Look) -> bool:
    # The file `.metadata`.
    return _RECORD.match(look.head) is not None


def _in_folder(folder: str | Remote, names: list[str]) -> str | Remote | list[str] | None:
    """Return the path or URL that opens a folder, or all names if each shard describes itself."""
    if not isinstance(folder, Remote):
        return folder if is_checkpoint_of(names) else None
    if has_shards(names):
        return [name for name in names if name.endswith(".safetensors")]
    is_stock = any(name.endswith(DATA) for name in names) and is_checkpoint_of([*names, ROOT])
    # Lists have no hidden names.
    is_there = is_stock and Store.of(folder.url).there(folder, [ROOT])
    return folder.beside(ROOT) if is_there else None


DCP = Format(
    "torch.distributed.checkpoint",
    (".distcp",),
    _is_dcp,
    "ztensor.formats.dcp",
    is_written=False,
    in_folder=_in_folder,
)


def root_of(folder: str) -> str | None:
    """Return the root of a checkpoint folder, or None if its shards describe themselves.

    Raises:
        ArgumentValueError: there is a root for each process; the hint names them.
        SourceError: the root is gone.
    """
    names = sorted(_names_in(folder))
    if has_shards(names):
        return None
    if ROOT in names:
        return os.path.join(folder, ROOT)
    roots = [name for name in names if _OWN_ROOT.fullmatch(name)]
    if len(roots) == 1:
        return os.path.join(folder, roots[0])
    if not roots:
        raise SourceError("the folder has no .metadata any more", file=folder)
    error = ArgumentValueError(
        "each process saved a checkpoint of its own into the folder", file=folder
    )
    shown = [describe(os.path.join(folder, name), 200) for name in roots[:_MOST_NAMED]]
    more = f" and {len(roots) - _MOST_NAMED} more" if len(roots) > _MOST_NAMED else ""
    error.hint = f"name the one that is meant: {', '.join(shown)}{more}"
    raise error
