"""`ztensor split`: one file in shards with an index, as model hubs keep large checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ztensor.cli.changing import (
    ChangedFileArgument,
    DryRunOption,
    ForceOption,
    NoDurableOption,
    quiet_library,
    require_free,
)
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column
from ztensor.cli.verb import JsonOption, QuietOption, running

_COLUMNS = (Column("shard"), Column("objects", numeric=True), Column("size", numeric=True))


def split(
    file: ChangedFileArgument,
    *,
    max_shard_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Most bytes in a shard, such as 500MB or 5GiB.")
    ] = "5GB",
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where shards go; the file's folder.", show_default=False),
    ] = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Split a file into shards by size, and an index that says where each object is.

    No object is divided: one that is larger than SIZE has a shard of its own. FILE stays.
    """
    with running(json=json, quiet=quiet) as terminal:
        from ztensor.edit import plan_split
        from ztensor.edit import split as split_file

        quiet_library()
        shards, index = plan_split(file, into, max_shard_size=max_shard_size)
        for path in (*(shard.path for shard in shards), index):
            require_free(path, force=force)
        with terminal.progress(str(file)) as progress:
            split_file(
                file,
                into,
                max_shard_size=max_shard_size,
                durable=not no_durable,
                dry_run=dry_run,
                progress=progress,
            )
        rows = [
            (os.path.basename(shard.path), f"{len(shard.names):,}", size_text(shard.stored_nbytes))
            for shard in shards
        ]
        terminal.table(_COLUMNS, rows)
        where = f"{count_text(len(shards), 'shard')} and {index}"
        terminal.line(f"{where}: not written" if dry_run else f"{where} written")
        terminal.result(
            {
                "file": str(file),
                "dry_run": dry_run,
                "index": index,
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
