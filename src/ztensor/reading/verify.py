"""Walk a whole file and return every problem; nothing stops at the first one.

Every component is read once, in pieces of bounded size: its digest over the stored bytes, its
encoding to the last byte, bool bytes, and what its layout demands of its elements.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
from typing import TYPE_CHECKING

import numpy as np

from ztensor.digest import Hasher, require_match
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.layout import LAYOUTS
from ztensor.layout.elements import require_known, typed_array, whole_elements
from ztensor.model.problem import Problem
from ztensor.reading.reader import (
    PIECE_BYTES,
    digest_of,
    require_declared,
    roles_in_order,
)
from ztensor.threads import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ztensor.layout.base import Watch
    from ztensor.model.manifest import Component, TensorObject
    from ztensor.reading.reader import ManifestReader

    Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verifying found.

    Attributes:
        problems: everything that is wrong, in the order of the file.
        unsupported: what is well-formed but unknown to this release, so that it was not checked.
        checked: components whose digest matches.
        undigested: components without a digest that can be computed here.
        objects: objects that were walked.
        nbytes: stored bytes that were read.
    """

    problems: tuple[Problem, ...]
    unsupported: tuple[Problem, ...]
    checked: int
    undigested: int
    objects: int
    nbytes: int

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


@dataclasses.dataclass(slots=True)
class _Findings:
    """What one object's walk found."""

    problems: list[Problem] = dataclasses.field(default_factory=list)
    unsupported: list[Problem] = dataclasses.field(default_factory=list)
    checked: int = 0
    undigested: int = 0
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


def _sentence(error: ZTensorError) -> str:
    facts = [error.message]
    if error.expected is not None:
        facts.append(f"expected {error.expected}")
    if error.found is not None:
        facts.append(f"found {error.found}")
    return ", ".join(facts)


