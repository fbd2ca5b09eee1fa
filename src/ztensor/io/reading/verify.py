"""Check a whole file and return every problem, not only the first.

Small native tensors are compared with their digests in runs (`bulk.py`). Every other object, and
each small one that does not match, is checked component by component (`walking.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

import numpy as np

from ztensor.arguments import require_function
from ztensor.errors import (
    DigestMismatchError,
    ManifestError,
    Problem,
    Reason,
    SourceError,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.interactive import Shown
from ztensor.io.reading.bulk import right_names
from ztensor.io.reading.component import Check
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.reading.overlaps import Overlaps
from ztensor.io.reading.places import Places
from ztensor.io.reading.walking import FAULTS, NOT_DAMAGE, Fault, ObjectWalk
from ztensor.io.source.base import Range
from ztensor.options import shifted, summed
from ztensor.showing import counted
from ztensor.spec.digest import Sum, parse_digest
from ztensor.spec.model.manifest import Shard, TensorObject
from ztensor.spec.model.objects import TableObjects
from ztensor.threads import run_jobs
from ztensor.threads.sharing import worth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyReport(Shown):
    """The result of `verify`.

    Attributes:
        problems: every fault, in the order of the file.
        unsupported: well-formed content that this release does not know and did not check.
        checked: number of components with a matching digest.
        undigested: number of components without a digest that can be computed here.
        objects: number of objects.
        nbytes: stored bytes that were read.
        unchecked: names of objects with bytes that no matching digest covers, and the reason.
            Lengths, indices and decoding were checked nevertheless.
    """

    problems: tuple[Problem, ...]
    unsupported: tuple[Problem, ...]
    checked: int
    undigested: int
    objects: int
    nbytes: int
    unchecked: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def outcome(self) -> Literal["ok", "unchecked", "damaged"]:
        """Return the overall result.

        "damaged": there are problems. "unchecked": there are none, but some byte is under no
        matching digest. "ok": every byte is under a matching digest.
        """
        if self.problems:
            return "damaged"
        return "unchecked" if self.unchecked else "ok"

    @property
    def ok(self) -> bool:
        """True if there is no problem and every byte is under a matching digest."""
        return self.outcome == "ok"

    @classmethod
    def of_files(cls, found: Iterable[tuple[str, VerifyReport | ZTensorError]]) -> VerifyReport:
        """Return one report of several files.

        Args:
            found: (path, report of the file or the error of opening it) of each file. Paths of
                problems begin with the path of their file.
        """
        every = [_in_file(path, report) for path, report in found]
        counts = ("checked", "undigested", "objects", "nbytes")
        return cls(
            tuple(problem for report in every for problem in report.problems),
            tuple(problem for report in every for problem in report.unsupported),
            **{count: sum(getattr(report, count) for report in every) for count in counts},
            unchecked={name: why for report in every for name, why in report.unchecked.items()},
        )

    def __repr__(self) -> str:
        """Return counts, and the names of the first objects with problems."""
        wrong = dict.fromkeys(problem.object_name for problem in self.problems)
        facts = [
            counted(self.objects, "object"),
            f"{counted(self.checked, 'digest')} match",
            counted(len(self.problems), "problem", wrong),
        ]
        if self.unchecked:
            facts.append(f"{counted(len(self.unchecked), 'object', self.unchecked)} unchecked")
        attributes = ".problems, .unchecked, .unsupported"
        return f"<ztensor.io.VerifyReport: {', '.join(facts)}; all: {attributes}>"


def _in_file(path: str, found: VerifyReport | ZTensorError) -> VerifyReport:
    if isinstance(found, ManifestError) and found.problems:
        found = VerifyReport(found.problems, (), 0, 0, 0, 0)
    elif isinstance(found, ZTensorError):
        return VerifyReport(*_problems([(found, (path,))]), 0, 0, 0, 0)
    problems = tuple(problem.under(path) for problem in found.problems)
    unsupported = tuple(problem.under(path) for problem in found.unsupported)
    return dataclasses.replace(found, problems=problems, unsupported=unsupported)


# Below this size handing work to a thread takes longer than the work.
_LEAST_SHARED_BYTES = 16 << 10


def _problems(
    faults: Iterable[Fault], *, are_ours: bool = True
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Return faults as problems, and unknown but well-formed content as another tuple."""
    sorted_out: tuple[list[Problem], list[Problem]] = [], []
    for error, path in faults:
        facts = [error.message]
        facts += [] if error.expected is None else [f"expected {error.expected}"]
        facts += [] if error.found is None else [f"found {error.found}"]
        name = path[1] if path[0] == "objects" else None
        role = error.component or (path[3] if len(path) > 3 else None)
        reason = error.reason or Reason.FIELD_VALUE
        problem = Problem(reason, ", ".join(facts), path, error.section, name, role)
        problem = problem if are_ours else problem.without_our_section()
        sorted_out[isinstance(error, NOT_DAMAGE)].append(problem)
    problems, unsupported = map(tuple, sorted_out)
    return problems, unsupported


