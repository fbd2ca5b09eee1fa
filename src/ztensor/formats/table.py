"""The table of formats: how each is called, recognised, read and written.

Everything that tells formats apart looks here: the suffix decides what is written, the bytes decide
what is read. A new format is a module in `formats/` and a line of `FORMATS`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ArgumentValueError, describe
from ztensor.locks import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 16
_HDF5 = b"\x89HDF\r\n\x1a\n"
# An entry in the directory of a zip archive, with the length of its name and the name.
# The first name in the pickle is that of the record that has all others.
_DCP_RECORD = re.compile(
    rb"\x80[\2-\5].{0,20}(?:torch\.distributed\.[a-z_.]*checkpoint\.metadata|"
    rb"megatron\.core\.dist_checkpointing\.strategies\.torch).{1,12}(?:MCore)?Metadata",
    re.DOTALL,
)
_KERAS_ENTRY = re.compile(rb"PK\x01\x02.{24}\x10\x00.{16}model\.weights\.h5", re.DOTALL)
# A message whose first field is the version of its schema, 1, and whose second is a message that
# begins with one: what an ONNX model has there is the name of a program.
SAVED_MODEL = re.compile(rb"\x08\x01\x12[\x80-\xff]{0,4}[\x00-\x7f]\x0a", re.DOTALL)


class Look:
    """What a format is recognised by: a file's first bytes, and others where they do not tell.

    Args:
        size: how long the file is.
        read: gives bytes of it from an offset on, as many as asked for.
    """

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self.size = size
        self.read = read
        self.head = read(0, min(_HEAD_BYTES, size))

    @cached_property
    def tail(self) -> bytes:
        """The last bytes, where archives have the names of their members."""
        length = min(_TAIL_BYTES, self.size)
        return self.read(self.size - length, length)


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


def _is_dcp(look: Look) -> bool:
    # The pickle of a record of torch's: the file `.metadata` of a folder.
    return _DCP_RECORD.match(look.head) is not None


def _is_pt(look: Look) -> bool:
    head = look.head
    if head.startswith(b"PK\3\4"):
        # Which member comes first differs; all names are at the end.
        return b"/data.pkl" in head or b"/data.pkl" in look.tail
    if head[257:262] == b"ustar":
        return head[:100].rstrip(b"\0") in (b"sys_info", b"pickle", b"storages", b"tensors")
    if head.startswith(b"L119547037146038801333356L\n."):  # the magic number in protocol 0
        return True
    # Any pickle: who meets one should be told that nothing of it was executed. Without a frame,
    # zeros would be those of another format's length.
    is_pickle = head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return is_pickle and (head[2:3] == b"\x95" or any(head[5:8]))


def _is_gguf(look: Look) -> bool:
    return look.head.startswith(b"GGUF")


def _is_hdf5(look: Look) -> bool:
    # At 0, 512, 1024, 2048, ...: before it lies what the file's user put there.
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


# --- The table ------------------------------------------------------------------------------


class Format(NamedTuple):
    """A format that is not ours.

    Attributes:
        program: what people call it, or the program whose files they are.
        suffixes: how its files are called; the first is what a new one gets. A file of ours under
            such a name would lie.
        is_recognised: whether a file is of this format.
        module: has `project`, which reads it, and `export` where it is written; imported when the
            first such file is met.
        is_written: whether there is an `export`.
        also: suffixes that its files have, and others too.
    """

    program: str
    suffixes: tuple[str, ...]
    is_recognised: Callable[[Look], bool]
    module: str
    is_written: bool = True
    also: tuple[str, ...] = ()


# In this order they are tried.
FORMATS: dict[str, Format] = {
    "safetensors": Format(
        "safetensors", (".safetensors",), _is_safetensors, "ztensor.formats.safetensors"
    ),
    "keras": Format("Keras", (".keras",), _is_keras, "ztensor.formats.keras", is_written=False),
    "npz": Format("NumPy", (".npz",), _is_npz, "ztensor.formats.npz"),
    "npy": Format("NumPy", (".npy",), _is_npy, "ztensor.formats.npy"),
    "dcp": Format(
        "torch.distributed.checkpoint",
        (".distcp",),
        _is_dcp,
        "ztensor.distributed.dcp",
        is_written=False,
    ),
    "pt": Format(
        "PyTorch",
        (".pt", ".pth"),
        _is_pt,
        "ztensor.formats.pt",
        is_written=False,
        also=(".bin", ".ckpt"),
    ),
    "gguf": Format("GGUF", (".gguf",), _is_gguf, "ztensor.formats.gguf"),
    "hdf5": Format("HDF5", (".h5", ".hdf5"), _is_hdf5, "ztensor.formats.hdf5"),
    "onnx": Format("ONNX", (".onnx",), _is_onnx, "ztensor.formats.onnx", is_written=False),
}


def written_formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that are written, ours first, with their suffixes."""
    others = {name: format.suffixes for name, format in FORMATS.items() if format.is_written}
    return {"zt": (".zt",), **others}


