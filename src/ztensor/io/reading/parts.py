"""Read slices of a component into an array, and decode only the runs that they need.

`Runs` is an encoding's offset table of independently decodable runs: frames in zstd. A file caches
offset tables and the last decoded runs, so that reading row after row decodes each run once. A
`Read` function requests pieces of memory; they are full once the `AtOnce` has ended.
"""

from __future__ import annotations

import bisect
import collections
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.io.reading.selection import PIECE_BYTES, Piece, gathered, plan
from ztensor.io.source.base import AtOnce, Range
from ztensor.limits import Limits
from ztensor.locks import Lock
from ztensor.spec.encoding.base import Encoding, Runs
from ztensor.spec.layout.base import Array, Indices
from ztensor.spec.layout.elements import result_dtype, typed_array
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component
from ztensor.threads import run_jobs
from ztensor.threads.sharing import thread_count

Pieces = list[tuple[int, memoryview]]  # (offset in the decoded bytes, memory to fill)
Read = Callable[[Pieces, AtOnce], None]
Fill = Callable[[Sequence[Indices], Array, AtOnce], None]

KEPT_BYTES = 4 << 20  # cache of decoded runs per file: the frames of some rows
KEPT_TABLE_BYTES = 16 << 20  # cache of offset tables: 64 GiB of tensors in 64 KiB frames
_WORTH_BYTES = 2 << 20  # decoded: a millisecond or two of work; starting threads takes 0.2
_BATCH_BYTES = 512 << 10  # decoded by a thread at a time
_MOST_PIECES = 1 << 12  # of one request


class Recent:
    """A thread-safe cache of the last used values.

    Args:
        most: the bytes to keep; one value is always kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: collections.OrderedDict[Hashable, tuple[Any, int]] = collections.OrderedDict()
        self._nbytes = 0

    def get(self, key: Hashable) -> Any:
        """Return the cached value, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Add a value, and drop the least recently used ones."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, nbytes
                self._nbytes += nbytes
            while self._nbytes > self._most and len(self._kept) > 1:
                self._nbytes -= self._kept.popitem(last=False)[1][1]


# --- Reading pieces of the decoded bytes ----------------------------------------------------


def raw_reader(offset: int) -> Read:
    """Return a `Read` for a raw component at an offset."""

    def read(parts: Pieces, at_once: AtOnce) -> None:
        for start, target in parts:
            at_once.add(offset + start, target)

    return read


def stream_reader(pieces: Iterator[memoryview]) -> Read:
    """Return a `Read` over a stream. The pieces it is asked for must ascend.

    Args:
        pieces: all decoded bytes in order.
    """
    piece, begin = memoryview(b""), 0

    def read(parts: Pieces, _: AtOnce) -> None:
        nonlocal piece, begin
        for offset, target in parts:
            done = 0
            while done < len(target):
                start = offset + done - begin
                if start >= len(piece):
                    begin += len(piece)
                    piece = next(pieces)
                    continue
                chunk = piece[start : start + len(target) - done]
                target[done : done + len(chunk)] = chunk
                done += len(chunk)

    return read


class RunReader(NamedTuple):
    """Reads pieces of a component, and decodes only the runs that contain them.

    Attributes:
        encoding: the component's codec.
        stored: its stored bytes.
        runs: its offset table.
        limits: the caps in force.
        cache: the file's cache of decoded runs.
        key: identifies the component in the cache.
        is_gathered: True requests the stored bytes of all runs together; False reads each run when
            it is decoded.
    """

    encoding: Encoding
    stored: Range
    runs: Runs
    limits: Limits
    cache: Recent
    key: Hashable
    is_gathered: bool

    def read(self, parts: Pieces, at_once: AtOnce) -> None:
        """Request decoded bytes; each run is decoded once."""
        wanted: dict[int, Pieces] = {}
        ends = self.runs.decoded
        for offset, target in parts:
            run, done = bisect.bisect_right(ends, offset) - 1, 0
            while done < len(target):
                start = offset + done - ends[run]
                piece = target[done : done + ends[run + 1] - ends[run] - start]
                wanted.setdefault(run, []).append((start, piece))
                done += len(piece)
                run += 1
        if not self.is_gathered:
            _each_run(ends, list(wanted), lambda run: self._decode(run, wanted[run], self.stored))
            return
        for run, pieces in wanted.items():
            stored = self.stored
            if self.cache.get((self.key, run)) is None:
                start, stop = self.runs.stored[run : run + 2]
                asked = new_bytes(stop - start)
                at_once.add(stored.offset + start, asked)
                stored = Range(stored.source, stored.offset, stored.length, asked, start)
            at_once.later(functools.partial(self._decode, run, pieces, stored))

    def _decode(self, number: int, pieces: Pieces, stored: Range) -> None:
        """Decode one run, or take it from the cache, and fill its pieces."""
        begin, end = self.runs.decoded[number : number + 2]
        key = self.key, number
        run: memoryview | None = self.cache.get(key)
        is_whole = len(pieces) == 1 and len(pieces[0][1]) == end - begin
        if run is None:  # a whole run is decoded in place and not cached
            run = pieces[0][1] if is_whole else new_bytes(end - begin)
            self.encoding.decode_numbered(stored, self.runs, number, run, self.limits)
            if is_whole:
                return
            self.cache.keep(key, run, len(run))
        for first, target in pieces:
            target[:] = run[first : first + len(target)]


