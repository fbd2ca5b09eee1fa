"""Zip archives as a table of members, read strictly: nothing of one is unpacked to any path.

What two readers could understand in two ways is refused: members that overlap, that come twice, or
that are called otherwise where they lie, bytes before the first and behind the end record.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.digest import Sum
from ztensor.errors import ContainerError, DigestMismatchError, Reason, UnsupportedError, describe
from ztensor.foreign.deflate import MOST_RATIO, PIECE_BYTES, Stream
from ztensor.model.account import Unrepresented
from ztensor.source.base import Range, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.limits import Budget
    from ztensor.source.base import Source

STORED, DEFLATED = 0, 8
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
MOST_16, MOST_32 = 0xFFFF, 0xFFFFFFFF
IS_UTF8 = 1 << 11
ZIP64 = 1  # the extra field with numbers of 64 bits

_IS_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
_HAS_TRAILER = 1 << 3  # CRC-32 and sizes again behind the data
_TRAILERS = (12, 16, 20, 24)
_IS_PATCH = 1 << 5  # of other bytes that are not here
_MEMBER_COST = 360  # bytes of a member in memory, beside its name
_SECTION = "zip, APPNOTE"


class Member(NamedTuple):
    """One member of an archive.

    Attributes:
        name: as text; a path only to those who unpack archives.
        method: how it is stored: `STORED` or `DEFLATED`.
        offset: where its data begins in the file.
        length: how many bytes lie there.
        size: how many they are unpacked.
        crc: CRC-32 of them unpacked.
    """

    name: str
    method: int
    offset: int
    length: int
    size: int
    crc: int


def sum_of(source: Source, member: Member) -> Sum:
    """Return the CRC-32 that an archive has of a member, over what is stored of it."""
    stored = Range(source, member.offset, member.length)

    def check() -> None:
        found = 0
        pieces: Iterator[bytes | memoryview] = stored.pieces(PIECE_BYTES)
        if member.method == DEFLATED:
            pieces = Stream(member.size).pieces(stored)
        for piece in pieces:
            found = zlib.crc32(piece, found)
        if found != member.crc:
            raise DigestMismatchError(
                "the CRC-32 that the archive has of the member does not match",
                algorithm="crc32",
                expected=f"{member.crc:08x}",
                found=f"{found:08x}",
                section=_SECTION,
            )

    return Sum(member.offset, member.length, check)


def read_members(source: Source, budget: Budget) -> dict[str, Member]:
    """Return the members by name, in the order of the archive's directory.

    Raises:
        ContainerError: the archive is damaged, or could be read in two ways.
        UnsupportedError: it is in several files, or a member is encrypted or compressed by
            another method than deflate.
        LimitError: it has far more members than an archive of its length (LIMIT_COST).
        SourceError: it cannot be read.
    """
    offset, length, count = _directory(source)
    budget.charge_bytes(2 * length)
    directory = bytes(read_bytes(source, offset, length))
    members: dict[str, Member] = {}
    places = array("Q")  # where each begins and ends
    at = 0
    for _ in range(count):
        found, at = _central(directory, at)
        budget.charge_bytes(_MEMBER_COST + sys.getsizeof(found[-1].name))
        begins, ends, member = _placed(source, *found)
        if member.name in members:
            raise broken(
                "two members have one name",
                reason=Reason.DUPLICATE_NAME,
                found=describe(member.name),
            )
        members[member.name] = member
        places.extend((begins, ends))
    if at != length:
        raise broken("the directory has more members than the end record says")
    budget.release_bytes(2 * length)
    _require_apart(places, list(members), offset)
    return members


def unread_bytes(source: Source) -> Iterator[Unrepresented]:
    """Yield what an archive says beside its members: comments, and bytes between members.

    The directory is read once more; `read_members` has found it sound.

    Raises:
        SourceError: it cannot be read.
    """
    offset, length, count = _directory(source)
    directory = bytes(read_bytes(source, offset, length))
    places: list[tuple[int, int, bool]] = []
    at = 0
    for _ in range(count):
        comment = int.from_bytes(directory[at + 32 : at + 34], "little")
        found, at = _central(directory, at)
        begins, ends, member = _placed(source, *found)
        has_trailer = bool(found[2] & _HAS_TRAILER)
        places.append((begins, ends, has_trailer))
        if comment:
            yield Unrepresented("comment of a member", member.name, nbytes=comment)
    places.sort()
    for (_, end, has_trailer), start in zip(
        places, [*(begin for begin, *_ in places[1:]), offset], strict=True
    ):
        if end < start and not (has_trailer and start - end in _TRAILERS):
            yield Unrepresented("bytes between members", nbytes=start - end)
    end = offset + length
    tail = bytes(read_bytes(source, end, source.size - end))
    if tail.startswith(b"PK\6\6"):
        tail = tail[END64.size + LOCATOR64.size :]
    if len(tail) > END.size:
        yield Unrepresented("comment of the archive", nbytes=len(tail) - END.size)


def _require_apart(places: array[int], names: list[str], directory: int) -> None:
    """Require that members follow one another from the file's beginning, before the directory."""
    if not names:
        return
    begins, ends = np.frombuffer(places, np.uint64).reshape(-1, 2).T
    order = np.argsort(begins, kind="stable")
    if begins[order[0]]:
        raise broken("the file does not begin with a member", reason=Reason.OUT_OF_BOUNDS)
    overlaps = np.flatnonzero(begins[order[1:]] < ends[order[:-1]])
    if overlaps.size:
        name = names[order[overlaps[0] + 1]]
        raise broken("members overlap", reason=Reason.OUT_OF_BOUNDS, found=describe(name))
    if ends[order[-1]] > directory:
        raise broken("a member lies in the directory", reason=Reason.OUT_OF_BOUNDS)


