"""`ztensor compact`: a file without the bytes nothing refers to."""

from __future__ import annotations

from typing import Annotated

import typer

from ztensor.cli.changing import is_divided_folder, quiet_library, require_one_file, size_of
from ztensor.cli.options import CanonicalOption, ChangedFileArgument, Changing
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Styled, Terminal


def compact(
    terminal: Terminal,
    file: ChangedFileArgument,
    *,
    canonical: CanonicalOption = False,
    older_than: Annotated[
        float,
        typer.Option(
            metavar="HOURS",
            min=0.0,
            help="Of a divided checkpoint in a store: leave younger files.",
        ),
    ] = 24.0,
    how: Changing,
) -> None:
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
    from ztensor.edit import compact as compact_file

    quiet_library()
    if is_divided_folder(file):
        _compact_folder(terminal, file, older_than, how)
        return
    require_one_file(file)
    with terminal.progress(file) as progress:
        freed = compact_file(file, canonical=canonical, progress=progress, **how.arguments)
    now = size_of(file)
    before, after = (now, now - freed) if how.dry_run else (now + freed, now)
    sizes = f"{size_text(before)} -> {size_text(after)}"
    amount = size_text(max(freed, 0))  # our commit record may be more than there was to free
    if how.dry_run:
        terminal.line(f"{file}: unchanged; compacting would free {amount}, {sizes}")
    else:
        terminal.line(f"{file}: ", Styled(f"{amount} freed", "green"), f", {sizes}")
    terminal.result(
        {
            "file": file,
            "dry_run": how.dry_run,
            "freed_nbytes": freed,
            "nbytes": {"before": before, "after": after},
        }
    )


def _compact_folder(terminal: Terminal, folder: str, older_than: float, how: Changing) -> None:
    """Remove what saves that died left in the folder of a divided checkpoint."""
    from ztensor.divided import compact as collect

    gone = collect(folder, older_than=older_than, dry_run=how.dry_run)
    would = "would be removed" if how.dry_run else "removed"
    terminal.line(f"{folder}: ", Styled(f"{count_text(len(gone), 'file')} {would}", "green"))
    for name in gone:
        terminal.line(f"  {name}")
    terminal.result({"file": folder, "dry_run": how.dry_run, "removed": gone})
