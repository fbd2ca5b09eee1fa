"""`ztensor compact`: a file without the bytes nothing refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import is_divided_folder, quiet_library, require_one_file, size_of
from ztensor.cli.options import CANONICAL, CHANGED_FILE, CHANGING, Option, changing, number
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Terminal

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    CHANGED_FILE,
    CANONICAL,
    Option(
        "--older-than",
        metavar="HOURS",
        type=number(0, kind=float),
        default=24.0,
        help="Of a divided checkpoint in a store: leave younger files; by default 24.",
    ),
    *CHANGING,
)


def compact(terminal: Terminal, options: Namespace) -> None:
    """Free the bytes of what was removed or replaced.

    The file is written anew without dead bytes and replaces the old one atomically, so there must
    be room for both. Version, encodings, digests and attributes do not change; with --canonical a
    file of 2.x is stored raw, each content once, with an xxh3 for every part. Of the folder of a
    divided checkpoint, or a prefix of a store, the files are removed that saves left which died; a
    store does not know who still writes, so there they have to be --older-than so many hours.

    Output:
      How much was freed.

    JSON:
      file            the argument
      dry_run         whether nothing was written
      freed_nbytes    how much
      nbytes          before and after

    Safety:
      It never leaves half a file: until the new one is complete the old one
      stays.

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
    how = changing(options)
    with terminal.progress(file) as progress:
        freed = ztensor.edit.compact(file, canonical=options.canonical, progress=progress, **how)
    now = size_of(file)
    before, after = (now, now - freed) if dry_run else (now + freed, now)
    sizes = f"{size_text(before)} -> {size_text(after)}"
    amount = size_text(max(freed, 0))  # our commit record may be more than there was to free
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
    """Remove what saves that died left in the folder of a divided checkpoint."""
    folder, dry_run = options.file, options.dry_run
    gone = ztensor.distributed.compact(folder, older_than=options.older_than, dry_run=dry_run)
    would = "would be removed" if dry_run else "removed"
    terminal.line(f"{folder}: {count_text(len(gone), 'file')} {would}")
    for name in gone:
        terminal.line(f"  {name}")
    terminal.result({"file": folder, "dry_run": dry_run, "removed": gone})
