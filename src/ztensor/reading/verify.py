"""Walk a whole file and return every problem; nothing stops at the first one.

Every component is read once, in pieces of bounded size: its digest over the stored bytes, its
encoding to the last byte, bool bytes, and what its layout demands of its elements.
"""

from __future__ import annotations

import bisect
import dataclasses
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple

from ztensor.buffers import new_bytes
from ztensor.digest import require_match
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
    without_our_section,
)
from ztensor.interactive import Shown
from ztensor.layout import LAYOUTS
from ztensor.layout.lengths import known_entries, roles_in_order
from ztensor.locks import Lock
from ztensor.model.dtype import element_count
from ztensor.model.problem import Problem
from ztensor.model.showing import counted, short_repr
from ztensor.model.table import TableObjects
from ztensor.reading.bulk import right_names
from ztensor.reading.component import digest_of, lengths_of, require_declared
from ztensor.reading.overlaps import Overlaps
from ztensor.reading.walking import ComponentWalk
from ztensor.source.base import PIECE_BYTES
from ztensor.threads import WINDOWS, Pool, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ztensor.layout.base import Watch
    from ztensor.model.manifest import Component, TensorObject
    from ztensor.reading.file import FileObjects
    from ztensor.reading.objects import Objects

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

    def __repr__(self) -> str:
        """Return counts, and the first objects that something is wrong with."""
        wrong = dict.fromkeys(problem.object_name for problem in self.problems)
        facts = [
            counted(self.objects, "object"),
            f"{counted(self.checked, 'digest')} match",
            counted(len(self.problems), "problem", wrong),
            *(
                [f"{counted(len(self.unchecked), 'object', self.unchecked)} unchecked"]
                if self.unchecked
                else []
            ),
        ]
        return short_repr("VerifyReport", facts, ".problems, .unchecked, .unsupported")


class _Staging(threading.local):
    """Memory of each thread that what it hashes is read into."""

    def __init__(self) -> None:
        self.memory = new_bytes(PIECE_BYTES)


class _Call(NamedTuple):
    """What the walks of one call share."""

    overlaps: Overlaps
    report: Callable[[int], None]
    staging: _Staging


@dataclasses.dataclass(slots=True)
class _Findings:
    """What one object's walk found."""

    problems: list[Problem] = dataclasses.field(default_factory=list)
    unsupported: list[Problem] = dataclasses.field(default_factory=list)
    checked: int = 0
    undigested: int = 0
    unchecked: str | None = None  # why not every byte is under a digest
    nbytes: int = 0  # stored bytes hashed, and reported, so far

    def add(self, error: ZTensorError, name: str, role: str | None) -> None:
        unsupported = isinstance(error, (UnsupportedError, LimitError))
        problem = Problem(
            error.reason or Reason.FIELD_VALUE,
            _sentence(error),
            ("objects", name) if role is None else ("objects", name, "components", role),
            error.section,
            name,
            role if error.component is None else error.component,
        )
        (self.unsupported if unsupported else self.problems).append(problem)


def _of_attributes(file: FileObjects) -> _Findings:
    """Return what is wrong with attributes that a format stores as it stores objects."""
    findings = _Findings()
    for name, error in file.faults().items():
        path = ("attributes", name)
        reason = error.reason or Reason.FIELD_VALUE
        findings.problems.append(Problem(reason, _sentence(error), path, error.section))
    return findings


def _sentence(error: ZTensorError) -> str:
    facts = [error.message]
    if error.expected is not None:
        facts.append(f"expected {error.expected}")
    if error.found is not None:
        facts.append(f"found {error.found}")
    return ", ".join(facts)


