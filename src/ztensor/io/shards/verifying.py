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
from ztensor.io.reading.opened import not_found
from ztensor.io.reading.verify import VerifyReport
from ztensor.io.shards.naming import shifted
from ztensor.io.source.base import Range
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.table import source_of
from ztensor.spec.digest import digest_of, parse_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ztensor.io.shards.naming import Progress
    from ztensor.io.shards.objects import ShardedObjects
    from ztensor.io.source.folders import RemoteFiles
    from ztensor.io.source.urls import Remote


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
    files = objects.set.files
    chosen: dict[str, list[str]] = {file: [] for file in files}
    for name in objects.names if names is None else [names] if isinstance(names, str) else names:
        if name not in objects.homes:
            raise not_found(name, objects.names, objects.name)
        chosen[objects.homes[name]].append(name)
    problems: list[Problem] = []
    unsupported: list[Problem] = []
    unchecked: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for file, wanted in chosen.items():
        if not wanted and names is not None:
            continue
        try:
            found = map(objects.file(file).object, wanted)
            sizes[file] = sum(one.stored_nbytes for one in found)
        except (FormatError, UnsupportedError, LimitError) as error:
            damaged = isinstance(error, FormatError)
            (problems if damaged else unsupported).extend(_problems_of(error, file))
    digests = _digests(objects) if names is None else {}
    total = sum(sizes.values()) + sum(objects.file(f).nbytes for f in digests if f in sizes)
    counts = dict.fromkeys(("checked", "undigested", "objects", "nbytes"), 0)
    done = 0
    for file, size in sizes.items():
        opened = objects.file(file)
        report = opened.check(
            chosen[file], deep=deep, threads=threads, progress=shifted(progress, done, total)
        )
        done += size
        problems.extend(problem.under(file) for problem in report.problems)
        unsupported.extend(problem.under(file) for problem in report.unsupported)
        for key in counts:
            counts[key] += getattr(report, key)
        if file not in digests:  # else one of the whole file covers all that is in it
            unchecked.update(report.unchecked)
        else:
            problems.extend(_check_file(objects.set.place(file), digests[file]))
            done += opened.nbytes
            if progress is not None:
                progress(done, total)
    return VerifyReport(tuple(problems), tuple(unsupported), unchecked=unchecked, **counts)


def _digests(objects: ShardedObjects) -> dict[str, str]:
    """Return the digests of whole files that the index has."""
    texts = objects.set.metadata.get("digests")
    if not isinstance(texts, dict) or objects.set.index is None:
        return {}
    folder = os.path.dirname(objects.set.index)
    return {
        file: texts[name]
        for file in objects.set.files
        if isinstance(texts.get(name := os.path.relpath(file, folder)), str)
    }


def _problems_of(error: ZTensorError, file: str) -> list[Problem]:
    """Return why a file cannot be opened, as problems of the set."""
    if isinstance(error, ManifestError) and error.problems:
        return [problem.under(file) for problem in error.problems]
    return [Problem(error.reason or Reason.SHARD_INDEX, error.message, (file,), error.section)]


def _check_file(place: Beneath | Remote | RemoteFiles | str, text: str) -> list[Problem]:
    """Return what is wrong where a file's bytes are not those of the digest in the index."""
    file = os.fspath(place) if isinstance(place, (str, Beneath)) else place.name
    try:
        digest = parse_digest(text)
    except FormatError as error:
        return _problems_of(error, file)
    if digest.known is None:
        return []
    with contextlib.closing(source_of(place, mapped=False)) as source:
        actual = digest_of(digest.known, Range(source, 0, source.size).pieces(8 << 20))
    if parse_digest(actual) == digest:
        return []
    message = f"the file is not the one the index was written for: its {digest.algorithm} differs"
    return [Problem(Reason.DIGEST_MISMATCH, message, (file,))]
