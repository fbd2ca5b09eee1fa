"""Every stored byte of a set of files checked, and the files themselves where the index can."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ztensor.errors import (
    FormatError,
    LimitError,
    ManifestError,
    Problem,
    Reason,
    UnsupportedError,
    ZTensorError,
)
from ztensor.io.reading.verify import VerifyReport
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
    chosen = objects.by_file(
        objects.names if names is None else [names] if isinstance(names, str) else names
    )
    problems: list[Problem] = []
    unsupported: list[Problem] = []
    sizes: dict[str, int] = {}
    for file, wanted in chosen.items():
        if not wanted and names is not None:
            continue
        try:
            sizes[file] = sum(objects.file(file).object(name).stored_nbytes for name in wanted)
        except FormatError as error:
            problems += _problems_of(error, file)
        except (UnsupportedError, LimitError) as error:
            unsupported += _problems_of(error, file)
    total = sum(sizes.values()) + sum(objects.file(f).nbytes for f in digests if f in sizes)
    counts = dict.fromkeys(("checked", "undigested", "objects", "nbytes"), 0)
    unchecked: dict[str, str] = {}
    done = 0
    for file, size in sizes.items():
        opened = objects.file(file)
        report = opened.check(
            chosen[file], deep=deep, threads=threads, progress=shifted(progress, done, total)
        )
        done += size
        problems += (problem.under(file) for problem in report.problems)
        unsupported += (problem.under(file) for problem in report.unsupported)
        for key in counts:
            counts[key] += getattr(report, key)
        if file not in digests:  # else one of the whole file covers all that is in it
            unchecked.update(report.unchecked)
            continue
        problems += _check_file(objects, file, digests[file])
        done += opened.nbytes
        if progress is not None:
            progress(done, total)
    return VerifyReport(tuple(problems), tuple(unsupported), unchecked=unchecked, **counts)


def _digests(objects: ShardedObjects) -> dict[str, str]:
    """Return the digests of whole files that the index has."""
    texts = objects.set.metadata.get("digests")
    if not isinstance(texts, dict):
        return {}
    folder = os.path.dirname(objects.set.name)
    named = ((file, texts.get(os.path.relpath(file, folder))) for file in objects.set.places)
    return {file: text for file, text in named if isinstance(text, str)}


def _problems_of(error: ZTensorError, file: str) -> list[Problem]:
    """Return why a file cannot be opened, as problems of the set."""
    if isinstance(error, ManifestError) and error.problems:
        return [problem.under(file) for problem in error.problems]
    return [Problem(error.reason or Reason.SHARD_INDEX, error.message, (file,), error.section)]


def _check_file(objects: ShardedObjects, file: str, text: str) -> list[Problem]:
    """Return what is wrong where a file's bytes are not those of the digest in the index."""
    try:
        digest = parse_digest(text)
    except FormatError as error:
        return _problems_of(error, file)
    if digest.known is None:
        return []
    with contextlib.closing(source_of(objects.set.places[file], mapped=False)) as source:
        hasher = digest.known.hasher()
        for piece in Range(source, 0, source.size).pieces(8 << 20):
            hasher.update(piece)
    if hasher.hexdigest().lower() == digest.expected:
        return []
    message = f"the file is not the one the index was written for: its {digest.algorithm} differs"
    return [Problem(Reason.DIGEST_MISMATCH, message, (file,))]
