"""`ztensor decompress`: a file with every component raw, so that it can be mapped."""

from __future__ import annotations

from ztensor.cli.changing import (
    ChangedFileArgument,
    DryRunOption,
    ForceOption,
    NoDurableOption,
    NoLockOption,
    TimeoutOption,
)
from ztensor.cli.rewriting import ChecksumOption, OutputOption, ThreadsOption, migrate_file
from ztensor.cli.verb import JsonOption, QuietOption, running


def decompress(
    file: ChangedFileArgument,
    *,
    output: OutputOption = None,
    checksum: ChecksumOption = "crc32c",
    threads: ThreadsOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    no_durable: NoDurableOption = False,
    no_lock: NoLockOption = False,
    timeout: TimeoutOption = 0.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rewrite a file with all data raw, ready to be mapped.

    The new file is read back and compared with the old one before it takes its place as a whole.

    Output:
      A summary, with the size before and after.

    JSON:
      As of `ztensor convert`.

    Safety:
      It never changes anything but encodings.

    Exit code:
      0 where it was done, 4 where the file is damaged: it is then as it was.

    Examples:
      $ ztensor compress plain.zt -o small.zt
        something to decompress
      $ ztensor decompress small.zt -o raw.zt
        raw again, as another file
    """
    with running(json=json, quiet=quiet) as terminal:
        migrate_file(
            terminal,
            file,
            output,
            compression=False,
            checksum=checksum,
            threads=threads,
            force=force,
            dry_run=dry_run,
            no_durable=no_durable,
            lock=not no_lock,
            timeout=timeout,
        )
