"""The one way to a component's bytes: where they are, whether they are right, what they decode to.

The reader, slices, whole loads, devices, `verify` and conversions ask here and nowhere else. For
every component the order is the same: is its encoding known, does its digest match the stored
bytes, can they decode to the size they must, do they decode to exactly that.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ztensor.buffers import empty_array
from ztensor.errors import DigestMismatchError, EncodingError, Reason, UnsupportedError, describe
from ztensor.io.source.base import PART_BYTES, PIECE_BYTES, Range, Source
from ztensor.limits import Limits
from ztensor.locks import cached_property
from ztensor.spec.digest import Digest, parse_digest, require_match
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.encoding.base import FRAME_FIELD, Runs, require_decodable, runs_of_field
from ztensor.spec.layout.base import Array, Indices
from ztensor.spec.model.manifest import Component

if TYPE_CHECKING:
    from ztensor.io.reading.parts import Fill, Recent

# Frameworks read complex128 by instructions that kill the process at other addresses. NumPy calls
# those aligned that are multiples of 8, so no flag would tell.
COMPLEX_ALIGNMENT = 16
# Fewer decoded bytes are decoded by one thread: starting another takes 0.2 ms.
_LEAST_SHARED_BYTES = 2 << 20
_BYTES = np.dtype(np.uint8)


class Fetching:
    """What the components of one source share: its bytes, the encodings, what was checked before.

    Attributes:
        source: the file's bytes.
        bringing: what whole components are read from: it brings those behind them, too, where
            requests are dear.
        encodings: how components are stored, by the word for it.
        limits: the caps in force.
        verify: None checks digests where bytes are copied, True also before a view is first handed
            out, False never.
        checked: places with digests that matched.
    """

    source: Source
    bringing: Source
    encodings: Mapping[str, Encoding]
    limits: Limits
    verify: bool | None
    checked: set[tuple[int, int, Digest]]

    def stored(self, component: Component) -> StoredComponent:
        """Return the way to a component's bytes: all that reads them goes through it."""
        return StoredComponent(self, component)

    def is_common(self, encoding: str) -> bool:
        """Return whether an encoding is one of `ENCODINGS`, not one of the file's format.

        Its components at one place have the same bytes, whichever objects they are of.
        """
        found = self.encodings.get(encoding)
        return found is not None and found is ENCODINGS.own(encoding)

    @cached_property
    def recent(self) -> tuple[Recent, Recent]:
        """What slices decoded last of compressed components, and where these can be entered."""
        from ztensor.io.reading.parts import (  # not for whole components
            KEPT_BYTES,
            KEPT_TABLE_BYTES,
            Recent,
        )

        return Recent(KEPT_BYTES), Recent(KEPT_TABLE_BYTES)


class Check:
    """The digest of a component over bytes that pass; it does nothing without a digest.

    Args:
        digest: what the bytes have to have.
    """

    def __init__(self, digest: Digest | None) -> None:
        self._digest = digest
        known = None if digest is None else digest.known
        self._hasher = None if known is None else known.hasher()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to compare with."""
        return self._hasher is None

    def update(self, piece: memoryview) -> None:
        """Take the next bytes."""
        if self._hasher is not None:
            self._hasher.update(piece)

    def over(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield pieces, each of them taken."""
        for piece in pieces:
            self.update(piece)
            yield piece

    def end(self) -> None:
        """Compare, once all bytes have passed.

        Raises:
            DigestMismatchError: the digest does not match.
        """
        if self._hasher is not None and self._digest is not None:
            require_match(self._digest, self._hasher.hexdigest())


