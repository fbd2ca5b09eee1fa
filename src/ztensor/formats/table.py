"""How files of other formats begin: the formats of this package, for `FORMATS` of `io/formats.py`.

A new format is a module in `formats/`, a value here and a line there.
"""

from __future__ import annotations

import re

from ztensor.ext import Format, Look

_HDF5 = b"\x89HDF\r\n\x1a\n"
# An entry in the directory of a zip archive, with the length of its name and the name.
_KERAS_ENTRY = re.compile(rb"PK\x01\x02.{24}\x10\x00.{16}model\.weights\.h5", re.DOTALL)
# A message with its schema's version, 1, as the first field and a message that begins with another
# message as the second. An ONNX model has a program's name there.
SAVED_MODEL = re.compile(rb"\x08\x01\x12[\x80-\xff]{0,4}[\x00-\x7f]\x0a", re.DOTALL)


# --- How their bytes begin ------------------------------------------------------------------


def _is_safetensors(look: Look) -> bool:
    # Behind eight bytes of its length, of which no real header needs the last two.
    return look.head[6:9] == b"\0\0{"


def _is_keras(look: Look) -> bool:
    return look.head.startswith(b"PK\3\4") and _KERAS_ENTRY.search(look.tail) is not None


def _is_npz(look: Look) -> bool:
    # An archive of .npy files, or one of nothing at all, perhaps with a comment.
    head = look.head
    if not head.startswith(b"PK\3\4"):
        return head.startswith(b"PK\5\6") and look.size <= 22 + 0xFFFF
    if head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy"):
        return True
    return not _is_pt(look) and b".npy" in look.tail


def _is_npy(look: Look) -> bool:
    return look.head.startswith(b"\x93NUMPY")


def _is_pt(look: Look) -> bool:
    head = look.head
    if head.startswith(b"PK\3\4"):
        # Any member may be the first; all names are at the end.
        return b"/data.pkl" in head or b"/data.pkl" in look.tail
    if head[257:262] == b"ustar":
        return head[:100].rstrip(b"\0") in (b"sys_info", b"pickle", b"storages", b"tensors")
    if head.startswith(b"L119547037146038801333356L\n."):  # the magic number in protocol 0
        return True
    # Any pickle, so that the error says that nothing was executed. Zeros without a frame are the
    # length of a safetensors header.
    is_pickle = head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return is_pickle and (head[2:3] == b"\x95" or any(head[5:8]))


def _is_gguf(look: Look) -> bool:
    return look.head.startswith(b"GGUF")


def _is_hdf5(look: Look) -> bool:
    # At 0, 512, 1024, 2048, ...: a user block may precede it.
    if look.head.startswith(_HDF5):
        return True
    place = 512
    while place + len(_HDF5) <= look.size:
        if look.read(place, len(_HDF5)) == _HDF5:
            return True
        place *= 2
    return False


def _is_onnx(look: Look) -> bool:
    # A protobuf message: a version below 128, then a field that a ModelProto has next.
    head = look.head
    if SAVED_MODEL.match(head):
        return False
    is_versioned = head[:1] == b"\x08" and b"\0" < head[1:2] < b"\x80"
    return is_versioned and len(head) > 2 and head[2] in b"\x12\x1a\x22\x28\x32\x3a\x42\x72"


# --- The lines ------------------------------------------------------------------------------

SAFETENSORS = Format(
    "safetensors",
    (".safetensors",),
    _is_safetensors,
    "ztensor.formats.safetensors",
    editing="ztensor.formats.editing.safetensors",
)
KERAS = Format("Keras", (".keras",), _is_keras, "ztensor.formats.keras", is_written=False)
NPZ = Format("NumPy", (".npz",), _is_npz, "ztensor.formats.npz")
NPY = Format("NumPy", (".npy",), _is_npy, "ztensor.formats.npy")
PT = Format(
    "PyTorch",
    (".pt", ".pth"),
    _is_pt,
    "ztensor.formats.pt",
    is_written=False,
    also=(".bin", ".ckpt"),
)
GGUF = Format(
    "GGUF",
    (".gguf",),
    _is_gguf,
    "ztensor.formats.gguf",
    merges_attributes=True,
    editing="ztensor.formats.editing.gguf",
)
HDF5 = Format("HDF5", (".h5", ".hdf5"), _is_hdf5, "ztensor.formats.hdf5")
ONNX = Format("ONNX", (".onnx",), _is_onnx, "ztensor.formats.onnx", is_written=False)
