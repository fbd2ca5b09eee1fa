"""`ztensor compact`: a file without the bytes nothing refers to."""

from __future__ import annotations

from ztensor.cli.changing import (
    ChangedFileArgument,
    DryRunOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
    quiet_library,
    require_one_file,
    size_of,
)
from ztensor.cli.spelling import size_text
from ztensor.cli.terminal import Styled
from ztensor.cli.verb import JsonOption, QuietOption, running


def compact(
    file: ChangedFileArgument,
    *,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    no_lock: NoLockOption = False,
    timeout: TimeoutOption = 0.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Free the bytes of what was removed or replaced.

    The file is written anew without dead bytes, and takes the old one's place as a whole: there
    must be room for both. Encodings, digests and attributes stay.

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
      0 where it was done, 4 where the file is damaged: it is then as it was.

    Examples:
      $ ztensor rm model.zt layers.0.weight
        its bytes are dead now
      $ ztensor compact model.zt
        and now free
    """
    with running(json=json, quiet=quiet) as terminal:
        from ztensor.edit import compact as compact_file

        quiet_library()
        require_one_file(file)
        with terminal.progress(file) as progress:
            freed = compact_file(
                file,
                durable=not no_durable,
                lock=not no_lock,
                timeout=timeout,
                dry_run=dry_run,
                progress=progress,
            )
        now = size_of(file)
        before, after = (now, now - freed) if dry_run else (now + freed, now)
        sizes = f"{size_text(before)} -> {size_text(after)}"
        amount = size_text(max(freed, 0))  # our commit record may be more than there was to free
        if dry_run:
            terminal.line(f"{file}: unchanged; compacting would free {amount}, {sizes}")
        else:
            terminal.line(f"{file}: ", Styled(f"{amount} freed", "green"), f", {sizes}")
        terminal.result(
            {
                "file": file,
                "dry_run": dry_run,
                "freed_nbytes": freed,
                "nbytes": {"before": before, "after": after},
            }
        )
