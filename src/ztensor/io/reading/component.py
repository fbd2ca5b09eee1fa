"""The one way to a component's bytes: where they lie, whether they are right, what they decode to.

The reader, slices, whole loads, devices, `verify` and conversions ask here and nowhere else. For
every component the order is the same: is its encoding known, does its digest match the stored
bytes, can they decode to the size they must, do they decode to exactly that.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ztensor.buffers import empty_array
from ztensor.errors import (
    DigestMismatchError,
    EncodingError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.io.source.base import PART_BYTES, Range, Source, fill_arriving
from ztensor.locks import cached_property
from ztensor.spec.digest import Digest, Hasher, parse_digest, require_match
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.encoding.base import FRAME_FIELD, require_decodable, runs_of_field
from ztensor.spec.layout.elements import is_native

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from ztensor.io.reading.runs import PartReader, RunCache, RunReader, StreamReader
    from ztensor.limits import Limits
    from ztensor.spec.layout.base import Array, Indices
    from ztensor.spec.model.manifest import Component

    Parts = PartReader | RunReader | StreamReader

# Frameworks read complex128 by instructions that kill the process at other addresses. NumPy calls
# those aligned that are multiples of 8, so no flag would tell.
COMPLEX_ALIGNMENT = 16
# Fewer decoded bytes are decoded by one thread: starting another takes 0.2 ms.
_LEAST_SHARED_BYTES = 2 << 20


class Fetching:
    """What the components of one source share: its bytes, the encodings, what was checked before.

    Args:
        source: the file's bytes.
        encodings: how components are stored, by the word for it.
        limits: the caps in force.
        verify: None checks digests where bytes are copied, True also before a view is first handed
            out, False never.

    Attributes:
        source: as given, like the others.
        encodings: likewise.
        limits: likewise.
        verify: likewise.
        checked: offset, length and digest of stored bytes that matched.
    """

    def __init__(
        self,
        source: Source,
        encodings: Mapping[str, Encoding],
        limits: Limits,
        *,
        verify: bool | None,
    ) -> None:
        self.source = source
        self.encodings = encodings
        self.limits = limits
        self.verify = verify
        self.checked: set[tuple[int, int, Digest]] = set()

    def is_common(self, encoding: str) -> bool:
        """Return whether an encoding is one of `ENCODINGS`, not one of the file's format.

        Its components at one place have the same bytes, whichever objects they are of.
        """
        found = self.encodings.get(encoding)
        return found is not None and found is ENCODINGS.own(encoding)

    @cached_property
    def runs(self) -> RunCache:
        """Return what slices found out about compressed components."""
        from ztensor.io.reading.runs import RunCache

        return RunCache()

    def close(self) -> None:
        """Forget what was kept."""
        vars(self).pop("runs", None)

    def of(self, component: Component) -> StoredComponent:
        """Return the way to one component's bytes."""
        return StoredComponent(self, component)