def verify_reader(
    reader: ManifestReader,
    names: Iterable[str] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check all stored bytes of a file.

    Args:
        reader: an open reader.
        names: objects to check; all of them by default.
        threads: how many to use; as many as there are cores, four at most, by default.
        progress: called with the stored bytes read so far and the bytes to read in all.

    Raises:
        ObjectNotFoundError: a name is not in the file.
        SourceError: the bytes could not be read.
    """
    if isinstance(names, str):  # one name, not its letters
        names = [names]
    chosen = list(reader) if names is None else list(names)
    objects = [(name, reader._object(name)) for name in chosen]
    total = sum(c.length for _, o in objects for c in o.components.values())
    done = 0
    lock = threading.Lock()

    def report(count: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += count
                progress(min(done, total), total)

    def walk(item: tuple[str, TensorObject]) -> _Findings:
        return _walk_object(reader, *item, report)

    workers = thread_count(threads)
    if workers <= 1 or len(objects) < 2:
        findings = [walk(item) for item in objects]
    else:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            findings = list(pool.map(walk, objects))
    return VerifyReport(
        problems=tuple(problem for found in findings for problem in found.problems),
        unsupported=tuple(problem for found in findings for problem in found.unsupported),
        checked=sum(found.checked for found in findings),
        undigested=sum(found.undigested for found in findings),
        objects=len(objects),
        nbytes=total,
    )


def _walk_object(
    reader: ManifestReader, name: str, tensor_object: TensorObject, report: Callable[[int], None]
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
    entries = None
    whole = True
    for role in roles_in_order(tensor_object):
        component = tensor_object.components[role]
        done = findings.nbytes
        has_digest_matched = _check_digest(reader, component, name, role, findings, report)
        try:
            # Raw bytes are what they are: whether that is right, the layout says at the end.
            expected = None if component.encoding == "raw" else component.known_decoded_length
            if layout is not None and component.encoding != "raw":
                expected = layout.expected_length(tensor_object, role, entries)
            if expected is not None:
                require_declared(component, expected)
            watch = layout.watch(tensor_object, role, entries) if layout is not None else None
            walker = ComponentWalk(
                reader, component, expected, watch, is_opaque=tensor_object.is_opaque
            )
            walker.run(digest_of_decoded=has_digest_matched is None)
            findings.checked += has_digest_matched is None
            if walker.bool_problem is not None:
                findings.add(walker.bool_problem, name, role)
            counts[role] = walker.count
            if watch is not None:
                watches.append((role, watch))
            if layout is not None and entries is None:
                entries = layout.entries_told(role, walker.count, walker.last)
        except (FormatError, UnsupportedError, LimitError) as error:
            findings.add(error, name, role)
            whole = False
        report(component.length - (findings.nbytes - done))
    if whole:
        for role, watch in watches:
            try:
                watch.finish(counts)
            except LayoutError as error:
                findings.add(error, name, role)
    return findings


def _check_digest(
    reader: ManifestReader,
    component: Component,
    name: str,
    role: str,
    findings: _Findings,
    report: Callable[[int], None],
) -> bool | None:
    """Check the digest over stored bytes; None where only the decoded bytes can still match."""
    digest = digest_of(component)
    if digest is None or digest.known is None:
        findings.undigested += 1
        return True
    try:
        hasher = digest.known.hasher()
    except UnsupportedError as error:
        findings.undigested += 1
        findings.add(error, name, role)
        return True
    for piece in reader.stored_range(component).pieces(PIECE_BYTES):
        hasher.update(piece)
        findings.nbytes += piece.nbytes
        report(piece.nbytes)
    try:
        require_match(digest, hasher.hexdigest())
    except DigestMismatchError as error:
        if component.digest_may_cover_decoded and component.encoding != "raw":
            return None
        findings.add(error, name, role)
        return False
    findings.checked += 1
    return True


class ComponentWalk:
    """Decodes one component piece by piece and lets every check see the elements."""

    def __init__(
        self,
        reader: ManifestReader,
        component: Component,
        expected: int | None,
        watch: Watch | None,
        *,
        is_opaque: bool,
    ) -> None:
        self._is_opaque = is_opaque
        self._reader = reader
        self._component = component
        self._expected = expected
        self._watch = watch
        self.count = 0
        self.last = 0
        self.bool_problem: FormatError | None = None

    def run(self, *, digest_of_decoded: bool) -> None:
        """Decode everything and let the watch see it.

        Raises:
            FormatError: the stored bytes are damaged or break a rule.
            UnsupportedError: the type or the encoding is unknown.
            LimitError: a safety cap is exceeded.
        """
        component = self._component
        if not self._is_opaque:
            require_known(component)
        hasher: Hasher | None = None
        digest = digest_of(component) if digest_of_decoded else None
        if digest is not None and digest.known is not None:
            hasher = digest.known.hasher()
        for block in self._whole_elements(hasher):
            self._look(block)
        if digest is not None and hasher is not None:
            require_match(digest, hasher.hexdigest())

    def _whole_elements(self, hasher: Hasher | None) -> Iterator[memoryview]:
        """Return decoded pieces cut at element borders."""
        component, reader = self._component, self._reader
        chunks = reader.encoding_of(component).decode_chunks(
            reader.stored_range(component), self._expected, reader._limits
        )
        if hasher is not None:
            chunks = _hashed(chunks, hasher)
        return chunks if self._is_opaque else whole_elements(component, chunks)

    def _look(self, block: memoryview) -> None:
        component = self._component
        if self._is_opaque:
            return
        if (
            component.dtype == "bool"
            and not component.nonzero_is_true
            and (self.bool_problem is None)
        ):
            stored = np.frombuffer(block, np.uint8)
            if stored.size and stored.max() > 1:
                at = int(np.flatnonzero(stored > 1)[0])
                self.bool_problem = FormatError(
                    "a bool is neither 0x00 nor 0x01",
                    reason=Reason.BOOL_VALUE,
                    found=f"{stored[at]:#04x} at position {self.count + at}",
                    section="1.2 section 2, Storage types",
                )
        elements = typed_array(component, block)
        if self._watch is not None:
            self._watch.feed(elements)
        self.count += elements.size
        if elements.size and elements.dtype.kind in "iu":
            self.last = int(elements[-1])


def _hashed(chunks: Iterator[memoryview], hasher: Hasher) -> Iterator[memoryview]:
    for chunk in chunks:
        hasher.update(chunk)
        yield chunk