class StoredComponent:
    """One component of one source.

    Args:
        shared: what it has in common with the source's others.
        component: what the manifest says of it.
    """

    __slots__ = ("_shared", "component")

    def __init__(self, shared: Fetching, component: Component) -> None:
        self._shared = shared
        self.component = component

    # --- Where, and how ---------------------------------------------------------------------

    def stored(self) -> Range:
        """Return the stored bytes, to be read piece by piece.

        Raises:
            SourceError: the file is shorter than it was.
        """
        self._shared.bringing.require_unchanged()
        return Range(self._shared.bringing, self.component.offset, self.component.length)

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
        is_raw = component.encoding == "raw" and component.length == nbytes
        return is_raw and component.is_native(packed=packed)

    # --- Is it right? -----------------------------------------------------------------------

    @property
    def digest(self) -> Digest | None:
        """Return its digest, or None where it has none."""
        return digest_of(self.component)

    def check(self, stored: Range | None = None) -> bool:
        """Check the digest, where there is one that can be computed, over the stored bytes.

        Args:
            stored: the bytes that are held to it, where they were read already; by default it is
                enough that the same digest of these bytes has matched before.

        Returns:
            False where it may be, or is, that of the decoded bytes: what is read has to be held
            to it then.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the bytes could not be read.
        """
        component, digest = self.component, self.digest
        if digest is None or digest.known is None:
            return True
        if component.is_exact and component.encoding != "raw":
            return False
        # Others may share the bytes and say something else of them.
        key = (component.offset, component.length, digest)
        if stored is None and key in self._shared.checked:
            return True
        check = Check(digest)
        for piece in (stored or self.stored()).pieces():
            check.update(piece)
        try:
            check.end()
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
        check = self.new_check()
        check.update(memory)
        check.end()

    def new_check(self) -> Check:
        """Return the check of bytes that its digest covers; empty where they are not checked."""
        return Check(None if self._shared.verify is False else self.digest)

    def has_sum(self) -> bool:
        """Return whether decoding all of it compares a checksum that its format has."""
        encoding = self._shared.encodings.get(self.component.encoding)
        return encoding is not None and encoding.is_summed(self.component)

    # --- Raw bytes --------------------------------------------------------------------------

    def view(self) -> memoryview | None:
        """Return the stored bytes as a view of the file, None where that is no good.

        With `verify=True` the digest is checked, once.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the file is not what it was.
        """
        component = self.component
        is_odd = component.type == "complex128" and component.offset % COMPLEX_ALIGNMENT
        is_viewed = component.encoding == "raw" and not is_odd
        whole = self._shared.bringing.view() if is_viewed else None
        if whole is None:
            return None
        self._shared.bringing.require_unchanged()
        if self._shared.verify is True:
            self.check()
        return whole[component.offset : component.offset + component.length]

    def fill_pieces(self, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Fill pieces of memory, in order: where each begins in the stored bytes, and its memory.

        Raises:
            DigestMismatchError: the bytes do not match their digest.
            SourceError: they could not be read.
        """
        check = self.new_check()
        for start, piece in pieces:
            self._shared.bringing.read_into(self.component.offset + start, piece)
            check.update(piece)
        check.end()

    def _fill_raw(self, memory: memoryview) -> None:
        source, offset, length = self._shared.bringing, self.component.offset, memory.nbytes
        is_far = source.prefers_long_reads
        step = PART_BYTES if is_far else PIECE_BYTES
        pieces = [(start, memory[start : start + step]) for start in range(0, length, step)]
        if not is_far or len(pieces) < 2:  # neighbours may be brought with one
            self.fill_pieces(pieces)
            return
        source.read_many([(offset + start, piece) for start, piece in pieces])
        self.require_filled(memory)

    # --- Decoded bytes ----------------------------------------------------------------------

    def decoded(self, expected: int | None, memory: Array | None = None) -> Array:
        """Return the decoded bytes, every check done.

        What can be seen without decoding is checked before.

        Args:
            expected: how many an encoded component has; None where nothing but decoding tells.
            memory: what to fill, of as many bytes; new memory by default.

        Raises:
            FormatError: the stored bytes are damaged, or decode to another length.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        shared, encoding, length = self._shared, self.encoding(), self.component.length
        if self.component.encoding == "raw":
            buffer = empty_array((length,), _BYTES) if memory is None else memory
            self._fill_raw(buffer.data)
            return buffer
        stored = self.stored()
        if self.component.digest is not None or shared.is_common(self.component.encoding):
            stored.keep()  # few bytes are read at once
        covers_stored = shared.verify is False or self.check(stored)
        if expected is None:
            expected = self.decoded_length(stored)  # decoded once to count, and only then allocated
        else:
            require_decodable(expected, shared.limits)
        require_declared(self.component, expected)
        runs = encoding.require_length(stored, expected, shared.limits)
        if expected < _LEAST_SHARED_BYTES or shared.bringing.prefers_long_reads:
            runs = None
        buffer = empty_array((expected,), _BYTES) if memory is None else memory
        if runs is not None and len(runs.decoded) > 2:
            from ztensor.io.reading.parts import decode_all  # as slices do

            decode_all(encoding, stored, runs, buffer.data, shared.limits)
        else:
            encoding.decode_into(stored, buffer.data, shared.limits)
        if not covers_stored:
            self.require_filled(buffer.data)
        return buffer

    def decoded_length(self, stored: Range | None = None) -> int:
        """Return how many bytes it decodes to, by decoding it.

        Raises:
            FormatError: the stored bytes are damaged.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
        """
        from ztensor.threads.sharing import ends_alone

        with ends_alone():
            chunks = self.encoding().decode_chunks(
                stored or self.stored(), None, self._shared.limits
            )
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
        is_raw = self._shared.verify is False or self.component.encoding == "raw"
        check = Check(None) if not is_raw and self.check() else self.new_check()
        yield from check.over(self.pieces(expected))
        check.end()

    # --- Parts of the decoded bytes ---------------------------------------------------------

    def read_box(self, wanted: Sequence[Indices], target: Array) -> bool:
        """Fill an array with a box, where the encoding reads boxes; say whether.

        Args:
            wanted: the indices along each axis.
            target: an array of the component's elements.

        Raises:
            ZTensorError: what `decoded` raises.
        """
        encoding = self._shared.encodings.get(self.component.encoding)
        if encoding is None or self._shared.is_common(self.component.encoding):
            return False
        boxes = [one for one in wanted if isinstance(one, range) and one.step == 1]
        if len(boxes) < len(wanted):
            return False
        offsets = [one.start for one in boxes]
        return encoding.read_box(self.stored(), offsets, list(map(len, boxes)), target)

    def filler(self, shape: tuple[int, ...], key: Hashable) -> Fill | None:
        """Return what fills arrays with parts; None where only the whole can be read.

        It takes the indices along each axis, rising and none of them empty, the array, which is
        contiguous and of the component's element type, and what reads the file: the array is full
        when that has ended. With `verify=True` the digest is checked first, once.

        Args:
            shape: the shape that the elements are seen in.
            key: what tells it from others where the file gives it no place.

        Raises:
            DigestMismatchError: the stored bytes do not match their digest.
            SourceError: they could not be read.
        """
        from ztensor.io.reading.parts import RunReader, fill, needed_bytes, raw_reader

        component, shared = self.component, self._shared
        if shared.verify is True and not self.check():
            return None  # it may be that of the decoded bytes
        if component.encoding == "raw":
            return functools.partial(fill, raw_reader(component.offset), component, shape)
        stored, runs, place = self._runs(needed_bytes(component, shape), key)
        if runs is None or len(runs.decoded) < 3:
            return None  # one run is the whole
        is_gathered = stored.source is shared.source and stored.source.prefers_long_reads
        (cache, _), limits = shared.recent, shared.limits
        reader = RunReader(self.encoding(), stored, runs, limits, cache, place, is_gathered)
        return functools.partial(fill, reader.read, component, shape)

    def runs(self, needed: int, key: Hashable) -> Runs | None:
        """Return where an encoded component may be entered, as `filler` finds it."""
        return None if self.component.encoding == "raw" else self._runs(needed, key)[1]

    def _runs(self, needed: int, key: Hashable) -> tuple[Range, Runs | None, Hashable]:
        """Return what runs are read from, the runs, and the key by which they are kept."""
        component, shared, stored = self.component, self._shared, self.stored()
        encoding, limits = self.encoding(), shared.limits
        place: Hashable = component.encoding, component.offset, component.length, needed
        if not shared.is_common(component.encoding):  # another format's may have no place
            place = component.encoding, key, needed
        runs: Runs | None = None
        _, known = shared.recent
        if shared.bringing.prefers_long_reads:
            listed, length = (component.extra or {}).get(FRAME_FIELD), component.length
            if listed is not None and component.encoding == "zstd":
                require_decodable(needed, limits)
                runs = known.get(place) or runs_of_field(listed, length, needed)
            # Without a table runs are looked for from the first to the last: all is read.
            if runs is not None or encoding.has_table:
                stored = Range(shared.source, component.offset, length)
        runs = runs or known.get(place) or encoding.require_length(stored, needed, limits)
        if runs is not None:
            nbytes = 2 * len(runs.decoded) * runs.decoded.itemsize
            known.keep(place, runs, nbytes)
        return stored, runs, place


def digest_of(component: Component) -> Digest | None:
    """Return a component's digest, or None where it has none."""
    if component.digest is None:
        return None
    return parse_digest(component.digest, strict=component.is_exact)


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
