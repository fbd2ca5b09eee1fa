"""`migrate`: a zTensor file in another version or encoding, in its place or beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor import open as open_file
from ztensor.converting.files import write_file
from ztensor.converting.report import ConversionReport
from ztensor.converting.settings import Settings, require_fitting
from ztensor.converting.source import is_same
from ztensor.errors import UsageError
from ztensor.ext import EMITTERS, FORMATS, Place, Portable, path_text
from ztensor.options import RewriteOptions, require_options
from ztensor.typing import Path

if TYPE_CHECKING:
    from typing import Unpack


def migrate(
    path: Path,
    output: Path | None = None,
    *,
    strict: bool = True,
    lock: bool = True,
    timeout: float = 0.0,
    overwrite: bool = True,
    **options: Unpack[RewriteOptions],
) -> ConversionReport:
    """Rewrite a zTensor file in another version or encoding, and prove that nothing was lost.

    The new file is read back and compared with the old one, in names, shapes, types, element bytes
    and attributes, before it is put in place as a whole.

    Args:
        path: the file; with an `output` also the index of a set of shards, or a file of another
            format.
        output: the new file; None replaces the old one.
        strict: False writes all that the version can hold and reports losses; only with an
            `output`.
        lock: as in `ztensor.typing.EditOptions`, where the old file is replaced.
        timeout: likewise.
        overwrite: False refuses to replace an `output` that is there.
        options: see `ztensor.typing.RewriteOptions`.

    Raises:
        NotRepresentableError: something would be lost, and `strict` is set.
        UsageError: there is an `output` and `overwrite` is False; the file is of another format
            and to be replaced, or `strict` is False without an `output`, or `output` is one of
            several files that are read.
        FormatError: the file is damaged.
        SourceError: it cannot be read or written; it is then unchanged.
        ArgumentValueError: an argument has an unknown value.
    """
    require_options("migrate", options, RewriteOptions)
    source = path_text(path)
    target = source if output is None else path_text(output)
    version = options.get("version")
    if version is not None:
        version = EMITTERS.known(version)
    settings = Settings(strict=strict, check=True, **options)
    require_fitting("zt", settings)
    in_place = output is None or is_same(source, target)
    place = Place.of(path if output is None else output)
    if not in_place:
        FORMATS.require_ours(target)
        place.require_free(overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        locked = None
        # Other writers wait or get an error; files of a store are refused.
        if in_place and (place.remote is not None or os.path.isfile(source)):
            locked = stack.enter_context(
                contextlib.closing(place.locked(lock=lock, timeout=timeout))
            )
        reader = stack.enter_context(open_file(path))
        inputs = reader.objects.paths
        if reader.format != "zt" and in_place:
            raise FORMATS.unchangeable(source, reader.format)
        if reader.objects.is_set and (in_place or any(is_same(path, target) for path in inputs)):
            raise UsageError(
                "a set of files is rewritten as a new file: name it by `--output` (output= in "
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
            place,
            "zt",
            inputs,
            dataclasses.replace(settings, version=version or Portable.version_of(reader.objects)),
            last=None if locked is None else locked.require_in_place,
        )