def read_suffixes() -> list[str]:
    """Return what files are called that are read, ours first."""
    suffixes = [s for each in FORMATS.values() for s in (*each.suffixes, *each.also)]
    return [".zt", *suffixes]


def is_read_suffix(path: str) -> bool:
    """Return whether files of this suffix can mostly be read; their bytes say what they are."""
    return _suffix(path) in read_suffixes()


def named_as(path: str) -> str | None:
    """Return the format whose suffix a path has, read or written, or None where there is none."""
    suffix = _suffix(path)
    if suffix == ".zt":
        return "zt"
    return next((name for name, format in FORMATS.items() if suffix in format.suffixes), None)


def format_by_suffix(path: str) -> str | None:
    """Return the format that is written under a path's suffix, or None where there is none."""
    kind = named_as(path)
    return kind if kind in written_formats() else None


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def require_written(kind: str, path: str | None = None) -> str:
    """Return the name of a format, which is one that is written.

    Raises:
        ArgumentValueError: it is none.
    """
    if kind not in written_formats():
        raise ArgumentValueError(
            "unknown format to write",
            file=path or None,
            expected=f"one of {', '.join(written_formats())}",
            found=describe(kind),
        )
    return kind


def written_as(path: str, format: str | None = None) -> str:  # the word of the public functions
    """Return the format that tensors saved at a path are written in.

    Args:
        path: the new file.
        format: what the caller asks for, which wins; None for what the suffix says. Any suffix
            that is none of another format's is ours.

    Raises:
        ArgumentValueError: `format` is none that is written, or the suffix is of one that is only
            read.
    """
    if format is not None:
        return require_written(format, path)
    kind = named_as(path) or "zt"
    if kind not in written_formats():
        error = ArgumentValueError(
            f"files of {FORMATS[kind].program} are not written here, and a file of another format "
            "should not be called like one",
            file=path,
            expected="a suffix such as "
            + ", ".join(first for first, *_ in written_formats().values()),
            found=describe(_suffix(path)),
        )
        error.hint = 'format="zt" writes a zTensor file under that name all the same'
        raise error
    return kind


def require_ours(path: str, format: str | None = None) -> None:
    """Raise where what is written object by object would be a zTensor file under another's name.

    Raises:
        ArgumentValueError: the suffix is of another format.
    """
    kind = written_as(path, format)
    if kind != "zt":
        error = ArgumentValueError(
            "this writes zTensor files only",
            file=path,
            expected="a path that ends with .zt",
            found=describe(_suffix(path) if format is None else format),
        )
        error.hint = (
            f"save_file(tensors, path) writes {kind} from a dict, ztensor.convert from a file; "
            'format="zt" writes a zTensor file under that name all the same'
        )
        raise error
