"""One object, to its last byte: whatever is wrong is noted, and nothing of it is kept.

A component is gone through piece by piece: its digest, what it decodes to, its bools, what the
layout asks of its elements. One pass does all of it, but for encoded bytes whose digest is over
what is stored: these are read before.
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

Told = Callable[[int], None]
NOT_DAMAGE = UnsupportedError, LimitError
FAULTS = FormatError, *NOT_DAMAGE
_NO_OBJECT = TensorObject((), "dense", {})
Fault = tuple[ZTensorError, tuple[str, ...]]  # and the path to what is wrong


@dataclasses.dataclass(slots=True, eq=False)
class ObjectWalk:
    """Goes through all components of one object.

    Attributes:
        file: the file.
        name: the object's name.
        object: what the file says of it.
        overlaps: what is known of bytes that it shares with others.
        told: called with the stored bytes that were gone through.
        fault_of: gives what is wrong with the bytes of a sum.
        faults: what is wrong or unknown, and where.
        checked: components whose digest matches.
        undigested: those without a digest that can be computed here.
        unchecked: why not every byte is under a digest, or None.
    """

    file: FileObjects
    name: str
    overlaps: Overlaps
    told: Told
    fault_of: Callable[[Sum], ZTensorError | None]
    object: TensorObject = _NO_OBJECT
    faults: list[Fault] = dataclasses.field(default_factory=list)
    checked: int = 0
    undigested: int = 0
    unchecked: str | None = None

    def run(self, one: TensorObject | ZTensorError) -> None:
        """Go through all of an object, or note what is wrong with what the file says of it."""
        if isinstance(one, ZTensorError):
            self._note(one, None)
            return
        self.object, layout = one, LAYOUTS.get(one.format)
        if layout is None:
            message = f"the layout {describe(one.format)} is unknown; its parts were checked"
            unknown = UnsupportedError(message, reason=Reason.UNKNOWN_LAYOUT)
            self.faults.append((unknown, ("objects", self.name, "format")))
        entries = element_count(one.shape) if one.format == "dense" else known_entries(one)
        walks: dict[str, ComponentWalk] = {}
        counts: dict[str, int] = {}
        for role in roles_in_order(one):
            walk = walks[role] = self._walked(role, layout, entries)
            counts[role] = walk.count
            if layout is not None and role == layout.main_role and walk.component.type is not None:
                with self.noted(role):
                    counts[role] = walk.count_of(entries)
            if layout is not None and walk.is_whole and entries is None:
                with self.noted(role):
                    entries = layout.entries_told(role, walk.count, walk.last)
        if not all(walk.is_whole for walk in walks.values()):
            return  # what one says of another cannot be compared
        for role, walk in walks.items():
            if walk.watch is not None:
                with self.noted(role):
                    walk.watch.finish(counts)
        if one.entries_once and not self.faults:
            with self.noted(None):
                self.file.tensor(self.name, copy=False)

    @contextlib.contextmanager
    def noted(self, role: str | None) -> Iterator[None]:
        """Note what is wrong with a component, or with the object, instead of raising it."""
        try:
            with foreign_bytes("the component"):
                yield
        except FAULTS as error:
            self._note(error, error.component or role)

    def _note(self, error: ZTensorError, role: str | None) -> None:
        inside = () if role is None else ("components", role)
        self.faults.append((error, ("objects", self.name, *inside)))

    def _walked(self, role: str, layout: Layout | None, entries: int | None) -> ComponentWalk:
        """Return the walk over a component, or over another one of which all the same is true."""
        one, component = self.object, self.object.components[role]
        left, digest = component.length, self._digest(role, component)
        expected, watch = component.known_decoded_length, None
        if layout is not None:
            with self.noted(role):
                expected = layout.expected_length(one, role, entries)
                watch = layout.watch(one, role, entries)
        if component.encoding == "raw":  # whether it is right, the layout says at the end
            expected = None

        def told(count: int) -> None:
            nonlocal left
            left -= count
            self.told(count)

        def work(charge: Charge) -> ComponentWalk:
            walk = ComponentWalk(self.file, component, watch, charge, told, one.is_opaque)
            walk.run(digest, expected)
            return walk

        # All that a watch is made of; attributes say how large blocks are.
        made_of = watch and (one.format, one.shape, repr(one.attributes), role, entries)
        stated = component._replace(digest=None, extra=None)
        key = stated, digest, expected, one.is_opaque, made_of
        walk = self.overlaps.once(self.file, component, key, work)
        self.told(left)
        self.checked += walk.is_matched is True
        for fault in walk.faults:
            self._note(fault, role)
        if walk.failure is None:
            with self.noted(role):
                require_listed(self.file, component, expected)
            return walk
        is_held = digest is None or walk.is_matched is not None
        if is_held and not isinstance(walk.failure, FormatError):  # a sum is seen at the end
            is_held = not component.length or not self.file.stored(component).has_sum()
        if not is_held:
            self.unchecked = walk.failure.message
        return walk

    def _digest(self, role: str, component: Component) -> Digest | None:
        """Return the digest that bytes are held to; None where there is none, or not here."""
        if self.file.is_unheld(self.object, component):
            found = self.file.sum_over(component) if component.length else None
            if found is None:
                self.unchecked = self.unchecked or "it has no digest"
            elif (wrong := self.fault_of(found)) is None:
                self.checked += 1
                return None
            else:
                self._note(wrong, role)
        try:
            digest = digest_of(component)
            if digest is not None and digest.known is not None:
                digest.known.hasher()
                return digest
            if digest is not None and component.length:
                word = describe(digest.algorithm)
                self.unchecked = f"its digest is of an unknown kind, {word}"
        except UnsupportedError as error:  # its library is missing
            self._note(error, role)
            self.unchecked = error.message
        self.undigested += 1
        return None


@dataclasses.dataclass(slots=True, eq=False)
class ComponentWalk:
    """Decodes one component piece by piece and sees all its elements.

    Attributes:
        file: the file.
        component: what is gone through.
        watch: what the layout looks at elements with; None where it has no rule for them.
        charge: called with bytes as they are gone through; raises where that is too often.
        told: called with stored bytes, each once.
        is_opaque: whether only the bytes are looked at, not what they mean.
        faults: what is wrong or unknown.
        failure: the one of them that ended the walk, or None.
        is_matched: whether the bytes match their digest; None where they were not compared.
        is_whole: whether all elements were seen, and none of them breaks a rule of the layout.
        nbytes: how many bytes of elements there are.
        last: the last element that the watch saw.
        last_byte: the last byte of all.
        has_bools: whether bytes have to be 0 or 1.
    """

    file: FileObjects
    component: Component
    watch: Watch | None
    charge: Charge
    told: Told
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
        """Go through all of it.

        Args:
            digest: what the bytes are held to, if anything.
            expected: how many bytes it decodes to; None where nothing but decoding tells.
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
        """Hold stored bytes to their digest; return it where it is that of the decoded ones."""
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
        """Yield pieces, charged for; behind the last one their digest is checked."""
        check = Check(digest)
        for piece in check.over(pieces):
            self.charge(piece.nbytes)
            if are_stored:
                self.told(piece.nbytes)
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
        """Return whether any bytes are good elements, so that there is no need to see them."""
        component = self.component
        width, logical = component.width or 1, component.logical
        is_padded = component.is_exact and logical is not None and logical.elements_per_storage > 1
        is_free = self.watch is None and not self.has_bools and not is_padded
        return self.is_opaque or (is_free and not component.length % width)

    def _look(self, block: memoryview) -> None:
        if self.has_bools:
            try:
                require_bools(np.frombuffer(block, np.uint8), self.nbytes)
            except FormatError as error:  # the first one is told
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
        """Return how many elements there are."""
        component = self.component._replace(encoding="raw", length=self.nbytes)
        return 0 if self.is_opaque else component.known_count() or 0

    def count_of(self, entries: int | None) -> int:
        """Return how many elements count where several share a byte; the other bits have to be 0.

        Args:
            entries: how many the object has, or None.

        Raises:
            FormatError: so they are not.
        """
        count, packed = self.count, self.component.logical
        shared = 1 if packed is None else packed.elements_per_storage
        if entries is None or not 0 < count - entries < shared:
            return count
        found = self.last_byte >> 8 - (count - entries) * 8 // shared
        if self.component.is_exact and found:
            raise FormatError(
                "bits that belong to no element are not 0",
                reason=Reason.PADDING_VALUE,
                expected=f"0 behind element {entries}",
                found=f"{found:#x}",
                section="2.1 appendix A",
            )
        return entries


def require_listed(file: FileObjects, component: Component, expected: int | None) -> None:
    """Raise where the manifest lists runs that are not there.

    A reader over a network enters the stored bytes by that list alone.

    Args:
        file: the file.
        component: one of its components.
        expected: how many bytes it decodes to; None where nothing but decoding tells.

    Raises:
        FormatError: so it is.
    """
    listed, encoding = (component.extra or {}).get(FRAME_FIELD), file.encodings.get("zstd")
    if component.encoding != "zstd" or expected is None or listed is None or encoding is None:
        return
    stored = file.stored(component).stored()
    told = runs_of_field(listed, stored.length, expected)
    if told is None or told != encoding.require_length(stored, expected, file.limits):
        raise FormatError(
            f"the field {FRAME_FIELD!r} does not list the frames that are there",
            reason=Reason.FIELD_VALUE,
            expected="every frame's length",
            found=describe(listed),
        )
