"""Walk a whole file and return every problem; nothing stops at the first one.

Every component is read once, in pieces of bounded size: its digest over the stored bytes, its
encoding to the last byte, bool bytes, and what its layout demands of its elements.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Literal

from ztensor.arguments import require_function
from ztensor.buffers import new_bytes
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LayoutError,
    LimitError,
    Problem,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
    without_our_section,
)
from ztensor.guard import foreign_bytes
from ztensor.interactive import Shown
from ztensor.io.reading.bulk import right_names
from ztensor.io.reading.component import digest_of, require_declared
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.reading.overlaps import Overlaps
from ztensor.io.reading.sums import Sums, is_unheld
from ztensor.io.reading.walking import ComponentWalk, require_listed
from ztensor.io.source.base import PIECE_BYTES
from ztensor.locks import Lock
from ztensor.showing import counted, short_repr
from ztensor.spec.digest import require_match
from ztensor.spec.layout import LAYOUTS, known_entries, roles_in_order
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.objects import TableObjects
from ztensor.threads.pool import Pool
from ztensor.threads.sharing import WINDOWS, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ztensor.spec.layout.base import Watch
    from ztensor.spec.model.manifest import Component, TensorObject

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
        return short_repr("io.VerifyReport", facts, ".problems, .unchecked, .unsupported")


class _Staging(threading.local):
    """Memory of each thread that what it hashes is read into."""

    def __init__(self) -> None:
        self.memory = new_bytes(PIECE_BYTES)


class _Call:
    """What the walks of one call share; `total` is the stored bytes to read."""

    def __init__(self, file: FileObjects, total: int, progress: Progress | None) -> None:
        self.file = file
        self.total = total
        self.staging = _Staging()
        self._progress = progress
        self._done = 0
        self._lock = Lock()

    def report(self, count: int) -> None:
        """Tell of stored bytes that were read."""
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(min(self._done, self.total), self.total)

    def walk(self, objects: list[tuple[str, TensorObject]], workers: int) -> list[_Findings]:
        """Return what is wrong with objects, by several threads where that pays."""
        overlaps = Overlaps((self.file, c) for _, o in objects for c in o.components.values())

        def walk(item: tuple[str, TensorObject]) -> _Findings:
            with WINDOWS.whole():
                return _Walk(self, overlaps, *item).run()

        workers = worth(workers, lengths_of(self.file, (one for _, one in objects)))
        if workers <= 1 or len(objects) < 2:
            return [walk(item) for item in objects]
        with Pool(workers) as crew:
            return list(crew.map(walk, objects))


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
    with foreign_bytes("the file", file.name):
        faults = file.faults()
    for name, error in faults.items():
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
    require_function("progress", progress)
    if isinstance(names, str):  # one name, not its letters
        names = [names]
    chosen = list(file.names) if names is None else list(dict.fromkeys(names))
    damaged: dict[str, _Findings] = {}
    every, workers = file.manifest.objects, file.thread_count(threads)
    if isinstance(every, TableObjects):
        call = _Call(file, _stored_bytes(file, every, chosen), progress)
        right = right_names(file, chosen, call.report, workers)
        left = file.in_file_order(name for name in chosen if name not in right)
        objects = [(name, file.object(name)) for name in left]
    else:
        objects = _described(file, file.in_file_order(chosen), damaged)
        call = _Call(file, sum(one.stored_nbytes for _, one in objects), progress)
    findings = call.walk(objects, workers)
    sums, unchecked = Sums(file), {}
    for (name, tensor_object), found in zip(objects, findings, strict=True):
        if found.unchecked is not None and not _are_summed(sums, name, tensor_object, found):
            unchecked[name] = found.unchecked
    findings += damaged.values()
    if names is None:
        findings.append(_of_attributes(file))
    problems = [problem for found in findings for problem in found.problems]
    unsupported = [problem for found in findings for problem in found.unsupported]
    if file.format != "zt":
        problems = list(map(without_our_section, problems))
        unsupported = list(map(without_our_section, unsupported))
    in_runs = len(chosen) - len(objects) - len(damaged)  # each with a digest that matches
    return VerifyReport(
        problems=tuple(problems),
        unsupported=tuple(unsupported),
        checked=sum(found.checked for found in findings) + in_runs,
        undigested=sum(found.undigested for found in findings),
        objects=len(chosen),
        nbytes=call.total,
        unchecked=unchecked,
    )


def _stored_bytes(file: FileObjects, every: TableObjects, names: list[str]) -> int:
    """Return the stored bytes of some objects.

    Raises:
        ObjectNotFoundError: a name is not in the file.
    """
    rows = [every.row(name) for name in names]
    others = [name for name, row in zip(names, rows, strict=True) if row is None]
    in_table = every.table.lengths[[row for row in rows if row is not None]]
    return int(in_table.sum()) + sum(file.object(name).stored_nbytes for name in others)


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


def _are_summed(sums: Sums, name: str, tensor_object: TensorObject, findings: _Findings) -> bool:
    """Return whether all of an object's bytes are under a sum; add what does not match."""
    if not sums:
        return False
    for role, component in tensor_object.components.items():
        if not component.length or component.digest is not None:
            continue
        number = sums.over(component)
        if number is None:
            return False
        wrong = sums.fault(number)
        if wrong is None:
            findings.checked += 1
            findings.undigested -= 1
        else:
            findings.add(wrong, name, role)
    return True