def verify_file(
    file: FileObjects,
    names: Iterable[str] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check all stored bytes of a file.

    Args:
        file: an open file.
        names: objects to check; all of them by default.
        threads: how many to use; as many as there are cores, four at most, by default.
        progress: called with the stored bytes read so far and the bytes to read in all.

    Raises:
        ObjectNotFoundError: a name is not in the file.
        SourceError: the bytes could not be read.
    """
    if isinstance(names, str):  # one name, not its letters
        names = [names]
    chosen = list(file.names) if names is None else list(dict.fromkeys(names))
    every = file.manifest.objects
    damaged: dict[str, _Findings] = {}
    objects: list[tuple[str, TensorObject]] = []
    if isinstance(every, TableObjects):
        total = _stored_bytes(file, every, chosen)
    else:
        objects = _described(file, file.in_file_order(chosen), damaged)
        total = sum(one.stored_nbytes for _, one in objects)
    done = 0
    lock = Lock()

    def report(count: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += count
                progress(min(done, total), total)

    def walk(item: tuple[str, TensorObject]) -> _Findings:
        with WINDOWS.whole():
            return _walk_object(file, call, *item)

    workers = file.thread_count(threads)
    if isinstance(every, TableObjects):
        right = right_names(file, chosen, report, workers)
        left = file.in_file_order(name for name in chosen if name not in right)
        objects = [(name, file.object(name)) for name in left]
    overlaps = Overlaps((file, c) for _, o in objects for c in o.components.values())
    call = _Call(overlaps, report, _Staging())
    workers = worth(workers, lengths_of(file, (one for _, one in objects)))
    if workers <= 1 or len(objects) < 2:
        findings = [walk(item) for item in objects]
    else:
        with Pool(workers) as crew:
            findings = list(crew.map(walk, objects))
    whole = len(chosen) - len(objects) - len(damaged)  # that were checked in runs
    sums = _Sums(file)
    unchecked = {}
    for (name, tensor_object), found in zip(objects, findings, strict=True):
        if found.unchecked is not None and not sums.cover(name, tensor_object, found):
            unchecked[name] = found.unchecked
    findings += damaged.values()
    if names is None:
        findings.append(_of_attributes(file))
    is_ours = file.format == "zt"

    def told(problem: Problem) -> Problem:
        found: Problem = problem if is_ours else without_our_section(problem)
        return found

    return VerifyReport(
        problems=tuple(told(problem) for found in findings for problem in found.problems),
        unsupported=tuple(told(problem) for found in findings for problem in found.unsupported),
        checked=sum(found.checked for found in findings) + whole,
        undigested=sum(found.undigested for found in findings),
        objects=len(chosen),
        nbytes=total,
        unchecked=unchecked,
    )


def _stored_bytes(file: FileObjects, every: TableObjects, names: list[str]) -> int:
    """Return the stored bytes of some objects.

    Raises:
        ObjectNotFoundError: a name is not in the file.
    """
    if len(names) == len(every) and set(names) == set(every):
        others = sum(one.stored_nbytes for one in every.others.values())
        return int(every.table.lengths.sum()) + others
    return sum(file.object(name).stored_nbytes for name in names)


def _described(
    file: FileObjects, names: list[str], damaged: dict[str, _Findings]
) -> list[tuple[str, TensorObject]]:
    """Return what the file says of objects; what it says wrongly goes into `damaged`.

    Raises:
        ObjectNotFoundError: a name is not in the file.
    """
    objects = []
    for name in names:
        try:
            objects.append((name, file.object(name)))
        except (FormatError, UnsupportedError, LimitError) as error:
            damaged[name] = _Findings()
            damaged[name].add(error, name, None)
    return objects


def unchecked_names(objects: Objects) -> Iterator[str]:
    """Yield the objects with bytes that nothing in the files can be held to: no digest, no sum."""
    sums: dict[FileObjects, _Sums] = {}
    for name in objects.names:
        file = objects.part(name)
        of_file = sums.get(file) or sums.setdefault(file, _Sums(file))
        tensor_object = file.object(name)
        for component in tensor_object.components.values():
            if _is_unheld(file, tensor_object, component) and of_file.over(component) is None:
                yield name
                break


def _is_unheld(file: FileObjects, tensor_object: TensorObject, component: Component) -> bool:
    """Return whether a component has bytes, and neither a digest nor an encoding that has one.

    In other formats they may lie in another file, or nobody knows how many they are.
    """
    has_bytes = component.length or (file.format != "zt" and element_count(tensor_object.shape))
    if not has_bytes or component.digest is not None:
        return False
    return not file.stored(component).has_sum()


class _Sums:
    """The sums a file has over more than one component, each looked at once.

    Args:
        file: the file.
    """

    def __init__(self, file: FileObjects) -> None:
        self._sums = sorted(file.sums, key=lambda one: one.offset)
        self._starts = [one.offset for one in self._sums]
        self._found: dict[int, ZTensorError | None] = {}

    def over(self, component: Component) -> int | None:
        """Return the number of the sum over all of a component's stored bytes."""
        number = bisect.bisect_right(self._starts, component.offset) - 1
        if number < 0:
            return None
        one = self._sums[number]
        ends = component.offset + component.length, one.offset + one.length
        return number if ends[0] <= ends[1] else None

    def cover(self, name: str, tensor_object: TensorObject, findings: _Findings) -> bool:
        """Return whether all of an object's bytes are under a sum; add what does not match."""
        if not self._sums:
            return False
        for role, component in tensor_object.components.items():
            if not component.length or component.digest is not None:
                continue
            number = self.over(component)
            if number is None:
                return False
            if number not in self._found:
                try:
                    self._sums[number].check()
                    self._found[number] = None
                except ZTensorError as error:
                    self._found[number] = error
            wrong = self._found[number]
            if wrong is None:
                findings.checked += 1
                findings.undigested -= 1
            else:
                findings.add(wrong, name, role)
        return True


def _walk_object(
    file: FileObjects, call: _Call, name: str, tensor_object: TensorObject
) -> _Findings:
    findings = _Findings()
    layout = LAYOUTS.get(tensor_object.format)
    if layout is None:
        findings.unsupported.append(
            Problem(
                Reason.UNKNOWN_LAYOUT,
                f"the layout {describe(tensor_object.format)} is unknown; its parts were checked",
                ("objects", name, "format"),
                object_name=name,
            )
        )
    counts: dict[str, int] = {}
    watches: list[tuple[str, Watch]] = []
    entries = known_entries(tensor_object)
    whole = True
    for role in roles_in_order(tensor_object):
        component = tensor_object.components[role]
        done = findings.nbytes
        if findings.unchecked is None and _is_unheld(file, tensor_object, component):
            findings.unchecked = "it has no digest"
        has_digest_matched: bool | None = None
        try:
            has_digest_matched = _check_digest(file, call, component, name, role, findings)
            # Raw bytes are what they are: whether that is right, the layout says at the end.
            expected = None if component.encoding == "raw" else component.known_decoded_length
            if layout is not None and component.encoding != "raw":
                expected = layout.expected_length(tensor_object, role, entries)
            if expected is not None:
                require_declared(component, expected)
            walker = _walked(
                file,
                call.overlaps,
                tensor_object,
                role,
                expected,
                entries,
                digest_of_decoded=has_digest_matched is None,
            )
            findings.checked += has_digest_matched is None
            file.stored(component).require_listed(expected)
            if walker.bool_problem is not None:
                findings.add(walker.bool_problem, name, role)
            counts[role] = walker.count
            if layout is not None and role == layout.main_role:
                counts[role], wrong = _without_padding(tensor_object, walker, entries)
                if wrong is not None:
                    findings.add(wrong, name, role)
            if walker.unknown is not None:  # then its bytes say nothing of other parts
                findings.add(walker.unknown, name, role)
                whole = False
            elif walker.watch is not None:
                watches.append((role, walker.watch))
            if layout is not None and entries is None and walker.unknown is None:
                entries = layout.entries_told(role, walker.count, walker.last)
        except (FormatError, UnsupportedError, LimitError) as error:
            findings.add(error, name, role)
            is_held = has_digest_matched is not None
            if is_held and isinstance(error, (UnsupportedError, LimitError)):
                is_held = _is_sum_right(file, name, role, component, findings)
            if not is_held:
                findings.unchecked = error.message
            whole = False
        call.report(component.length - (findings.nbytes - done))
    if whole:
        for role, watch in watches:
            try:
                watch.finish(counts)
            except LayoutError as error:
                findings.add(error, name, role)
    if whole and tensor_object.entries_once and not findings.problems:
        try:
            file.tensor(name, copy=False)
        except LayoutError as error:
            findings.add(error, name, error.component)
    return findings


def _is_sum_right(
    file: FileObjects, name: str, role: str, component: Component, findings: _Findings
) -> bool:
    """Return whether what cannot be read was held to its encoding's sum, if that has one.

    It is compared where all of it is decoded.
    """
    if not component.length or not file.stored(component).has_sum():
        return True
    try:
        for _ in file.decoded_chunks(name, role):
            pass
    except (UnsupportedError, LimitError):
        return False
    except FormatError as error:
        findings.add(error, name, role)
    return True


def _without_padding(
    tensor_object: TensorObject, walker: ComponentWalk, entries: int | None
) -> tuple[int, FormatError | None]:
    """Return how many elements a component has, and what is wrong with bits that belong to none."""
    component = walker.component
    logical = component.logical
    if logical is None or logical.elements_per_storage == 1:
        return walker.count, None
    if tensor_object.format == "dense":
        entries = element_count(tensor_object.shape)
    if entries is None or not 0 < walker.count - entries < logical.elements_per_storage:
        return walker.count, None
    wrong = None
    if component.is_exact and walker.last_bits:
        wrong = FormatError(
            "bits that belong to no element are not 0",
            reason=Reason.PADDING_VALUE,
            expected=f"0 behind element {entries}",
            found=f"{walker.last_bits:#x}",
            section="2.1 appendix A",
        )
    return entries, wrong


def _walked(
    file: FileObjects,
    overlaps: Overlaps,
    tensor_object: TensorObject,
    role: str,
    expected: int | None,
    entries: int | None,
    *,
    digest_of_decoded: bool,
) -> ComponentWalk:
    """Return the walk over a component, or that over another one of which all the same is true."""
    component = tensor_object.components[role]
    layout = LAYOUTS.get(tensor_object.format)
    watch = None if layout is None else layout.watch(tensor_object, role, entries)

    def walk() -> ComponentWalk:
        is_opaque = tensor_object.is_opaque
        walker = ComponentWalk(
            file, component, expected, watch, is_opaque=is_opaque, overlaps=overlaps
        )
        walker.run(digest_of_decoded=digest_of_decoded)
        return walker

    if not overlaps.is_repeated(file, component):
        return walk()
    # All that a watch is made of; attributes say how large blocks are.
    of_object = tensor_object.format, tensor_object.shape, repr(tensor_object.attributes)
    seen_as = *of_object, role, entries
    stated = dataclasses.replace(
        component, digest=component.digest if digest_of_decoded else None, extra=None
    )
    key = stated, expected, tensor_object.is_opaque, None if watch is None else seen_as
    return overlaps.once(file, component, key, walk)


def _check_digest(
    file: FileObjects,
    call: _Call,
    component: Component,
    name: str,
    role: str,
    findings: _Findings,
) -> bool | None:
    """Check the digest over stored bytes; None where only the decoded bytes can still match."""
    digest = digest_of(component)
    if digest is None or digest.known is None:
        findings.undigested += 1
        if digest is not None and component.length:
            findings.unchecked = f"its digest is of an unknown kind, {describe(digest.algorithm)}"
        return True
    try:
        hasher = digest.known.hasher()
    except UnsupportedError as error:
        findings.undigested += 1
        findings.unchecked = error.message
        findings.add(error, name, role)
        return True
    if component.digest_covers_decoded and component.encoding != "raw":
        findings.nbytes += component.length
        call.report(component.length)
        return None

    def hexdigest() -> str:
        pieces = file.stored(component).stored().pieces(memory=call.staging.memory)
        for piece in call.overlaps.metered(file, component, pieces, "digest"):
            hasher.update(piece)
            findings.nbytes += piece.nbytes
            call.report(piece.nbytes)
        return hasher.hexdigest()

    found = call.overlaps.once(file, component, digest.algorithm, hexdigest)
    try:
        require_match(digest, found)
    except DigestMismatchError as error:
        if component.digest_may_cover_decoded and component.encoding != "raw":
            return None
        findings.add(error, name, role)
        return False
    findings.checked += 1
    return True
