"""How files of each format are called: the suffix decides what is written, never what is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

# The first of each is what a new file is called. `foreign/` writes all but ours.
SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "zt": (".zt",),
    "safetensors": (".safetensors",),
    "npz": (".npz",),
    "npy": (".npy",),
    "gguf": (".gguf",),
    "hdf5": (".h5", ".hdf5"),
}
# Of programs whose files are read and not written: a file of ours under such a name would lie.
READ_ONLY: Mapping[str, tuple[str, ...]] = {
    "PyTorch": (".pt", ".pth"),
    "Keras": (".keras",),
    "ONNX": (".onnx",),
}
# What files that can be read are called most often; their bytes say what they are.
READ_SUFFIXES = frozenset(
    suffix for table in (SUFFIXES, READ_ONLY) for suffixes in table.values() for suffix in suffixes
) | {".bin", ".ckpt"}


def require_written(kind: str, path: str | None = None) -> str:
    """Return the name of a format, which is one that is written.

    Raises:
        ArgumentValueError: it is none.
    """
    if kind not in SUFFIXES:
        raise ArgumentValueError(
            "unknown format to write",
            file=path or None,
            expected=f"one of {', '.join(SUFFIXES)}",
            found=describe(kind),
        )
    return kind


def format_by_suffix(path: str) -> str | None:
    """Return the format that is written under a path's suffix, or None where there is none."""
    suffix = os.path.splitext(path)[1].lower()
    return next((name for name, suffixes in SUFFIXES.items() if suffix in suffixes), None)


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
    suffix = os.path.splitext(path)[1].lower()
    for program, suffixes in READ_ONLY.items():
        if suffix in suffixes:
            error = ArgumentValueError(
                f"files of {program} are not written here, and a file of another format should "
                "not be called like one",
                file=path,
                expected=f"a suffix such as {', '.join(first for first, *_ in SUFFIXES.values())}",
                found=describe(suffix),
            )
            error.hint = 'format="zt" writes a zTensor file under that name all the same'
            raise error
    return format_by_suffix(path) or "zt"


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
            found=describe(os.path.splitext(path)[1] if format is None else format),
        )
        error.hint = (
            f"save_file(tensors, path) writes {kind} from a dict, ztensor.convert from a file; "
            'format="zt" writes a zTensor file under that name all the same'
        )
        raise error
