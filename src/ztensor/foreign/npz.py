"""NumPy's .npz: a zip archive of .npy files, each of them one object.

A member is one by its name or, as for NumPy, by its first bytes.

Stored members in our order of elements are ranges of the file and are mapped; their CRC-32 is a
digest as those of our own files are, checked when a read copies, and by verify. Deflated ones, and
those in Fortran's order, are decoded when they are read, and their CRC-32 is then checked. `npy.py`
says which arrays are listed only, `zip.py` which archives are refused.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ztensor.digest import zip_crc32
from ztensor.errors import EncodingError, FormatError, Reason
from ztensor.foreign import deflate, npy, zip
from ztensor.foreign.base import RAW, ForeignEncoding, Projection
from ztensor.foreign.deflate import PIECE_BYTES, Stream, entry_step
from ztensor.foreign.npy import Header, parse_header, transpose
from ztensor.foreign.parts import ahead_of, parts_of, stream
from ztensor.foreign.zip import DEFLATED, STORED, Member, read_members, unread_bytes
from ztensor.layout.base import empty_array
from ztensor.model.account import Tally
from ztensor.model.manifest import Component, Manifest, TensorObject
from ztensor.source.base import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.encoding import Encoding, Stored
    from ztensor.encoding.base import Runs
    from ztensor.foreign.parts import Part
    from ztensor.limits import Budget, Limits
    from ztensor.model.account import Unrepresented
    from ztensor.reading.reader import ManifestReader
    from ztensor.source.base import Source
    from ztensor.source.sink import Sink

NAME = "npz"

Piece = TypeVar("Piece", bytes, memoryview)

_SUFFIX = ".npy"
_USUAL_HEAD = 1 << 9
_LONG_STEPS = 4  # for each byte of a header beyond that, which may be a number
# What a member costs beside its entry in the archive: a name, an object, and a component; how a
# deflated one is decoded; a dimension.
_MEMBER_COST, _ENCODING_COST, _NUMBER_COST = 1024, 640, 40
_ALIGNMENT = npy.ALIGNMENT
# The extra field that Android's zipalign pads with: an alignment, and zeros.
_PADDING = 0xD935
_PADDING_HEAD = struct.Struct("<3H")
_DATE = 1 << 5 | 1  # the first day of 1980: the same arrays give the same bytes
_UNIX, _MODE = 3, 0o100600 << 16  # whose permissions a member has, and which
_VERSION = 45  # that of archives with numbers of 64 bits


# --- Reading --------------------------------------------------------------------------------


def project(source: Source, budget: Budget) -> Projection:
    """Return what an archive holds: its .npy members, by their names without the suffix.

    Names of other members are in the file's attribute `other_members`; so are those of arrays
    whose own names lack the suffix, where the name without it is another array's.

    Raises:
        FormatError: the archive or the header of a member is damaged.
        UnsupportedError: a member is encrypted or compressed by another method than deflate.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    objects: dict[str, TensorObject] = {}
    encodings: dict[str, Encoding] = dict(RAW)
    others: list[str] = []
    left: list[Member] = []
    members = read_members(source, budget)
    step = entry_step(sum(one.size for one in members.values() if one.method == DEFLATED))
    for member in members.values():
        budget.charge_bytes(_MEMBER_COST)
        name = member.name.removesuffix(_SUFFIX)
        if name == member.name and (f"{name}{_SUFFIX}" in members or not _is_array(source, member)):
            others.append(name)
            left.append(member)
            continue
        try:
            objects[name] = _object(source, member, encodings, step, budget)
        except FormatError as error:
            error.locate(object_name=name)
            raise
    attributes = {"other_members": others} if others else None

    def account() -> list[Unrepresented]:
        tally = Tally()
        for member in left:
            tally.add("member that is no array", member.name, nbytes=member.size)
        tally.extend(unread_bytes(source))
        return tally()

    return Projection(NAME, Manifest("", objects, attributes), encodings, account)


def _is_array(source: Source, member: Member) -> bool:
    """Return whether a member begins as .npy files do."""
    try:
        return _head(Range(source, member.offset, member.length), member, len(npy.MAGIC)) == (
            npy.MAGIC
        )
    except EncodingError:  # damaged, but none of ours
        return False


def _head(stored: Stored, member: Member, length: int) -> bytes:
    """Return the first bytes of a member, unpacked."""
    if member.method == STORED:
        return bytes(stored.read(0, min(member.length, length)))
    return deflate.head(stored, min(member.size, length))


