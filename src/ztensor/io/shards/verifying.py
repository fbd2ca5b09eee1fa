"""Every stored byte of a set of files checked, and the files themselves where the index can."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LimitError,
    UnsupportedError,
    ZTensorError,
)
from ztensor.io.reading.component import Check
from ztensor.io.reading.verify import VerifyReport, report_of_files
from ztensor.io.source.base import Range
from ztensor.io.source.table import source_of
from ztensor.options import shifted
from ztensor.spec.digest import parse_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ztensor.accepted import Progress
    from ztensor.io.shards.objects import ShardedObjects


def verify_set(
    objects: ShardedObjects,
    names: Iterable[str] | None = None,
    *,
    deep: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every stored byte of all files; see `ztensor.Reader.verify`.

    Raises:
        ObjectNotFoundError: a name is not in the set.
        SourceError: the bytes could not be read.
    """
    objects.require_open()
    digests = _digests(objects) if names is None else {}
    asked = objects.names if names is None else [names] if isinstance(names, str) else names
    chosen = objects.by_file(asked)
    found: list[tuple[str, VerifyReport | ZTensorError]] = []
    sizes: dict[str, int] = {}
    for file, wanted in chosen.items():
        if wanted or names is None:
            try:
                sizes[file] = sum(objects.file(file).object(name).stored_nbytes for name in wanted)
            except (FormatError, UnsupportedError, LimitError) as error:
                found.append((file, error))
    total = sum(sizes.values()) + sum(objects.file(file).nbytes for file in digests.keys() & sizes)
    done = 0
    for file, size in sizes.items():
        how = {"deep": deep, "threads": threads, "progress": shifted(progress, done, total)}
        report = objects.file(file).check(chosen[file], **how)
        done += size
        if file in digests:  # which cover all that is in it
            report = dataclasses.replace(report, unchecked={})
            wrong = _fault_of(objects.set.places[file], digests[file])
            found += [] if wrong is None else [(file, wrong)]
            done += objects.file(file).nbytes
            if progress is not None:
                progress(done, total)
        found.append((file, report))
    return report_of_files(found)


def _digests(objects: ShardedObjects) -> dict[str, str]:
    """Return the digests of whole files that the index has."""
    texts = objects.set.metadata.get("digests")
    if not isinstance(texts, dict):
        return {}
    folder = os.path.dirname(objects.set.name)
    named = ((file, texts.get(os.path.relpath(file, folder))) for file in objects.set.places)
    return {file: text for file, text in named if isinstance(text, str)}


def _fault_of(place: Any, text: str) -> ZTensorError | None:
    """Return what is wrong with a whole file, whose digest is in the index; None for nothing."""
    try:
        check = Check(parse_digest(text))
        if not check.is_empty:
            with contextlib.closing(source_of(place, mapped=False)) as source:
                for piece in Range(source, 0, source.size).pieces(8 << 20):
                    check.update(piece)
        check.end()
    except DigestMismatchError as error:
        error.message = "the file is not the one the index was written for: its digest differs"
        error.section = None
        return error
    except (FormatError, UnsupportedError) as error:
        return error
    return None
