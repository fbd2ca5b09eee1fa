"""Arrays out of `.npy` and `.npz` files, one at a time; nothing in them is executed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

from ztensor.cli.changing import size_of
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    SourceError,
    SourceNotRegularError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ztensor.writing.writer import ObjectSink

    Kind = Literal["npy", "npz", "zt"]

# Elements handed on at a time, so that progress is seen and copies stay small.
_PIECE_BYTES = 8 << 20


def kind_of(path: Path) -> Kind:
    """Return what a file is by its first bytes; what is no file of NumPy is taken for one of ours.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait, and eat what it gives
            raise SourceNotRegularError(
                "cannot open for reading", file=str(path), expected="a regular file"
            )
        with path.open("rb") as file:
            head = file.read(6)
    except SourceError:
        raise
    except OSError as error:
        raise SourceError.from_os(error, "cannot open for reading", str(path)) from error
    if head == b"\x93NUMPY":
        return "npy"
    return "npz" if head.startswith(b"PK") else "zt"


def read_npy(path: Path) -> Any:
    """Return the array of a `.npy` file, mapped where it can be.

    Raises:
        ArgumentValueError: it is a file of another kind.
        FormatError: it is damaged.
        NotRepresentableError: it holds Python objects.
        SourceError: it cannot be read.
    """
    import numpy as np

    if kind_of(path) != "npy":
        raise ArgumentValueError("not one array", file=str(path), expected="a .npy file")
    with _reading(path, ".npy"):
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except ValueError:  # it has no elements, which cannot be mapped, or is damaged
            return np.load(path, allow_pickle=False)


def read_npz(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and arrays of a `.npz` file.

    Raises:
        FormatError: it is damaged, or holds something that is no array.
        NotRepresentableError: it holds Python objects.
        SourceError: it cannot be read.
    """
    import numpy as np

    with _reading(path, ".npz"):
        archive = np.load(path, allow_pickle=False)
    with archive:
        for name in archive.files:
            with _reading(path, ".npz"):
                array = archive[name]
            if not isinstance(array, np.ndarray):
                raise FormatError("a member is no array", file=str(path), object_name=name)
            yield name, array


def array_nbytes(path: Path, kind: Kind) -> int:
    """Return about how many bytes of arrays a file holds, for progress."""
    if kind != "npz":
        return size_of(path)
    import zipfile

    with _reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


@contextlib.contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # whatever zip, zlib and NumPy raise on damage
        if isinstance(error, OSError) and error.errno is not None:
            raise SourceError.from_os(error, "cannot read", str(path)) from error
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            raise NotRepresentableError(
                "it holds Python objects, which are never unpickled and have no type here",
                file=str(path),
            ) from error
        raise FormatError(f"cannot be read as {kind}: {error}", file=str(path)) from error


def store(sink: ObjectSink, array: Any, report: Callable[[int], None]) -> None:
    """Write an array of any memory layout into a stream, and report the bytes of each piece."""
    with sink:
        if array.flags.c_contiguous:
            array = array.reshape(-1)
        rows = len(array)
        step = max(1, _PIECE_BYTES * rows // max(array.nbytes, 1))
        for start in range(0, rows, step):
            piece = array[start : start + step]
            sink.write(piece)
            report(piece.nbytes)
