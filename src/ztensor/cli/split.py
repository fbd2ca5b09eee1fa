"""`ztensor split`: a file as shards with an index, as on model hubs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.changing import left_behind, quiet_library, require_free
from ztensor.cli.choosing import chosen_or_all
from ztensor.cli.options import CHOICE, NEW_FILE, Option, new_file
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import open_file

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    Option("file", metavar="FILE", help="A file of any known format, or a set."),
    Option(
        "--to",
        metavar="FORMAT",
        default="zt",
        help="Format of the shards: zt, the default, or safetensors.",
    ),
    Option(
        "--max-shard-size",
        metavar="SIZE",
        default="5GB",
        help="Most bytes in a shard, such as 500MB or 5GiB; by default 5GB.",
    ),
    Option(
        "--into",
        metavar="DIR",
        help="Folder for the shards, created if missing; by default FILE's folder.",
    ),
    Option(
        "--root",
        is_flag=True,
        help="Write shards of 2.1: a root .zt that names them, and no index.",
    ),
    *CHOICE,
    *NEW_FILE,
)

_COLUMNS = (Column("shard"), Column("objects", numeric=True), Column("size", numeric=True))


def split(terminal: Terminal, options: Namespace) -> None:
    """Write a file as shards of limited size, and an index.

    FILE may be of any known format. The index is the one that model hubs use for safetensors, with
    the sha256 of each shard added. No object is divided: one that is larger than SIZE gets a shard
    of its own. DIR and its parents are created if missing. SIZE is a number of bytes, or has a
    unit: kB, MB, GB are powers of 1000, and KiB, MiB, GiB of 1024.

    Output:
      A line for each shard, and the path of the index.

    JSON:
      file            the argument
      dry_run         whether nothing was written
      index           the path of the index or root
      shards          a list of file, object_count, stored_nbytes, names
      unrepresented   a list of file, kind, where, count, nbytes: content of FILE
                      that no copy has

    Safety:
      It never changes or deletes FILE, and replaces no file without --force.

    Exit code:
      0 if all were written, 2 if one of them exists.

    Examples:
      $ ztensor split model.zt --max-shard-size 40kB
        the shards, and the number of objects in each
      $ ztensor split model.zt --to safetensors --max-shard-size 40kB --into hub
        as model hubs have them, in a new folder
      $ ztensor ls model.zt.index.json --include '*.weight'
        the index is read as the file was
    """
    quiet_library()
    file = options.file
    with open_file(file) as reader:
        left = left_behind(terminal, file, reader)
        names = chosen_or_all([reader], options)
    keywords: dict[str, Any] = {
        "to": options.to,
        "max_shard_size": options.max_shard_size,
        "keep": None if names is None else set(names).__contains__,
    }
    shards, index = ztensor.edit.plan_split(file, options.into, **keywords)
    if options.root:
        index = index.removesuffix(".index.json")
    for path in (*(shard.path for shard in shards), index):
        require_free(path, force=options.force)
    with terminal.progress(file) as progress:
        keywords |= {"root": options.root, "progress": progress, **new_file(options)}
        ztensor.edit.split(file, options.into, **keywords)
    rows = [
        (os.path.basename(shard.path), f"{len(shard.names):,}", size_text(shard.stored_nbytes))
        for shard in shards
    ]
    terminal.table(_COLUMNS, rows)
    where = f"{count_text(len(shards), 'shard')} and {index}"
    terminal.line(f"{where}: not written" if options.dry_run else f"{where} written")
    terminal.result(
        {
            "file": file,
            "dry_run": options.dry_run,
            "index": index,
            "unrepresented": left,
            "shards": [
                {
                    "file": shard.path,
                    "object_count": len(shard.names),
                    "stored_nbytes": shard.stored_nbytes,
                    "names": list(shard.names),
                }
                for shard in shards
            ],
        }
    )
