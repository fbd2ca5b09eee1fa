"""Zip archives as a table of members, read strictly; nothing is unpacked to a path.

Ambiguous archives are refused: overlapping members, duplicate names, local headers that differ from
the directory, bytes before the first member or after the end record. Listing an archive reads only
the directory; `place` reads a member's local header when the member is needed.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import ContainerError, DigestMismatchError, Reason, UnsupportedError, describe
from ztensor.ext import Range, Source, Tally, Unrepresented
from ztensor.formats.deflate import MOST_RATIO, PIECE_BYTES, Stream
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping


STORED, DEFLATED = 0, 8
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
MOST_16, MOST_32 = 0xFFFF, 0xFFFFFFFF
IS_UTF8 = 1 << 11
ZIP64 = 1  # the extra field with 64-bit numbers

_IS_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
_HAS_TRAILER = 1 << 3  # CRC-32 and sizes follow the data
_TRAILERS = (12, 16, 20, 24)
_IS_PATCH = 1 << 5  # of a file that is not in the archive
_MEMBER_COST = 480  # bytes of a member in memory, without its name
# The extra field of a local header: NumPy writes 20 bytes, PyTorch up to 84.
_USUAL_EXTRA = 96
_SECTION = "zip, APPNOTE"


class Entry(NamedTuple):
    """A member's record in the directory; `place` finds its data.

    Attributes:
        name: the name; never used as a path.
        method: `STORED` or `DEFLATED`.
        length: stored bytes of its data.
        size: unpacked bytes.
        crc: CRC-32 of the unpacked bytes.
        flags: the directory's flags.
        comment_length: bytes of its comment in the directory.
        begin: the offset of its local header.
        end: the offset of the next member, or of the directory.
    """

    name: str
    method: int
    length: int
    size: int
    crc: int
    flags: int
    comment_length: int
    begin: int
    end: int


def zip_crc32(before: bytes | memoryview, whole: int) -> str:
    """Return the digest of the rest of a member of a zip archive.

    Args:
        before: the first bytes of the member, which the digest does not cover.
        whole: the archive's CRC-32 of the member.
    """
    return f"zip-crc32:{zlib.crc32(before):08x}{whole:08x}"


def sum_of(source: Source, entry: Entry) -> tuple[int, int, Callable[[], None]]:
    """Return a row of `Projection.sums` that checks a member's CRC-32."""

    def check() -> None:
        crc = 0
        for piece in unpacked(entry, place(source, entry)):
            crc = zlib.crc32(piece, crc)
        require_sum(entry, crc)

    # This range has the member's data, and no other member's.
    return entry.begin, entry.end - entry.begin, check


def require_sum(entry: Entry, crc: int) -> None:
    """Raise if the CRC-32 of a member's unpacked bytes differs from the archive's.

    Raises:
        DigestMismatchError: it differs.
    """
    if crc != entry.crc:
        raise DigestMismatchError(
            "the CRC-32 of a member differs from the archive's",
            algorithm="crc32",
            expected=f"{entry.crc:08x}",
            found=f"{crc:08x} of {describe(entry.name)}",
            section=_SECTION,
        )


def read_entries(source: Source, budget: Budget) -> dict[str, Entry]:
    """Return the members by name, in the order of the directory; nothing else is read.

    Raises:
        ContainerError: the directory is damaged or ambiguous.
        UnsupportedError: the archive is split, or a member is encrypted or compressed by a method
            other than deflate.
        LimitError: it has far more members than usual for its length (LIMIT_COST).
        SourceError: it cannot be read.
    """
    offset, length, count = _directory(source)
    budget.charge_bytes(2 * length)
    directory = bytes(source.read(offset, length))
    entries: dict[str, Entry] = {}
    at = 0
    for _ in range(count):
        entry, at = _central(directory, at)
        budget.charge_bytes(_MEMBER_COST + sys.getsizeof(entry.name))
        if entry.name in entries:
            raise broken(
                "duplicate member name",
                reason=Reason.DUPLICATE_NAME,
                found=describe(entry.name),
            )
        entries[entry.name] = entry
    if at != length:
        raise broken("the directory is longer than the members that the end record counts")
    budget.release_bytes(2 * length)
    return {entry.name: entry for entry in _apart(list(entries.values()), offset)}


