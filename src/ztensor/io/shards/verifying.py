"""Check every stored byte of a set, and whole files against the digests of the index."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, LimitError, UnsupportedError, ZTensorError
from ztensor.io.reading.verify import VerifyReport, fault_of_whole
from ztensor.io.source.base import Range
from ztensor.io.source.stores import source_of
from ztensor.options import shifted

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
    results: list[tuple[str, VerifyReport | ZTensorError]] = []
    sizes: dict[str, int] = {}
    for file, wanted in chosen.items():
        if wanted or names is None:
            try:
                sizes[file] = sum(objects.file(file).object(name).stored_nbytes for name in wanted)
            except (FormatError, UnsupportedError, LimitError) as error:
                results.append((file, error))
    total = sum(sizes.values()) + sum(objects.file(file).nbytes for file in digests.keys() & sizes)
    done = 0
    for file, size in sizes.items():
        opened = objects.file(file)
        how = {"deep": deep, "threads": threads, "progress": shifted(progress, done, total)}
        report = opened.check(chosen[file], **how)
        done += size
        if file in digests:
            with contextlib.closing(source_of(objects.set.places[file], mapped=False)) as source:
                whole, advance = Range(source, 0, source.size), shifted(progress, done, total)
                fault = fault_of_whole(whole, digests[file], advance)
            if fault is None:  # the digest covers every object of the file
                report = dataclasses.replace(report, unchecked={})
            else:
                results.append((file, fault))
            done += opened.nbytes
        results.append((file, report))
    return VerifyReport.of_files(results)


def _digests(objects: ShardedObjects) -> dict[str, str]:
    """Return the digests of whole files in the index, by file."""
    texts = objects.set.metadata.get("digests")
    if not isinstance(texts, dict):
        return {}
    folder = os.path.dirname(objects.set.name)
    named = ((file, texts.get(os.path.relpath(file, folder))) for file in objects.set.places)
    return {file: text for file, text in named if isinstance(text, str)}