def _object(
    source: Source,
    member: Member,
    encodings: dict[str, Encoding],
    step: int,
    budget: Budget,
) -> TensorObject:
    stored = Range(source, member.offset, member.length)
    # First what most headers fit into: a member may be nothing but the longest header, deflated.
    head = _head(stored, member, _USUAL_HEAD)
    length = npy.header_length(head)
    budget.charge_steps(length + _LONG_STEPS * max(length - _USUAL_HEAD, 0))
    if length > len(head):
        head = _head(stored, member, length)
    header = parse_header(memoryview(head))
    budget.charge_bytes(len(header.shape) * _NUMBER_COST + 4 * len(header.dtype))
    length = member.size - header.length
    header.require_length(length)
    word, offset, nbytes = "raw", member.offset + header.length, length
    is_transposed = header.is_transposed and header.width is not None
    if member.method == DEFLATED or is_transposed:
        budget.charge_bytes(_ENCODING_COST + 4 * len(member.name))
        word = f"{'fortran' if is_transposed else 'deflate'}:{member.name}"
        encodings[word] = _Whole(word, member, header, step)
        offset, nbytes = member.offset, member.length
    component = Component(
        header.dtype,
        offset,
        nbytes,
        header.type,
        word,
        zip_crc32(head[: header.length], member.crc) if word == "raw" else None,
        None if word == "raw" else length,
        byte_order=header.byte_order,
    )
    return TensorObject(header.shape, "dense", {"data": component})