def decode_all(
    encoding: Encoding, stored: Range, runs: Runs, memory: memoryview, limits: Limits
) -> None:
    """Decode all runs of a component into memory.

    Raises:
        EncodingError: the stored bytes are damaged.
        SourceError: they could not be read.
    """
    ends = runs.decoded

    def decode(run: int) -> None:
        target = memory[ends[run] : ends[run + 1]]
        encoding.decode_numbered(stored, runs, run, target, limits)

    _each_run(ends, range(len(ends) - 1), decode)


def _each_run(ends: Sequence[int], runs: Sequence[int], decode: Callable[[int], None]) -> None:
    """Decode runs, with several threads if that pays."""
    nbytes = sum(ends[run + 1] - ends[run] for run in runs)
    workers = thread_count() if len(runs) > 1 and nbytes >= _WORTH_BYTES else 1
    count = len(runs) if workers == 1 else max(1, _BATCH_BYTES * len(runs) // nbytes)

    def work(batch: Sequence[int]) -> None:
        for run in batch:
            decode(run)

    starts = range(0, len(runs), max(1, count))
    run_jobs((functools.partial(work, runs[at : at + count]) for at in starts), workers)


# --- Filling arrays -------------------------------------------------------------------------


def _units(component: Component) -> tuple[int, int]:
    """Return the elements that are packed together (1 for most types), and their bytes."""
    width, logical = result_dtype(component).itemsize, component.logical
    if logical is None or logical.elements_per_storage == 1:
        return 1, width
    return logical.elements_per_storage, logical.storage_per_element


def needed_bytes(component: Component, shape: tuple[int, ...]) -> int:
    """Return the decoded length of a component with this shape.

    Raises:
        UnsupportedError: the storage type is unknown.
        LayoutError: the logical type is defined on another storage type.
    """
    per_unit, width = _units(component)
    return -(-element_count(shape) * width // per_unit)


def fill(
    read: Read,
    component: Component,
    shape: tuple[int, ...],
    wanted: Sequence[Indices],
    target: Array,
    at_once: AtOnce,
) -> None:
    """Fill an array with a slice of a component; it is full when `at_once` has ended.

    Args:
        read: reads the component's decoded bytes.
        component: the component.
        shape: the shape of its elements.
        wanted: the indices along each axis, ascending, not empty.
        target: a contiguous array of the component's element type.
        at_once: collects the requests and reads the file.

    Raises:
        FormatError: the stored bytes are damaged.
        LimitError: a safety cap is exceeded, or memory runs out.
        SourceError: the bytes could not be read.
    """
    flat, is_native = target.reshape(-1), component.is_native()
    per_unit, width = _units(component)
    end = needed_bytes(component, shape)
    parts: Pieces = []
    puts: list[Callable[[], None]] = []
    nbytes = 0

    def read_some() -> None:
        read(parts, at_once)
        for put in puts:
            at_once.later(put)

    for piece in plan(shape, wanted, target.itemsize):
        start = piece.start // per_unit * width
        stop = min(-(-piece.stop // per_unit) * width, end)
        if is_native and piece.runs is None:
            data = flat[piece.target].view(np.uint8).data
        else:
            data = new_bytes(stop - start)
            lead = piece.start % per_unit
            puts.append(functools.partial(_put, component, data, lead, piece, flat))
        parts.append((start, data))
        nbytes += data.nbytes
        if nbytes >= PIECE_BYTES or len(parts) == _MOST_PIECES:
            read_some()
            parts, puts, nbytes = [], [], 0
    if parts:
        read_some()


def fill_from_stream(
    pieces: Iterator[memoryview],
    component: Component,
    shape: tuple[int, ...],
    wanted: Sequence[Indices],
    target: Array,
    at_once: AtOnce,
) -> None:
    """Fill an array like `fill`, from a stream of all decoded bytes, which is read to its end."""
    fill(stream_reader(pieces), component, shape, wanted, target, at_once)
    for _ in pieces:  # the digest is compared at the end of the stream
        pass


def _put(component: Component, data: memoryview, lead: int, piece: Piece, flat: Array) -> None:
    """Copy a piece's elements into the flat result; its first `lead` elements are not wanted."""
    part = flat[piece.target]
    elements = typed_array(component, data)[lead : lead + piece.stop - piece.start]
    part[...] = elements if piece.runs is None else gathered(elements, piece.runs, part.size)
