"""The .npy members of an archive, each as one object.

A member is an array by its name or, as in NumPy, by its first bytes.

Stored members are ranges of the file, and their CRC-32 is a digest, checked when a read copies and
by verify. Deflated members are decoded and checked against their CRC-32 when they are read.
`npy.py` determines which arrays are listed only, `zip.py` which archives are refused.

Listing reads only the directory. The header of a member is read, and its place checked, when the
object is needed; a damaged member does not hide the others.
"""

from __future__ import annotations

from ztensor.errors import EncodingError
from ztensor.ext import (
    Component,
    Encoding,
    LaterObjects,
    Manifest,
    Projection,
    Source,
    Stored,
    TensorObject,
)
from ztensor.formats import deflate, npy
from ztensor.formats.base import RAW
from ztensor.formats.deflate import Stream
from ztensor.formats.gathered import Gathered
from ztensor.formats.npy import parse_header
from ztensor.formats.zip import (
    DEFLATED,
    STORED,
    Entry,
    account,
    extents,
    place,
    read_entries,
    zip_crc32,
)
from ztensor.limits import Budget

SUFFIX = ".npy"
# Bytes of memory: a member's name, object and component; an encoding; a dimension.
_MEMBER_COST, _ENCODING_COST, _NUMBER_COST = 1024, 640, 40
_USUAL_HEAD = 1 << 9
_LONG_STEPS = 4  # for each byte of a longer header, which may be a number


def project(source: Source, budget: Budget) -> Projection:
    """Return the .npy members of an archive, by their names without the suffix.

    The file's attribute `other_members` has the names of other members, and of arrays without the
    suffix if another array has the same name with it.

    Raises:
        FormatError: the archive's directory is damaged; damage of a member is raised later, when
            its object is needed.
        UnsupportedError: a member is encrypted or compressed by a method other than deflate.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    encodings: dict[str, Encoding] = dict(RAW)
    others: list[str] = []
    arrays: dict[str, Entry] = {}
    entries = read_entries(source, budget)
    for entry in entries.values():
        budget.charge_bytes(_MEMBER_COST)
        name = entry.name.removesuffix(SUFFIX)
        if name == entry.name and (f"{name}{SUFFIX}" in entries or not _is_array(source, entry)):
            others.append(name)
        else:
            arrays[name] = entry
    objects = LaterObjects(
        arrays,
        lambda name: _object(source, arrays[name], encodings, budget),
        where=lambda name: arrays[name].begin,
        extents=lambda: extents(arrays.values()),
    )

    given = {entry.name for entry in arrays.values()}
    attributes = {"other_members": others} if others else None
    return Projection(
        Manifest("", objects, attributes),
        encodings,
        lambda: account(source, entries, given, lambda _: "member that is no array"),
    )


def _object(
    source: Source, entry: Entry, encodings: dict[str, Encoding], budget: Budget
) -> TensorObject:
    stored = place(source, entry, _USUAL_HEAD)
    # First the usual length: a small deflated member may decode to the longest header.
    head = _head(stored, entry, _USUAL_HEAD)
    length = npy.header_length(head)
    budget.charge_steps(length + _LONG_STEPS * max(length - _USUAL_HEAD, 0))
    if length > len(head):
        head = _head(stored, entry, length)
    header = parse_header(memoryview(head))
    budget.charge_bytes(len(header.shape) * _NUMBER_COST + 4 * len(header.dtype))
    nbytes = entry.size - length
    header.require_length(nbytes)
    word, digest = "raw", None
    offset, stored_nbytes = stored.offset + length, nbytes
    if entry.method == DEFLATED:
        word, offset, stored_nbytes = f"deflate:{entry.name}", stored.offset, entry.length
        stream = Stream(entry.size, entry.crc)
        encodings[word] = Gathered(word, header.geometry(nbytes, length, stream))
    else:
        digest = zip_crc32(head[:length], entry.crc)
        if header.is_transposed and header.width is not None:
            word = f"fortran:{entry.name}"
            encodings[word] = Gathered(word, header.geometry(nbytes))
    if word != "raw":
        budget.charge_bytes(_ENCODING_COST + 4 * len(entry.name))
    component = Component(
        header.dtype,
        offset,
        stored_nbytes,
        header.type,
        word,
        digest,
        None if word == "raw" else nbytes,
        byte_order=header.byte_order,
    )
    return TensorObject(header.shape, "dense", {"data": component})


def _is_array(source: Source, entry: Entry) -> bool:
    """Return whether a member begins like a .npy file."""
    stored = place(source, entry, len(npy.MAGIC))
    try:
        return _head(stored, entry, len(npy.MAGIC)) == npy.MAGIC
    except EncodingError:  # damaged, but not an array
        return False


def _head(stored: Stored, entry: Entry, length: int) -> bytes:
    """Return the first bytes of a member, unpacked."""
    if entry.method == STORED:
        return bytes(stored.read(0, min(entry.length, length)))
    return deflate.head(stored, min(entry.size, length))
