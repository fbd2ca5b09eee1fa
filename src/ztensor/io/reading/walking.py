"""One component, decoded piece by piece and seen by every check; nothing of it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import (
    FormatError,
    LayoutError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Check, digest_of
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.overlaps import Overlaps
from ztensor.spec.digest import Sum
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.base import FRAME_FIELD, runs_of_field
from ztensor.spec.layout.base import Watch
from ztensor.spec.layout.elements import require_known, storage_dtype, typed_array, whole_elements
from ztensor.spec.model.manifest import Component

if TYPE_CHECKING:
    from collections.abc import Iterator


class ComponentWalk:
    """Decodes one component piece by piece and lets every check see the elements.

    Attributes:
        component: what is gone through.
        watch: what the layout looks at elements with; None where it has no rule for them.
        count: how many elements there are.
        last: the last of them, where they are integers.
        bool_fault: what is wrong with a bool, or None.
        unknown: why its elements have no type here: then the bytes alone were checked.
    """

    def __init__(
        self,
        file: FileObjects,
        component: Component,
        expected: int | None,
        watch: Watch | None,
        overlaps: Overlaps,
        *,
        is_opaque: bool,
    ) -> None:
        self._is_opaque = is_opaque
        self._overlaps = overlaps
        self._file = file
        self._expected = expected
        self.component = component
        self.watch = watch
        self.count = 0
        self.last = 0
        self._last_bits = 0  # of elements that share bytes
        self.bool_fault: FormatError | None = None
        self.unknown: ZTensorError | None = None

    def run(self, *, digest_of_decoded: bool) -> None:
        """Decode everything and let the watch see it.

        Raises:
            FormatError: the stored bytes are damaged or break a rule.
            UnsupportedError: the encoding is unknown, or the type and the encoding are.
            LimitError: a safety cap is exceeded.
        """
        component = self.component
        if not self._is_opaque:
            try:
                require_known(component)
            except (UnsupportedError, LayoutError) as error:
                self.unknown, self._is_opaque = error, True
        check = Check(digest_of(component) if digest_of_decoded else None)
        try:
            if check.is_empty and self._is_only_counted:
                self._count()
                return
            for block in self._blocks(check):
                self._look(block)
        except UnsupportedError:
            if self.unknown is not None:
                raise self.unknown from None
            raise
        check.end()

    @property
    def _is_only_counted(self) -> bool:
        """Return whether any bytes are good elements: then they are not read a second time."""
        component = self.component
        return (
            component.encoding == "raw"
            and self._expected is None
            and self.watch is None
            and (component.dtype != "bool" or component.has_free_bools or self._is_opaque)
            and not (component.is_exact and component.type == "f4_e2m1")  # its padding is 0
            and self._file.stored(component).encoding() is ENCODINGS["raw"]
        )

    def _count(self) -> None:
        component = self.component
        stored = self._file.stored(component).stored()
        if self._is_opaque or not stored.length:
            return
        logical = component.logical
        width = storage_dtype(component).itemsize
        width *= 1 if logical is None else logical.storage_per_element
        # Of elements that end within the bytes, or of what is left over, which is refused.
        tail = stored.length % width or width
        for block in whole_elements(component, [stored.read(stored.length - tail, tail)]):
            self._look(block)
            self.count *= stored.length // width

    def _blocks(self, check: Check) -> Iterator[memoryview]:
        """Yield decoded pieces cut at element borders; none of what only the bytes are known of."""
        component, file = self.component, self._file
        chunks = file.stored(component).pieces(self._expected)
        chunks = check.over(self._overlaps.metered(file, component, chunks, "elements"))
        if not self._is_opaque:
            yield from whole_elements(component, chunks)
        for _ in chunks:
            pass

    def _look(self, block: memoryview) -> None:
        component = self.component
        is_checked = component.dtype == "bool" and not component.nonzero_is_true
        if is_checked and self.bool_fault is None:
            stored = np.frombuffer(block, np.uint8)
            if stored.size and stored.max() > 1:
                at = int(np.flatnonzero(stored > 1)[0])
                self.bool_fault = FormatError(
                    "a bool is neither 0x00 nor 0x01",
                    reason=Reason.BOOL_VALUE,
                    found=f"{stored[at]:#04x} at position {self.count + at}",
                    section="1.2 section 2, Storage types",
                )
        elements = typed_array(component, block)
        if self.watch is not None:
            self.watch.feed(elements)
        self.count += elements.size
        if elements.size and elements.dtype.kind in "iu":
            self.last = int(elements[-1])
        elif elements.size and elements.itemsize == 1:
            self._last_bits = int(elements[-1:].view(np.uint8)[0])

    def padding_fault(self, entries: int) -> FormatError | None:
        """Return what is wrong with the bits behind so many elements that share bytes, or None."""
        if not self.component.is_exact or not self._last_bits:
            return None
        return FormatError(
            "bits that belong to no element are not 0",
            reason=Reason.PADDING_VALUE,
            expected=f"0 behind element {entries}",
            found=f"{self._last_bits:#x}",
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
    encoding = file.encodings.get(component.encoding)
    if component.encoding != "zstd" or expected is None:
        return
    listed = (component.extra or {}).get(FRAME_FIELD)
    if listed is None or encoding is None:
        return
    stored = file.stored(component).stored()
    told = runs_of_field(listed, stored.length, expected)
    found = encoding.find_runs(stored, expected, file.limits)
    if told is not None and found is not None:
        places = dict(zip(found.stored, found.decoded, strict=True))
        pairs = zip(told.stored, told.decoded, strict=True)
        if all(places.get(at) == decoded for at, decoded in pairs):
            return
    raise FormatError(
        f"the field {FRAME_FIELD!r} does not list the frames that are there",
        reason=Reason.FIELD_VALUE,
        expected="every frame's length",
        found=describe(listed),
    )


class Sums:
    """What was found of the sums over more than one component: each is looked at once."""

    def __init__(self) -> None:
        self._faults: dict[int, ZTensorError | None] = {}

    def fault(self, one: Sum) -> ZTensorError | None:
        """Return what is wrong with the bytes of a sum, or None."""
        if one.offset not in self._faults:
            self._faults[one.offset] = None
            try:
                with foreign_bytes("the component"):
                    one.check()
            except ZTensorError as error:
                self._faults[one.offset] = error
        return self._faults[one.offset]
