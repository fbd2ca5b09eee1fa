"""Files of other formats, projected onto our `Manifest`: one file a format.

`base.py` says what such a file gives. Behind it everything works on these files as on our own:
mapping, slices, verify, every framework, every verb. `FORMATS` is the table; a file's bytes decide,
never its name. No format's library is needed to read it, and nothing in a file is ever executed. A
module that can also write its format has `export`.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from ztensor.foreign.base import Format, Projection, Recipe
from ztensor.foreign.lookalikes import SAVED_MODEL
from ztensor.limits import Budget
from ztensor.model.account import UNREAD, Tally
from ztensor.model.dtype import STORAGE_TYPES
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from ztensor.limits import Limits
    from ztensor.model.account import Unrepresented
    from ztensor.source.base import Source

# What the formats are recognised by lies in a file's first bytes.
_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 16
_HDF5 = b"\x89HDF\r\n\x1a\n"
# An entry in the directory of a zip archive, with the length of its name and the name.
_KERAS_ENTRY = re.compile(rb"PK\x01\x02.{24}\x10\x00.{16}model\.weights\.h5", re.DOTALL)


def _is_safetensors(head: bytes, source: Source) -> bool:
    # Behind eight bytes of its length, of which no real header needs the last two.
    return head[6:9] == b"\0\0{"


def _is_npy(head: bytes, source: Source) -> bool:
    return head.startswith(b"\x93NUMPY")


def _is_npz(head: bytes, source: Source) -> bool:
    # An archive of .npy files, or one of nothing at all, perhaps with a comment.
    if not head.startswith(b"PK\3\4"):
        return head.startswith(b"PK\5\6") and source.size <= 22 + 0xFFFF
    if head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy"):
        return True
    return not _is_pt(head, source) and b".npy" in _tail(source)


def _is_gguf(head: bytes, source: Source) -> bool:
    return head.startswith(b"GGUF")


def _is_hdf5(head: bytes, source: Source) -> bool:
    # At 0, 512, 1024, 2048, ...: before it lies what the file's user put there.
    if head.startswith(_HDF5):
        return True
    place = 512
    while place + len(_HDF5) <= source.size:
        if bytes(read_bytes(source, place, len(_HDF5))) == _HDF5:
            return True
        place *= 2
    return False


def _is_pt(head: bytes, source: Source) -> bool:
    if head.startswith(b"PK\3\4"):
        # Which member comes first differs; all names are at the end.
        return b"/data.pkl" in head or b"/data.pkl" in _tail(source)
    if head[257:262] == b"ustar":
        return head[:100].rstrip(b"\0") in (b"sys_info", b"pickle", b"storages", b"tensors")
    if head.startswith(b"L119547037146038801333356L\n."):  # the magic number in protocol 0
        return True
    # Any pickle: who meets one should be told that nothing of it was executed. Without a frame,
    # zeros would be those of another format's length.
    is_pickle = head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return is_pickle and (head[2:3] == b"\x95" or any(head[5:8]))


def _is_keras(head: bytes, source: Source) -> bool:
    return head.startswith(b"PK\3\4") and _KERAS_ENTRY.search(_tail(source)) is not None


def _tail(source: Source) -> bytes:
    """Return a file's last bytes, where archives have the names of their members."""
    length = min(_TAIL_BYTES, source.size)
    return bytes(read_bytes(source, source.size - length, length))


def _is_onnx(head: bytes, source: Source) -> bool:
    # A protobuf message: a version below 128, then a field that a ModelProto has next.
    if SAVED_MODEL.match(head):
        return False
    is_versioned = head[:1] == b"\x08" and b"\0" < head[1:2] < b"\x80"
    return is_versioned and len(head) > 2 and head[2] in b"\x12\x1a\x22\x28\x32\x3a\x42\x72"


# In this order, the surest signs first.
FORMATS: list[Recipe] = [
    Recipe("safetensors", "ztensor.foreign.safetensors", _is_safetensors),
    Recipe("npy", "ztensor.foreign.npy", _is_npy),
    Recipe("keras", "ztensor.foreign.keras", _is_keras),
    Recipe("npz", "ztensor.foreign.npz", _is_npz),
    Recipe("pt", "ztensor.foreign.pt", _is_pt),
    Recipe("gguf", "ztensor.foreign.gguf", _is_gguf),
    Recipe("hdf5", "ztensor.foreign.hdf5", _is_hdf5),
    Recipe("onnx", "ztensor.foreign.onnx", _is_onnx),
]


def recognised(source: Source) -> Recipe | None:
    """Return the format a file's bytes are of, or None where it is none of the table.

    Raises:
        SourceError: it cannot be read.
    """
    head = bytes(read_bytes(source, 0, min(_HEAD_BYTES, source.size)))
    return next((recipe for recipe in FORMATS if recipe.recognises(head, source)), None)


def project(source: Source, limits: Limits) -> Projection | None:
    """Return what a file of another format holds, or None where it is of no format known here.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it holds what this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    recipe = recognised(source)
    if recipe is None:
        return None
    module: Format = importlib.import_module(recipe.module)
    found = module.project(source, Budget(limits, source.size))
    return found._replace(account=lambda: _whole_account(found))


def _whole_account(found: Projection) -> list[Unrepresented]:
    """Return what a file says beyond what is given of it, what is listed only among it."""
    tally = Tally()
    tally.extend(found.account())
    for name, tensor_object in found.manifest.objects.items():
        for component in tensor_object.components.values():
            encoding = found.encodings.get(component.encoding)
            is_absent = encoding is None or getattr(encoding, "is_absent", False)
            if is_absent or component.dtype not in STORAGE_TYPES:
                tally.add(f"{UNREAD} {component.dtype}", name, nbytes=component.length or None)
    return tally()


__all__ = ["FORMATS", "Format", "Projection", "Recipe", "project", "recognised"]
