"""Read, check and decode one component: the only path from a component to its bytes.

Reader, slices, whole loads, devices, `verify` and conversions use it. The order of checks is the
same for every component: the encoding is known, the digest of the stored bytes matches, they can
decode to the required length, they decode to exactly that length.
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
from ztensor.spec.encoding.base import FRAME_FIELD, Runs, runs_of_field
from ztensor.spec.layout.base import Array, Indices
from ztensor.spec.model.manifest import Component

if TYPE_CHECKING:
    from ztensor.io.reading.parts import Fill, Recent

# Frameworks read complex128 with instructions that crash at other addresses. NumPy's flag cannot
# help: it calls multiples of 8 aligned.
COMPLEX_ALIGNMENT = 16
# Below this decoded length one thread decodes: starting another takes 0.2 ms.
_LEAST_SHARED_BYTES = 2 << 20
_BYTES = np.dtype(np.uint8)


class Fetching:
    """The state that the components of one source share.

    Attributes:
        source: the file's bytes.
        prefetching: the source for reads of whole components; if requests are expensive, it also
            reads the components after them.
        encodings: encoding names to codecs.
        limits: the caps in force.
        verify: None checks digests of copied bytes; True also checks a component before its first
            view is returned; False checks nothing.
        checked: (offset, length, digest) of extents that matched.
    """

    source: Source
    prefetching: Source
    encodings: Mapping[str, Encoding]
    limits: Limits
    verify: bool | None
    checked: set[tuple[int, int, Digest]]

    def stored(self, component: Component) -> StoredComponent:
        """Return the access to a component's bytes."""
        return StoredComponent(self, component)

    def is_common(self, encoding: str) -> bool:
        """Return whether an encoding is one of `ENCODINGS`, not one of the file's format only.

        Only then does an extent identify the bytes, whatever object a component belongs to.
        """
        codec = self.encodings.get(encoding)
        return codec is not None and codec is ENCODINGS.own(encoding)

    @cached_property
    def recent(self) -> tuple[Recent, Recent]:
        """Return two caches for slices of compressed components: decoded runs, offset tables."""
        from ztensor.io.reading.parts import (  # reads of whole components do not need it
            KEPT_BYTES,
            KEPT_TABLE_BYTES,
            Recent,
        )

        return Recent(KEPT_BYTES), Recent(KEPT_TABLE_BYTES)


