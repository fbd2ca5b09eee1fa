"""Walk a whole file and return every problem; nothing stops at the first one.

Small plain tensors are held to their digests many at once (`bulk.py`); every other object, and
each of those that is not right, is gone through component by component (`walking.py`).
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
from ztensor.locks import Lock
from ztensor.options import shifted
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
    """What verifying found: damage, or nothing wrong, or nothing to hold the bytes to.

    Attributes:
        problems: everything that is wrong, in the order of the file.
        unsupported: what is well-formed but unknown to this release, so that it was not checked.
        checked: components whose digest matches.
        undigested: components without a digest that can be computed here.
        objects: objects that were walked.
        nbytes: stored bytes that were read.
        unchecked: names of objects with bytes that no matching digest covers, and why; what can be
            seen without one (lengths, indices, whether data decodes) was looked at all the same.
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
        """Return what is known of the bytes.

        "damaged" where something is wrong; "unchecked" where nothing is, but not every byte is
        under a digest that matches; "ok" where every byte is.
        """
        if self.problems:
            return "damaged"
        return "unchecked" if self.unchecked else "ok"

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong, and every byte is under a digest that matches."""
        return self.outcome == "ok"

    @classmethod
    def of_files(cls, found: Iterable[tuple[str, VerifyReport | ZTensorError]]) -> VerifyReport:
        """Return one report of several files.

        Args:
            found: of each its path, which its problems' paths begin with, and its own report, or
                why it cannot be opened.
        """
        every = [_in_file(path, one) for path, one in found]
        counts = ("checked", "undigested", "objects", "nbytes")
        return cls(
            tuple(problem for one in every for problem in one.problems),
            tuple(problem for one in every for problem in one.unsupported),
            **{word: sum(getattr(one, word) for one in every) for word in counts},
            unchecked={name: why for one in every for name, why in one.unchecked.items()},
        )

    def __repr__(self) -> str:
        """Return counts, and the first objects that something is wrong with."""
        wrong = dict.fromkeys(problem.object_name for problem in self.problems)
        facts = [
            counted(self.objects, "object"),
            f"{counted(self.checked, 'digest')} match",
            counted(len(self.problems), "problem", wrong),
        ]
        if self.unchecked:
            facts.append(f"{counted(len(self.unchecked), 'object', self.unchecked)} unchecked")
        ways = ".problems, .unchecked, .unsupported"
        return f"<ztensor.io.VerifyReport: {', '.join(facts)}; all: {ways}>"


def _in_file(path: str, found: VerifyReport | ZTensorError) -> VerifyReport:
    if isinstance(found, ManifestError) and found.problems:
        found = VerifyReport(found.problems, (), 0, 0, 0, 0)
    elif isinstance(found, ZTensorError):
        return VerifyReport(*_problems([(found, (path,))]), 0, 0, 0, 0)
    problems = tuple(problem.under(path) for problem in found.problems)
    unsupported = tuple(problem.under(path) for problem in found.unsupported)
    return dataclasses.replace(found, problems=problems, unsupported=unsupported)


# Handing over less takes longer than going through it, and holds the interpreter.
_LEAST_SHARED_BYTES = 16 << 10


def _problems(
    faults: Iterable[Fault], *, are_ours: bool = True
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Return what is wrong, and what is well-formed but unknown."""
    found: tuple[list[Problem], list[Problem]] = [], []
    for error, path in faults:
        facts = [error.message]
        facts += [] if error.expected is None else [f"expected {error.expected}"]
        facts += [] if error.found is None else [f"found {error.found}"]
        name = path[1] if path[0] == "objects" else None
        role = error.component or (path[3] if len(path) > 3 else None)
        reason = error.reason or Reason.FIELD_VALUE
        one = Problem(reason, ", ".join(facts), path, error.section, name, role)
        one = one if are_ours else one.without_our_section()
        found[isinstance(error, NOT_DAMAGE)].append(one)
    problems, unsupported = map(tuple, found)
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
        deep: True reads the shards of a 2.x file once more, for the digests of whole files.
        threads: how many to use; as many as there are cores, four at most, by default.
        progress: called with the stored bytes read so far and the bytes to read in all.

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
    plain = set(places.names)
    objects = {name: _object(file, name) for name in chosen if name not in plain}
    total = int(places.lengths.sum())
    total += sum(one.stored_nbytes for one in objects.values() if isinstance(one, TensorObject))
    done, lock = 0, Lock()

    def told(count: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += count
                progress(min(done, total), total)

    right = right_names(file, places, told, workers)
    objects |= {name: _object(file, name) for name in places.names if name not in right}
    left = file.in_file_order(name for name in chosen if name in objects)
    walks = _walked(file, {name: objects[name] for name in left}, workers, told)
    faults = [fault for walk in walks for fault in walk.faults]
    if names is None:
        with foreign_bytes("the file", file.name):
            faults += [(error, ("attributes", name)) for name, error in file.faults().items()]
    if deep:
        shards = [one for one in file.manifest.shards.values() if one.start is not None]
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
    """Return what the file says of an object, or what is wrong with that.

    Raises:
        ObjectNotFoundError: it has none of that name.
    """
    try:
        return file.object(name)
    except FAULTS as error:
        return error


def _walked(
    file: FileObjects,
    objects: dict[str, TensorObject | ZTensorError],
    workers: int,
    told: Callable[[int], None],
) -> list[ObjectWalk]:
    """Go through objects one by one, by several threads where that pays."""
    known = [one for one in objects.values() if isinstance(one, TensorObject)]
    overlaps = Overlaps((file, part) for one in known for part in one.components.values())

    @functools.cache  # a sum may be over the bytes of several objects
    def fault_of(one: Sum) -> ZTensorError | None:
        try:
            with foreign_bytes("the component"):
                one.check()
        except ZTensorError as error:
            return error
        return None

    walks = [ObjectWalk(file, name, overlaps, told, fault_of) for name in objects]
    jobs = (functools.partial(walk.run, objects[walk.name]) for walk in walks)
    workers = worth(workers, (n for n in lengths_of(file, known) if n >= _LEAST_SHARED_BYTES))
    run_jobs(jobs, workers, are_whole=True)
    return walks


def _of_shards(
    file: FileObjects, shards: Sequence[Shard], progress: Progress | None
) -> Iterator[Fault]:
    """Yield what the digests of whole shards say, each read once more."""
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
    """Return what is wrong with all bytes of a file, whose digest another one has, or None.

    Args:
        whole: the bytes.
        text: the digest.
        progress: called with the bytes read so far and all of them.
        strict: as `parse_digest` takes it.

    Raises:
        SourceError: the bytes could not be read.
    """
    done = 0
    try:
        digest = parse_digest(text, strict=strict)
        if digest.known is None:
            message = f"its digest is of an unknown kind, {describe(digest.algorithm)}"
            raise UnsupportedError(message, reason=Reason.UNKNOWN_ENCODING)
        check = Check(digest)
        for piece in check.over(whole.pieces()):
            done += piece.nbytes
            if progress is not None:
                progress(done, whole.length)
        check.end()
    except FAULTS as error:
        if isinstance(error, DigestMismatchError):
            error.section = "2.1 section 7.3" if strict else None
        return error
    return None