def unpacked(entry: Entry, stored: Range) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a member, inflated if they are deflated.

    Raises:
        EncodingError: they are damaged.
        SourceError: they cannot be read.
    """
    if entry.method == DEFLATED:
        return Stream(entry.size).pieces(stored)
    return stored.pieces(PIECE_BYTES)


def place(source: Source, entry: Entry, ahead: int = 0) -> Range:
    """Return the stored bytes of a member.

    Args:
        source: the archive.
        entry: the member.
        ahead: how many stored bytes are read together with the local header.

    Raises:
        ContainerError: the local header differs from the directory, or the member does not fit.
        SourceError: it cannot be read.
    """
    name = entry.name
    raw_name = name.encode("utf-8" if entry.flags & IS_UTF8 or name.isascii() else "cp437")
    head_length = LOCAL.size + len(raw_name)
    available = entry.end - entry.begin
    count = min(available, head_length + ahead + _USUAL_EXTRA if ahead else head_length)
    head = Range(source, entry.begin, count).read(0, count)
    magic, _, flags, method, _, _, *_, name_length, extra_length = LOCAL.unpack_from(head)
    if (
        magic != LOCAL_MAGIC
        or head[LOCAL.size : head_length] != raw_name
        or name_length != len(raw_name)
        or method != entry.method
        or (flags ^ entry.flags) & (_IS_ENCRYPTED | IS_UTF8)
    ):
        raise broken(
            "the local header of a member differs from the directory in name, method or flags",
            expected=describe(raw_name),
            found=describe(bytes(head[LOCAL.size : head_length])),
        )
    start = head_length + extra_length
    if start + entry.length > available:
        raise broken(
            "a member reaches beyond the next one",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"at most {available} bytes",
            found=f"{start + entry.length} of {describe(name)}",
        )
    kept = head[start : start + entry.length]
    return Range(source, entry.begin + start, entry.length, kept)


def extents(entries: Iterable[Entry]) -> tuple[list[int], list[int], list[bool]]:
    """Return offsets and lengths of members with their headers, and whether each is deflated."""
    every = list(entries)
    return (
        [entry.begin for entry in every],
        [entry.end - entry.begin for entry in every],
        [entry.method == DEFLATED for entry in every],
    )


def account(
    source: Source,
    entries: Mapping[str, Entry],
    given: Container[str],
    kind_of: Callable[[str], str],
    left: Iterable[Unrepresented] = (),
) -> list[Unrepresented]:
    """Return the loss report of an archive: members, comments, and bytes between members.

    Args:
        source: the archive.
        entries: its members.
        given: the names of members with contents in the manifest.
        kind_of: returns the kind of another member, by its name.
        left: the losses within these members.

    Raises:
        ContainerError: a member is not where the directory says.
        SourceError: the archive cannot be read.
    """
    tally = Tally()
    tally.extend(left)
    for name, entry in entries.items():
        if name not in given and entry.size:
            tally.add(kind_of(name), name, nbytes=entry.size)
        if entry.comment_length:
            tally.add("comment of a member", name, nbytes=entry.comment_length)
    for entry in sorted(entries.values(), key=lambda one: one.begin):
        gap = entry.end - place(source, entry).offset - entry.length
        if gap and not (entry.flags & _HAS_TRAILER and gap in _TRAILERS):
            tally.add("bytes between members", nbytes=gap)
    offset, length, _ = _directory(source)
    end = offset + length
    tail = bytes(source.read(end, source.size - end))
    if tail.startswith(b"PK\6\6"):
        tail = tail[END64.size + LOCATOR64.size :]
    if len(tail) > END.size:
        tally.add("comment of the archive", nbytes=len(tail) - END.size)
    return tally()


def _apart(entries: list[Entry], directory: int) -> list[Entry]:
    """Return the members with their ends; the first begins at 0, and none overlap.

    Args:
        entries: the members; each `end` is a lower bound.
        directory: the offset of the directory.
    """
    order = sorted(range(len(entries)), key=lambda number: entries[number].begin)
    if order and entries[order[0]].begin:
        raise broken("the file does not begin with a member", reason=Reason.OUT_OF_BOUNDS)
    placed = entries.copy()
    end = directory
    for number in reversed(order):
        entry = entries[number]
        if entry.end > end:
            raise broken(
                "members overlap, or reach into the directory",
                reason=Reason.OUT_OF_BOUNDS,
                found=describe(entry.name),
            )
        placed[number] = Entry(*entry[:-1], end)  # _replace takes six times as long
        end = entry.begin
    return placed


def _directory(source: Source) -> tuple[int, int, int]:
    """Return the offset and the length of the directory, and its number of members."""
    tail_length = min(source.size, END.size + MOST_16)
    tail = bytes(source.read(source.size - tail_length, tail_length))
    at = tail.rfind(END_MAGIC)
    # A comment may look like an end record; the real one ends where the file does.
    while at >= 0 and (
        at + END.size > len(tail)
        or at + END.size + int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail)
    ):
        at = tail.rfind(END_MAGIC, 0, at)
    if at < 0:
        raise broken("the archive has no end record; it was cut", reason=Reason.TRUNCATED)
    _, *disks, here, count, length, offset, _ = END.unpack_from(tail, at)
    end = source.size - tail_length + at
    # Some writers, such as torch, add the 64-bit record even if it is not needed.
    place = end - LOCATOR64.size
    locator = source.read(place, LOCATOR64.size) if place >= 0 else b""
    if locator[:4] == b"PK\6\7":
        narrow = zip((here, count, length, offset), (MOST_16,) * 2 + (MOST_32,) * 2, strict=True)
        _, disk, start, disk_count = LOCATOR64.unpack(locator)
        if start + END64.size != place:
            raise broken("the 64-bit end record is not before its locator")
        fields = END64.unpack(source.read(start, END64.size))
        magic, record_length, _, _, *disks64, here, count, length, offset = fields
        if magic != b"PK\6\6" or record_length != END64.size - 12:
            raise broken("the 64-bit end record is malformed")
        wide = here, count, length, offset
        if any(
            number not in (most, wide_number)
            for (number, most), wide_number in zip(narrow, wide, strict=True)
        ):
            raise broken("the two end records differ")
        disks = [*disks64, disk, max(disk_count, 1) - 1]
        end = start
    if any(disks) or here != count:
        raise UnsupportedError(
            "the archive is split", reason=Reason.UNKNOWN_ENCODING, section=_SECTION
        )
    if offset + length != end:
        raise broken(
            "the directory does not end where the end record begins",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"offset {end}",
            found=f"{describe(offset + length)}",
        )
    return offset, length, count


def _central(directory: bytes, at: int) -> tuple[Entry, int]:
    """Return the member whose record is at `at`, its end a lower bound, and the next `at`."""
    if at + CENTRAL.size > len(directory):
        raise broken("the directory is cut", reason=Reason.TRUNCATED)
    fields = CENTRAL.unpack_from(directory, at)
    magic, _, _, flags, method, _, _, crc, length, size = fields[:10]
    name_length, extra_length, comment_length, disk, _, _, offset = fields[10:]
    name_at = at + CENTRAL.size
    extra_at = name_at + name_length
    end = extra_at + extra_length + comment_length
    if magic != CENTRAL_MAGIC or end > len(directory):
        raise broken("the directory is malformed", found=describe(directory[at : at + 4]))
    raw_name = directory[name_at:extra_at]
    if MOST_32 in (size, length, offset):
        wide = _wide(directory[extra_at : extra_at + extra_length])
        sizes = [
            next(wide, MOST_32) if number == MOST_32 else number
            for number in (size, length, offset)
        ]
        size, length, offset = sizes
    try:
        # Importing the table of cp437 takes longer than reading an archive; ASCII needs none.
        is_utf8 = flags & IS_UTF8 or raw_name.isascii()
        name = raw_name.decode("utf-8" if is_utf8 else "cp437")
    except UnicodeDecodeError as error:
        raise broken("a member's name is not UTF-8", found=describe(raw_name)) from error
    if "\0" in name:  # some readers end the name there
        raise broken("NUL in a member's name", found=describe(name))
    if disk or flags & (_IS_ENCRYPTED | _IS_PATCH) or method not in (STORED, DEFLATED):
        raise UnsupportedError(
            "a member is encrypted or compressed by another method",
            reason=Reason.UNKNOWN_ENCODING,
            object_name=name,
            expected="stored or deflated, unencrypted",
            found=f"method {method}, flags {flags:#x}",
            section=_SECTION,
        )
    if (method == STORED and size != length) or size > length * MOST_RATIO:
        raise broken(
            "the stored length of a member cannot give its size",
            reason=Reason.SIZE_MISMATCH,
            object_name=name,
            found=f"{size} bytes of {length} stored",
        )
    least = offset + LOCAL.size + len(raw_name) + length
    return Entry(name, method, length, size, crc, flags, comment_length, offset, least), end


def _wide(extra: bytes) -> Any:
    """Return the 64-bit numbers of an extra field, as an iterator."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == ZIP64:
            data = extra[at + 4 : at + 4 + length]
            return iter(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))
        at += 4 + length
    return iter(())


def broken(message: str, **details: Any) -> ContainerError:
    """Return the error for an archive that breaks a rule of the format."""
    return ContainerError(message, **{"reason": Reason.FIELD_VALUE, "section": _SECTION, **details})