def verify_file(
    file: FileObjects,
    names: Iterable[str] | None = None,
    *,
    deep: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check all stored bytes of a file.

    Args:
        file: an open file.
        names: objects to check; all of them by default.
        deep: True also compares the digests of the whole shards of a 2.x file, read once more.
        threads: number of threads; None uses the cores, at most four.
        progress: called with the stored bytes read so far and in all.

    Raises:
        ObjectNotFoundError: a name is not in the file.
        SourceError: the bytes could not be read.
    """
    require_function("progress", progress)
    asked = file.names if names is None else [names] if isinstance(names, str) else names
    chosen, workers = list(dict.fromkeys(asked)), file.thread_count(threads)
    places = file.places() if isinstance(file.manifest.objects, TableObjects) else Places.of({}, 0)
    if names is not None:
        wanted = set(chosen)
        places = places.rows(np.array([name in wanted for name in places.names], np.bool_))
    native = set(places.names)
    objects = {name: _object(file, name) for name in chosen if name not in native}
    total = int(places.lengths.sum())
    entries = [entry for entry in objects.values() if isinstance(entry, TensorObject)]
    total += sum(entry.stored_nbytes for entry in entries)
    report = summed(progress, total)
    right = right_names(file, places, report, workers)
    objects |= {name: _object(file, name) for name in places.names if name not in right}
    left = file.in_file_order(name for name in chosen if name in objects)
    walks = _walked(file, {name: objects[name] for name in left}, workers, report)
    faults = [fault for walk in walks for fault in walk.faults]
    if names is None:
        with foreign_bytes("the file", file.name):
            faults += [(error, ("attributes", name)) for name, error in file.faults().items()]
    if deep:
        shards = [shard for shard in file.manifest.shards.values() if shard.start is not None]
        total += sum(shard.size for shard in shards)
        faults += _of_shards(file, shards, progress)
    return VerifyReport(
        *_problems(faults, are_ours=file.format == "zt"),
        checked=len(right) + sum(walk.checked for walk in walks),
        undigested=sum(walk.undigested for walk in walks),
        objects=len(right) + len(walks),
        nbytes=total,
        unchecked={walk.name: walk.unchecked for walk in walks if walk.unchecked is not None},
    )


def _object(file: FileObjects, name: str) -> TensorObject | ZTensorError:
    """Return an object's entry of the manifest, or the error of a damaged entry.

    Raises:
        ObjectNotFoundError: no object of that name.
    """
    try:
        return file.object(name)
    except FAULTS as error:
        return error


def _walked(
    file: FileObjects,
    objects: dict[str, TensorObject | ZTensorError],
    workers: int,
    report: Callable[[int], None],
) -> list[ObjectWalk]:
    """Check objects one by one, with several threads if that pays."""
    known = [entry for entry in objects.values() if isinstance(entry, TensorObject)]
    overlaps = Overlaps((file, part) for entry in known for part in entry.components.values())

    @functools.cache  # a checksum may cover several objects
    def fault_of(checksum: Sum) -> ZTensorError | None:
        try:
            with foreign_bytes("the component"):
                checksum.check()
        except ZTensorError as error:
            return error
        return None

    walks = [ObjectWalk(file, name, overlaps, report, fault_of) for name in objects]
    jobs = (functools.partial(walk.run, objects[walk.name]) for walk in walks)
    workers = worth(workers, (n for n in lengths_of(file, known) if n >= _LEAST_SHARED_BYTES))
    run_jobs(jobs, workers, are_whole=True)
    return walks


def _of_shards(
    file: FileObjects, shards: Sequence[Shard], progress: Progress | None
) -> Iterator[Fault]:
    """Read whole shards and yield the faults of their digests."""
    done, total = 0, sum(shard.size for shard in shards)
    for shard in shards:
        whole = Range(file.source, shard.start or 0, shard.size)
        try:
            fault = fault_of_whole(whole, shard.digest, shifted(progress, done, total), strict=True)
        except SourceError as error:
            raise error.locate(file=file.name)  # noqa: B904  # the same error
        if fault is not None:
            yield fault, ("shards", shard.name)
        done += shard.size


def fault_of_whole(
    whole: Range, text: str, progress: Progress | None, *, strict: bool = False
) -> ZTensorError | None:
    """Compare a whole file with a digest stated elsewhere. Return the error, or None.

    Args:
        whole: all bytes of the file.
        text: the digest.
        progress: called with the bytes read so far and in all.
        strict: see `parse_digest`.

    Raises:
        SourceError: the bytes could not be read.
    """
    report = summed(progress, whole.length)
    try:
        digest = parse_digest(text, strict=strict)
        if digest.known is None:
            message = f"unknown digest algorithm {describe(digest.algorithm)}"
            raise UnsupportedError(message, reason=Reason.UNKNOWN_ENCODING)
        check = Check(digest)
        for piece in check.over(whole.pieces()):
            report(piece.nbytes)
        check.end()
    except FAULTS as error:
        if isinstance(error, DigestMismatchError):
            error.section = "2.1 section 7.3" if strict else None
        return error
    return None
