"""What an archive holds: each of its .npy members is one object.

A member is one by its name or, as for NumPy, by its first bytes.

Stored members in our order of elements are ranges of the file and are mapped; their CRC-32 is a
digest as those of our own files are, checked when a read copies, and by verify. Deflated ones, and
those in Fortran's order, are decoded when they are read, and their CRC-32 is then checked. `npy.py`
says which arrays are listed only, `zip.py` which archives are refused.

The directory is enough to list the names. What a member says of its array is read, and its place
checked, when the object is asked for; a damaged one does not hide the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import (
    Component,
    Encoding,
    LaterObjects,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
    Unrepresented,
)
from ztensor.formats.base import RAW
from ztensor.formats.npz import sparse
from ztensor.formats.npz.members import SUFFIX, Whole, header_of, is_array
from ztensor.formats.zip import DEFLATED, Entry, extents, read_entries, unread_bytes, zip_crc32
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping


# What a member costs beside its entry in the archive: a name, an object, and a component; how a
# deflated one is decoded.
_MEMBER_COST, _ENCODING_COST = 1024, 640


def project(source: Source, budget: Budget) -> Projection:
    """Return what an archive holds: its .npy members, by their names without the suffix.

    Names of other members are in the file's attribute `other_members`; so are those of arrays
    whose own names lack the suffix, where the name without it is another array's. What SciPy
    wrote of a sparse matrix is one object, see `sparse.py`.

    Raises:
        FormatError: the archive's directory is damaged; what is asked for an object later raises
            it where the member is.
        UnsupportedError: a member is encrypted or compressed by another method than deflate.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    encodings: dict[str, Encoding] = dict(RAW)
    others: list[str] = []
    found: dict[str, Entry] = {}
    entries = read_entries(source, budget)
    for entry in entries.values():
        budget.charge_bytes(_MEMBER_COST)
        name = entry.name.removesuffix(SUFFIX)
        if name == entry.name and (f"{name}{SUFFIX}" in entries or not is_array(source, entry)):
            others.append(name)
        else:
            found[name] = entry
    objects: Mapping[str, TensorObject] = LaterObjects(
        found,
        lambda name: _object(source, found[name], encodings, budget),
        where=lambda name: found[name].begin,
        extents=lambda: extents(found.values()),
    )
    if sparse.are_parts(entries):
        objects = sparse.combined(source, entries, objects, encodings, budget)
    attributes = {"other_members": others} if others else None

    def account() -> list[Unrepresented]:
        tally = Tally()
        for name in others:
            tally.add("member that is no array", name, nbytes=entries[name].size)
        tally.extend(unread_bytes(source))
        return tally()

    return Projection(Manifest("", objects, attributes), encodings, account)


def _object(
    source: Source,
    entry: Entry,
    encodings: dict[str, Encoding],
    budget: Budget,
) -> TensorObject:
    member, header, head = header_of(source, entry, budget)
    length = member.size - header.length
    word, offset, nbytes = "raw", member.offset + header.length, length
    is_transposed = header.is_transposed and header.width is not None
    if member.method == DEFLATED or is_transposed:
        budget.charge_bytes(_ENCODING_COST + 4 * len(member.name))
        word = f"{'fortran' if is_transposed else 'deflate'}:{member.name}"
        encodings[word] = Whole(word, member, header)
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
