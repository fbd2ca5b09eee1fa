"""Check every stored byte of one object and collect all faults.

A component is decoded block by block. One pass computes the digest, checks bools and feeds the
elements to the layout's `Watch`. Encoded bytes with a digest over the *stored* bytes take two
passes: first the digest, then the decoding.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

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
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Check, digest_of, require_declared
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.overlaps import Charge, Overlaps
from ztensor.spec.digest import Digest, Sum
from ztensor.spec.encoding.base import FRAME_FIELD, runs_of_field
from ztensor.spec.layout import LAYOUTS, known_entries, roles_in_order
from ztensor.spec.layout.base import Layout, Watch
from ztensor.spec.layout.elements import require_bools, require_known, typed_array, whole_elements
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, TensorObject

Report = Callable[[int], None]  # takes a number of stored bytes that were checked
NOT_DAMAGE = UnsupportedError, LimitError
FAULTS = FormatError, *NOT_DAMAGE
_NO_OBJECT = TensorObject((), "dense", {})
Fault = tuple[ZTensorError, tuple[str, ...]]  # the error, and the path to its cause


@dataclasses.dataclass(slots=True, eq=False)
class ObjectWalk:
    """Checks all components of one object.

    Attributes:
        file: the file.
        name: the object's name.
        object: its entry in the manifest.
        overlaps: results for bytes that several objects share.
        report: called with the number of stored bytes that were checked.
        fault_of: returns the error of a checksum of the format, None if it matches.
        faults: every error, with its path.
        checked: number of components with a matching digest.
        undigested: number of components without a digest that can be computed here.
        unchecked: the reason if some byte is under no digest, else None.
    """

    file: FileObjects
    name: str
    overlaps: Overlaps
    report: Report
    fault_of: Callable[[Sum], ZTensorError | None]
    object: TensorObject = _NO_OBJECT
    faults: list[Fault] = dataclasses.field(default_factory=list)
    checked: int = 0
    undigested: int = 0
    unchecked: str | None = None

    def run(self, entry: TensorObject | ZTensorError) -> None:
        """Check an object.

        Args:
            entry: the object, or the error that reading its entry raised: the only fault then.
        """
        if isinstance(entry, ZTensorError):
            self._note(entry, None)
            return
        self.object, layout = entry, LAYOUTS.get(entry.format)
        if layout is None:
            message = f"unknown layout {describe(entry.format)}; only its components were checked"
            unknown = UnsupportedError(message, reason=Reason.UNKNOWN_LAYOUT)
            self.faults.append((unknown, ("objects", self.name, "format")))
        is_dense = entry.format == "dense"
        entries = element_count(entry.shape) if is_dense else known_entries(entry)
        walks: dict[str, ComponentWalk] = {}
        counts: dict[str, int] = {}
        for role in roles_in_order(entry):
            walk = walks[role] = self._walked(role, layout, entries)
            counts[role] = walk.count
            if layout is not None and role == layout.main_role and walk.component.type is not None:
                with self.noted(role):
                    counts[role] = walk.count_of(entries)
            if layout is not None and walk.is_whole and entries is None:
                with self.noted(role):
                    entries = layout.entries_told(role, walk.count, walk.last)
        if not all(walk.is_whole for walk in walks.values()):
            return  # counts and ranges of a damaged component mean nothing to the others
        for role, walk in walks.items():
            if walk.watch is not None:
                with self.noted(role):
                    walk.watch.finish(counts)
        is_whole = entry.entries_once or (layout is not None and layout.needs_whole)
        if is_whole and not self.faults:
            with self.noted(None):
                self.file.tensor(self.name, copy=False)

    @contextlib.contextmanager
    def noted(self, role: str | None) -> Iterator[None]:
        """Return a context that collects the fault of a component instead of raising it.

        Args:
            role: the component; None stands for the whole object.
        """
        try:
            with foreign_bytes("the component"):
                yield
        except FAULTS as error:
            self._note(error, error.component or role)

    def _note(self, error: ZTensorError, role: str | None) -> None:
        inside = () if role is None else ("components", role)
        self.faults.append((error, ("objects", self.name, *inside)))

    def _walked(self, role: str, layout: Layout | None, entries: int | None) -> ComponentWalk:
        """Return the finished walk over a component.

        It may be the walk of an equal component of another object over the same bytes.
        """
        entry, component = self.object, self.object.components[role]
        left, digest = component.length, self._digest(role, component)
        expected, watch = component.known_decoded_length, None
        if layout is not None:
            with self.noted(role):
                expected = layout.expected_length(entry, role, entries)
                watch = layout.watch(entry, role, entries)
        if component.encoding == "raw":  # the watch compares the length at the end
            expected = None

        def report(count: int) -> None:
            nonlocal left
            left -= count
            self.report(count)

        def work(charge: Charge) -> ComponentWalk:
            walk = ComponentWalk(self.file, component, watch, charge, report, entry.is_opaque)
            walk.run(digest, expected)
            return walk

        # Everything that the watch depends on; block sizes are among the attributes.
        made_of = watch and (entry.format, entry.shape, repr(entry.attributes), role, entries)
        stated = component._replace(digest=None, extra=None)
        key = stated, digest, expected, entry.is_opaque, made_of
        walk = self.overlaps.once(self.file, component, key, work)
        self.report(left)
        self.checked += walk.is_matched is True
        for fault in walk.faults:
            self._note(fault, role)
        if walk.failure is None:
            with self.noted(role):
                require_listed(self.file, component, expected)
            return walk
        is_held = digest is None or walk.is_matched is not None
        if is_held and not isinstance(walk.failure, FormatError):  # a checksum comes at the end
            is_held = not component.length or not self.file.stored(component).has_sum()
        if not is_held:
            self.unchecked = walk.failure.message
        return walk

    def _digest(self, role: str, component: Component) -> Digest | None:
        """Return the digest to compare with; None if there is none or it cannot be computed."""
        if self.file.is_unheld(self.object, component):
            checksum = self.file.sum_over(component) if component.length else None
            if checksum is None:
                self.unchecked = self.unchecked or "it has no digest"
            elif (fault := self.fault_of(checksum)) is None:
                self.checked += 1
                return None
            else:
                self._note(fault, role)
        try:
            digest = digest_of(component)
            if digest is not None and digest.known is not None:
                digest.known.hasher()
                return digest
            if digest is not None and component.length:
                self.unchecked = f"unknown digest algorithm {describe(digest.algorithm)}"
        except UnsupportedError as error:  # its library is missing
            self._note(error, role)
            self.unchecked = error.message
        self.undigested += 1
        return None


@dataclasses.dataclass(slots=True, eq=False)
class ComponentWalk:
    """Decodes one component block by block and checks all its elements.

    Attributes:
        file: the file.
        component: the component.
        watch: the layout's check of the elements; None if it has no rule for them.
        charge: called with the number of bytes read or decoded; raises when the budget is spent.
        report: called with the number of stored bytes, each byte once.
        is_opaque: True checks bytes only, not elements: their meaning is unknown.
        faults: every error.
        failure: the error that ended the walk, or None.
        is_matched: whether the bytes match their digest; None if they were not compared.
        is_whole: whether all elements were seen and satisfy the layout.
        nbytes: decoded bytes of the elements.
        last: the last element that the watch saw, 0 for floats.
        last_byte: the last decoded byte.
        has_bools: whether every byte must be 0 or 1.
    """

    file: FileObjects
    component: Component
    watch: Watch | None
    charge: Charge
    report: Report
    is_opaque: bool
    faults: list[ZTensorError] = dataclasses.field(default_factory=list)
    failure: ZTensorError | None = None
    is_matched: bool | None = None
    is_whole: bool = True
    nbytes: int = 0
    last: int = 0
    last_byte: int = 0
    has_bools: bool = False

    def run(self, digest: Digest | None, expected: int | None) -> None:
        """Check the component.

        Args:
            digest: the digest to compare with, or None.
            expected: the decoded length; None if only decoding can determine it.
        """
        unknown: ZTensorError | None = None
        self.has_bools = self.component.dtype == "bool" and not self.component.nonzero_is_true
        if not self.is_opaque:
            try:
                require_known(self.component)
            except (UnsupportedError, LayoutError) as error:
                unknown, self.is_opaque = error, True
                self.faults.append(error)
        try:
            with foreign_bytes("the component"):
                self._decode(self._left_of(digest), expected)
        except FAULTS as error:
            self.failure = unknown if unknown and isinstance(error, UnsupportedError) else error
            self.faults += [error] if self.failure is error else []
        self.is_whole = self.is_whole and unknown is None and self.failure is None

    def _left_of(self, digest: Digest | None) -> Digest | None:
        """Compare the digest of stored bytes. Return it if the decoded bytes must match instead."""
        component = self.component
        if digest is None or component.encoding == "raw" or component.is_exact:
            return digest
        for _ in self._held(self.file.stored(component).stored().pieces(), digest):
            pass
        if self.is_matched or not component.digest_may_cover_decoded:
            return None
        self.is_matched, self.faults = None, self.faults[1:]
        return digest

    def _held(
        self, pieces: Iterator[memoryview], digest: Digest | None, *, are_stored: bool = True
    ) -> Iterator[memoryview]:
        """Yield and charge for pieces; compare the digest after the last."""
        check = Check(digest)
        for piece in check.over(pieces):
            self.charge(piece.nbytes)
            if are_stored:
                self.report(piece.nbytes)
            yield piece
        try:
            check.end()
            self.is_matched = self.is_matched if check.is_empty else True
        except DigestMismatchError as error:
            self.is_matched = False
            self.faults.insert(0, error)

    def _decode(self, digest: Digest | None, expected: int | None) -> None:
        component, stored = self.component, self.file.stored(self.component)
        if expected is not None:
            require_declared(component, expected)
        if component.encoding != "raw":
            pieces = self._held(stored.pieces(expected), digest, are_stored=False)
        elif digest is None and self._is_anything_good:
            self.nbytes = component.length
            return
        else:
            pieces = self._held(stored.stored().pieces(), digest)
        if not self.is_opaque:
            for block in whole_elements(component, pieces):
                self._look(block)
        for _ in pieces:
            pass

    @property
    def _is_anything_good(self) -> bool:
        """True if every byte string is valid here, so that nothing has to be read.

        Bytes of another file are read: it may be gone, or too short.
        """
        if len(self.file.source.parts) > 1:
            return False
        component = self.component
        width, logical = component.width or 1, component.logical
        is_padded = component.is_exact and logical is not None and logical.elements_per_storage > 1
        is_free = self.watch is None and not self.has_bools and not is_padded
        return self.is_opaque or (is_free and not component.length % width)

    def _look(self, block: memoryview) -> None:
        if self.has_bools:
            try:
                require_bools(np.frombuffer(block, np.uint8), self.nbytes)
            except FormatError as error:  # one report is enough
                self.faults.append(error)
                self.has_bools = False
        if self.watch is not None:
            elements = typed_array(self.component, block)
            try:
                self.watch.feed(elements)
            except LayoutError as error:
                self.faults.append(error)
                self.watch, self.is_whole = None, False
            self.last = int(elements[-1]) if elements.dtype.kind in "iu" else 0
        self.nbytes += block.nbytes
        self.last_byte = block[-1]

    @property
    def count(self) -> int:
        """Return the number of elements; 0 for opaque bytes."""
        component = self.component._replace(encoding="raw", length=self.nbytes)
        return 0 if self.is_opaque else component.known_count() or 0

    def count_of(self, entries: int | None) -> int:
        """Return the number of elements without padding, for types with several per byte.

        Args:
            entries: the number of elements that the object needs; None if unknown.

        Raises:
            FormatError: a padding bit is not 0.
        """
        packed = self.component.logical
        if entries is None or packed is None or packed.elements_per_storage == 1:
            return self.count
        spare = self.nbytes * 8 - entries * packed.bits
        if not 0 <= spare < 8:
            return self.count
        padding = self.last_byte >> 8 - spare
        if self.component.is_exact and padding:
            raise FormatError(
                "padding bits are not 0",
                reason=Reason.PADDING_VALUE,
                expected=f"0 after element {entries}",
                found=f"{padding:#x}",
                section="2.1 appendix A",
            )
        return entries


def require_listed(file: FileObjects, component: Component, expected: int | None) -> None:
    """Require that the manifest's list of zstd frames equals the stored frames.

    Readers over a network trust that list alone.

    Args:
        file: the file.
        component: one of its components.
        expected: its decoded length; None if only decoding can determine it: nothing is checked.

    Raises:
        FormatError: the list differs.
    """
    listed, encoding = (component.extra or {}).get(FRAME_FIELD), file.encodings.get("zstd")
    if component.encoding != "zstd" or expected is None or listed is None or encoding is None:
        return
    stored = file.stored(component).stored()
    runs = runs_of_field(listed, stored.length, expected)
    if runs is None or runs != encoding.require_length(stored, expected, file.limits):
        raise FormatError(
            f"the field {FRAME_FIELD!r} does not list the stored frames",
            reason=Reason.FIELD_VALUE,
            expected="every frame's length",
            found=describe(listed),
        )