class _Whole(ForeignEncoding):
    """A member that has to be read as a whole: deflated, in Fortran's order, or both.

    Of a long deflated one in our order parts can be read too, once all of it was checked.

    Args:
        name: the word components have for it.
        member: the member; its bytes, with the header of the array, are the stored ones.
        header: that header.
        step: bytes between two places where it can be entered.
    """

    def __init__(self, name: str, member: Member, header: Header, step: int) -> None:
        super().__init__(name)
        self.has_sum = True  # the archive's CRC-32, compared whenever all is read
        self._member = member
        self._header = header
        self._stream = Stream(member.size, step=step, check=self._checked)

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse an expected length that is not the one the archive tells.

        Raises:
            EncodingError: it is not.
        """
        length = self._member.size - self._header.length
        if expected_length != length or stored.length != self._member.length:
            raise EncodingError(
                "the member is not as long as the array",
                reason=Reason.SIZE_MISMATCH,
                expected=f"{expected_length} bytes",
                found=f"{length}",
            )

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with the array's elements in our order.

        Raises:
            EncodingError: the stored bytes are damaged: not of deflate, or of another CRC-32.
            LimitError: NumPy holds no such shape.
        """
        self.check_length(stored, len(destination), limits)
        whole = destination
        if self._header.is_transposed:
            whole = empty_array((len(destination),), np.dtype(np.uint8)).data
        at = 0
        for piece in self._unpacked(stored):
            whole[at : at + len(piece)] = piece
            at += len(piece)
        if self._header.is_transposed:
            transpose(whole, destination, self._header.shape, self._header.width or 1)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the array's elements, without holding them all where they are in our order.

        Raises:
            EncodingError: the stored bytes are damaged: not of deflate, or of another CRC-32.
            LimitError: a safety cap is exceeded.
        """
        if self._header.is_transposed or expected_length is None:
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.check_length(stored, expected_length, limits)
        yield from self._unpacked(stored)

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether the elements need not be put in another order."""
        del stored
        return not self._header.is_transposed

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the parts of a long deflated array that are read without all of it.

        Raises:
            EncodingError: the stored bytes are damaged.
        """
        self.check_length(stored, expected_length, limits)
        if self._member.method != DEFLATED or self._header.is_transposed:
            return None
        return self._stream.runs(expected_length)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` with one part, after a check of the whole the first time.

        Raises:
            EncodingError: the stored bytes are damaged: not of deflate, or of another CRC-32.
        """
        del stop, limits
        self._stream.require(stored)
        self._stream.fill(stored, self._header.length + start, destination)

    def _unpacked(self, stored: Stored) -> Iterator[memoryview]:
        """Yield the member's bytes behind the array's header; exactly as many as it has."""
        skip = self._header.length
        is_deflated = self._member.method == DEFLATED
        pieces = self._stream.pieces(stored) if is_deflated else self._checked(_read(stored))
        for piece in pieces:
            if skip < len(piece):
                yield memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)

    def _checked(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
            yield piece
        if crc != self._member.crc:
            raise EncodingError(
                "the CRC-32 differs",
                reason=Reason.DIGEST_MISMATCH,
                expected=f"{self._member.crc:08x}",
                found=f"{crc:08x}",
            )


def _read(stored: Stored) -> Iterator[memoryview]:
    for at in range(0, stored.length, PIECE_BYTES):
        yield stored.read(at, min(PIECE_BYTES, stored.length - at))


# --- Writing --------------------------------------------------------------------------------


class _Placed:
    """A member as it is written: its place, and what the directory repeats of it."""

    def __init__(self, part: Part, name: bytes, descr: str) -> None:
        self.part = part
        self.name = name
        self.header = npy.emit_header(part.shape, descr)
        self.size = len(self.header) + part.nbytes
        self.flags = 0 if name.isascii() else zip.IS_UTF8
        self.offset = 0
        self.crc = 0

    @property
    def _sizes(self) -> tuple[int, int]:
        return (zip.MOST_32,) * 2 if self.size >= zip.MOST_32 else (self.size,) * 2

    def local(self) -> bytes:
        """Return the header before the member, padded so that the array's data is aligned."""
        extra = b""
        if self.size >= zip.MOST_32:
            extra = struct.pack("<2H2Q", zip.ZIP64, 16, self.size, self.size)
        at = self.offset + zip.LOCAL.size + len(self.name) + len(extra) + _PADDING_HEAD.size
        blank = -at % _ALIGNMENT
        extra += _PADDING_HEAD.pack(_PADDING, 2 + blank, _ALIGNMENT) + bytes(blank)
        fixed = zip.LOCAL_MAGIC, _VERSION, self.flags, STORED, 0, _DATE, self.crc, *self._sizes
        return zip.LOCAL.pack(*fixed, len(self.name), len(extra)) + self.name + extra

    def central(self) -> bytes:
        """Return the member's entry in the directory."""
        wide = [self.size, self.size] if self.size >= zip.MOST_32 else []
        offset = self.offset
        if offset >= zip.MOST_32:
            wide.append(offset)
            offset = zip.MOST_32
        extra = struct.pack(f"<2H{len(wide)}Q", zip.ZIP64, 8 * len(wide), *wide) if wide else b""
        made_by = _UNIX << 8 | _VERSION
        fixed = zip.CENTRAL_MAGIC, made_by, _VERSION, self.flags, STORED, 0, _DATE, self.crc
        lengths = len(self.name), len(extra), 0, 0, 0, _MODE
        return zip.CENTRAL.pack(*fixed, *self._sizes, *lengths, offset) + self.name + extra


def export(
    reader: ManifestReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write what a reader holds as stored members, each array at a multiple of 64 bytes.

    `numpy.load` opens it, and maps can be laid over it. Elements that NumPy has no name for are
    written as their bits: bfloat16 as uint16, fp8 and packed fp4 as uint8. What is not dense
    becomes one array for each of its components, `name.role`. There is no place for attributes.
    All data is read twice, as the CRC-32 of a member stands before it.

    Args:
        reader: an open reader.
        sink: where the bytes go; finished by the caller.
        lose: called with an object's name, or None, and what cannot be said of it.
        progress: called with the bytes of tensors written so far and of all of them.
        threads: how many decode beside the one that writes.

    Returns:
        How many of the reader's objects the file has, in whole or in part.

    Raises:
        FormatError: stored bytes are damaged.
        SourceError: bytes could not be read or written.
    """
    start = sink.position
    npy.lose_attributes(reader, lose)
    chosen = [placed for part in parts_of(reader, lose) if (placed := _place(part, lose))]
    done, total = 0, sum(placed.part.nbytes for placed in chosen)
    twice = [placed.part for placed in chosen for _ in range(2)]
    with ahead_of(twice, threads) as ahead:
        for placed in chosen:
            placed.offset = sink.position - start
            placed.crc = zlib.crc32(placed.header)
            for chunk in placed.part.chunks(ahead):
                placed.crc = zlib.crc32(chunk, placed.crc)
            sink.write(placed.local())
            sink.write(placed.header)
            stream([placed.part], sink, ahead, progress, done, total)
            done += placed.part.nbytes
    directory = sink.position - start
    for placed in chosen:
        sink.write(placed.central())
    _write_end(sink, directory, sink.position - start - directory, len(chosen))
    return len({placed.part.object_name for placed in chosen})


def _place(part: Part, lose: Callable[[str | None, str], None]) -> _Placed | None:
    part, descr = npy.spelled(part, lose)
    name = f"{part.name}{_SUFFIX}".encode()
    if b"\0" in name or len(name) > zip.MOST_16:
        lose(part.object_name, "left out: a zip archive cannot hold the name")
        return None
    return _Placed(part, name, descr)


def _write_end(sink: Sink, offset: int, length: int, count: int) -> None:
    if count >= zip.MOST_16 or max(offset, length) >= zip.MOST_32:
        numbers = zip.END64.size - 12, _VERSION, _VERSION, 0, 0, count, count, length, offset
        sink.write(zip.END64.pack(b"PK\6\6", *numbers))
        sink.write(zip.LOCATOR64.pack(b"PK\6\7", 0, offset + length, 1))
        count = min(count, zip.MOST_16)
        offset, length = min(offset, zip.MOST_32), min(length, zip.MOST_32)
    sink.write(zip.END.pack(zip.END_MAGIC, 0, 0, count, count, length, offset, 0))