class _Walk:
    """Goes through all components of one object."""

    def __init__(
        self, call: _Call, overlaps: Overlaps, name: str, tensor_object: TensorObject
    ) -> None:
        self._call = call
        self._file = call.file
        self._overlaps = overlaps
        self._name = name
        self._object = tensor_object
        self._layout = LAYOUTS.get(tensor_object.format)
        self._findings = _Findings()
        self._counts: dict[str, int] = {}
        self._watches: list[tuple[str, Watch]] = []
        self._entries = known_entries(tensor_object)
        self._is_whole = True  # what one component says of another can be compared

    def run(self) -> _Findings:
        """Return what is wrong."""
        findings, tensor_object = self._findings, self._object
        if self._layout is None:
            word = describe(tensor_object.format)
            findings.unsupported.append(
                Problem(
                    Reason.UNKNOWN_LAYOUT,
                    f"the layout {word} is unknown; its parts were checked",
                    ("objects", self._name, "format"),
                    object_name=self._name,
                )
            )
        for role in roles_in_order(tensor_object):
            before = findings.nbytes
            self._check(role, tensor_object.components[role])
            rest = tensor_object.components[role].length - (findings.nbytes - before)
            self._call.report(rest)
        for role, watch in self._watches if self._is_whole else ():
            try:
                with foreign_bytes("the object"):
                    watch.finish(self._counts)
            except LayoutError as error:
                findings.add(error, self._name, role)
        if self._is_whole and tensor_object.entries_once and not findings.problems:
            try:
                self._file.tensor(self._name, copy=False)
            except LayoutError as error:
                findings.add(error, self._name, error.component)
        return findings

    def _check(self, role: str, component: Component) -> None:
        findings = self._findings
        if findings.unchecked is None and is_unheld(self._file, self._object, component):
            findings.unchecked = "it has no digest"
        has_digest_matched: bool | None = None
        try:
            has_digest_matched = self._check_digest(role, component)
            with foreign_bytes("the component"):
                self._look(role, component, digest_of_decoded=has_digest_matched is None)
        except (FormatError, UnsupportedError, LimitError) as error:
            findings.add(error, self._name, role)
            is_held = has_digest_matched is not None
            if is_held and isinstance(error, (UnsupportedError, LimitError)):
                is_held = self._is_sum_right(role, component)
            if not is_held:
                findings.unchecked = error.message
            self._is_whole = False

    def _check_digest(self, role: str, component: Component) -> bool | None:
        """Check the digest over stored bytes; None where only the decoded bytes can still match."""
        findings, file, overlaps = self._findings, self._file, self._overlaps
        digest = digest_of(component)
        if digest is None or digest.known is None:
            findings.undigested += 1
            if digest is not None and component.length:
                word = describe(digest.algorithm)
                findings.unchecked = f"its digest is of an unknown kind, {word}"
            return True
        try:
            hasher = digest.known.hasher()
        except UnsupportedError as error:
            findings.undigested += 1
            findings.unchecked = error.message
            findings.add(error, self._name, role)
            return True
        if component.digest_covers_decoded and component.encoding != "raw":
            findings.nbytes += component.length
            self._call.report(component.length)
            return None

        def hexdigest() -> str:
            pieces = file.stored(component).stored().pieces(memory=self._call.staging.memory)
            for piece in overlaps.metered(file, component, pieces, "digest"):
                hasher.update(piece)
                findings.nbytes += piece.nbytes
                self._call.report(piece.nbytes)
            return hasher.hexdigest()

        try:
            require_match(digest, overlaps.once(file, component, digest.algorithm, hexdigest))
        except DigestMismatchError as error:
            if component.digest_may_cover_decoded and component.encoding != "raw":
                return None
            findings.add(error, self._name, role)
            return False
        findings.checked += 1
        return True

    def _look(self, role: str, component: Component, *, digest_of_decoded: bool) -> None:
        """Decode a component and see all its elements."""
        findings, layout = self._findings, self._layout
        # Raw bytes are what they are: whether that is right, the layout says at the end.
        expected = None if component.encoding == "raw" else component.known_decoded_length
        if layout is not None and component.encoding != "raw":
            expected = layout.expected_length(self._object, role, self._entries)
        if expected is not None:
            require_declared(component, expected)
        walked = self._walked(role, component, expected, digest_of_decoded=digest_of_decoded)
        findings.checked += digest_of_decoded
        require_listed(self._file, component, expected)
        if walked.bool_problem is not None:
            findings.add(walked.bool_problem, self._name, role)
        self._counts[role] = walked.count
        if layout is not None and role == layout.main_role:
            self._counts[role] = self._without_padding(role, walked)
        if walked.unknown is not None:  # then its bytes say nothing of other parts
            findings.add(walked.unknown, self._name, role)
            self._is_whole = False
        elif walked.watch is not None:
            self._watches.append((role, walked.watch))
        if layout is not None and self._entries is None and walked.unknown is None:
            self._entries = layout.entries_told(role, walked.count, walked.last)

    def _walked(
        self, role: str, component: Component, expected: int | None, *, digest_of_decoded: bool
    ) -> ComponentWalk:
        """Return the walk over a component, or over another one of which all the same is true."""
        file, overlaps, seen = self._file, self._overlaps, self._object
        watch = None
        if self._layout is not None:
            watch = self._layout.watch(seen, role, self._entries)

        def walk() -> ComponentWalk:
            walker = ComponentWalk(
                file, component, expected, watch, is_opaque=seen.is_opaque, overlaps=overlaps
            )
            walker.run(digest_of_decoded=digest_of_decoded)
            return walker

        if not overlaps.is_repeated(file, component):
            return walk()
        # All that a watch is made of; attributes say how large blocks are.
        made_of = seen.format, seen.shape, repr(seen.attributes), role, self._entries
        stated = component._replace(
            digest=component.digest if digest_of_decoded else None, extra=None
        )
        key = stated, expected, seen.is_opaque, None if watch is None else made_of
        return overlaps.once(file, component, key, walk)

    def _without_padding(self, role: str, walked: ComponentWalk) -> int:
        """Return how many elements a component has; add what is wrong with bits of none."""
        component, entries = walked.component, self._entries
        packed = component.logical
        if packed is None or packed.elements_per_storage == 1:
            return walked.count
        if self._object.format == "dense":
            entries = element_count(self._object.shape)
        if entries is None or not 0 < walked.count - entries < packed.elements_per_storage:
            return walked.count
        if component.is_exact and walked.last_bits:
            wrong = FormatError(
                "bits that belong to no element are not 0",
                reason=Reason.PADDING_VALUE,
                expected=f"0 behind element {entries}",
                found=f"{walked.last_bits:#x}",
                section="2.1 appendix A",
            )
            self._findings.add(wrong, self._name, role)
        return entries

    def _is_sum_right(self, role: str, component: Component) -> bool:
        """Return whether what cannot be read was held to its encoding's sum, if that has one.

        It is compared where all of it is decoded.
        """
        if not component.length or not self._file.stored(component).has_sum():
            return True
        try:
            for _ in self._file.decoded_chunks(self._name, role):
                pass
        except (UnsupportedError, LimitError):
            return False
        except FormatError as error:
            self._findings.add(error, self._name, role)
        return True
