"""One object, to its last byte: whatever is wrong is noted, and nothing of it is kept.

A component is gone through piece by piece: its digest, what it decodes to, its bools, what the
layout asks of its elements. One pass does all of it, but for encoded bytes whose digest is over
what is stored: these are read before.
"""

from __future__ import annotations

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
from ztensor.spec.layout.base import Watch, width_of
from ztensor.spec.layout.elements import require_bools, require_known, typed_array, whole_elements
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, TensorObject

Told = Callable[[int], None]
NOT_DAMAGE = UnsupportedError, LimitError
FAULTS = FormatError, *NOT_DAMAGE


class ObjectWalk:
    """Goes through all components of one object.

    Args:
        file: the file.
        name: the object's name.
        tensor_object: the object.
        overlaps: what is known of bytes that it shares with others.
        told: called with the stored bytes that were gone through.

    Attributes:
        faults: what is wrong or unknown, and the role of the component it is about.
        checked: components whose digest matches.
        undigested: those without a digest that can be computed here.
        unchecked: why not every byte is under a digest, or None.
    """

    def __init__(
        self,
        file: FileObjects,
        name: str,
        tensor_object: TensorObject,
        overlaps: Overlaps,
        told: Told,
    ) -> None:
        self._file, self._name, self._object = file, name, tensor_object
        self._overlaps, self._told = overlaps, told
        self._layout = LAYOUTS.get(tensor_object.format)
        self._entries = known_entries(tensor_object)
        self._counts: dict[str, int] = {}
        self.faults: list[tuple[ZTensorError, str | None]] = []
        self.checked = self.undigested = 0
        self.unchecked: str | None = None

    def run(self) -> None:
        """Go through all of it."""
        walks = {role: self._walked(role) for role in roles_in_order(self._object)}
        if not all(walk.is_whole for walk in walks.values()):
            return  # what one says of another cannot be compared
        for role, walk in walks.items():
            try:
                with foreign_bytes("the object"):
                    if walk.watch is not None:
                        walk.watch.finish(self._counts)
            except LayoutError as error:
                self.faults.append((error, role))
        if self._object.entries_once and not self.faults:
            try:
                self._file.tensor(self._name, copy=False)
            except LayoutError as error:
                self.faults.append((error, error.component))

    def hold_to_sums(self, fault_of: Callable[[Sum], ZTensorError | None]) -> None:
        """Hold what has no digest to the checksums that the file has over more than a component.

        Args:
            fault_of: gives what is wrong with the bytes of one.
        """
        for role, component in self._object.components.items():
            if not component.length or component.digest is not None:
                continue
            found = self._file.sum_over(component)
            if found is None:
                return
            wrong = fault_of(found)
            if wrong is None:
                self.checked, self.undigested = self.checked + 1, self.undigested - 1
            else:
                self.faults.append((wrong, role))
        self.unchecked = None

    def _walked(self, role: str) -> ComponentWalk:
        """Return the walk over a component, or over another one of which all the same is true."""
        component, told = self._object.components[role], 0
        digest = self._digest(role, component)
        expected, watch, is_asked = self._asked(role, component)

        def tell(count: int) -> None:
            nonlocal told
            told += count
            self._told(count)

        def work(charge: Charge) -> ComponentWalk:
            is_opaque = self._object.is_opaque or not is_asked
            walk = ComponentWalk(self._file, component, watch, charge, tell, is_opaque=is_opaque)
            walk.run(digest, expected)
            return walk

        # All that a watch is made of; attributes say how large blocks are.
        one = self._object
        made_of = watch and (one.format, one.shape, repr(one.attributes), role, self._entries)
        key = component._replace(extra=None), expected, one.is_opaque, is_asked, made_of
        walk = self._overlaps.once(self._file, component, key, work)
        self._told(component.length - told)
        self._note(role, component, walk, expected)
        if walk.failure is not None:
            is_held = digest is None or walk.is_matched is not None
            if is_held and not isinstance(walk.failure, FormatError):  # seen where all is decoded
                is_held = not component.length or not self._file.stored(component).has_sum()
            self.unchecked = self.unchecked if is_held else walk.failure.message
        return walk

    def _digest(self, role: str, component: Component) -> Digest | None:
        """Return the digest that bytes are held to; None where there is none, or not here."""
        if self.unchecked is None and self._file.is_unheld(self._object, component):
            self.unchecked = "it has no digest"
        try:
            digest = digest_of(component)
            if digest is not None and digest.known is not None:
                digest.known.hasher()
                return digest
            if digest is not None and component.length:
                word = describe(digest.algorithm)
                self.unchecked = f"its digest is of an unknown kind, {word}"
        except UnsupportedError as error:  # its library is missing
            self.faults.append((error, role))
            self.unchecked = error.message
        self.undigested += 1
        return None

    def _asked(self, role: str, component: Component) -> tuple[int | None, Watch | None, bool]:
        """Return the decoded length that the layout asks for, its watch, and whether it tells."""
        # Raw bytes are what they are: whether that is right, the layout says at the end.
        expected = None if component.encoding == "raw" else component.known_decoded_length
        if self._layout is None:
            return expected, None, True
        try:
            with foreign_bytes("the component"):
                if component.encoding != "raw":
                    expected = self._layout.expected_length(self._object, role, self._entries)
                return expected, self._layout.watch(self._object, role, self._entries), True
        except FAULTS as error:
            self.faults.append((error, role))
            return expected, None, False

    def _note(
        self, role: str, component: Component, walk: ComponentWalk, expected: int | None
    ) -> None:
        """Take over what was found of a component, and what it says of others."""
        self.checked += walk.is_matched is True
        self.faults += [(fault, role) for fault in walk.faults]
        layout, count = self._layout, walk.count
        self._counts[role] = count
        try:
            with foreign_bytes("the component"):
                if walk.failure is None:
                    require_listed(self._file, component, expected)
                if layout is not None and role == layout.main_role:
                    self._counts[role] = self._without_padding(component, walk)
        except FAULTS as error:
            self.faults.append((error, role))
        if layout is not None and walk.is_whole and self._entries is None:
            self._entries = layout.entries_told(role, count, walk.last)

    def _without_padding(self, component: Component, walk: ComponentWalk) -> int:
        """Return how many elements count where several share bytes; the rest has to be 0."""
        count, entries, packed = walk.count, self._entries, component.logical
        if self._object.format == "dense":
            entries = element_count(self._object.shape)
        if packed is None or entries is None:
            return count
        if not 0 < count - entries < packed.elements_per_storage:
            return count
        walk.require_padding((count - entries) * 8 // packed.elements_per_storage)
        return entries


class ComponentWalk:
    """Decodes one component piece by piece and sees all its elements.

    Args:
        file: the file.
        component: what is gone through.
        watch: what the layout looks at elements with; None where it has no rule for them.
        is_opaque: whether only the bytes are looked at, not what they mean.
        charge: called with bytes as they are gone through; raises where that is too often.
        told: called with stored bytes, each once.

    Attributes:
        faults: what is wrong or unknown.
        failure: the one of them that ended the walk, or None.
        is_matched: whether the bytes match their digest; None where they were not compared.
        is_whole: whether all elements were seen, and none of them breaks a rule of the layout.
        last: the last element that the watch saw.
    """

    def __init__(
        self,
        file: FileObjects,
        component: Component,
        watch: Watch | None,
        charge: Charge,
        told: Told,
        *,
        is_opaque: bool,
    ) -> None:
        self._component, self._stored = component, file.stored(component)
        self._charge, self._told = charge, told
        self._is_opaque, self.watch = is_opaque, watch
        self._nbytes = self._tail = self.last = 0
        self.faults: list[ZTensorError] = []
        self.failure: ZTensorError | None = None
        self.is_matched: bool | None = None
        self._mismatch: list[ZTensorError] = []
        self.is_whole = True

    def run(self, digest: Digest | None, expected: int | None) -> None:
        """Go through all of it.

        Args:
            digest: what the bytes are held to, if anything.
            expected: how many bytes it decodes to; None where nothing but decoding tells.
        """
        unknown: ZTensorError | None = None
        if not self._is_opaque:
            try:
                require_known(self._component)
            except (UnsupportedError, LayoutError) as error:
                unknown, self._is_opaque = error, True
        try:
            with foreign_bytes("the component"):
                self._decode(self._held_to(digest), expected)
        except FAULTS as error:
            self.failure = unknown if unknown and isinstance(error, UnsupportedError) else error
        ends = [error for error in dict.fromkeys((unknown, self.failure)) if error is not None]
        self.is_whole = self.is_whole and not ends
        self.faults = [*self._mismatch, *self.faults, *ends]

    def _held_to(self, digest: Digest | None) -> Digest | None:
        """Hold stored bytes to their digest; return it where it is that of the decoded ones."""
        component = self._component
        if digest is None or component.encoding == "raw" or component.digest_covers_decoded:
            return digest
        for piece in self._held(self._stored.stored().pieces(), digest):
            self._told(piece.nbytes)
        if self.is_matched or not component.digest_may_cover_decoded:
            return None
        self._mismatch, self.is_matched = [], None
        return digest

    def _held(self, pieces: Iterator[memoryview], digest: Digest | None) -> Iterator[memoryview]:
        """Yield pieces, charged for; the last one ends the check of their digest."""
        check = Check(digest)
        for piece in check.over(pieces):
            self._charge(piece.nbytes)
            yield piece
        if check.is_empty:
            return
        try:
            check.end()
        except DigestMismatchError as error:
            self._mismatch, self.is_matched = [error], False
        else:
            self.is_matched = True

    def _decode(self, digest: Digest | None, expected: int | None) -> None:
        component = self._component
        if expected is not None:
            require_declared(component, expected)
        if component.encoding != "raw":
            pieces = self._held(self._stored.pieces(expected), digest)
        elif digest is None and self._is_anything_good:
            self._nbytes = component.length
            return
        else:
            pieces = self._reported(self._held(self._stored.stored().pieces(), digest))
        if not self._is_opaque:
            for block in whole_elements(component, pieces):
                self._look(block)
        for _ in pieces:
            pass

    def _reported(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        for piece in pieces:
            self._told(piece.nbytes)
            yield piece

    @property
    def _is_anything_good(self) -> bool:
        """Return whether any bytes are good elements, so that there is no need to see them."""
        component = self._component
        width, logical = width_of(component) or 1, component.logical
        width *= 1 if logical is None else logical.storage_per_element
        is_padded = component.is_exact and logical is not None and logical.elements_per_storage > 1
        is_free = self.watch is None and not self._has_bools and not is_padded
        return self._is_opaque or (is_free and not component.length % width)

    @property
    def _has_bools(self) -> bool:
        return self._component.dtype == "bool" and not self._component.nonzero_is_true

    def _look(self, block: memoryview) -> None:
        if self._has_bools and not self.faults:
            try:
                require_bools(np.frombuffer(block, np.uint8), self._nbytes)
            except FormatError as error:
                self.faults.append(error)
        if self.watch is not None:
            elements = typed_array(self._component, block)
            try:
                self.watch.feed(elements)
            except LayoutError as error:
                self.faults.append(error)
                self.watch, self.is_whole = None, False
            self.last = int(elements[-1]) if elements.dtype.kind in "iu" else 0
        self._nbytes += block.nbytes
        self._tail = block[-1]

    @property
    def count(self) -> int:
        """Return how many elements there are."""
        component = self._component._replace(encoding="raw", length=self._nbytes)
        return 0 if self._is_opaque else component.known_count() or 0

    def require_padding(self, bits: int) -> None:
        """Raise where so many last bits, which belong to no element, have to be 0 and are not.

        Raises:
            FormatError: so it is.
        """
        found = self._tail >> 8 - bits
        if self._component.is_exact and found:
            raise FormatError(
                "bits that belong to no element are not 0",
                reason=Reason.PADDING_VALUE,
                expected=f"0 in the last {bits}",
                found=f"{found:#x}",
                section="2.1 appendix A",
            )


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
    found = encoding.find_runs(stored, expected, file.limits)
    if told is not None and found is not None:
        there = set(zip(found.stored, found.decoded, strict=True))
        if there.issuperset(zip(told.stored, told.decoded, strict=True)):
            return
    raise FormatError(
        f"the field {FRAME_FIELD!r} does not list the frames that are there",
        reason=Reason.FIELD_VALUE,
        expected="every frame's length",
        found=describe(listed),
    )
