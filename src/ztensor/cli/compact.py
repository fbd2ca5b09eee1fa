"""`ztensor compact`: rewrite a file without its dead bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import is_divided_folder, quiet_library, require_one_file, size_of
from ztensor.cli.options import CANONICAL, CHANGED_ZT_FILE, CHANGING, Option, changing, number
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Terminal

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    CHANGED_ZT_FILE,
    CANONICAL,
    Option(
        "--older-than",
        metavar="HOURS",
        type=number(0, kind=float),
        default=24.0,
        help="For a distributed checkpoint in a store: keep younger files; by default 24.",
    ),
    *CHANGING,
)


def compact(terminal: Terminal, options: Namespace) -> None:
    """Free the bytes of removed and replaced data.

    The file is written anew without dead bytes and replaces the old one atomically, so there must
    be room for both. Version, encodings, digests and attributes do not change; with --canonical a
    file of 2.x is stored raw, each content once, with an xxh3 digest for every component. If FILE
    is the folder of a distributed checkpoint, or a prefix of a store, files that killed saves left
    are removed. In a store only those are removed that are --older-than so many hours, as a save
    may still be writing the others.

    Output:
      How much was freed.

    JSON:
      file            the argument
      dry_run         whether nothing was written
      freed_nbytes    how much
      nbytes          before and after

    Safety:
      It never leaves half a file: the old one stays until the new one is complete.

    Exit code:
      0 if it was done, 4 if the file is damaged; it is then not changed.

    Examples:
      $ ztensor rm model.zt layers.0.weight
        its bytes are dead now
      $ ztensor compact model.zt
        and now free
    """
    quiet_library()
    file, dry_run = options.file, options.dry_run
    if is_divided_folder(file):
        _compact_folder(terminal, options)
        return
    require_one_file(file)
    keywords = changing(options)
    with terminal.progress(file) as progress:
        freed = ztensor.edit.compact(
            file, canonical=options.canonical, progress=progress, **keywords
        )
    now = size_of(file)
    before, after = (now, now - freed) if dry_run else (now + freed, now)
    sizes = f"{size_text(before)} -> {size_text(after)}"
    amount = size_text(max(freed, 0))  # our commit record may be larger than the dead bytes
    if dry_run:
        terminal.line(f"{file}: unchanged; compacting would free {amount}, {sizes}")
    else:
        terminal.line(f"{file}: {amount} freed, {sizes}")
    terminal.result(
        {
            "file": file,
            "dry_run": dry_run,
            "freed_nbytes": freed,
            "nbytes": {"before": before, "after": after},
        }
    )


def _compact_folder(terminal: Terminal, options: Namespace) -> None:
    """Remove files that killed saves left in the folder of a distributed checkpoint."""
    folder, dry_run = options.file, options.dry_run
    gone = ztensor.distributed.compact(folder, older_than=options.older_than, dry_run=dry_run)
    would = "would be removed" if dry_run else "removed"
    terminal.line(f"{folder}: {count_text(len(gone), 'file')} {would}")
    for name in gone:
        terminal.line(f"  {name}")
    terminal.result({"file": folder, "dry_run": dry_run, "removed": gone})