def _directory(source: Source) -> tuple[int, int, int]:
    """Return where the directory is, its length, and how many members it has."""
    tail_length = min(source.size, END.size + MOST_16)
    tail = bytes(read_bytes(source, source.size - tail_length, tail_length))
    at = tail.rfind(END_MAGIC)
    # A comment may hold what looks like an end record: the one that fits the file's end counts.
    while at >= 0 and (
        at + END.size > len(tail)
        or at + END.size + int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail)
    ):
        at = tail.rfind(END_MAGIC, 0, at)
    if at < 0:
        raise broken("the archive has no end record; it was cut", reason=Reason.TRUNCATED)
    _, *disks, here, count, length, offset, _ = END.unpack_from(tail, at)
    end = source.size - tail_length + at
    # Some writers, torch's among them, add the record of 64 bits where nothing needs it.
    place = end - LOCATOR64.size
    locator = read_bytes(source, place, LOCATOR64.size) if place >= 0 else b""
    if locator[:4] == b"PK\6\7":
        narrow = zip((here, count, length, offset), (MOST_16,) * 2 + (MOST_32,) * 2, strict=True)
        _, disk, start, disk_count = LOCATOR64.unpack(locator)
        if start + END64.size != place:
            raise broken("the end record of 64 bits is not before its locator")
        fields = END64.unpack(read_bytes(source, start, END64.size))
        magic, record_length, _, _, *disks64, here, count, length, offset = fields
        if magic != b"PK\6\6" or record_length != END64.size - 12:
            raise broken("the end record of 64 bits is malformed")
        wide = here, count, length, offset
        if any(one not in (most, other) for (one, most), other in zip(narrow, wide, strict=True)):
            raise broken("the two end records disagree")
        disks = [*disks64, disk, max(disk_count, 1) - 1]
        end = start
    if any(disks) or here != count:
        raise UnsupportedError(
            "the archive is in several files", reason=Reason.UNKNOWN_ENCODING, section=_SECTION
        )
    if offset + length != end:
        raise broken(
            "the directory does not end where the end record begins",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"offset {end}",
            found=f"{describe(offset + length)}",
        )
    return offset, length, count


def _central(directory: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    """Return what the directory says of a member, and where the next begins."""
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
        # Plain ones need not the table of cp437, whose import takes longer than reading an archive.
        is_utf8 = flags & IS_UTF8 or raw_name.isascii()
        name = raw_name.decode("utf-8" if is_utf8 else "cp437")
    except UnicodeDecodeError as error:
        raise broken("a member's name is not UTF-8", found=describe(raw_name)) from error
    if "\0" in name:  # some readers would end it there
        raise broken("a member's name has a NUL", found=describe(name))
    if disk or flags & (_IS_ENCRYPTED | _IS_PATCH) or method not in (STORED, DEFLATED):
        raise UnsupportedError(
            "a member is encrypted, or compressed by a method that is not read",
            reason=Reason.UNKNOWN_ENCODING,
            object_name=name,
            expected="stored or deflated, unencrypted",
            found=f"method {method}, flags {flags:#x}",
            section=_SECTION,
        )
    if (method == STORED and size != length) or size > length * MOST_RATIO:
        raise broken(
            "a member cannot unpack to its size",
            reason=Reason.SIZE_MISMATCH,
            object_name=name,
            found=f"{size} bytes of {length} stored",
        )
    return (raw_name, offset, flags, Member(name, method, 0, length, size, crc)), end


def _wide(extra: bytes) -> Any:
    """Return the numbers of 64 bits in an extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == ZIP64:
            data = extra[at + 4 : at + 4 + length]
            return iter(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))
        at += 4 + length
    return iter(())


def _placed(
    source: Source, raw_name: bytes, offset: int, flags: int, member: Member
) -> tuple[int, int, Member]:
    """Return where a member begins and ends, and itself with its data's place."""
    head_length = LOCAL.size + len(raw_name)
    if offset + head_length > source.size:
        raise broken(
            "a member lies behind the end of the file",
            reason=Reason.OUT_OF_BOUNDS,
            object_name=member.name,
        )
    head = Range(source, offset, head_length).read(0, head_length)
    fields = LOCAL.unpack_from(head)
    magic, _, local_flags, method, _, _, *_, name_length, extra_length = fields
    if (
        magic != LOCAL_MAGIC
        or head[LOCAL.size :] != raw_name
        or name_length != len(raw_name)
        or method != member.method
        or (local_flags ^ flags) & (_IS_ENCRYPTED | IS_UTF8)
    ):
        raise broken(
            "a member is called otherwise where it lies than in the directory",
            object_name=member.name,
            found=describe(bytes(head[LOCAL.size :])),
        )
    start = offset + head_length + extra_length
    end = start + member.length
    if end > source.size:
        raise broken(
            "a member lies behind the end of the file",
            reason=Reason.OUT_OF_BOUNDS,
            object_name=member.name,
        )
    return offset, end, Member(*member[:2], start, *member[3:])  # _replace takes six times as long


def broken(message: str, **details: Any) -> ContainerError:
    """Return the error for an archive that breaks a rule of the format."""
    return ContainerError(message, **{"reason": Reason.FIELD_VALUE, "section": _SECTION, **details})
