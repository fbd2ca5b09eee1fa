"""NumPy's .npy: a header in Python's notation, followed by the elements as in memory.

The header is matched by a regular expression; no part of it is evaluated. Arrays of numbers are
ranges of the file, big-endian ones too; arrays in Fortran order are transposed when they are read.
Other arrays are listed and not read: text, dates, records, types that NumPy has only as raw bytes
(such as bfloat16), and arrays of objects, which are pickles.

The one array of a file is the object `array`.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ztensor.errors import ManifestError, Reason, UsageError, counted, describe
from ztensor.ext import (
    BY_LONG_NAME,
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    Manifest,
    ObjectReader,
    Projection,
    Sink,
    Source,
    TensorObject,
    element_count,
)
from ztensor.formats.base import RAW
from ztensor.formats.deflate import Stream
from ztensor.formats.gathered import Gathered, Geometry
from ztensor.formats.parts import Lose, Part, Pouring, lose_attributes, parts_of
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MAGIC = b"\x93NUMPY"
# NumPy's own cap for files that are not trusted.
HEADER_MOST = 10_000
ALIGNMENT = 64  # of the elements, from the beginning of the file
PREFIX_MOST = len(MAGIC) + 2 + 4
_OBJECT = "array"
OBJECTS = "objects (a pickle, which is never read)"

_BEYOND = 1 << 63
_MOST_RANK = 64  # NumPy's
_SECTION = "NumPy, .npy format"
# One field of a header. The description of records is skipped.
_FIELD = re.compile(
    r"""\s*+(?P<quote>['"])(?P<name>\w++)(?P=quote)\s*+:\s*+(?:
        (?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
      | (?P<word>True|False|None|[0-9]{1,20})
      | (?P<shape>\((?:\s*+(?:True|False|[0-9]{1,20}L?)\s*+(?:,|(?=\))))*+\s*+\))  # L: of Python 2
      | (?P<records>\[.*\])
    )\s*+(?:,|$)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_KINDS: Mapping[str, tuple[str, str | None]] = {
    "b1": ("bool", None),
    **{
        f"{storage.kind}{storage.width}": (storage.name, None)
        for storage in STORAGE_TYPES.values()
        if storage.kind in "fiu" and storage.name != "bf16"
    },
    "c8": ("f32", "complex64"),
    "c16": ("f64", "complex128"),
}
# Other writers use names for types that have no letter in NumPy.
_NAMED: Mapping[str, tuple[str, str | None]] = {
    "bfloat16": (BY_LONG_NAME["bfloat16"].name, None),
    **{
        logical.long_name: (logical.dtype, logical.name)
        for logical in LOGICAL_TYPES.values()
        if logical.storage_per_element == logical.elements_per_storage == 1
    },
}


class Header(NamedTuple):
    """The header of a file.

    Attributes:
        length: bytes before the elements.
        dtype: storage type; NumPy's name of a type that is not read.
        type: logical type, or None.
        byte_order: of the elements.
        is_fortran: whether the first dimension varies fastest.
        shape: the dimensions.
    """

    length: int
    dtype: str
    type: str | None
    byte_order: Literal["little", "big"]
    is_fortran: bool
    shape: tuple[int, ...]

    @property
    def width(self) -> int | None:
        """Return the bytes of an element, or None if the type is not read."""
        storage = STORAGE_TYPES.get(self.dtype)
        logical = None if self.type is None else LOGICAL_TYPES[self.type]
        if storage is None:
            return None
        return storage.width * (1 if logical is None else logical.storage_per_element)

    @property
    def is_transposed(self) -> bool:
        """Return whether the elements are not in C order."""
        return self.is_fortran and sum(dimension != 1 for dimension in self.shape) > 1

    def geometry(self, nbytes: int, skip: int = 0, stream: Stream | None = None) -> Geometry:
        """Return the geometry by which the elements are put into C order.

        Args:
            nbytes: bytes of the elements.
            skip: bytes of the stream before them.
            stream: inflates the elements; None if they are stored as they are.
        """
        if not self.is_transposed or self.width is None:
            return Geometry((nbytes,), (1,), 1, nbytes, skip=skip, stream=stream, is_in_order=True)
        strides = itertools.accumulate(self.shape[:-1], operator.mul, initial=self.width)
        axes = [(n, step) for n, step in zip(self.shape, strides, strict=True) if n != 1]
        size, stride = (tuple(column) for column in zip(*axes, strict=True))
        return Geometry(size, stride, self.width, nbytes, skip=skip, stream=stream)

    def require_length(self, nbytes: int) -> None:
        """Raise unless `nbytes`, the bytes after the header, are as many as the array needs."""
        if self.width is None:
            return
        needed = element_count(self.shape) * self.width
        if needed != nbytes:
            raise broken(
                "the length of the data differs from the array's; files of several arrays are not "
                "read",
                reason=Reason.TRUNCATED if needed > nbytes else Reason.SIZE_MISMATCH,
                expected=f"{describe(needed)} bytes for shape {describe(self.shape, 60)}",
                found=f"{nbytes}",
            )


def project(source: Source, budget: Budget) -> Projection:
    """Return the array of a file, as the object `array`.

    Raises:
        FormatError: the header is malformed, or the data has another length.
        SourceError: it cannot be read.
    """
    del budget
    head = source.read(0, min(source.size, PREFIX_MOST + HEADER_MOST))
    header = parse_header(memoryview(head))
    length = source.size - header.length
    header.require_length(length)
    word, encodings = "raw", RAW
    if header.is_transposed and header.width is not None:
        word = "fortran"
        encodings = {**RAW, word: Gathered(word, header.geometry(length))}
    component = Component(
        header.dtype,
        header.length,
        length,
        header.type,
        word,
        decoded_length=None if word == "raw" else length,
        byte_order=header.byte_order,
    )
    objects = {_OBJECT: TensorObject(header.shape, "dense", {"data": component})}
    # Every byte belongs to the header or to the array.
    return Projection(Manifest("", objects), encodings, account=tuple)


# --- The header -----------------------------------------------------------------------------


def parse_header(head: memoryview) -> Header:
    """Return the header of a file.

    Args:
        head: the first bytes of the file, or all of it: at least the longest header.

    Raises:
        ManifestError: it is malformed, too long, or of an unknown version.
    """
    version, start, end = _bounds(head)
    if end > len(head):
        raise broken("the file ends inside its header", reason=Reason.TRUNCATED)
    try:
        text = str(head[start:end], "utf-8" if version == (3, 0) else "latin-1")
    except UnicodeDecodeError as error:
        raise broken("the header is not UTF-8", found=describe(str(error), 120)) from error
    return _described(text)._replace(length=end)


def header_length(head: bytes) -> int:
    """Return the length of a header with its prefix, by its first bytes.

    Raises:
        ManifestError: it is too long, or of an unknown version.
    """
    return _bounds(memoryview(head))[2]


def _bounds(head: memoryview) -> tuple[tuple[int, ...], int, int]:
    """Return the version of a header, and the offsets of its text's beginning and end."""
    version = tuple(head[len(MAGIC) : len(MAGIC) + 2])
    if head[: len(MAGIC)] != MAGIC or version not in ((1, 0), (2, 0), (3, 0)):
        raise broken(
            "not a .npy file of a known version", expected="1.0, 2.0 or 3.0", found=describe(head)
        )
    start = len(MAGIC) + (4 if version == (1, 0) else 6)
    length = int.from_bytes(head[len(MAGIC) + 2 : start], "little")
    if length > HEADER_MOST:
        raise broken(
            "the header is too long",
            reason=Reason.MANIFEST_SIZE,
            expected=f"at most {HEADER_MOST} bytes",
            found=f"{length}",
        )
    return version, start, start + length


def _described(text: str) -> Header:
    """Return the header of this text, with a length of 0."""
    inside = text.strip(" \t\n\r\0")
    fields: dict[str, re.Match[str]] = {}
    at = 1
    if inside[:1] == "{" and inside[-1:] == "}":
        while match := _FIELD.match(inside, at, len(inside) - 1):
            if match["name"] in fields:
                raise broken("duplicate field in the header", found=describe(match["name"]))
            fields[match["name"]] = match
            at = match.end()
    if set(fields) != {"descr", "fortran_order", "shape"} or inside[at:].strip() != "}":
        raise broken(
            "the header is malformed",
            expected="a dict of descr, fortran_order and shape",
            found=describe(inside[at:]),
        )
    if (order := fields["fortran_order"]["word"]) not in ("True", "False"):
        raise broken("fortran_order is neither True nor False", reason=Reason.FIELD_TYPE)
    listed = fields["shape"]["shape"]
    sizes = [int(size) for size in re.findall("[0-9]+", listed or "")]
    is_tuple = listed is not None and (len(sizes) != 1 or "," in listed)
    if not is_tuple or "e" in (listed or "") or max(sizes, default=0) >= _BEYOND:
        raise broken(
            "the shape is not a tuple of sizes",
            reason=Reason.FIELD_TYPE,
            found=describe(fields["shape"][0]),
        )
    descr = fields["descr"]["text"]
    spelled = _spelling(None if descr is None else descr[1:-1])
    return Header(0, *spelled, order == "True", tuple(sizes))


def _spelling(descr: str | None) -> tuple[str, str | None, Literal["little", "big"]]:
    """Return storage type, logical type and byte order of NumPy's name of a type."""
    if descr is None:
        return "records", None, "little"
    if descr in _NAMED:
        return *_NAMED[descr], "little"
    order, kind = descr[:1], descr[1:]
    if kind[:1] == "O":
        return OBJECTS, None, "little"
    if re.fullmatch("f1[26]|c24|c32", kind):
        complex_ = "complex " if kind[0] == "c" else ""
        return f"{complex_}long double of {kind[1:]} bytes", None, "little"
    types = _KINDS.get(kind)
    is_byte = kind in ("b1", "i1", "u1")
    if types is None or order not in ("<>|" if is_byte else "<>"):
        return descr, None, "little"
    return *types, "big" if order == ">" and not is_byte else "little"


def broken(message: str, **details: Any) -> ManifestError:
    """Return the error for a broken rule of the format."""
    return ManifestError(message, **{"reason": Reason.FIELD_VALUE, "section": _SECTION, **details})


# --- Writing --------------------------------------------------------------------------------

# NumPy's names of types; elements of other types are written as their bits.
_DESCRS: dict[tuple[str, str | None], str] = {
    ("bf16", None): "<u2",
    **{kind: f"{'|' if code[1:] == '1' else '<'}{code}" for code, kind in _KINDS.items()},
}


def export(
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write the one array of a reader; a name other than `array` is lost.

    Elements of types that NumPy lacks are written as their bits, as in `npz/`. For arguments and
    other errors see `FormatModule.export`.

    Raises:
        UsageError: the reader does not have exactly one array.
    """
    lose_attributes(lose, None, reader.attributes)
    parts = parts_of(reader, lose)
    if len(parts) != 1:
        raise UsageError(
            "a .npy file holds one array; choose one dense object, or write .npz",
            expected="one array",
            found=f"{len(parts)} of {counted(len(reader), 'object')}",
        )
    part, descr = spelled(parts[0], lose)
    if part.name != _OBJECT:
        lose(part.object_name, f"the format has no names; it is read as {_OBJECT!r}")
    sink.write(emit_header(part.shape, descr))
    with Pouring(sink, [part], progress, threads) as pouring:
        pouring.write(part)
    return 1


def spelled(part: Part, lose: Lose) -> tuple[Part, str]:
    """Return an array with a type and a shape that NumPy has, and NumPy's name of the type."""
    descr = _DESCRS.get((part.dtype, part.type))
    if descr is None or part.dtype == "bf16":
        kind = part.type or part.dtype
        lose(part.object_name, f"NumPy has no name for {describe(kind)}: its bits are written")
        part = part.in_storage()
        descr = _DESCRS[part.dtype, None]
    rank, largest = len(part.shape), max(part.shape, default=0)
    if rank > _MOST_RANK or largest >= _BEYOND:
        limit = f"{rank} dimensions" if rank > _MOST_RANK else f"dimension of {largest}"
        lose(part.object_name, f"NumPy has no {limit}: it is written flat")
        part = dataclasses.replace(part, shape=(part.nbytes // int(descr[2:]),))
    return part, descr


def emit_header(shape: tuple[int, ...], descr: str) -> bytes:
    """Return a header of version 1, padded so that the elements are aligned."""
    dimensions = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {dimensions}, }}"
    length = len(MAGIC) + 4 + len(text) + 1
    text += " " * (-length % ALIGNMENT) + "\n"
    return MAGIC + struct.pack("<2BH", 1, 0, len(text)) + text.encode("ascii")
