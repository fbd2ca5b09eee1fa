"""Archives as `numpy.savez` writes them, and as `scipy.sparse.save_npz` does.

Members are stored, each array at a multiple of 64 bytes, so that `numpy.load` opens the archive and
maps can be laid over it.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from ztensor.errors import UnsupportedError
from ztensor.ext import STORAGE_TYPES, ObjectReader, Sink
from ztensor.formats import npy, zip
from ztensor.formats.ahead import Ahead
from ztensor.formats.npz.members import SUFFIX
from ztensor.formats.npz.scipy_layouts import (
    CLASS,
    PREFIX,
    ROLES,
    VALUES_SHAPE,
    do_fit,
    shape_of_values,
)
from ztensor.formats.npz.sparse import FLAG, NAME
from ztensor.formats.parts import Part, Pouring, ahead_of, lose_attributes, part_of, parts_of
from ztensor.formats.zip import STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Lose = Callable[[str | None, str], None]

_ALIGNMENT = npy.ALIGNMENT
# The extra field that Android's zipalign pads with: an alignment, and zeros.
_PADDING = 0xD935
_PADDING_HEAD = struct.Struct("<3H")
_DATE = 1 << 5 | 1  # the first day of 1980: the same arrays give the same bytes
_UNIX, _MODE = 3, 0o100600 << 16  # whose permissions a member has, and which
_VERSION = 45  # that of archives with numbers of 64 bits


class _Placed:
    """A member as it is written: its place, and what the directory repeats of it.

    Args:
        name: what it is called in the archive.
        shape: the array's.
        descr: what NumPy calls its elements.
        nbytes: how long they are.
    """

    def __init__(self, name: bytes, shape: tuple[int, ...], descr: str, nbytes: int) -> None:
        self.name = name
        self.header = npy.emit_header(shape, descr)
        self.nbytes = nbytes
        self.size = len(self.header) + nbytes
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


class _Streamed(_Placed):
    """A member whose elements are a component of the reader's, or some of it.

    Args:
        part: the component.
        name: what it is called in the archive.
        shape: the array's.
        descr: what NumPy calls its elements.
        start: where in the component they begin, in bytes.
        nbytes: how long they are; by default all of it.
    """

    def __init__(
        self,
        part: Part,
        name: bytes,
        shape: tuple[int, ...],
        descr: str,
        start: int = 0,
        nbytes: int | None = None,
    ) -> None:
        super().__init__(name, shape, descr, part.nbytes if nbytes is None else nbytes)
        self.part = part
        self._start = start

    def chunks(self, ahead: Ahead) -> Iterator[memoryview]:
        """Yield the elements in pieces; see `Part.chunks`."""
        pieces = self.part.chunks(ahead)
        if self.nbytes == self.part.nbytes:
            yield from pieces
            return
        at = -self._start
        for piece in pieces:
            flat = piece.cast("B")
            yield flat[max(-at, 0) : max(self.nbytes - at, 0)]
            at += flat.nbytes


class _Said(_Placed):
    """A member whose elements are known before anything is read.

    Args:
        name: what it is called in the archive.
        shape: the array's.
        descr: what NumPy calls its elements.
        data: the elements.
    """

    def __init__(self, name: bytes, shape: tuple[int, ...], descr: str, data: bytes) -> None:
        super().__init__(name, shape, descr, len(data))
        self._data = data

    def chunks(self, ahead: Ahead) -> Iterator[memoryview]:
        """Yield the elements."""
        del ahead
        yield memoryview(self._data)


def export(
    reader: ObjectReader,
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
    Where the one object is sparse, and SciPy has its elements, the file is one that
    `scipy.sparse.load_npz` reads: without its name, which it has in no such file. All data is
    read twice, as the CRC-32 of a member stands before it.

    Arguments and errors are those of `Exporting.export`.
    """
    start = sink.position
    lose_attributes(lose, None, reader.attributes)
    chosen = _of_scipy(reader, lose)
    if chosen is None:
        parts = parts_of(reader, lose)
        chosen = [member for part in parts if (member := _place(part, lose)) is not None]
    streamed = [placed.part for placed in chosen if isinstance(placed, _Streamed)]
    pouring = Pouring(sink, progress, sum(placed.nbytes for placed in chosen))
    with ahead_of([part for part in streamed for _ in range(2)], threads) as ahead:
        for placed in chosen:
            placed.offset = sink.position - start
            placed.crc = zlib.crc32(placed.header)
            for chunk in placed.chunks(ahead):
                placed.crc = zlib.crc32(chunk, placed.crc)
            sink.write(placed.local())
            sink.write(placed.header)
            pouring.write(placed.chunks(ahead))
    directory = sink.position - start
    for placed in chosen:
        sink.write(placed.central())
    _write_end(sink, directory, sink.position - start - directory, len(chosen))
    return len({part.object_name for part in streamed})


