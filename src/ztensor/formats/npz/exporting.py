"""Archives as `numpy.savez` writes them.

Members are stored, each array at a multiple of 64 bytes: `numpy.load` opens the archive, and arrays
can be mapped.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from ztensor.ext import ObjectReader, Sink
from ztensor.formats import npy, zip
from ztensor.formats.npz.projecting import SUFFIX
from ztensor.formats.parts import Part, Pouring, lose_attributes, parts_of
from ztensor.formats.zip import STORED

if TYPE_CHECKING:
    from collections.abc import Callable

    Lose = Callable[[str | None, str], None]

_ALIGNMENT = npy.ALIGNMENT
# The extra field that Android's zipalign pads with: an alignment, and zeros.
_PADDING = 0xD935
_PADDING_HEAD = struct.Struct("<3H")
_DATE = 1 << 5 | 1  # the first day of 1980, so that the same arrays give the same bytes
_UNIX, _MODE = 3, 0o100600 << 16  # the system of a member's permissions, and the permissions
_VERSION = 45  # of archives with 64-bit numbers


class _Placed:
    """An array with its place in the archive, and its records there.

    Args:
        part: the array.
        name: its name in the archive.
        descr: NumPy's name of its type.
    """

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
        """Return the local header, padded so that the array's data is aligned."""
        extra = b""
        if self.size >= zip.MOST_32:
            extra = struct.pack("<2H2Q", zip.ZIP64, 16, self.size, self.size)
        at = self.offset + zip.LOCAL.size + len(self.name) + len(extra) + _PADDING_HEAD.size
        blank = -at % _ALIGNMENT
        extra += _PADDING_HEAD.pack(_PADDING, 2 + blank, _ALIGNMENT) + bytes(blank)
        fixed = zip.LOCAL_MAGIC, _VERSION, self.flags, STORED, 0, _DATE, self.crc, *self._sizes
        return zip.LOCAL.pack(*fixed, len(self.name), len(extra)) + self.name + extra

    def central(self) -> bytes:
        """Return the record in the directory."""
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
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write a reader's arrays as stored members, each array at a multiple of 64 bytes.

    Elements of types that NumPy lacks are written as their bits: bfloat16 as uint16, fp8 and packed
    fp4 as uint8. An object that is not dense becomes one array for each component, `name.role`.
    Attributes are lost. All data is read twice, since the CRC-32 of a member precedes it.

    For arguments and errors see `FormatModule.export`.
    """
    start = sink.position
    lose_attributes(lose, None, reader.attributes)
    chosen = [placed for part in parts_of(reader, lose) if (placed := _place(part, lose))]
    parts = [placed.part for placed in chosen]
    with Pouring(sink, parts, progress, threads, times=2) as pouring:
        for placed in chosen:
            placed.offset = sink.position - start
            placed.crc = zlib.crc32(placed.header)
            for chunk in pouring.bytes_of(placed.part):
                placed.crc = zlib.crc32(chunk, placed.crc)
            sink.write(placed.local())
            sink.write(placed.header)
            pouring.write(placed.part)
    directory = sink.position - start
    for placed in chosen:
        sink.write(placed.central())
    _write_end(sink, directory, sink.position - start - directory, len(chosen))
    return len({part.object_name for part in parts})


def _place(part: Part, lose: Lose) -> _Placed | None:
    part, descr = npy.spelled(part, lose)
    name = f"{part.name}{SUFFIX}".encode()
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
