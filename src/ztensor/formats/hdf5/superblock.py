"""The beginning of an HDF5 file: where it is, how wide its addresses are, where its root lies."""

from __future__ import annotations

import struct

from ztensor.ext import Source
from ztensor.formats.hdf5.window import Window, malformed
from ztensor.limits import Budget

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_BYTES = 256  # of any version, behind the signature and with it

_OLD = struct.Struct("<8sB4xBBx4x4x")  # versions 0 and 1: signature, version, both widths
_NEW = struct.Struct("<8sBBBx")  # versions 2 and 3: likewise
# In all versions: base address, another, end of file; of 0 and 1 a fourth one and the root's
# entry: name and header; of 2 and 3 the root's header.
_OLD_PLACES = "3O O OO"
_NEW_PLACES = "3O O"


def find(source: Source) -> int | None:
    """Return where the signature is: at 0, 512, 1024, 2048 and so on."""
    place = 0
    while place + len(SIGNATURE) <= source.size:
        if bytes(source.read(place, len(SIGNATURE))) == SIGNATURE:
            return place
        place = place * 2 or 512
    return None


def open_window(source: Source, budget: Budget) -> tuple[Window, int, int]:
    """Return the window on an HDF5 file, the address of its root group's header, and its end.

    Raises:
        FormatError: there is no such file, or its beginning is damaged.
        SourceError: it cannot be read.
    """
    base = find(source)
    if base is None:
        raise malformed("there is no signature")
    head = bytes(source.read(base, min(_MOST_BYTES, source.size - base)))
    head = head.ljust(_MOST_BYTES, b"\0")  # what is cut is shorter than its end of file says
    version = head[8]
    if version > 3:
        raise malformed("the superblock's version is unknown", "0 to 3", version)
    is_old = version < 2
    record = _OLD if is_old else _NEW
    _, _, *widths = record.unpack_from(head)
    window = Window(source, base, budget, *widths)
    places = window.record(_OLD_PLACES if is_old else _NEW_PLACES)
    start = record.size + (4 if version == 1 else 0)
    stored_base, other, end, *rest = places.unpack_from(head, start)
    if not is_old:
        window.require_sum(head[: start + places.size + 4])
    # The end is told with what lay before the file when it was written.
    if base + end - stored_base > source.size:
        raise malformed("the file is cut", f"{base + end - stored_base} bytes", source.size)
    del other
    return window, rest[-1], base + end - stored_base
