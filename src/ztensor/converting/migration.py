"""`migrate`: a zTensor file in another version or encoding, in its place or beside it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ztensor.container import require_version
from ztensor.contents import only_ours_change
from ztensor.converting.asking import require_compressed
from ztensor.converting.files import write_file
from ztensor.converting.report import ConversionReport
from ztensor.converting.source import is_same
from ztensor.converting.target import How
from ztensor.converting.versions import version_of
from ztensor.errors import (
    UsageError,
)
from ztensor.model.formats import require_ours
from ztensor.opening import open as open_file
from ztensor.source.appending import AppendSink
from ztensor.source.paths import path_text
from ztensor.source.sink import Place
from ztensor.source.table import remote_of
from ztensor.source.targets import require_free
from ztensor.source.upload import require_changed_in_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.source.sink import Durable

    Path = str | os.PathLike[str]
    Progress = Callable[[int, int], None]


def migrate(
    path: Path,
    output: Path | None = None,
    *,
    version: str | None = None,
    compression: bool | int | str | None = None,
    chunk_rows: int | None = None,
    checksum: str | bool | None = True,
    alignment: int | None = None,
    canonical: bool = False,
    strict: bool = True,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    threads: int | None = None,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> ConversionReport:
    """Rewrite a zTensor file in another version or encoding, and prove that nothing was lost.

    The new file is read back and compared with the old one, in names, shapes, types, element bytes
    and attributes, before it is put in place as a whole.

    Args:
        path: the file; with an `output` also the index of a set of shards, or a file of another
            format.
        output: the new file; None replaces the old one.
        version: `"1.2.0"`, `"1.1.0"`, `"0.1.0"` or `"2.1"`; None keeps the file's own, where it is
            written.
        compression: None keeps how components are stored, False stores all raw, True or a zstd
            level compresses all.
        chunk_rows: of what is compressed anew: rows that are decoded together, as for
            `ztensor.Writer`.
        checksum: digest of components that come without one or are stored anew.
        alignment: of 2.1; as for `ztensor.Writer`.
        canonical: of 2.1, likewise.
        strict: False writes what the version can say and reports the rest; only with an `output`.
        durable: as for `ztensor.Writer`.
        lock: as for `ztensor.Editor`, where the old file is replaced.
        timeout: as for `ztensor.Editor`.
        dry_run: True takes every step but writing; nothing is read back.
        threads: how many decode, compress and compare.
        overwrite: False refuses to replace an `output` that is there.
        progress: called with the bytes done so far and those to do in all.

    Raises:
        NotRepresentableError: the version cannot say something, and `strict` is set.
        UsageError: there is an `output` and `overwrite` is False; the file is of another format
            and to be replaced, or `strict` is False without an `output`, or `output` is one of
            several files that are read.
        FormatError: the file is damaged.
        SourceError: it cannot be read or written; it is then as it was.
        ArgumentValueError: an argument has an unknown value.
    """
    source = path_text(path)
    target = source if output is None else path_text(output)
    if version is not None:
        version = require_version(version)
    require_compressed("zt", compression, chunk_rows)
    in_place = output is None or is_same(source, target)
    remote = remote_of(path if output is None else output)
    if not in_place:
        require_ours(target)
        require_free(target if output is None else output, overwrite=overwrite)
    else:
        require_changed_in_place(source)
    with contextlib.ExitStack() as stack:
        locked = None
        if in_place and os.path.isfile(source):  # other writers wait, or are told
            locked = AppendSink(source, lock=lock, timeout=timeout)
            stack.enter_context(contextlib.closing(locked))
        reader = stack.enter_context(open_file(path))
        inputs = reader.objects.paths
        if reader.format != "zt" and in_place:
            raise only_ours_change(source, reader.format)
        if reader.objects.is_set and (in_place or any(is_same(one, target) for one in inputs)):
            raise UsageError(
                "a set of files is rewritten as a new file: say which by `--output` (output= in "
                "Python)",
                file=source,
            )
        if in_place and not strict:
            raise UsageError(
                "something would be lost; write to another file",
                file=source,
            )
        return write_file(
            reader,
            Place(target, remote=remote),
            "zt",
            inputs,
            How(
                version_of(reader) if version is None else version,
                compression,
                chunk_rows,
                checksum,
                strict,
                check=True,
                durable=durable,
                dry_run=dry_run,
                threads=threads,
                progress=progress,
                alignment=alignment,
                canonical=canonical,
            ),
            last=None if locked is None else locked.require_in_place,
        )