def _place(part: Part, lose: Lose) -> _Streamed | None:
    part, descr = npy.spelled(part, lose)
    name = f"{part.name}{SUFFIX}".encode()
    if b"\0" in name or len(name) > zip.MOST_16:
        lose(part.object_name, "left out: a zip archive cannot hold the name")
        return None
    return _Streamed(part, name, part.shape, descr)


# --- As SciPy writes sparse arrays ----------------------------------------------------------

# NumPy has float16, too, and SciPy no sparse arrays of it.
_VALUES = frozenset(
    {(name, None) for name, storage in STORAGE_TYPES.items() if name not in ("bf16", "f16")}
    | {("f32", "complex64"), ("f64", "complex128")}
)
_LARGEST = (1 << 63) - 1


def _of_scipy(reader: ObjectReader, lose: Lose) -> list[_Streamed | _Said] | None:
    """Return the members that SciPy has of a sparse array; None where the reader holds no such.

    Raises:
        FormatError: the size of compressed data had to be counted, and it is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    name = next(iter(reader), None)
    if name is None or len(reader) != 1:
        return None
    home = reader.objects.part(name)
    whole = home.object(name)
    kind = whole.format.removeprefix(PREFIX)
    if kind == whole.format:
        kind = {"sparse_csr": "csr", "sparse_coo": "coo"}.get(kind, "")
    shape, attributes = whole.shape, dict(whole.attributes or {})
    if kind not in ROLES or set(whole.components) != set(ROLES[kind]):
        return None
    if max(shape, default=0) > _LARGEST:
        return None
    try:
        parts = {
            role: part_of(home, name, whole, role, component, role)
            for role, component in whole.components.items()
        }
    except UnsupportedError:
        return None
    values, *indices = (parts[role] for role in ROLES[kind])
    are_integers = all(part.type is None and part.dtype[0] in "iu" for part in indices)
    if (values.dtype, values.type) not in _VALUES or not are_integers:
        return None
    told = attributes.pop(VALUES_SHAPE, None) if kind in ("bsr", "dia") else None
    values_shape = shape_of_values(told, values.shape[0])
    is_matrix = len(shape) == 2 and attributes.get(CLASS) == f"{kind}_matrix"
    if is_matrix or attributes.get(CLASS) == f"{kind}_array":
        del attributes[CLASS]
    if values_shape is None:
        return None
    shapes = {role: part.shape for role, part in parts.items()}
    shapes["values"] = values_shape
    if kind == "coo":
        if shapes["coords"] != (len(shape) * values.shape[0],):
            return None
        shapes["coords"] = (len(shape), *values.shape)
    if not do_fit(kind, shape, shapes):
        return None
    if name != NAME:
        lose(name, f"such a file has one array without a name; it is read as {NAME!r}")
    lose_attributes(lose, name, attributes)
    found: list[_Streamed | _Said] = []
    for role in ROLES[kind][1:]:
        part = parts[role]
        descr = npy.spelled(part, lose)[1].replace("<u8", "<i8")  # SciPy's own are signed
        if kind == "coo" and len(shape) == 2:  # as all its releases read it
            half = part.nbytes // 2
            for axis, own in enumerate(("row", "col")):
                found.append(_Streamed(part, _member(own), values.shape, descr, axis * half, half))
        else:
            found.append(_Streamed(part, _member(role), shapes[role], descr))
    found.append(_Said(_member("format"), (), f"|S{len(kind)}", kind.encode()))
    found.append(
        _Said(_member("shape"), (len(shape),), "<i8", struct.pack(f"<{len(shape)}q", *shape))
    )
    descr = npy.spelled(values, lose)[1]
    found.append(_Streamed(values, _member("data"), shapes["values"], descr))
    if not is_matrix:
        found.append(_Said(_member(FLAG), (), "|b1", b"\1"))
    return found


def _member(name: str) -> bytes:
    return f"{name}{SUFFIX}".encode()


def _write_end(sink: Sink, offset: int, length: int, count: int) -> None:
    if count >= zip.MOST_16 or max(offset, length) >= zip.MOST_32:
        numbers = zip.END64.size - 12, _VERSION, _VERSION, 0, 0, count, count, length, offset
        sink.write(zip.END64.pack(b"PK\6\6", *numbers))
        sink.write(zip.LOCATOR64.pack(b"PK\6\7", 0, offset + length, 1))
        count = min(count, zip.MOST_16)
        offset, length = min(offset, zip.MOST_32), min(length, zip.MOST_32)
    sink.write(zip.END.pack(zip.END_MAGIC, 0, 0, count, count, length, offset, 0))