class Check:
    """Compares bytes that pass through with a digest; without a digest it does nothing.

    Args:
        digest: the expected digest, or None.
    """

    def __init__(self, digest: Digest | None) -> None:
        self._digest = digest
        known = None if digest is None else digest.known
        self._hasher = None if known is None else known.hasher()

    @property
    def is_empty(self) -> bool:
        """True if there is no digest that can be computed."""
        return self._hasher is None

    def update(self, piece: memoryview) -> None:
        """Take the next bytes."""
        if self._hasher is not None:
            self._hasher.update(piece)

    def over(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield pieces, and take each of them."""
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
        shared: the state it shares with the other components of the source.
        component: its entry in the manifest.
    """

    __slots__ = ("_shared", "component")

    def __init__(self, shared: Fetching, component: Component) -> None:
        self._shared = shared
        self.component = component

    # --- Extent and encoding ----------------------------------------------------------------

    def stored(self) -> Range:
        """Return the extent of the stored bytes, not read yet.

        Raises:
            SourceError: the file is shorter than it was.
        """
        self._shared.prefetching.require_unchanged()
        return Range(self._shared.prefetching, self.component.offset, self.component.length)

    def encoding(self) -> Encoding:
        """Return the codec of the component.

        Raises:
            UnsupportedError: the encoding is unknown.
        """
        try:
            encoding = self._shared.encodings[self.component.encoding]
        except KeyError:
            raise UnsupportedError(
                "unknown encoding",
                reason=Reason.UNKNOWN_ENCODING,
                expected=f"one of {', '.join(ENCODINGS)}",
                found=describe(self.component.encoding),
                section="1.2 section 1, Component",
            ) from None
        return encoding.for_component(self.component)

    def is_in_place(self, nbytes: int, *, packed: bool = False) -> bool:
        """Return whether the stored bytes are exactly the array in memory: raw and native.

        Args:
            nbytes: the bytes of the array in memory.
            packed: see `Component.is_native`.
        """
        component = self.component
        is_raw = component.encoding == "raw" and component.length == nbytes
        return is_raw and component.is_native(packed=packed)

    # --- Digests ----------------------------------------------------------------------------

    @property
    def digest(self) -> Digest | None:
        """Return the component's digest, or None."""
        return digest_of(self.component)

    def check(self, stored: Range | None = None) -> bool:
        """Compare the stored bytes with their digest, if it can be computed.

        Args:
            stored: the bytes if they were read already. None reads them, unless the same digest of
                the same extent has matched before.

        Returns:
            False if the digest is, or may be, over the decoded bytes: compare these then.

        Raises:
            DigestMismatchError: the digest does not match.
            SourceError: the bytes could not be read.
        """
        component, digest = self.component, self.digest
        if digest is None or digest.known is None:
            return True
        if component.is_exact and component.encoding != "raw":
            return False
        # Other components may share the bytes but state another digest.
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
        """Compare a copy of the covered bytes with the digest.

        Raises:
            DigestMismatchError: the digest does not match.
        """
        check = self.new_check()
        check.update(memory)
        check.end()

    def new_check(self) -> Check:
        """Return a `Check` of the component's digest; an empty one with `verify=False`."""
        return Check(None if self._shared.verify is False else self.digest)

    def has_sum(self) -> bool:
        """Return whether decoding the whole component compares a checksum of its encoding."""
        encoding = self._shared.encodings.get(self.component.encoding)
        return encoding is not None and encoding.is_summed(self.component)

    # --- Raw bytes --------------------------------------------------------------------------

    def view(self) -> memoryview | None:
        """Return the stored bytes as a view of the file.

        None if they are encoded, the source has no map, or complex128 is not aligned. With
        `verify=True` the digest is compared, once.

        Raises:
            DigestMismatchError: the digest does not match.
            SourceError: the file has changed.
        """
        component = self.component
        is_odd = component.type == "complex128" and component.offset % COMPLEX_ALIGNMENT
        is_viewed = component.encoding == "raw" and not is_odd
        whole = self._shared.prefetching.view() if is_viewed else None
        if whole is None:
            return None
        self._shared.prefetching.require_unchanged()
        if self._shared.verify is True:
            self.check()
        return whole[component.offset : component.offset + component.length]

    def fill_pieces(self, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Fill memory from the stored bytes and compare the digest.

        Args:
            pieces: (offset in the stored bytes, memory), consecutive and in order.

        Raises:
            DigestMismatchError: the bytes do not match their digest.
            SourceError: they could not be read.
        """
        check = self.new_check()
        for start, piece in pieces:
            self._shared.prefetching.read_into(self.component.offset + start, piece)
            check.update(piece)
        check.end()

    def _fill_raw(self, memory: memoryview) -> None:
        source, offset, length = self._shared.prefetching, self.component.offset, memory.nbytes
        is_far = source.prefers_long_reads
        step = PART_BYTES if is_far else PIECE_BYTES
        pieces = [(start, memory[start : start + step]) for start in range(0, length, step)]
        if not is_far or len(pieces) < 2:  # one request also prefetches the next components
            self.fill_pieces(pieces)
            return
        source.read_many([(offset + start, piece) for start, piece in pieces])
        self.require_filled(memory)

    # --- Decoded bytes ----------------------------------------------------------------------

    def decoded(self, expected: int | None, memory: Array | None = None) -> Array:
        """Return the decoded bytes as a uint8 array, with every check done.

        Everything that needs no decoding is checked before memory is allocated.

        Args:
            expected: the decoded length; None if only decoding can determine it.
            memory: a uint8 array of that length to fill; None allocates one.

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
            stored.keep()  # the digest and the decoder read the same bytes
        covers_stored = shared.verify is False or self.check(stored)
        if expected is None:
            expected = self.decoded_length(stored)  # a first pass only counts
        else:
            encoding.require_decodable(expected, shared.limits)
        require_declared(self.component, expected)
        runs = encoding.require_length(stored, expected, shared.limits)
        is_shared = expected >= _LEAST_SHARED_BYTES and not shared.prefetching.prefers_long_reads
        if runs is not None and runs.detail is None and not (is_shared and len(runs.decoded) > 2):
            runs = None  # `decode_into` is faster
        buffer = empty_array((expected,), _BYTES) if memory is None else memory
        if runs is not None:
            from ztensor.io.reading.parts import decode_all  # small components do not need it

            decode_all(encoding, stored, runs, buffer.data, shared.limits)
        else:
            encoding.decode_into(stored, buffer.data, shared.limits)
        if not covers_stored:
            self.require_filled(buffer.data)
        return buffer

    def decoded_length(self, stored: Range | None = None) -> int:
        """Decode the component without keeping it, and return the decoded length.

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
        """Yield the decoded bytes in order without comparing a digest.

        Each piece is valid until the next.

        Args:
            expected: the decoded length; None if only decoding can determine it.

        Raises:
            FormatError: the stored bytes are damaged, or decode to another length.
            UnsupportedError: the encoding is unknown.
            LimitError: a safety cap is exceeded.
            SourceError: the bytes could not be read.
        """
        return self.encoding().decode_chunks(self.stored(), expected, self._shared.limits)

    def checked_pieces(self, expected: int | None) -> Iterator[memoryview]:
        """Yield `pieces`; compare a digest of stored bytes before, of decoded bytes at the end.

        Raises:
            DigestMismatchError: the digest does not match.
            ZTensorError: as `pieces`.
        """
        is_raw = self._shared.verify is False or self.component.encoding == "raw"
        check = Check(None) if not is_raw and self.check() else self.new_check()
        yield from check.over(self.pieces(expected))
        check.end()

    # --- Slices of the decoded bytes --------------------------------------------------------

    def read_box(self, wanted: Sequence[Indices], target: Array) -> bool:
        """Fill an array with a box. Return False if the encoding cannot read boxes.

        Args:
            wanted: the indices along each axis.
            target: an array of the component's element type and the shape of the box.

        Raises:
            ZTensorError: as `decoded`.
        """
        encoding = self._shared.encodings.get(self.component.encoding)
        if encoding is None or self._shared.is_common(self.component.encoding):
            return False
        boxes = [axis for axis in wanted if isinstance(axis, range) and axis.step == 1]
        if len(boxes) < len(wanted):
            return False
        offsets = [axis.start for axis in boxes]
        return encoding.read_box(self.stored(), offsets, list(map(len, boxes)), target)

    def filler(self, shape: tuple[int, ...], key: Hashable) -> Fill | None:
        """Return a function that fills arrays with slices; None if only a whole read works.

        The function takes the indices along each axis (ascending, not empty), a contiguous array
        of the component's element type, and an `AtOnce`; the array is full when that has ended.
        With `verify=True` the digest is compared first, once.

        Args:
            shape: the shape of the elements.
            key: identifies the component in caches if its extent does not.

        Raises:
            DigestMismatchError: the stored bytes do not match their digest.
            SourceError: they could not be read.
        """
        from ztensor.io.reading.parts import RunReader, fill, needed_bytes, raw_reader

        component, shared = self.component, self._shared
        if shared.verify is True and not self.check():
            return None  # the digest may be over the decoded bytes
        if component.encoding == "raw":
            return functools.partial(fill, raw_reader(component.offset), component, shape)
        stored, runs, place = self._runs(needed_bytes(component, shape), key)
        if runs is None or len(runs.decoded) < 3:
            return None  # a single run is the whole component
        is_gathered = stored.source is shared.source and stored.source.prefers_long_reads
        (cache, _), limits = shared.recent, shared.limits
        reader = RunReader(self.encoding(), stored, runs, limits, cache, place, is_gathered)
        return functools.partial(fill, reader.read, component, shape)

    def runs(self, needed: int, key: Hashable) -> Runs | None:
        """Return the offset table of an encoded component; None if it has no entry points.

        Args:
            needed: the decoded length.
            key: see `filler`.
        """
        return None if self.component.encoding == "raw" else self._runs(needed, key)[1]

    def _runs(self, needed: int, key: Hashable) -> tuple[Range, Runs | None, Hashable]:
        """Return the stored bytes, the offset table of the runs or None, and its cache key."""
        component, shared, stored = self.component, self._shared, self.stored()
        encoding, limits = self.encoding(), shared.limits
        place: Hashable = component.encoding, component.offset, component.length, needed
        if not shared.is_common(component.encoding):  # another format may give no extent
            place = component.encoding, key, needed
        runs: Runs | None = None
        _, known = shared.recent
        if shared.prefetching.prefers_long_reads:
            listed, length = (component.extra or {}).get(FRAME_FIELD), component.length
            if listed is not None and component.encoding == "zstd":
                encoding.require_decodable(needed, limits)
                runs = known.get(place) or runs_of_field(listed, length, needed)
            # Without a table a scan for runs reads all stored bytes.
            if runs is not None or encoding.has_table:
                stored = Range(shared.source, component.offset, length)
        runs = runs or known.get(place) or encoding.require_length(stored, needed, limits)
        if runs is not None:
            nbytes = 2 * len(runs.decoded) * runs.decoded.itemsize
            known.keep(place, runs, nbytes)
        return stored, runs, place


def digest_of(component: Component) -> Digest | None:
    """Return a component's parsed digest, or None."""
    if component.digest is None:
        return None
    return parse_digest(component.digest, strict=component.is_exact)


def require_declared(component: Component, expected: int) -> None:
    """Require that the manifest's decoded length, if stated, is the expected one.

    Raises:
        EncodingError: it differs.
    """
    declared = component.decoded_length
    if declared is not None and declared != expected:
        raise EncodingError(
            "uncompressed_length differs from the length that the layout needs",
            reason=Reason.SIZE_MISMATCH,
            expected=str(expected),
            found=str(declared),
            section="1.2 section 1, Component",
        )
