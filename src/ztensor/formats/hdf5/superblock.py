"""The superblock of an HDF5 file: its place, the widths of addresses, the root's address."""

from __future__ import annotations

from ztensor.ext import Source
from ztensor.formats.hdf5.window import Fields, Window, malformed
from ztensor.limits import Budget

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_BYTES = 256  # of a superblock of any version


def find(source: Source) -> int | None:
    """Return the offset of the signature: 0, 512, 1024, 2048 and so on; None if there is none."""
    place = 0
    while place + len(SIGNATURE) <= source.size:
        if bytes(source.read(place, len(SIGNATURE))) == SIGNATURE:
            return place
        place = place * 2 or 512
    return None


def open_window(source: Source, budget: Budget) -> tuple[Window, int, int]:
    """Return the window on an HDF5 file, the address of its root group's header, and its end.

    Raises:
        FormatError: it is not an HDF5 file, or its superblock is damaged.
        SourceError: it cannot be read.
    """
    base = find(source)
    if base is None:
        raise malformed("no signature")
    head = bytes(source.read(base, min(_MOST_BYTES, source.size - base)))
    head = head.ljust(_MOST_BYTES, b"\0")  # the end of file below shows whether it is cut
    version = head[8]
    if version > 3:
        raise malformed("the superblock's version is unknown", "0 to 3", version)
    is_old = version < 2
    window = Window(source, base, budget, *(head[13:15] if is_old else head[9:11]))
    fields = Fields(window, head, {0: 24, 1: 28}.get(version, 12))
    # Base address, another, end of file; in the old ones a fourth and the name of the root.
    stored_base, _, end, *_, root = fields.take("OOO OOO" if is_old else "OOO O")
    if not is_old:
        window.require_sum(head[: fields.at + 4])
    # The stored end of file includes the user block of the time of writing.
    if base + end - stored_base > source.size:
        raise malformed("the file is cut", f"{base + end - stored_base} bytes", source.size)
    return window, root, base + end - stored_base
