"""Walk a whole file and return every problem; nothing stops at the first one.

Every component is read once, in pieces of bounded size: its digest over the stored bytes, its
encoding to the last byte, bool bytes, and what its layout demands of its elements.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from ztensor.arguments import require_function
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LayoutError,
    LimitError,
    Problem,
    Reason,
    SourceError,
    UnsupportedError,
    ZTensorError,
    describe,
    without_our_section,
)
from ztensor.guard import foreign_bytes
from ztensor.interactive import Shown
from ztensor.io.reading.bulk import right_names
from ztensor.io.reading.component import Check, digest_of, require_declared
from ztensor.io.reading.file import FileObjects, lengths_of
from ztensor.io.reading.overlaps import Overlaps
from ztensor.io.reading.walking import ComponentWalk, Sums, require_listed
from ztensor.io.source.base import Range
from ztensor.locks import Lock
from ztensor.showing import counted
from ztensor.spec.digest import parse_digest, require_match
from ztensor.spec.layout import LAYOUTS, known_entries, roles_in_order
from ztensor.spec.layout.base import Watch
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.model.objects import TableObjects
from ztensor.threads.pool import Pool
from ztensor.threads.sharing import WINDOWS, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

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
        ways = ".problems, .unchecked, .unsupported"
        return f"<ztensor.io.VerifyReport: {', '.join(facts)}; all: {ways}>"


@dataclasses.dataclass(slots=True)
class _Findings:
    """What is wrong with one object, or with what else a file has."""

    problems: list[Problem] = dataclasses.field(default_factory=list)
    unsupported: list[Problem] = dataclasses.field(default_factory=list)
    checked: int = 0
    undigested: int = 0
    unchecked: str | None = None  # why not every byte is under a digest
    nbytes: int = 0  # stored bytes hashed, and reported, so far

    def add(self, error: ZTensorError, name: str, role: str | None = None) -> None:
        unsupported = isinstance(error, (UnsupportedError, LimitError))
        path = ("objects", name) if role is None else ("objects", name, "components", role)
        found = self.unsupported if unsupported else self.problems
        found.append(_problem(error, path, name, role))


def _problem(
    error: ZTensorError, path: tuple[str, ...], name: str | None = None, role: str | None = None
) -> Problem:
    facts = [error.message]
    if error.expected is not None:
        facts.append(f"expected {error.expected}")
    if error.found is not None:
        facts.append(f"found {error.found}")
    reason = error.reason or Reason.FIELD_VALUE
    return Problem(reason, ", ".join(facts), path, error.section, name, error.component or role)


class _Call:
    """What the walks of one call share; `total` is the stored bytes to read."""

    def __init__(self, file: FileObjects, total: int, progress: Progress | None) -> None:
        self.file = file
        self.total = total
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
    if isinstance(names, str):  # one name, not its letters
        names = [names]
    chosen = list(file.names) if names is None else list(dict.fromkeys(names))
    damaged: dict[str, _Findings] = {}
    every, workers = file.manifest.objects, file.thread_count(threads)
    right: Collection[str] = ()
    if isinstance(every, TableObjects):
        call = _Call(file, _stored_bytes(file, every, chosen), progress)
        right = right_names(file, chosen, call.report, workers)
        left = file.in_file_order(name for name in chosen if name not in right)
        objects = [(name, file.object(name)) for name in left]
    else:
        objects = _described(file, file.in_file_order(chosen), damaged)
        call = _Call(file, sum(one.stored_nbytes for _, one in objects), progress)
    findings = call.walk(objects, workers)
    unchecked, sums = {}, Sums()
    for (name, tensor_object), found in zip(objects, findings, strict=True):
        if found.unchecked is None or _are_summed(file, sums, name, tensor_object, found):
            continue
        unchecked[name] = found.unchecked
    findings += damaged.values()
    if names is None:
        findings.append(_of_attributes(file))
    shards = _of_shards(file, progress) if deep else _Findings()
    findings.append(shards)
    problems = [problem for found in findings for problem in found.problems]
    unsupported = [problem for found in findings for problem in found.unsupported]
    if file.format != "zt":
        problems = list(map(without_our_section, problems))
        unsupported = list(map(without_our_section, unsupported))
    return VerifyReport(
        problems=tuple(problems),
        unsupported=tuple(unsupported),
        checked=sum(found.checked for found in findings) + len(right),
        undigested=sum(found.undigested for found in findings),
        objects=len(chosen),
        nbytes=call.total + shards.nbytes,
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
            damaged[name].add(error, name)
    return objects


def _of_attributes(file: FileObjects) -> _Findings:
    """Return what is wrong with attributes that a format stores as it stores objects."""
    with foreign_bytes("the file", file.name):
        faults = file.faults()
    return _Findings([_problem(error, ("attributes", name)) for name, error in faults.items()])


_WHOLE_SHARDS = "2.1 section 7.3"


def _of_shards(file: FileObjects, progress: Progress | None) -> _Findings:
    """Return what the digests of whole shards say, each read once more, that were opened."""
    findings = _Findings()
    needed = [shard for shard in file.manifest.shards.values() if shard.start is not None]
    total = sum(shard.size for shard in needed)
    for shard in needed:
        digest, path = parse_digest(shard.digest, strict=True), ("shards", shard.name)
        if digest.known is None:
            message = f"its digest is of an unknown kind, {describe(digest.algorithm)}"
            findings.unsupported.append(Problem(Reason.UNKNOWN_ENCODING, message, path))
            continue
        try:
            whole = Range(file.source, shard.start or 0, shard.size)
            check = Check(digest)
            for piece in check.over(whole.pieces()):
                findings.nbytes += piece.nbytes
                if progress is not None:
                    progress(findings.nbytes, total)
            check.end()
        except DigestMismatchError as error:
            error.section = _WHOLE_SHARDS
            findings.problems.append(_problem(error, path))
        except (UnsupportedError, LimitError) as error:
            findings.unsupported.append(_problem(error, path))
        except SourceError as error:
            raise error.locate(file=file.name)  # noqa: B904  # the same error
    return findings


def _are_summed(
    file: FileObjects, sums: Sums, name: str, tensor_object: TensorObject, findings: _Findings
) -> bool:
    """Return whether all of an object's bytes are under a sum; add what does not match."""
    if not file.sums:
        return False
    for role, component in tensor_object.components.items():
        if not component.length or component.digest is not None:
            continue
        number = file.sum_over(component)
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
        findings, tensor_object, name = self._findings, self._object, self._name
        if self._layout is None:
            word = describe(tensor_object.format)
            message = f"the layout {word} is unknown; its parts were checked"
            path = ("objects", name, "format")
            unknown = Problem(Reason.UNKNOWN_LAYOUT, message, path, object_name=name)
            findings.unsupported.append(unknown)
        for role in roles_in_order(tensor_object):
            before = findings.nbytes
            self._check(role, tensor_object.components[role])
            rest = tensor_object.components[role].length - (findings.nbytes - before)
            self._call.report(rest)
        if not self._is_whole:
            return findings
        for role, watch in self._watches:
            try:
                with foreign_bytes("the object"):
                    watch.finish(self._counts)
            except LayoutError as error:
                findings.add(error, name, role)
        if tensor_object.entries_once and not findings.problems:
            try:
                self._file.tensor(name, copy=False)
            except LayoutError as error:
                findings.add(error, name, error.component)
        return findings

    def _check(self, role: str, component: Component) -> None:
        findings = self._findings
        if findings.unchecked is None and self._file.is_unheld(self._object, component):
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
            return None

        def hexdigest() -> str:
            pieces = file.stored(component).stored().pieces()
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
        faults = [walked.bool_fault]
        self._counts[role] = walked.count
        entries, packed = self._entries, component.logical
        if self._object.format == "dense":
            entries = element_count(self._object.shape)
        if layout is not None and role == layout.main_role and packed is not None:
            padding = 0 if entries is None else walked.count - entries
            if entries is not None and 0 < padding < packed.elements_per_storage:
                self._counts[role] = entries
                faults.append(walked.padding_fault(entries))
        for fault in filter(None, faults):
            findings.add(fault, self._name, role)
        if walked.unknown is not None:  # then its bytes say nothing of other parts
            findings.add(walked.unknown, self._name, role)
            self._is_whole = False
            return
        if walked.watch is not None:
            self._watches.append((role, walked.watch))
        if layout is not None and self._entries is None:
            self._entries = layout.entries_told(role, walked.count, walked.last)

    def _walked(
        self, role: str, component: Component, expected: int | None, *, digest_of_decoded: bool
    ) -> ComponentWalk:
        """Return the walk over a component, or over another one of which all the same is true."""
        file, overlaps, seen = self._file, self._overlaps, self._object
        watch = None if self._layout is None else self._layout.watch(seen, role, self._entries)

        def walk() -> ComponentWalk:
            walker = ComponentWalk(
                file, component, expected, watch, overlaps, is_opaque=seen.is_opaque
            )
            walker.run(digest_of_decoded=digest_of_decoded)
            return walker

        # All that a watch is made of; attributes say how large blocks are.
        made_of = seen.format, seen.shape, repr(seen.attributes), role, self._entries
        digest = component.digest if digest_of_decoded else None
        stated = component._replace(digest=digest, extra=None)
        key = stated, expected, seen.is_opaque, None if watch is None else made_of
        return overlaps.once(file, component, key, walk)

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