class StoredComponent:
    """One component of one source.

    Args:
        shared: what it has in common with the source's others.
        component: what the manifest says of it.

    Attributes:
        component: as given.
    """

    __slots__ = ("_shared", "component")

    def __init__(self, shared: Fetching, component: Component) -> None:
        self._shared = shared
        self.component = component

    # --- Where, and how ---------------------------------------------------------------------

    @property
    def has_common_encoding(self) -> bool:
        """Return whether its encoding is one of `ENCODINGS`."""
        return self._shared.is_common(self.component.encoding)

    def stored(self) -> Range:
        """Return the stored bytes, to be read piece by piece.

        Raises:
            SourceError: the file is shorter than it was.
        """
        self._shared.source.require_unchanged()
        return Range(self._shared.source, self.component.offset, self.component.length)

    def encoding(self) -> Encoding:
        """Return the encoding it names.

        Raises:
            UnsupportedError: this release does not know it.
        """
        try:
            return self._shared.encodings[self.component.encoding]
        except KeyError:
            raise UnsupportedError(
                "the encoding is unknown",
                reason=Reason.UNKNOWN_ENCODING,
                expected=f"one of {', '.join(ENCODINGS)}",
                found=describe(self.component.encoding),
                section="1.2 section 1, Component",
            ) from None

    def is_in_place(self, nbytes: int, *, packed: bool = False) -> bool:
        """Return whether its stored bytes are the elements as memory has them, `nbytes` of them.

        Args:
            nbytes: what the elements take in memory.
            packed: as `is_native` takes it.
        """
        component = self.component
        return (
            component.encoding == "raw"
            and component.length == nbytes
            and is_native(component, packed=packed)
        )

    # --- Is it right? -----------------------------------------------------------------------

    def hasher(self) -> Hasher | None:
        """Return what computes its digest; None where that is not to be checked, or cannot be."""
        digest = None if self._shared.verify is False else digest_of(self.component)
        return None if digest is None or digest.known is None else digest.known.hasher()

    def require(self, hasher: Hasher | None) -> None:
        """Check the digest of bytes that were hashed; nothing without a hasher.

        Raises:
            DigestMismatchError: it does not match.
        """
        digest = digest_of(self.component)
        if hasher is not None and digest is not None:
            require_match(digest, hasher.hexdigest())

    def check(self, *, once: bool, stored: Range | None = None) -> bool:
        """Check the digest, where there is one that can be computed, over the stored bytes.

        Args:
            once: whether it is enough that the same digest of these bytes has matched before.
            stored: the bytes, where they were read already.

        Returns:
            False where it may be, or is, that of the decoded bytes: what is read has to be held
            to it then.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the bytes could not be read.
        """
        component, digest = self.component, digest_of(self.component)
        if digest is None or digest.known is None:
            return True
        if component.digest_covers_decoded and component.encoding != "raw":
            return False
        # Others may share the bytes and say something else of them.
        key = (component.offset, component.length, digest)
        if once and key in self._shared.checked:
            return True
        hasher = digest.known.hasher()
        for piece in (self.stored() if stored is None else stored).pieces():
            hasher.update(piece)
        try:
            require_match(digest, hasher.hexdigest())
        except DigestMismatchError:
            if not component.digest_may_cover_decoded or component.encoding == "raw":
                raise
            return False
        self._shared.checked.add(key)
        return True

    def require_filled(self, memory: memoryview) -> None:
        """Check the digest over a copy of what it covers, read or decoded elsewhere.

        Raises:
            DigestMismatchError: it does not match.
        """
        hasher = self.hasher()
        if hasher is not None:
            hasher.update(memory)
            self.require(hasher)

    def has_sum(self) -> bool:
        """Return whether decoding all of it compares a checksum that its format has."""
        encoding = self._shared.encodings.get(self.component.encoding)
        return encoding is not None and encoding.is_summed(self.component)

    # --- Raw bytes --------------------------------------------------------------------------

    def view(self) -> memoryview | None:
        """Return the whole file as a view that the stored bytes lie in, or None.

        With `verify=True` the digest is checked, once.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the file is not what it was.
        """
        component = self.component
        is_odd = component.type == "complex128" and component.offset % COMPLEX_ALIGNMENT
        is_viewed = component.encoding == "raw" and not is_odd
        whole = self._shared.source.view() if is_viewed else None
        if whole is not None:
            self._shared.source.require_unchanged()
            if self._shared.verify is True:
                self.check(once=True)
        return whole

    def raw(self, *, copy: bool) -> memoryview | Array:
        """Return the stored bytes: a view where that is possible and allowed, else a copy.

        Raises:
            DigestMismatchError: they do not match their digest.
            SourceError: they could not be read.
        """
        component = self.component
        whole = None if copy else self.view()
        if whole is not None:
            return whole[component.offset : component.offset + component.length]
        buffer = empty_array((component.length,), np.dtype(np.uint8))
        self.fill(buffer.data)
        return buffer

    def fill(self, destination: memoryview) -> None:
        """Fill memory with the stored bytes, each piece hashed while it is in cache.

        Raises:
            DigestMismatchError: they do not match their digest.
            SourceError: they could not be read.
        """
        if self.component.length > PART_BYTES:
            fill_arriving(self._shared.source, self.parts(destination))
        else:  # neighbours may be brought with it
            self.fill_pieces([(0, destination)])

    def parts(self, memory: memoryview) -> list[tuple[int, memoryview, Callable[[], None]]]:
        """Return the pieces of memory to fill: where in the file, which, what to call once filled.

        Each is hashed in its turn, whichever is filled first; the last call checks the digest.
        """
        starts = range(0, self.component.length or 1, PART_BYTES)
        pieces = [memory[start : start + PART_BYTES] for start in starts]
        hasher, ready = self.hasher(), _nothing
        if hasher is not None:
            from ztensor.io.reading.decoding import InOrder

            ready = InOrder(hasher, pieces, self.require).ready
        calls = [functools.partial(ready, number) for number in range(len(pieces))]
        offset = self.component.offset
        return list(zip((offset + start for start in starts), pieces, calls, strict=True))

    def fill_pieces(self, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Fill pieces of memory, in order: where each begins in the stored bytes, and its memory.

        Raises:
            DigestMismatchError: the bytes do not match their digest.
            SourceError: they could not be read.
        """
        hasher, source, offset = self.hasher(), self._shared.source, self.component.offset
        for start, piece in pieces:
            source.read_into(offset + start, piece)
            if hasher is not None:
                hasher.update(piece)
        self.require(hasher)

    # --- Decoded bytes ----------------------------------------------------------------------

    def decoded(self, expected: int | None, memory: Array | None = None) -> Array:
        """Return the decoded bytes of an encoded component, every check done.

        What can be seen without decoding is checked before.

        Args:
            expected: how many they are; None where nothing but decoding tells.
            memory: what to fill, of as many bytes; new memory by default.

        Raises:
            FormatError: the stored bytes are damaged, or decode to another length.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        encoding, limits, stored = self.encoding(), self._shared.limits, self._kept()
        covers_stored = self._shared.verify is False or self.check(once=False, stored=stored)
        if expected is None:
            expected = self._count(stored)  # decoded once to count, and only then allocated
        else:
            require_decodable(expected, limits)
        require_declared(self.component, expected)
        runs = None
        if expected >= _LEAST_SHARED_BYTES and not self._shared.source.prefers_long_reads:
            runs = encoding.find_runs(stored, expected, limits)
        else:
            encoding.require_length(stored, expected, limits)
        buffer = empty_array((expected,), np.dtype(np.uint8)) if memory is None else memory
        if runs is not None and len(runs.decoded) > 2:
            from ztensor.io.reading.decoding import decode_runs

            hasher = None if covers_stored else self.hasher()
            decode_runs(encoding, stored, runs, buffer.data, limits, hasher, self.require)
            return buffer
        encoding.decode_into(stored, buffer.data, limits)
        if not covers_stored:
            self.require_filled(buffer.data)
        return buffer

    def _kept(self) -> Range:
        """Return the stored bytes, read at once where they are few and lie where they should."""
        stored = self.stored()
        if self.component.digest is not None or self.has_common_encoding:
            stored.keep()
        return stored

    def decoded_length(self) -> int:
        """Return how many bytes it decodes to, by decoding it.

        Raises:
            FormatError: the stored bytes are damaged.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
        """
        return self._count(self.stored())

    def _count(self, stored: Range) -> int:
        from ztensor.threads.sharing import WINDOWS

        with WINDOWS.whole():
            chunks = self.encoding().decode_chunks(stored, None, self._shared.limits)
            return sum(chunk.nbytes for chunk in chunks)

    def pieces(self, expected: int | None) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, no digest checked; a piece is valid until the next.

        Args:
            expected: how many they are; None where nothing but decoding tells.

        Raises:
            FormatError: the stored bytes are damaged, or decode to another length.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        return self.encoding().decode_chunks(self.stored(), expected, self._shared.limits)

    def checked_pieces(self, expected: int | None) -> Iterator[memoryview]:
        """Yield `pieces`, the digest of encoded bytes checked before, of others at the end.

        Raises:
            DigestMismatchError: they do not match their digest.
            ZTensorError: what `pieces` raises.
        """
        hasher = self.hasher()
        if hasher is not None and self.component.encoding != "raw" and self.check(once=True):
            hasher = None
        for piece in self.pieces(expected):
            if hasher is not None:
                hasher.update(piece)
            yield piece
        self.require(hasher)

    def read_box(self, wanted: Sequence[Indices], target: Array) -> bool:
        """Fill an array with a box, where the encoding reads boxes; say whether.

        Args:
            wanted: the indices along each axis.
            target: an array of the component's elements.

        Raises:
            ZTensorError: what `decoded` raises.
        """
        encoding = self._shared.encodings.get(self.component.encoding)
        if encoding is None or self.has_common_encoding:
            return False
        boxes = [one for one in wanted if isinstance(one, range) and one.step == 1]
        if len(boxes) < len(wanted):
            return False
        offsets = [one.start for one in boxes]
        return encoding.read_box(self.stored(), offsets, list(map(len, boxes)), target)

    def reading(self, needed: int, key: Hashable) -> PartReader | RunReader | None:
        """Return what reads any of the decoded bytes; None where only the whole can be read.

        With `verify=True` the digest is checked first, once.

        Args:
            needed: how many decoded bytes there must be.
            key: what tells it from others where the file gives it no place.

        Raises:
            DigestMismatchError: the stored bytes do not match their digest.
            SourceError: they could not be read.
        """
        from ztensor.io.reading.runs import PartReader, RunReader

        component, shared = self.component, self._shared
        stored = self.stored()
        if shared.verify is True and not self.check(once=True):
            return None  # it may be that of the decoded bytes
        alone = Range(shared.source.exact(), component.offset, component.length)
        if component.encoding == "raw":
            return PartReader(alone)
        encoding = self.encoding()
        place: Hashable = component.encoding, component.offset, component.length, needed
        if not shared.is_common(component.encoding):  # another format's may have no place
            place = component.encoding, key, needed
        runs, listed = None, (component.extra or {}).get(FRAME_FIELD)
        if shared.source.prefers_long_reads:
            if listed is not None and component.encoding == "zstd":
                require_decodable(needed, shared.limits)
                length = component.length
                runs = shared.runs.table(place, lambda: runs_of_field(listed, length, needed))
            if runs is not None or encoding.has_table:
                stored = alone  # else runs are looked for from the first to the last: all is read
        if runs is None:
            find = encoding.find_runs
            runs = shared.runs.table(place, lambda: find(stored, needed, shared.limits))
        if runs is None or len(runs.decoded) < 3:
            return None  # one run is the whole
        return RunReader(encoding, stored, runs, shared.limits, shared.runs, place)


def digest_of(component: Component) -> Digest | None:
    """Return a component's digest, or None where it has none."""
    if component.digest is None:
        return None
    return parse_digest(component.digest, strict=component.digest_covers_decoded)


def require_declared(component: Component, expected: int) -> None:
    """Raise where the manifest gives another decoded length than the one that is needed.

    Raises:
        EncodingError: it does.
    """
    declared = component.decoded_length
    if declared is not None and declared != expected:
        raise EncodingError(
            "uncompressed_length is not the size the layout needs",
            reason=Reason.SIZE_MISMATCH,
            expected=str(expected),
            found=str(declared),
            section="1.2 section 1, Component",
        )


def _nothing(number: int) -> None:
    """Do nothing with a piece that is not hashed."""
